//! The cache's layout: what stands where, and what is read from there. See the room's documentation.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::hf_cache::{HubCache, Records, write_atomically};
use super::{Anchor, Environment, FetchError, Snapshot};
use crate::digest::Sha256Digest;
use crate::manifest::{Artifact, KernelManifest, MAX_MANIFEST_BYTES, METADATA_FILE};
use crate::names::RepoId;
use crate::regular;

/// The folder of archives and manifests of this machine.
#[derive(Debug, Clone)]
pub struct Cache {
    root: PathBuf,
    hub: HubCache,
}

impl Cache {
    /// The cache that the environment names; see [the room's documentation](super). Makes nothing.
    ///
    /// # Errors
    /// [`FetchError::NoCacheRoot`] without any of the variables and without a home folder;
    /// [`FetchError::Environment`] for a variable whose value cannot be read.
    pub fn from_env() -> Result<Self, FetchError> {
        Self::of(&Environment::read()?)
    }

    /// The cache that an environment names. Makes nothing.
    ///
    /// # Errors
    /// [`FetchError::NoCacheRoot`] where it names none.
    pub fn of(environment: &Environment) -> Result<Self, FetchError> {
        let (Some(archives), Some(hub)) = (&environment.archive_cache, &environment.hub_cache) else {
            return Err(FetchError::NoCacheRoot);
        };
        let hub = HubCache::at(absolute(hub)?, !environment.disable_symlinks);
        Ok(Self { root: absolute(archives)?, hub })
    }

    /// The cache whose root is this folder, for archives and for the Hub's repos. Makes nothing. Links are made where
    /// the file system has them.
    ///
    /// # Errors
    /// [`FetchError::Io`] when a relative path cannot be made absolute.
    pub fn at(root: impl AsRef<Path>) -> Result<Self, FetchError> {
        let root = absolute(root.as_ref())?;
        Ok(Self { hub: HubCache::at(root.clone(), true), root })
    }

    /// The same cache, with files where links would be.
    #[must_use]
    pub fn without_links(mut self) -> Self {
        self.hub = HubCache::at(self.hub.root().to_path_buf(), false);
        self
    }

    /// The Hub's repos, in the layout of the Hugging Face tools.
    #[must_use]
    pub fn hub(&self) -> &HubCache {
        &self.hub
    }

    pub(super) fn records(&self) -> Records {
        Records::at(self.root.clone())
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
        write_atomically(&path, text.as_bytes())
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
            anchor: Anchor::Archive { sha256: artifact.sha256, metadata_sha256: artifact.metadata_sha256 },
            blobs: None,
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

fn absolute(path: &Path) -> Result<PathBuf, FetchError> {
    std::path::absolute(path).map_err(FetchError::io("make absolute", path))
}

pub(super) fn make_folder(folder: &Path) -> Result<(), FetchError> {
    fs::create_dir_all(folder).map_err(FetchError::io("make the folder", folder))
}

/// The text of a small file, or `None` where there is none.
fn read_text(path: &Path) -> Result<Option<String>, FetchError> {
    match regular::read_text(path, MAX_MANIFEST_BYTES) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(FetchError::io("read", path)(error)),
    }
}
