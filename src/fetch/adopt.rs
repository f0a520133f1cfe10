//! Builds that reach the cache by another way than a download of ours: from a bundle.

use std::path::Path;

use super::cache::make_folder;
use super::{Cache, FetchError, Location, Progress};
use crate::digest::Sha256Digest;
use crate::manifest::KernelManifest;

impl KernelManifest {
    /// This manifest with every URL made absolute, so that it serves from the cache. `base` is where it came from.
    pub(crate) fn with_absolute_urls(&self, base: &Location) -> Result<Self, FetchError> {
        let mut manifest = self.clone();
        for artifact in &mut manifest.artifacts {
            artifact.url = base.artifact(&artifact.url)?.to_artifact_url()?;
        }
        Ok(manifest)
    }
}

impl Cache {
    /// Puts an unpacked and checked archive in its place, in exchange for what is there. `folder` is on the cache's file
    /// system; it holds `build/<variant>/...`.
    pub(crate) fn adopt(
        &self,
        archive: Sha256Digest,
        folder: &Path,
        progress: &dyn Progress,
    ) -> Result<(), FetchError> {
        let lock = self.lock(archive, progress)?;
        self.install(folder, &lock)
    }

    /// Takes an archive out again: the other half of an adoption that is undone.
    pub(crate) fn forget(&self, archive: Sha256Digest, progress: &dyn Progress) -> Result<(), FetchError> {
        let _lock = self.lock(archive, progress)?;
        let folder = self.archive_folder(archive);
        std::fs::remove_dir_all(&folder).map_err(FetchError::io("remove", folder))
    }

    /// A new folder for a bundle's content, on the cache's file system. It is removed with the value.
    pub(crate) fn import_folder(&self) -> Result<tempfile::TempDir, FetchError> {
        let temporary = self.root().join("tmp");
        make_folder(&temporary)?;
        tempfile::Builder::new()
            .prefix("import-")
            .tempdir_in(&temporary)
            .map_err(FetchError::io("make a folder in", &temporary))
    }
}
