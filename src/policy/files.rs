//! The policy files of this machine.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::{MACHINE_FILE, MAX_POLICY_BYTES, PROJECT_FILE, PolicyError};
use crate::regular;

/// Whose word a policy is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// The machine's administrator.
    Machine,
    /// The user.
    User,
    /// The program that uses this library.
    Program,
    /// A project's own files, which may only tighten.
    Project,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Machine => "machine",
            Self::User => "user",
            Self::Program => "program",
            Self::Project => "project",
        })
    }
}

/// One policy that was looked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PolicyFile {
    /// Whose word it is.
    pub level: Level,
    /// The file, or where else the text came from.
    pub path: PathBuf,
    /// Whether it is there. One that isn't does not count.
    pub is_there: bool,
}

impl fmt::Display for PolicyFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = if self.is_there { "read" } else { "not there" };
        write!(f, "{} ({}, {state})", self.path.display(), self.level)
    }
}

/// Where the policies stand.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicyFiles {
    /// The machine's, by default [`MACHINE_FILE`].
    pub machine: Option<PathBuf>,
    /// The user's. `None`: there is no home folder.
    pub user: Option<PathBuf>,
    /// Whether the user's file was named, as by `KERNELHUB_POLICY`: then it has to be there.
    pub user_is_named: bool,
    /// The project's.
    pub project: Option<PathBuf>,
}

impl PolicyFiles {
    /// The machine's policy alone.
    #[must_use]
    pub fn of_machine() -> Self {
        Self { machine: Some(PathBuf::from(MACHINE_FILE)), ..Self::default() }
    }

    /// The same, with the policy of the project in a folder.
    #[must_use]
    pub fn with_project(mut self, folder: &Path) -> Self {
        self.project = Some(folder.join(PROJECT_FILE));
        self
    }

    /// The files in the order in which they are read, each with whether it has to be there.
    pub(super) fn each(&self) -> impl Iterator<Item = (Level, &Path, bool)> {
        [
            (Level::Machine, self.machine.as_deref(), false),
            (Level::User, self.user.as_deref(), self.user_is_named),
            (Level::Project, self.project.as_deref(), false),
        ]
        .into_iter()
        .filter_map(|(level, path, is_named)| Some((level, path?, is_named)))
    }
}

/// The text of a policy file, or `None` where there is none.
pub(super) fn read(path: &Path) -> Result<Option<String>, PolicyError> {
    let failed = |source| PolicyError::Io { action: "read", path: path.to_path_buf(), source };
    let file = match regular::open(path) {
        Ok(file) => file,
        // A folder in its path may be a file, which holds no policy either.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(failed(error)),
    };
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        if file.metadata().map_err(failed)?.mode() & 0o002 != 0 {
            return Err(PolicyError::Writable { path: path.to_path_buf() });
        }
    }
    let text = match regular::read_open(file, MAX_POLICY_BYTES) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
            return Err(PolicyError::TooLarge { path: path.to_path_buf(), maximum: MAX_POLICY_BYTES });
        }
        Err(error) => return Err(failed(error)),
    };
    String::from_utf8(text).map(Some).map_err(|_| failed(io::Error::new(io::ErrorKind::InvalidData, "expected UTF-8")))
}
