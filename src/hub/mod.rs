//! The path of a kernel, from its name to its code.
//!
//! Owns: [`Hub`], which ties the stages together (policy, resolve, fetch, verify, load, bind), repairs a damaged cache
//! by fetching again, and interns what it has brought up. Refuses: to do any stage's work itself; each stage's output
//! type is the only key to the next, so nothing here can skip one.
//!
//! A kernel is looked for in this order: folders that the user named, manifests given to this hub, recorded archives,
//! further sources, the Hub. The owner `kernelhub` is this project's own and is never asked for at the Hub, where
//! another might take the name.
//!
//! Whatever way a kernel is asked for, by name, by a configuration, by a lock, as a dependency, from a folder or
//! offline, the policy decides on its publisher first; without its admission nothing can be verified, and so nothing
//! loaded.
//!
//! A warm start of a pinned kernel makes no request and starts no runtime and no GPU driver: manifests are recorded in
//! the cache, and adapters are looked for only when a device that needs one is asked for.

mod asynchronous;
mod builder;
mod cache;
mod config_file;
mod depends;
mod describe;
mod doctor;
mod error;
mod find;
mod interned;
mod kernel;
pub mod lock;
mod machine;
mod prefetch;
mod provider;
mod resolve;
mod trust;
mod verify;
mod versions;

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Instant;

pub use builder::HubBuilder;
pub use cache::{CheckedEntry, check_cache};
pub use config_file::{CONFIG_FILE, ConfigFileError};
pub use depends::Dependency;
pub use describe::{KernelDescription, VersionBuilds};
pub use doctor::{Area, Check, Finding};
pub use error::HubError;
pub use kernel::{Kernel, KernelTimes};
pub use prefetch::{Prefetched, Selection};
pub use resolve::KernelResolution;
pub use verify::VerifiedBuild;
pub use versions::{MAX_VERSIONS_LISTED, OtherVersion, OtherVersions};

use self::interned::Interned;
use self::machine::Machine;
use crate::bind::{Code, LayerKernel};
use crate::fetch::{
    Cache, Cancel, Cost, FetchOptions, HubSource, Progress, PublishedVersion, Revision, Session, Snapshot, Source,
};
use crate::load::KernelLibrary;
use crate::manifest::KernelManifest;
use crate::names::RepoId;
use crate::policy::Policy;
use crate::probe::{ProbeOptions, ProbeReport, probe};
use crate::swap::KernelSource;
use crate::variant::{DeviceKey, Variant};
use crate::verify::elf::ScanRules;
use crate::verify::{VerifiedSnapshot, VerifyOptions};

/// The owner of this project's own kernels.
const OWN_OWNER: &str = "kernelhub";

/// Brings kernels into the process by name.
pub struct Hub {
    cache: Cache,
    options: FetchOptions,
    /// In the order in which they are asked; the Hub comes after them.
    sources: Vec<Box<dyn Source>>,
    remote: HubSource,
    /// Whether a kernel must be at parity with its contract.
    parity: bool,
    /// Manifests given by the caller.
    manifests: Vec<KernelManifest>,
    progress: Box<dyn Progress + Send>,
    policy: Policy,
    verify: VerifyOptions,
    probe: Option<ProbeOptions>,
    machine: Mutex<Machine>,
    /// The builds of the versions of kernels of which one did not fit.
    version_lists: versions::VersionLists,
    kernels: Interned<KernelKey, Kernel>,
    /// Kernels of folders that a configuration named by their paths.
    folders: Interned<(PathBuf, DeviceKey), Kernel>,
    layers: Mutex<HashMap<(KernelSource, DeviceKey, String), Arc<LayerKernel>>>,
    /// The folders that take a kernel's place, for reports.
    local: Vec<(RepoId, PathBuf)>,
    /// What switches kernels off for every model, for reports.
    switched_off: Option<&'static str>,
    #[cfg(feature = "wgpu")]
    gpus: Mutex<HashMap<DeviceKey, crate::gpu::Device>>,
}

type KernelKey = (RepoId, Revision, DeviceKey);

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

    /// How it fetches.
    #[must_use]
    pub fn options(&self) -> &FetchOptions {
        &self.options
    }

    /// The Hub that it asks.
    #[must_use]
    pub fn hub(&self) -> &HubSource {
        &self.remote
    }

    /// Decides on the publisher, then resolves, fetches, verifies and loads one version, commit, branch or tag of a
    /// kernel for a kind of device. Asked again, it returns the kernel that it has; asked by several threads, it brings
    /// different kernels at the same time, and one kernel once.
    ///
    /// A file that does not match its digest is never loaded. Unless the hub is offline, the build is then fetched
    /// again and verified again, once; [`Kernel::repaired`] tells.
    ///
    /// # Errors
    /// [`HubError`] with the stage that failed and its cause.
    pub fn get(
        &self,
        repo: &RepoId,
        revision: impl Into<Revision>,
        device: DeviceKey,
    ) -> Result<Arc<Kernel>, HubError> {
        self.get_cancellable(repo, &revision.into(), device, &Cancel::default())
    }

    /// As [`Self::get`], until somebody cancels. What was downloaded by then is gone on with next time.
    ///
    /// # Errors
    /// As [`Self::get`], and [`crate::fetch::FetchError::Cancelled`].
    pub fn get_cancellable(
        &self,
        repo: &RepoId,
        revision: &Revision,
        device: DeviceKey,
        cancel: &Cancel,
    ) -> Result<Arc<Kernel>, HubError> {
        let key = (repo.clone(), revision.clone(), device);
        self.kernels.get(&key, cancel, || self.bring(repo, revision, device, cancel))
    }

    fn bring(
        &self,
        repo: &RepoId,
        revision: &Revision,
        device: DeviceKey,
        cancel: &Cancel,
    ) -> Result<Kernel, HubError> {
        let cost = Cost::default();
        let session = Session::new(&*self.progress, cancel, &cost);
        let clock = Instant::now();
        let found = self.find(repo, revision, device, &session)?;
        self.bring_found(found, milliseconds(clock), revision, device, &session)
    }

    fn bring_found(
        &self,
        found: find::Found<'_>,
        resolve_ms: f64,
        revision: &Revision,
        device: DeviceKey,
        session: &Session<'_>,
    ) -> Result<Kernel, HubError> {
        let build = self.fetch_verified(&found, session)?;
        let resolution = found.resolution;
        // Its locks end here: a dependency's are taken one at a time.
        drop(found.builds);
        let dependencies = self.dependencies(&build, revision, device, session)?;
        let Prefetched { snapshot, mut fetched, repaired, times, source, notes, .. } = build;
        // What the whole kernel cost: its listings and its dependencies, too.
        fetched.requests = session.cost.requests();
        fetched.bytes_fetched = session.cost.bytes();
        let clock = Instant::now();
        let probe = self
            .probe
            .as_ref()
            .map(|options| Self::ask_child(&fetched.snapshot, snapshot.rules(), options))
            .transpose()?
            .flatten();
        let code = self.load(&snapshot, device)?;
        let mut notes = notes;
        match &code {
            Code::Native(library) => notes.extend(self.noted(library.findings())),
            #[cfg(feature = "wgpu")]
            Code::Shader(_) => {}
        }
        let times = KernelTimes { resolve_ms, load_ms: milliseconds(clock), ..times };
        Ok(Kernel { resolution, snapshot, fetched, repaired, code, times, dependencies, source, notes, probe })
    }

    /// Resolves, fetches and verifies a kernel as [`Self::get`] does, and has a child process load it. Loads nothing in
    /// this process.
    ///
    /// # Errors
    /// As [`Self::get`], and [`HubError::Probe`] with what became of the child.
    pub fn probe(
        &self,
        repo: &RepoId,
        revision: impl Into<Revision>,
        device: DeviceKey,
        options: &ProbeOptions,
    ) -> Result<(Prefetched, ProbeReport), HubError> {
        let (cancel, cost) = (Cancel::default(), Cost::default());
        let session = Session::new(&*self.progress, &cancel, &cost);
        let build = self.fetch_verified(&self.find(repo, &revision.into(), device, &session)?, &session)?;
        let report = probe(&build.fetched.snapshot, build.snapshot.rules(), options)?;
        Ok((build, report))
    }

    /// Has a child process load a build that has a library, by the rules that it was scanned by here.
    fn ask_child(
        snapshot: &Snapshot,
        rules: &ScanRules,
        options: &ProbeOptions,
    ) -> Result<Option<ProbeReport>, HubError> {
        if matches!(snapshot.variant(), Variant::Shader(_)) {
            return Ok(None);
        }
        Ok(Some(probe(snapshot, rules, options)?))
    }

    /// Tells whoever watches of what the scan of libraries warns of.
    fn noted(&self, findings: &[crate::verify::elf::Finding]) -> Vec<String> {
        let notes: Vec<String> = findings.iter().map(ToString::to_string).collect();
        for note in &notes {
            self.progress.note(note);
        }
        notes
    }

    /// The versions that the first source that has the kernel has, ascending, with that source's name; where none has
    /// it, none, with the name of the last one that was asked.
    ///
    /// # Errors
    /// [`HubError::Fetch`] when a source cannot be asked.
    pub fn versions(&self, repo: &RepoId) -> Result<(String, Vec<PublishedVersion>), HubError> {
        let (cancel, cost) = (Cancel::default(), Cost::default());
        let session = Session::new(&*self.progress, &cancel, &cost);
        let mut last = String::new();
        for source in self.sources_for(repo) {
            last = source.name();
            let versions = source.versions(repo, &session)?;
            if !versions.is_empty() {
                return Ok((last, versions));
            }
        }
        Ok((last, Vec::new()))
    }

    /// The sources that may have a kernel, in order.
    fn sources_for(&self, repo: &RepoId) -> impl Iterator<Item = &dyn Source> {
        let hub = (repo.owner() != OWN_OWNER).then_some(&self.remote as &dyn Source);
        self.sources.iter().map(|source| &**source).chain(hub)
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
        let mut gpus = self.gpus.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
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
        self.gpus.lock().unwrap_or_else(std::sync::PoisonError::into_inner).get(&key).cloned()
    }

    #[cfg(not(feature = "wgpu"))]
    #[expect(clippy::unused_self, reason = "with shaders the device is kept in the hub")]
    fn shader_device(&self, snapshot: &VerifiedSnapshot, _key: DeviceKey) -> Result<Code, HubError> {
        Err(HubError::FeatureOff { variant: *snapshot.variant(), feature: "wgpu" })
    }
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}
