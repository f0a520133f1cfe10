//! Bringing builds into the cache without loading them.

use std::collections::BTreeSet;
use std::sync::PoisonError;
use std::time::Instant;

use super::{Hub, HubError, KernelTimes, milliseconds};
use crate::fetch::{Fetched, Location, Reuse};
use crate::manifest::{Artifact, KernelManifest};
use crate::names::RepoId;
use crate::variant::DeviceKey;
use crate::verify::{VerifiedSnapshot, VerifyError, verify};

/// Which builds of a kernel to bring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Selection {
    /// For each kind of device that this machine has, the build that would be chosen for it.
    #[default]
    ThisMachine,
    /// Every build that the manifest lists, for other machines that share the cache.
    AllVariants,
}

/// A build that is in the cache and verified.
#[derive(Debug)]
pub struct Prefetched {
    /// The verified files.
    pub snapshot: VerifiedSnapshot,
    /// Where they came from.
    pub fetched: Fetched,
    /// Whether the cached files were damaged and had to be fetched again.
    pub repaired: bool,
    /// How long the stages took; nothing was loaded.
    pub times: KernelTimes,
}

impl Hub {
    /// Fetches and verifies builds of a kernel, and loads none of them.
    ///
    /// # Errors
    /// [`HubError`] with the stage that failed; builds that were brought before it stay in the cache.
    pub fn prefetch(&self, repo: &RepoId, version: u32, selection: Selection) -> Result<Vec<Prefetched>, HubError> {
        let (manifest, base) = self.manifest(repo, version)?;
        let artifacts: Vec<&Artifact> = match selection {
            Selection::AllVariants => manifest.artifacts.iter().collect(),
            Selection::ThisMachine => self.for_this_machine(&manifest)?,
        };
        artifacts.into_iter().map(|artifact| self.fetch_verified(&manifest, artifact, &base)).collect()
    }

    /// The builds that the machine's devices would be given, each once, in the manifest's order.
    pub(super) fn for_this_machine<'a>(&self, manifest: &'a KernelManifest) -> Result<Vec<&'a Artifact>, HubError> {
        let mut keys = BTreeSet::from([DeviceKey::Cpu]);
        {
            let mut system = self.system.lock().unwrap_or_else(PoisonError::into_inner);
            #[cfg(feature = "wgpu")]
            system.probe_adapters();
            keys.extend(system.devices.iter().map(|device| device.key));
        }
        let mut variants = BTreeSet::new();
        let mut refusal = None;
        for key in keys {
            match self.resolve(manifest, key) {
                Ok((_, artifact)) => {
                    variants.insert(artifact.variant);
                }
                // Not every kernel serves every device; the processor's trace is the one worth showing.
                Err(error) => {
                    refusal.get_or_insert(error);
                }
            }
        }
        match refusal {
            Some(error) if variants.is_empty() => Err(error),
            _ => Ok(manifest.artifacts.iter().filter(|artifact| variants.contains(&artifact.variant)).collect()),
        }
    }

    /// Fetches one build if it isn't there, and verifies it. Damaged files are fetched again, once, unless offline.
    pub(super) fn fetch_verified(
        &self,
        manifest: &KernelManifest,
        artifact: &Artifact,
        base: &Location,
    ) -> Result<Prefetched, HubError> {
        let mut times = KernelTimes::default();
        let clock = Instant::now();
        let fetched = self.fetch(manifest, artifact, base, Reuse::IfPresent)?;
        times.fetch_ms = milliseconds(clock);
        let clock = Instant::now();
        let verified = verify(&fetched.snapshot);
        times.verify_ms = milliseconds(clock);
        let violations = match verified {
            Ok(snapshot) => return Ok(Prefetched { snapshot, fetched, repaired: false, times }),
            Err(VerifyError::Violations { violations, .. }) if !self.fetcher.options().offline => violations,
            Err(error) => return Err(error.into()),
        };
        let (repo, version) = (&manifest.kernel.repo, manifest.kernel.version);
        let list: Vec<_> = violations.iter().map(ToString::to_string).collect();
        self.progress
            .note(&format!("{repo}@v{version} is damaged in the cache, fetching it again: {}", list.join("; ")));
        let clock = Instant::now();
        let again = self.fetch(manifest, artifact, base, Reuse::Replace)?;
        times.fetch_ms += milliseconds(clock);
        let clock = Instant::now();
        let snapshot = verify(&again.snapshot)?;
        times.verify_ms += milliseconds(clock);
        let requests = fetched.requests + again.requests;
        let bytes_fetched = fetched.bytes_fetched + again.bytes_fetched;
        Ok(Prefetched { snapshot, fetched: Fetched { requests, bytes_fetched, ..again }, repaired: true, times })
    }

    fn fetch(
        &self,
        manifest: &KernelManifest,
        artifact: &Artifact,
        base: &Location,
        reuse: Reuse,
    ) -> Result<Fetched, HubError> {
        Ok(self.fetcher.fetch_artifact(&self.cache, manifest, artifact, base, &*self.progress, reuse)?)
    }
}
