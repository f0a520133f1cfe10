//! Bringing what is locked.

use std::path::Path;

use super::{LockError, Locks, named};
use crate::fetch::Location;
use crate::hub::{Hub, Prefetched, Selection};
use crate::manifest::{Artifact, KernelManifest, PinnedKernel};
use crate::variant::Variant;

impl Hub {
    /// Brings locked kernels into the cache, verified against the lock.
    ///
    /// # Errors
    /// [`LockError::Violations`] when a build is not what is locked, [`LockError::Hub`] when it cannot be brought. Builds
    /// that were brought before stay in the cache.
    pub fn download(&self, locks: &Locks, folder: &Path, selection: Selection) -> Result<Vec<Prefetched>, LockError> {
        // Paths in a lock are relative to it, as they are in a manifest.
        let base = Location::Local(folder.join(crate::manifest::SIDECAR_FILE));
        let mut brought = Vec::new();
        for kernel in &locks.sidecar.kernels {
            if let Some(manifest) = kernel.manifest() {
                self.download_archives(kernel, &manifest, &base, selection, &mut brought)?;
            }
        }
        Ok(brought)
    }

    /// The locked builds of a kernel that a selection means.
    pub(super) fn locked_variants(
        &self,
        kernel: &PinnedKernel,
        selection: Selection,
    ) -> Result<Vec<Variant>, LockError> {
        let Some(manifest) = kernel.manifest().filter(|_| selection == Selection::ThisMachine) else {
            return Ok(kernel.variants().collect());
        };
        Ok(self.for_this_machine(&manifest)?.into_iter().map(|artifact| artifact.variant).collect())
    }

    fn download_archives(
        &self,
        kernel: &PinnedKernel,
        manifest: &KernelManifest,
        base: &Location,
        selection: Selection,
        brought: &mut Vec<Prefetched>,
    ) -> Result<(), LockError> {
        tracing::debug!(kernel = named(&kernel.repo, &kernel.version), "bringing locked archives");
        let artifacts: Vec<&Artifact> = match selection {
            Selection::AllVariants => manifest.artifacts.iter().collect(),
            Selection::ThisMachine => self.for_this_machine(manifest)?,
        };
        for artifact in artifacts {
            brought.push(self.fetch_verified(manifest, artifact, base)?);
        }
        Ok(())
    }
}
