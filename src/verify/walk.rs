//! What stands in a build's folder, without following a link out of its repo.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::{MAX_FILES, VerifyError};
use crate::digest::{Violation, ViolationKind};
use crate::fetch::Snapshot;
use crate::names::RelativePath;
use crate::regular::{self, NotRegular};

/// The entries of a build's folder.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Files, sorted, each with where its bytes are: in place, or in the repo's blobs.
    pub(super) files: Vec<(RelativePath, PathBuf)>,
    /// Links, devices and names that no build has.
    pub(super) violations: Vec<Violation>,
}

/// Lists a folder and those below it.
pub(super) fn walk(snapshot: &Snapshot) -> Result<Found, VerifyError> {
    let root = snapshot.root();
    // Python leaves its bytecode beside its files. It is nobody's here: not loaded, not part of any digest.
    let has_bytecode = snapshot.anchor().archive_sha256().is_none();
    let mut found = Found::default();
    let mut folders = vec![(root.to_path_buf(), String::new())];
    let mut count = 0;
    while let Some((folder, prefix)) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(io_error("list", &folder))? {
            let entry = entry.map_err(io_error("list", &folder))?;
            count += 1;
            if count > MAX_FILES {
                return Err(VerifyError::TooManyFiles { root: root.to_path_buf(), maximum: MAX_FILES });
            }
            let kind = entry.file_type().map_err(io_error("look at", &entry.path()))?;
            let name = entry.file_name();
            let shown = format!("{prefix}{}", name.to_string_lossy().escape_debug());
            let path = name.to_str().and_then(|name| format!("{prefix}{name}").parse::<RelativePath>().ok());
            match path {
                Some(path) if has_bytecode && is_bytecode(&path) => tracing::trace!(%path, "bytecode is left out"),
                Some(path) if kind.is_file() => found.files.push((path, entry.path())),
                Some(path) if kind.is_symlink() && snapshot.blobs().is_some() => {
                    match place_of(&entry.path(), snapshot.blobs()) {
                        Ok(Some(place)) => found.files.push((path, place)),
                        Ok(None) => found.violations.push(not_a_file(&shown, "a link to elsewhere")),
                        Err(VerifyError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                            found.violations.push(not_a_file(&shown, "a link to nothing"));
                        }
                        Err(error) => return Err(error),
                    }
                }
                Some(path) if kind.is_dir() => folders.push((entry.path(), format!("{path}/"))),
                Some(_) => found.violations.push(not_a_file(&shown, describe(kind))),
                // No digest can list such a name.
                None => found.violations.push(Violation {
                    kind: ViolationKind::FileUnlisted,
                    path: shown,
                    expected: None,
                    actual: Some("a name that no build has".to_owned()),
                }),
            }
        }
    }
    found.files.sort();
    Ok(found)
}

/// Whether Python made the file from another one.
fn is_bytecode(path: &RelativePath) -> bool {
    path.as_str().split('/').any(|part| part == "__pycache__")
        || Path::new(path.as_str()).extension().is_some_and(|extension| extension == "pyc")
}

/// Where the bytes of a file are: the path itself, or for a link the blob that it leads to. `None`: it leads out of the
/// repo's blobs.
pub(super) fn place_of(path: &Path, blobs: Option<&Path>) -> Result<Option<PathBuf>, VerifyError> {
    let kind = path.symlink_metadata().map_err(io_error("look at", path))?.file_type();
    let Some(blobs) = blobs.filter(|_| kind.is_symlink()) else { return Ok(Some(path.to_path_buf())) };
    let place = path.canonicalize().map_err(io_error("follow", path))?;
    let blobs = blobs.canonicalize().map_err(io_error("look at", blobs))?;
    Ok((place.parent() == Some(blobs.as_path())).then_some(place))
}

/// Opens a regular file, without following a link. `None`: it is none.
pub(super) fn open_regular(path: &Path) -> Result<Option<File>, VerifyError> {
    match regular::open_in_place(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if NotRegular::of(&error).is_some() => Ok(None),
        Err(error) => Err(io_error("open", path)(error)),
    }
}

/// What stands at a path in a build's folder.
pub(super) enum Beside {
    /// Nothing.
    Absent,
    /// Something that is no file of the build.
    NotAFile(&'static str),
    /// A regular file, in place or in the repo's blobs.
    File(File),
}

/// Opens one file of a build's folder by the rules of [`walk`].
pub(super) fn open_beside(path: &Path, blobs: Option<&Path>) -> Result<Beside, VerifyError> {
    let opened = match place_of(path, blobs) {
        Ok(None) => return Ok(Beside::NotAFile("a link to elsewhere")),
        Ok(Some(place)) => open_regular(&place),
        Err(error) => Err(error),
    };
    match opened {
        Ok(Some(file)) => Ok(Beside::File(file)),
        Ok(None) => Ok(Beside::NotAFile("something else")),
        Err(VerifyError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(Beside::Absent),
        Err(error) => Err(error),
    }
}

/// The bytes of a file, and one byte more than the limit of a larger one: it then is no text of that kind, and has
/// another digest than its anchored part.
pub(super) fn read_limited(file: File, maximum: u64, path: &Path) -> Result<Vec<u8>, VerifyError> {
    regular::read_start(file, maximum + 1).map_err(io_error("read", path))
}

pub(super) fn not_a_file(path: &str, actual: &str) -> Violation {
    Violation {
        kind: ViolationKind::NotAFile,
        path: path.to_owned(),
        expected: Some("a regular file".to_owned()),
        actual: Some(actual.to_owned()),
    }
}

fn describe(kind: fs::FileType) -> &'static str {
    if kind.is_symlink() { "a symbolic link" } else { "a special file" }
}

pub(super) fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> VerifyError {
    let path: PathBuf = path.to_path_buf();
    move |source| VerifyError::Io { action, path, source }
}
