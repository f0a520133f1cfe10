//! The hub as the planner's source of kernels.

use std::sync::{Arc, PoisonError};

use super::{Hub, HubError};
use crate::bind::{LayerKernel, bind};
use crate::fetch::Revision;
use crate::hint::Hint as _;
use crate::names::RepoId;
use crate::swap::{KernelProvider, KernelRef, ProvideError};
use crate::variant::DeviceKey;

impl Hub {
    /// The kernel of a reference, bound to one of its layers. Bound kernels are interned: planning again loads nothing.
    ///
    /// # Errors
    /// As [`Hub::get`], [`HubError::Bind`] when the kernel does not serve the layer by its contract, and, in a hub made
    /// with [`HubBuilder::parity`](super::HubBuilder::parity), [`HubError::Parity`] when it computes anything else.
    pub fn layer(&self, kernel: &KernelRef, layer: &str, device: DeviceKey) -> Result<Arc<LayerKernel>, HubError> {
        let version = match kernel.version {
            Some(version) => version,
            None => self.default_version(&kernel.repo)?,
        };
        let key = ((kernel.repo.clone(), Revision::Version(version), device), layer.to_owned());
        if let Some(bound) = self.layers.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return self.checked(Arc::clone(bound));
        }
        let loaded = self.get(&kernel.repo, version, device)?;
        let bound = Arc::new(bind(loaded.snapshot(), layer, loaded.code())?);
        // Two threads may bind the same layer at once; the first one in wins, and both return it.
        let mut layers = self.layers.lock().unwrap_or_else(PoisonError::into_inner);
        let bound = Arc::clone(layers.entry(key).or_insert(bound));
        drop(layers);
        self.checked(bound)
    }

    /// The kernel, at parity with its contract where this hub asks for that. It is run once, whoever asks.
    fn checked(&self, kernel: Arc<LayerKernel>) -> Result<Arc<LayerKernel>, HubError> {
        if self.parity {
            kernel.parity()?;
        }
        Ok(kernel)
    }

    /// The version of a kernel that is named without one: that of a manifest given to this hub, else of one shipped with
    /// this crate.
    ///
    /// # Errors
    /// [`HubError::NoVersion`] with the versions that the cache knows.
    pub fn default_version(&self, repo: &RepoId) -> Result<u32, HubError> {
        let given = self.manifests.iter().map(|manifest| &manifest.kernel);
        let known: Vec<u32> = given.filter(|kernel| kernel.repo == *repo).map(|kernel| kernel.version).collect();
        if let Some(version) = known.iter().max() {
            return Ok(*version);
        }
        let shipped = crate::manifest::hub_manifests().find(|manifest| manifest.kernel.repo == *repo);
        if let Some(manifest) = shipped {
            return Ok(manifest.kernel.version);
        }
        Err(HubError::NoVersion { repo: repo.clone(), known: self.cache.versions(repo)? })
    }
}

impl KernelProvider for Hub {
    fn provide(&self, kernel: &KernelRef, layer: &str, device: DeviceKey) -> Result<Arc<LayerKernel>, ProvideError> {
        self.layer(kernel, layer, device).map_err(|error| ProvideError { hint: error.hint(), source: Box::new(error) })
    }
}
