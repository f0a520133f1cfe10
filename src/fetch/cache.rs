//! The cache's layout: what stands where, and what is read from there. See the room's documentation.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::{FetchError, env};
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

    pub(super) fn archive_folder(&self, archive: Sha256Digest) -> PathBuf {
        self.root.join("archives").join(archive.to_string())
    }

    fn manifest_folder(&self, repo: &RepoId) -> PathBuf {
        self.root.join("manifests").join(format!("{}--{}", repo.owner(), repo.name()))
    }

    fn manifest_path(&self, repo: &RepoId, version: u32) -> PathBuf {
        self.manifest_folder(repo).join(format!("v{version}.toml"))
    }
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
