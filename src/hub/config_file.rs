//! A configuration beside a model's weights.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::hint::Hint;
use crate::regular;
use crate::swap::{KernelConfig, SwapError};

/// The file that a model's folder has its configuration in.
pub const CONFIG_FILE: &str = "kernels.toml";

/// Largest configuration that is read, in bytes.
const MAX_BYTES: u64 = 4 << 20;

/// A configuration that could not be read from a file, or written to one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigFileError {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The file cannot be written. What was there before is as it was.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The name does not say what the file holds.
    #[error("{} is neither a .toml nor a .json file", path.display())]
    Kind {
        /// The file.
        path: PathBuf,
    },
    /// The file's text is no configuration.
    #[error(transparent)]
    Config(#[from] SwapError),
}

impl Hint for ConfigFileError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Config(source) => source.hint(),
            _ => None,
        }
    }
}

impl KernelConfig {
    /// Writes the configuration into a model's folder, as [`CONFIG_FILE`] beside the weights. Returns the file's path.
    /// A file that was there is replaced whole or not at all.
    ///
    /// # Errors
    /// [`ConfigFileError::Write`].
    pub fn save(&self, folder: impl AsRef<Path>) -> Result<PathBuf, ConfigFileError> {
        let folder = folder.as_ref();
        let path = folder.join(CONFIG_FILE);
        let failed = |source| ConfigFileError::Write { path: path.clone(), source };
        let mut file = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
        file.write_all(self.to_toml().as_bytes()).map_err(failed)?;
        file.as_file().sync_all().map_err(failed)?;
        readable_by_all(file.as_file()).map_err(failed)?;
        file.persist(&path).map_err(|error| failed(error.error))?;
        Ok(path)
    }

    /// Reads the configuration of a model's folder. `None`: it has none.
    ///
    /// # Errors
    /// [`ConfigFileError::Read`], and [`ConfigFileError::Config`] for a text that is no configuration.
    pub fn load(folder: impl AsRef<Path>) -> Result<Option<Self>, ConfigFileError> {
        let path = folder.as_ref().join(CONFIG_FILE);
        match Self::open(&path) {
            Err(ConfigFileError::Read { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Ok(None),
            other => other.map(Some),
        }
    }

    /// Reads a file `*.toml` or `*.json`.
    ///
    /// # Errors
    /// [`ConfigFileError::Read`], [`ConfigFileError::Kind`] for another name, and [`ConfigFileError::Config`] for a
    /// text that is no configuration.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, ConfigFileError> {
        let path = path.as_ref();
        let is = |kind: &str| path.extension().is_some_and(|extension| extension == kind);
        if !is("toml") && !is("json") {
            return Err(ConfigFileError::Kind { path: path.to_path_buf() });
        }
        let text = regular::read_text(path, MAX_BYTES)
            .map_err(|source| ConfigFileError::Read { path: path.to_path_buf(), source })?;
        let origin = path.display().to_string();
        Ok(if is("toml") { Self::from_toml(&text, &origin)? } else { Self::from_json(&text, &origin)? })
    }
}

/// Files that are made for a while are their maker's alone; this one lies beside weights that others may read.
#[cfg(unix)]
fn readable_by_all(file: &std::fs::File) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    file.set_permissions(std::fs::Permissions::from_mode(0o644))
}

#[cfg(not(unix))]
fn readable_by_all(_: &std::fs::File) -> std::io::Result<()> {
    Ok(())
}
