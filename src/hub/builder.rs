//! How a hub is set up.

use std::path::PathBuf;

use super::machine::Machine;
use super::{Hub, HubError};
use crate::fetch::{Cache, FetchOptions, Fetcher, Location, NoProgress, Progress};
use crate::manifest::KernelManifest;
use crate::system::SystemInfo;

/// Settings of a [`Hub`]. What is not set comes from the environment; see [`crate::fetch`].
#[derive(Default)]
pub struct HubBuilder {
    cache: Option<PathBuf>,
    offline: Option<bool>,
    manifests: Vec<(KernelManifest, Location)>,
    progress: Option<Box<dyn Progress + Send>>,
    system: Option<SystemInfo>,
}

impl std::fmt::Debug for HubBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HubBuilder").field("cache", &self.cache).field("offline", &self.offline).finish_non_exhaustive()
    }
}

impl HubBuilder {
    /// Keeps kernels below this folder instead of the environment's cache.
    #[must_use]
    pub fn cache(mut self, folder: impl Into<PathBuf>) -> Self {
        self.cache = Some(folder.into());
        self
    }

    /// Opens no socket. Default: what `HF_HUB_OFFLINE` says.
    #[must_use]
    pub fn offline(mut self, offline: bool) -> Self {
        self.offline = Some(offline);
        self
    }

    /// Makes a kernel known by its manifest; `base` is where the manifest came from. It goes before what the cache has
    /// recorded for the same kernel and version.
    #[must_use]
    pub fn manifest(mut self, manifest: KernelManifest, base: Location) -> Self {
        self.manifests.push((manifest, base));
        self
    }

    /// Who is told of downloads.
    #[must_use]
    pub fn progress(mut self, progress: impl Progress + Send + 'static) -> Self {
        self.progress = Some(Box::new(progress));
        self
    }

    /// Resolves for a described machine instead of this one.
    #[must_use]
    pub fn system(mut self, system: SystemInfo) -> Self {
        self.system = Some(system);
        self
    }

    /// The hub. Touches neither the network nor a GPU.
    ///
    /// # Errors
    /// [`HubError::Fetch`] when the environment names no place for the cache.
    pub fn build(self) -> Result<Hub, HubError> {
        let cache = match self.cache {
            Some(folder) => Cache::at(folder)?,
            None => Cache::from_env()?,
        };
        let mut options = FetchOptions::from_env();
        if let Some(offline) = self.offline {
            options.offline = offline;
        }
        Ok(Hub {
            cache,
            fetcher: Fetcher::new(options),
            manifests: self.manifests,
            progress: self.progress.unwrap_or_else(|| Box::new(NoProgress)),
            machine: self.system.map_or_else(Machine::probe, Machine::described).into(),
            kernels: std::sync::Mutex::default(),
            layers: std::sync::Mutex::default(),
            #[cfg(feature = "wgpu")]
            gpus: std::sync::Mutex::default(),
        })
    }
}
