//! The cache's layout, its locks and its atomic moves. See the room's documentation.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use super::{FetchError, Progress, env};
use crate::digest::Sha256Digest;
use crate::manifest::{Artifact, KernelManifest, MAX_MANIFEST_BYTES, METADATA_FILE};
use crate::names::RepoId;
use crate::variant::Variant;

/// The folder of archives and manifests of this machine.
#[derive(Debug, Clone)]
pub struct Cache {
    root: PathBuf,
}

/// The files of one build on disk. Not yet to be trusted: [`crate::verify::verify`] reads them again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    repo: RepoId,
    version: u32,
    variant: Variant,
    root: PathBuf,
    archive_sha256: Sha256Digest,
    metadata_sha256: Sha256Digest,
}

impl Snapshot {
    /// The kernel's repo.
    #[must_use]
    pub fn repo(&self) -> &RepoId {
        &self.repo
    }

    /// The kernel's version.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The build.
    #[must_use]
    pub fn variant(&self) -> &Variant {
        &self.variant
    }

    /// The folder of the build's files, `.../build/<variant>`, absolute.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The digest of the archive that it came by.
    #[must_use]
    pub fn archive_sha256(&self) -> Sha256Digest {
        self.archive_sha256
    }

    /// What the manifest says that the digest of its `metadata.json` is: the anchor of every other digest.
    #[must_use]
    pub fn metadata_sha256(&self) -> Sha256Digest {
        self.metadata_sha256
    }
}

impl Cache {
    /// The cache that the environment names; see [the room's documentation](super). Makes nothing.
    ///
    /// # Errors
    /// [`FetchError::NoCacheRoot`] without any of the variables and without a home folder.
    pub fn from_env() -> Result<Self, FetchError> {
        env::cache_root(&env::process).ok_or(FetchError::NoCacheRoot).and_then(Self::at)
    }

    /// The cache whose root is this folder. Makes nothing.
    ///
    /// # Errors
    /// [`FetchError::Io`] when a relative path cannot be made absolute.
    pub fn at(root: impl AsRef<Path>) -> Result<Self, FetchError> {
        let root = root.as_ref();
        Ok(Self { root: std::path::absolute(root).map_err(FetchError::io("make absolute", root))? })
    }

    /// The root folder, absolute. It may not exist yet.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The recorded manifest of a version, or `None` where that version was never fetched.
    ///
    /// # Errors
    /// [`FetchError::Manifest`] when the record is damaged, [`FetchError::Io`] when it cannot be read.
    pub fn manifest(&self, repo: &RepoId, version: u32) -> Result<Option<KernelManifest>, FetchError> {
        let path = self.manifest_path(repo, version);
        let Some(text) = read_text(&path)? else { return Ok(None) };
        let location = path.display().to_string();
        let manifest = KernelManifest::parse(&text, &location)
            .and_then(|manifest| {
                if manifest.kernel.repo == *repo && manifest.kernel.version == version {
                    return Ok(manifest);
                }
                Err(crate::manifest::ManifestError::Invalid {
                    origin: location.clone(),
                    field: "kernel".to_owned(),
                    reason: format!(
                        "expected {repo} v{version}, found {} v{}",
                        manifest.kernel.repo, manifest.kernel.version
                    ),
                })
            })
            .map_err(|source| FetchError::Manifest { location, source })?;
        Ok(Some(manifest))
    }

    /// The versions of a kernel whose manifests are recorded, ascending. Empty: none.
    ///
    /// # Errors
    /// [`FetchError::Io`] when the folder cannot be listed.
    pub fn versions(&self, repo: &RepoId) -> Result<Vec<u32>, FetchError> {
        let folder = self.manifest_folder(repo);
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(FetchError::io("list", folder)(error)),
        };
        let mut versions = Vec::new();
        for entry in entries {
            let entry = entry.map_err(FetchError::io("list", &folder))?;
            let name = entry.file_name();
            let version: Option<u32> =
                name.to_str().and_then(|name| name.strip_prefix('v')?.strip_suffix(".toml")?.parse().ok());
            // Only the form that `manifest` looks for: `v01.toml` is no record.
            versions.extend(version.filter(|version| *name == *format!("v{version}.toml")));
        }
        versions.sort_unstable();
        Ok(versions)
    }

    /// Records a manifest, so that its version resolves offline. Writes nothing when it stands there already.
    ///
    /// # Errors
    /// [`FetchError::Io`] when the cache cannot be written, [`FetchError::Manifest`] when the manifest is outside its
    /// format.
    pub fn record_manifest(&self, manifest: &KernelManifest) -> Result<(), FetchError> {
        let path = self.manifest_path(&manifest.kernel.repo, manifest.kernel.version);
        let text = manifest
            .to_toml()
            .map_err(|source| FetchError::Manifest { location: path.display().to_string(), source })?;
        if matches!(read_text(&path), Ok(Some(recorded)) if recorded == text) {
            return Ok(());
        }
        let folder = self.manifest_folder(&manifest.kernel.repo);
        make_folder(&folder)?;
        let mut builder = tempfile::Builder::new();
        builder.prefix(".record-");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            // A temporary file is private; a cache may be shared. The process's umask still counts.
            builder.permissions(fs::Permissions::from_mode(0o666));
        }
        let temporary = builder.tempfile_in(&folder).map_err(FetchError::io("make a file in", &folder))?;
        fs::write(temporary.path(), text).map_err(FetchError::io("write", temporary.path()))?;
        temporary.persist(&path).map_err(|error| FetchError::io("write", &path)(error.error))?;
        Ok(())
    }

    /// The unpacked archive of an artifact, or `None` where it is not in the cache. Reads no content.
    #[must_use]
    pub fn snapshot(&self, manifest: &KernelManifest, artifact: &Artifact) -> Option<Snapshot> {
        let root = self.archive_folder(artifact.sha256).join("build").join(artifact.variant.to_string());
        root.join(METADATA_FILE).symlink_metadata().is_ok().then(|| Snapshot {
            repo: manifest.kernel.repo.clone(),
            version: manifest.kernel.version,
            variant: artifact.variant,
            root,
            archive_sha256: artifact.sha256,
            metadata_sha256: artifact.metadata_sha256,
        })
    }

    /// Waits until this process alone works on an archive, on this machine. The lock ends with the value, or with the
    /// process.
    ///
    /// # Errors
    /// [`FetchError::Io`] when the lock file cannot be made or locked.
    pub(super) fn lock(&self, archive: Sha256Digest, progress: &dyn Progress) -> Result<ArchiveLock, FetchError> {
        let folder = self.root.join("locks");
        make_folder(&folder)?;
        let path = folder.join(format!("{archive}.lock"));
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(FetchError::io("open", &path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                progress.note("another process fetches the same archive; waiting for it");
                file.lock().map_err(FetchError::io("lock", &path))?;
            }
            Err(TryLockError::Error(source)) => return Err(FetchError::io("lock", &path)(source)),
        }
        let lock = ArchiveLock { _file: file, archive, temporary: self.root.join("tmp") };
        lock.sweep()?;
        Ok(lock)
    }

    /// Puts a whole unpacked archive in its final place by one rename, in exchange for what is there.
    pub(super) fn install(&self, unpacked: &Path, lock: &ArchiveLock) -> Result<(), FetchError> {
        let archives = self.root.join("archives");
        make_folder(&archives)?;
        let place = self.archive_folder(lock.archive);
        if place.symlink_metadata().is_err() {
            return fs::rename(unpacked, &place).map_err(FetchError::io("move into place", &place));
        }
        exchange(unpacked, &place).map_err(FetchError::io("replace", &place))
    }

    fn archive_folder(&self, archive: Sha256Digest) -> PathBuf {
        self.root.join("archives").join(archive.to_string())
    }

    fn manifest_folder(&self, repo: &RepoId) -> PathBuf {
        self.root.join("manifests").join(format!("{}--{}", repo.owner(), repo.name()))
    }

    fn manifest_path(&self, repo: &RepoId, version: u32) -> PathBuf {
        self.manifest_folder(repo).join(format!("v{version}.toml"))
    }
}

/// The right to write one archive's entries in the cache.
#[derive(Debug)]
pub(super) struct ArchiveLock {
    _file: File,
    archive: Sha256Digest,
    temporary: PathBuf,
}

impl ArchiveLock {
    /// A new folder for work in progress. It is removed with the value.
    pub(super) fn work_folder(&self) -> Result<tempfile::TempDir, FetchError> {
        make_folder(&self.temporary)?;
        tempfile::Builder::new()
            .prefix(&format!("{}-", self.archive))
            .tempdir_in(&self.temporary)
            .map_err(FetchError::io("make a folder in", &self.temporary))
    }

    /// Removes what a killed process left of this archive: whoever holds the lock has no rival.
    fn sweep(&self) -> Result<(), FetchError> {
        let Ok(entries) = fs::read_dir(&self.temporary) else { return Ok(()) };
        let prefix = format!("{}-", self.archive);
        for entry in entries.flatten() {
            if entry.file_name().to_str().is_some_and(|name| name.starts_with(&prefix)) {
                fs::remove_dir_all(entry.path()).map_err(FetchError::io("remove", entry.path()))?;
            }
        }
        Ok(())
    }
}

/// Exchanges two folders, so that a kill leaves one or the other in place.
fn exchange(new: &Path, place: &Path) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        match renameat_with(CWD, new, CWD, place, RenameFlags::EXCHANGE) {
            Ok(()) => return Ok(()),
            // File systems without this call take the way below.
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS | rustix::io::Errno::OPNOTSUPP) => {}
            Err(error) => return Err(error.into()),
        }
    }
    // A kill between the two renames leaves no entry, which the next fetch fills.
    let aside = new.with_extension("old");
    fs::rename(place, &aside)?;
    fs::rename(new, place).inspect_err(|_| {
        if let Err(error) = fs::rename(&aside, place) {
            tracing::warn!(%error, place = %place.display(), "the replaced archive could not be put back");
        }
    })
}

pub(super) fn make_folder(folder: &Path) -> Result<(), FetchError> {
    fs::create_dir_all(folder).map_err(FetchError::io("make the folder", folder))
}

/// The text of a small file, or `None` where there is none.
fn read_text(path: &Path) -> Result<Option<String>, FetchError> {
    use std::io::Read as _;
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(FetchError::io("open", path)(error)),
    };
    let mut text = String::new();
    file.take(MAX_MANIFEST_BYTES).read_to_string(&mut text).map_err(FetchError::io("read", path))?;
    Ok(Some(text))
}
