//! The kernels that a project declares, and its lock files.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::LockError;
use crate::hub::Hub;
use crate::manifest::{
    Dependency, KernelVersion, KernelsLock, LOCK_FILE, LockSidecar, MAX_LOCK_BYTES, SIDECAR_FILE, cargo_kernels,
    pyproject_kernels,
};
use crate::regular;
use crate::swap::KernelConfig;

const CARGO: &str = "Cargo.toml";
const PYPROJECT: &str = "pyproject.toml";
/// Largest project file that is read, in bytes.
const MAX_PROJECT_BYTES: u64 = 4 << 20;

/// A project: where its lock files are, and which kernels it declares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Project {
    folder: PathBuf,
    /// The files that declared something.
    sources: Vec<PathBuf>,
    dependencies: Vec<Dependency>,
}

/// Both lock files of a project.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Locks {
    /// `kernels.lock`.
    pub kernels: KernelsLock,
    /// `kernelhub.lock`. Empty when a project has none, as after a lock by the Python tool.
    pub sidecar: LockSidecar,
}

impl Project {
    /// Reads what a project declares.
    ///
    /// `path` is a folder, of which `Cargo.toml` and `pyproject.toml` are read, or one such file, or a `KernelConfig`
    /// (another `.toml`, or a `.json`). An entry of a `KernelConfig` without a version takes the one of the hub's
    /// default table.
    ///
    /// # Errors
    /// [`LockError::Io`] and [`LockError::TooLarge`] for a file that cannot be read, [`LockError::NoProject`] for a
    /// folder without either file, [`LockError::NothingDeclared`], [`LockError::Format`] and [`LockError::Config`] for
    /// a file outside its format or two that disagree, [`LockError::Hub`] for a kernel without a version.
    pub fn read(path: &Path, hub: &Hub) -> Result<Self, LockError> {
        let (folder, files) = if path.is_dir() {
            let files: Vec<PathBuf> =
                [CARGO, PYPROJECT].iter().map(|name| path.join(name)).filter(|file| file.exists()).collect();
            if files.is_empty() {
                return Err(LockError::NoProject { folder: path.to_path_buf() });
            }
            (path.to_path_buf(), files)
        } else {
            (folder_of(path), vec![path.to_path_buf()])
        };
        let mut project = Self { folder, sources: Vec::new(), dependencies: Vec::new() };
        for file in &files {
            project.add_file(file, hub)?;
        }
        if project.dependencies.is_empty() {
            return Err(LockError::NothingDeclared { files });
        }
        project.dependencies.sort();
        Ok(project)
    }

    /// The folder of the lock files.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The declared kernels, sorted by repo.
    #[must_use]
    pub fn dependencies(&self) -> &[Dependency] {
        &self.dependencies
    }

    /// The files that declared them.
    #[must_use]
    pub fn sources(&self) -> &[PathBuf] {
        &self.sources
    }

    fn add_file(&mut self, file: &Path, hub: &Hub) -> Result<(), LockError> {
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        match name {
            CARGO => self.add_cargo(file, hub),
            PYPROJECT => {
                let text = read_text(file, MAX_PROJECT_BYTES)?.ok_or_else(|| absent(file))?;
                let declared = pyproject_kernels(&text, &file.display().to_string())?;
                self.add(declared.unwrap_or_default(), file)
            }
            _ => self.add_config(file, hub),
        }
    }

    fn add_cargo(&mut self, file: &Path, hub: &Hub) -> Result<(), LockError> {
        let text = read_text(file, MAX_PROJECT_BYTES)?.ok_or_else(|| absent(file))?;
        let Some(kernels) = cargo_kernels(&text, &file.display().to_string())? else { return Ok(()) };
        self.add(kernels.dependencies, file)?;
        for config in kernels.configs {
            self.add_config(&folder_of(file).join(config), hub)?;
        }
        Ok(())
    }

    fn add_config(&mut self, file: &Path, hub: &Hub) -> Result<(), LockError> {
        let text = read_text(file, MAX_PROJECT_BYTES)?.ok_or_else(|| absent(file))?;
        let origin = file.display().to_string();
        let config = match file.extension().and_then(|extension| extension.to_str()) {
            Some("toml") => KernelConfig::from_toml(&text, &origin)?,
            Some("json") => KernelConfig::from_json(&text, &origin)?,
            _ => return Err(LockError::UnknownFile { file: file.to_path_buf() }),
        };
        let mut kernels = BTreeSet::new();
        for kernel in config.kernels() {
            // A folder of this machine is no publication to pin.
            let Some(repo) = kernel.repo() else { continue };
            let revision = match kernel.revision() {
                Some(revision) => revision.clone(),
                None => hub.default_revision(repo)?,
            };
            kernels.insert((repo.clone(), revision));
        }
        let dependencies = kernels.into_iter().map(|(repo, revision)| {
            let version = match revision.version() {
                Some(version) => KernelVersion::Version(version),
                None => KernelVersion::Revision(revision.to_string()),
            };
            Dependency { repo, version, variants: Vec::new() }
        });
        self.add(dependencies.collect(), file)
    }

    fn add(&mut self, dependencies: Vec<Dependency>, file: &Path) -> Result<(), LockError> {
        if !dependencies.is_empty() {
            self.sources.push(file.to_path_buf());
        }
        for dependency in dependencies {
            dependency.add_to(&mut self.dependencies, &file.display().to_string())?;
        }
        Ok(())
    }
}

impl Locks {
    /// The folder of a project's lock files: the folder itself, or the one of a file.
    ///
    /// # Errors
    /// [`LockError::Io`] when nothing is there.
    pub fn folder(path: &Path) -> Result<PathBuf, LockError> {
        let metadata = fs::metadata(path).map_err(LockError::io("find", path))?;
        Ok(if metadata.is_dir() { path.to_path_buf() } else { folder_of(path) })
    }

    /// Reads the lock files in a folder.
    ///
    /// # Errors
    /// [`LockError::NotLocked`] without either file, [`LockError::Format`] for one outside its format and for two that
    /// disagree, [`LockError::Io`] and [`LockError::TooLarge`] for one that cannot be read.
    pub fn read(folder: &Path) -> Result<Self, LockError> {
        let folder = folder.to_path_buf();
        let (lock, sidecar) = (folder.join(LOCK_FILE), folder.join(SIDECAR_FILE));
        let texts = (read_text(&lock, MAX_LOCK_BYTES)?, read_text(&sidecar, MAX_LOCK_BYTES)?);
        if let (None, None) = texts {
            return Err(LockError::NotLocked { folder });
        }
        let kernels = match &texts.0 {
            Some(text) => KernelsLock::parse(text.as_bytes(), &lock.display().to_string())?,
            None => KernelsLock::default(),
        };
        let sidecar = match &texts.1 {
            Some(text) => LockSidecar::parse(text, &sidecar.display().to_string())?,
            None => LockSidecar::default(),
        };
        let locks = Self { kernels, sidecar };
        locks.check(&folder)?;
        Ok(locks)
    }

    /// Writes both files, each by one rename; `kernels.lock` is left out where no kernel of the Hub is locked, and what
    /// stood there is removed. Files that hold the same text already are not touched. Returns whether anything changed.
    ///
    /// # Errors
    /// [`LockError::Format`] when the values are outside the formats, [`LockError::Io`].
    pub fn write(&self, folder: &Path) -> Result<bool, LockError> {
        let sidecar = write_if_changed(&folder.join(SIDECAR_FILE), &self.sidecar.to_toml()?)?;
        let place = folder.join(LOCK_FILE);
        if !self.kernels.kernels.is_empty() {
            return Ok(write_if_changed(&place, &self.kernels.to_json()?)? || sidecar);
        }
        match fs::remove_file(&place) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(sidecar),
            Err(source) => Err(LockError::io("remove", &place)(source)),
        }
    }

    /// Whether the two files speak of the same kernels: each kernel of the Hub in the sidecar stands in the lock, with
    /// the same commit.
    pub(super) fn check(&self, folder: &Path) -> Result<(), LockError> {
        let origin = folder.display().to_string();
        let mut covered = 0;
        for kernel in &self.kernels.kernels {
            covered += usize::from(self.sidecar.pinned(kernel, &origin)?.is_some());
        }
        let on_hub = self.sidecar.kernels.iter().filter(|kernel| kernel.manifest().is_none());
        if on_hub.count() != covered {
            return Err(LockError::Disagree { folder: folder.to_path_buf() });
        }
        Ok(())
    }
}

fn absent(file: &Path) -> LockError {
    LockError::io("read", file)(io::ErrorKind::NotFound.into())
}

fn folder_of(file: &Path) -> PathBuf {
    match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
        _ => PathBuf::from("."),
    }
}

/// The text of a file, or `None` where there is none.
pub(super) fn read_text(path: &Path, maximum: u64) -> Result<Option<String>, LockError> {
    match regular::read_text(path, maximum) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
            Err(LockError::TooLarge { file: path.to_path_buf(), maximum })
        }
        Err(source) => Err(LockError::io("read", path)(source)),
    }
}

fn write_if_changed(path: &Path, text: &str) -> Result<bool, LockError> {
    if matches!(read_text(path, MAX_LOCK_BYTES), Ok(Some(standing)) if standing == text) {
        return Ok(false);
    }
    let folder = folder_of(path);
    let mut builder = tempfile::Builder::new();
    builder.prefix(".lock-");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        // A temporary file is private; a project's files are not. The process's umask still counts.
        builder.permissions(fs::Permissions::from_mode(0o666));
    }
    let temporary = builder.tempfile_in(&folder).map_err(LockError::io("make a file in", &folder))?;
    fs::write(temporary.path(), text).map_err(LockError::io("write", temporary.path()))?;
    temporary.persist(path).map_err(|error| LockError::io("write", path)(error.error))?;
    Ok(true)
}
