//! The hub as the planner's source of kernels.

use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use super::find::Listed;
use super::{Hub, HubError, Kernel, milliseconds};
use crate::bind::{LayerKernel, bind};
use crate::fetch::{Cancel, Cost, LocalSource, Revision, Session, Source as _};
use crate::hint::Hint as _;
use crate::names::RepoId;
use crate::policy::Origin;
use crate::swap::{KernelProvider, KernelRef, KernelSource, ProvideError};
use crate::variant::DeviceKey;

impl Hub {
    /// The kernel of a reference, bound to one of its layers. Bound kernels are interned: planning again loads nothing.
    ///
    /// # Errors
    /// As [`Hub::get`], [`HubError::Bind`] when the kernel does not serve the layer by its contract, and, in a hub made
    /// with [`HubBuilder::parity`](super::HubBuilder::parity), [`HubError::Parity`] when it computes anything else.
    pub fn layer(&self, kernel: &KernelRef, layer: &str, device: DeviceKey) -> Result<Arc<LayerKernel>, HubError> {
        let source = match &kernel.source {
            KernelSource::Repo { repo, revision: None } => {
                KernelSource::Repo { repo: repo.clone(), revision: Some(self.default_revision(repo)?) }
            }
            named => named.clone(),
        };
        let key = (source, device, layer.to_owned());
        if let Some(bound) = self.layers.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return self.checked(Arc::clone(bound));
        }
        let loaded = match &key.0 {
            KernelSource::Repo { repo, revision: Some(revision) } => self.get(repo, revision, device)?,
            KernelSource::Repo { repo, revision: None } => self.get(repo, self.default_revision(repo)?, device)?,
            KernelSource::Folder(folder) => self.get_folder(folder, device)?,
        };
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

    /// Resolves, verifies and loads the kernel in a folder of this machine, as [`Hub::get`] does a published one.
    /// Whoever named the folder vouches for its metadata; its files are held to that. The policy has to trust the
    /// folder. It is called `local/<name>` in reports, and asked again, the same kernel is returned, whatever the
    /// folder holds by then.
    ///
    /// # Errors
    /// As [`Hub::get`], and [`crate::fetch::FetchError::LocalFolder`] when there is no kernel in the folder.
    pub fn get_folder(&self, folder: &Path, device: DeviceKey) -> Result<Arc<Kernel>, HubError> {
        let key = (folder.to_path_buf(), device);
        let cancel = Cancel::default();
        self.folders.get(&key, &cancel, || self.bring_folder(folder, device, &cancel))
    }

    fn bring_folder(&self, folder: &Path, device: DeviceKey, cancel: &Cancel) -> Result<Kernel, HubError> {
        let cost = Cost::default();
        let session = Session::new(&*self.progress, cancel, &cost);
        let clock = Instant::now();
        let (repo, version, source) = LocalSource::of_folder(folder)?;
        let revision = Revision::Version(version);
        let unknown = || HubError::Unknown { repo: repo.clone(), revision: revision.clone(), known: Vec::new() };
        let builds = source.builds(&repo, &revision, &session)?.ok_or_else(unknown)?;
        // A configuration may lie beside a model's weights, which anybody published: whose folder it is, is the user's
        // to say.
        let origin = Origin::Local { folder: folder.to_path_buf() };
        let admission = self.admit(&repo, &origin, &source, &session)?;
        let found = self.choose(Listed { source: &source, builds, admission }, &revision, device, &session)?;
        self.bring_found(found, milliseconds(clock), &revision, device, &session)
    }

    /// The version of a kernel that is named without one.
    ///
    /// # Errors
    /// As [`Self::default_revision`], and when the default is no version.
    pub fn default_version(&self, repo: &RepoId) -> Result<u32, HubError> {
        match self.default_revision(repo)? {
            Revision::Version(version) => Ok(version),
            _ => Err(HubError::NoVersion { repo: repo.clone(), known: self.cache.versions(repo)? }),
        }
    }

    /// The state of a kernel that is named without one: the version of a manifest given to this hub, else of one
    /// shipped with this crate, else what the default tables say.
    ///
    /// # Errors
    /// [`HubError::NoVersion`] with the versions that the cache knows.
    pub fn default_revision(&self, repo: &RepoId) -> Result<Revision, HubError> {
        let given = self.manifests.iter().map(|manifest| &manifest.kernel);
        let known: Vec<u32> = given.filter(|kernel| kernel.repo == *repo).map(|kernel| kernel.version).collect();
        if let Some(version) = known.iter().max() {
            return Ok(Revision::Version(*version));
        }
        let shipped = crate::manifest::hub_manifests().find(|manifest| manifest.kernel.repo == *repo);
        if let Some(manifest) = shipped {
            return Ok(Revision::Version(manifest.kernel.version));
        }
        match crate::swap::default_revision(repo) {
            Some(revision) => Ok(revision.clone()),
            None => Err(HubError::NoVersion { repo: repo.clone(), known: self.cache.versions(repo)? }),
        }
    }

    /// The compute capability of the first device of a kind that this process may use; `None` where nobody knows it.
    #[must_use]
    pub fn capability(&self, device: DeviceKey) -> Option<u32> {
        let mut machine = self.machine.lock().unwrap_or_else(PoisonError::into_inner);
        machine.native(device).visible(device).find_map(crate::system::DeviceInfo::capability_number)
    }

    /// Whether this machine has a device of a kind, so that its kernels can be brought up. Looking for one that is not
    /// the processor asks its driver and starts the GPU drivers, once.
    #[must_use]
    pub fn has_device(&self, device: DeviceKey) -> bool {
        if device == DeviceKey::Cpu {
            return true;
        }
        let mut machine = self.machine.lock().unwrap_or_else(PoisonError::into_inner);
        let system = machine.with(device);
        let is_it = |key: DeviceKey| key == device || device == DeviceKey::Wgpu;
        system.devices.iter().any(|found| is_it(found.key) && found.masked_by.is_none())
    }

    /// What of the environment switches kernels off for every model of the process; `None`: nothing does.
    #[must_use]
    pub fn switched_off(&self) -> Option<&'static str> {
        self.switched_off
    }
}

impl KernelProvider for Hub {
    fn provide(&self, kernel: &KernelRef, layer: &str, device: DeviceKey) -> Result<Arc<LayerKernel>, ProvideError> {
        self.layer(kernel, layer, device).map_err(|error| ProvideError { hint: error.hint(), source: Box::new(error) })
    }

    fn capability(&self, device: DeviceKey) -> Option<u32> {
        self.capability(device)
    }

    fn switched_off(&self) -> Option<&'static str> {
        self.switched_off
    }

    fn note(&self, kernel: &KernelRef) -> Option<String> {
        let repo = kernel.repo()?;
        let (_, folder) = self.local.iter().find(|(named, _)| named == repo)?;
        Some(format!("{repo} is taken from the local folder {}", folder.display()))
    }
}
