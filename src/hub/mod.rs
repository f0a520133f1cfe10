//! The path of a kernel, from its name to its code.
//!
//! Owns: [`Hub`], which ties the stages together (resolve, fetch, verify, load, bind), repairs a damaged cache by
//! fetching again, and interns what it has brought up. Refuses: to do any stage's work itself; each stage's output type
//! is the only key to the next, so nothing here can skip one.
//!
//! A warm start makes no request and starts no runtime and no GPU driver: manifests are recorded in the cache, and
//! adapters are looked for only when a device that needs one is asked for.

mod builder;
mod error;
mod kernel;
pub mod lock;
mod prefetch;
mod provider;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

pub use builder::HubBuilder;
pub use error::HubError;
pub use kernel::{Kernel, KernelTimes};
pub use prefetch::{Prefetched, Selection};

use crate::bind::{Code, LayerKernel};
use crate::fetch::{Cache, Fetcher, Location, Progress};
use crate::load::KernelLibrary;
use crate::manifest::{Artifact, KernelManifest, Source};
use crate::names::RepoId;
use crate::resolve::{Candidate, Request, Resolution, choose};
use crate::system::SystemInfo;
use crate::variant::{AnyVariant, DeviceKey, Variant};
use crate::verify::VerifiedSnapshot;

/// Brings kernels into the process by name.
pub struct Hub {
    cache: Cache,
    fetcher: Fetcher,
    /// Manifests given by the caller, which go before the cache's, each with where its relative URLs start.
    manifests: Vec<(KernelManifest, Location)>,
    progress: Box<dyn Progress + Send>,
    system: Mutex<SystemInfo>,
    kernels: Mutex<HashMap<KernelKey, Arc<Kernel>>>,
    layers: Mutex<HashMap<(KernelKey, String), Arc<LayerKernel>>>,
    #[cfg(feature = "wgpu")]
    gpus: Mutex<HashMap<DeviceKey, crate::gpu::Device>>,
}

type KernelKey = (RepoId, u32, DeviceKey);

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub")
            .field("cache", &self.cache)
            .field("manifests", &self.manifests.len())
            .finish_non_exhaustive()
    }
}

impl Hub {
    /// Starts a hub with the environment's cache and offline setting.
    #[must_use]
    pub fn builder() -> HubBuilder {
        HubBuilder::default()
    }

    /// The cache that kernels are kept in.
    #[must_use]
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Resolves, fetches, verifies and loads one version of a kernel for a kind of device. Asked again, it returns the
    /// kernel that it has.
    ///
    /// A file that does not match its digest is never loaded. Unless the hub is offline, the archive is then fetched
    /// again and verified again, once; [`Kernel::repaired`] tells.
    ///
    /// # Errors
    /// [`HubError`] with the stage that failed and its cause.
    pub fn get(&self, repo: &RepoId, version: u32, device: DeviceKey) -> Result<Arc<Kernel>, HubError> {
        let key = (repo.clone(), version, device);
        // Held while the kernel is brought up, so that two threads never do the same work.
        let mut kernels = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kernel) = kernels.get(&key) {
            return Ok(Arc::clone(kernel));
        }
        let kernel = Arc::new(self.bring(repo, version, device)?);
        kernels.insert(key, Arc::clone(&kernel));
        Ok(kernel)
    }

    fn bring(&self, repo: &RepoId, version: u32, device: DeviceKey) -> Result<Kernel, HubError> {
        let clock = Instant::now();
        let (manifest, base) = self.manifest(repo, version)?;
        let (resolution, artifact) = self.resolve(&manifest, device)?;
        let resolve_ms = milliseconds(clock);
        let Prefetched { snapshot, fetched, repaired, times } = self.fetch_verified(&manifest, artifact, &base)?;
        let clock = Instant::now();
        let code = self.load(&snapshot, device)?;
        let times = KernelTimes { resolve_ms, load_ms: milliseconds(clock), ..times };
        Ok(Kernel { resolution, snapshot, fetched, repaired, code, times })
    }

    /// The manifest of a version: one given to this hub, else the one that the cache recorded.
    fn manifest(&self, repo: &RepoId, version: u32) -> Result<(KernelManifest, Location), HubError> {
        let given = self
            .manifests
            .iter()
            .find(|(manifest, _)| manifest.kernel.repo == *repo && manifest.kernel.version == version);
        if let Some((manifest, base)) = given {
            if manifest.kernel.source == Source::Hub {
                return Err(HubError::HubOnly { repo: repo.clone(), version });
            }
            return Ok((manifest.clone(), base.clone()));
        }
        match self.cache.manifest(repo, version)? {
            // A recorded manifest has absolute URLs, so the base plays no part.
            Some(manifest) => Ok((manifest, Location::Local(self.cache.root().to_path_buf()))),
            None => Err(self.unknown(repo, version)),
        }
    }

    fn unknown(&self, repo: &RepoId, version: u32) -> HubError {
        let mut known = self.cache.versions(repo).unwrap_or_default();
        let given = self.manifests.iter().filter(|(manifest, _)| manifest.kernel.repo == *repo);
        known.extend(given.map(|(manifest, _)| manifest.kernel.version));
        known.sort_unstable();
        known.dedup();
        if crate::manifest::hub_manifests().any(|manifest| manifest.kernel.repo == *repo) {
            return HubError::HubOnly { repo: repo.clone(), version };
        }
        HubError::Unknown { repo: repo.clone(), version, known }
    }

    fn resolve<'a>(
        &self,
        manifest: &'a KernelManifest,
        device: DeviceKey,
    ) -> Result<(Resolution, &'a Artifact), HubError> {
        let mut system = self.system.lock().unwrap_or_else(PoisonError::into_inner);
        #[cfg(feature = "wgpu")]
        if device != DeviceKey::Cpu {
            system.probe_adapters();
        }
        let listed = manifest.artifacts.iter().enumerate();
        let candidates: Vec<_> =
            listed.map(|(index, artifact)| Candidate::new(AnyVariant::Known(artifact.variant), index)).collect();
        let (chosen, resolution) = choose(&candidates, &system, &Request::device(device)).map_err(|source| {
            HubError::Resolve { repo: manifest.kernel.repo.clone(), version: manifest.kernel.version, source }
        })?;
        Ok((resolution, &manifest.artifacts[chosen]))
    }

    fn load(&self, snapshot: &VerifiedSnapshot, device: DeviceKey) -> Result<Code, HubError> {
        match snapshot.variant() {
            Variant::Shader(_) => self.shader_device(snapshot, device),
            _ => Ok(Code::Native(KernelLibrary::open(snapshot)?)),
        }
    }

    /// Opens the adapter when the first shader pack for a device key needs it, and keeps it. The first adapter of the
    /// key is taken, GPUs before software; for `wgpu`, which every adapter is, the first of all.
    #[cfg(feature = "wgpu")]
    fn shader_device(&self, _snapshot: &VerifiedSnapshot, key: DeviceKey) -> Result<Code, HubError> {
        let mut gpus = self.gpus.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(device) = gpus.get(&key) {
            return Ok(Code::Shader(device.clone()));
        }
        let adapters = crate::gpu::adapters()?;
        let of_key = |adapter: &&crate::gpu::Adapter| key == DeviceKey::Wgpu || adapter.info().device_key == key;
        let adapter = adapters.iter().find(of_key).ok_or(HubError::NoAdapter { key })?;
        let device = crate::gpu::Device::open(adapter)?;
        gpus.insert(key, device.clone());
        Ok(Code::Shader(device))
    }

    /// The adapter that shader packs for `key` run on, once one was loaded.
    #[cfg(feature = "wgpu")]
    #[must_use]
    pub fn gpu(&self, key: DeviceKey) -> Option<crate::gpu::Device> {
        self.gpus.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned()
    }

    #[cfg(not(feature = "wgpu"))]
    fn shader_device(&self, snapshot: &VerifiedSnapshot, _key: DeviceKey) -> Result<Code, HubError> {
        Err(HubError::FeatureOff { variant: *snapshot.variant(), feature: "wgpu" })
    }
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}
