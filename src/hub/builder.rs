//! How a hub is set up.

use std::path::PathBuf;

use reqwest::Url;

use super::interned::Interned;
use super::machine::Machine;
use super::{Hub, HubError, versions};
use crate::fetch::{
    ArchiveSource, Cache, Environment, FetchOptions, HubOptions, HubSource, LocalSource, Location, NoProgress,
    Progress, Source, Token,
};
use crate::manifest::KernelManifest;
use crate::names::RepoId;
use crate::policy::Policy;
use crate::probe::ProbeOptions;
use crate::system::SystemInfo;
use crate::verify::elf::ScanRules;
use crate::verify::{TrustedHashes, VerifyOptions};

/// Settings of a [`Hub`]. What is not set comes from the environment; see [`crate::fetch`].
#[derive(Default)]
pub struct HubBuilder {
    cache: Option<PathBuf>,
    offline: Option<bool>,
    environment: Option<Environment>,
    fetch: Option<FetchOptions>,
    endpoint: Option<Url>,
    token: Option<Token>,
    legacy_models: bool,
    local: Vec<(RepoId, PathBuf)>,
    sources: Vec<Box<dyn Source>>,
    manifests: Vec<(KernelManifest, Location)>,
    progress: Option<Box<dyn Progress + Send>>,
    policy: Option<Policy>,
    project: Option<PathBuf>,
    system: Option<SystemInfo>,
    parity: bool,
    verify: VerifyOptions,
    probe: Option<ProbeOptions>,
    trust_recorded_hashes: Option<bool>,
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

    /// Reads this environment instead of the process's.
    #[must_use]
    pub fn environment(mut self, environment: Environment) -> Self {
        self.environment = Some(environment);
        self
    }

    /// How to fetch: time-outs, retries, bounds. Default: what the environment says.
    #[must_use]
    pub fn fetch_options(mut self, options: FetchOptions) -> Self {
        self.fetch = Some(options);
        self
    }

    /// Asks this Hub instead of the environment's, with this token. The environment's token is for its own endpoint and
    /// is not sent to this one.
    #[must_use]
    pub fn endpoint(mut self, endpoint: Url, token: Option<Token>) -> Self {
        self.endpoint = Some(endpoint);
        self.token = token;
        self
    }

    /// Also asks the Hub for a repo of type `model` where it has none of type `kernel`. Default: no.
    #[must_use]
    pub fn legacy_models(mut self, allowed: bool) -> Self {
        self.legacy_models = allowed;
        self
    }

    /// Takes a kernel from a folder of this machine, whatever revision is asked for. It goes before `LOCAL_KERNELS`.
    #[must_use]
    pub fn local(mut self, repo: RepoId, folder: impl Into<PathBuf>) -> Self {
        self.local.push((repo, folder.into()));
        self
    }

    /// Asks another source, after archives and before the Hub.
    #[must_use]
    pub fn source(mut self, source: impl Source + 'static) -> Self {
        self.sources.push(Box::new(source));
        self
    }

    /// Makes a kernel known by its manifest; `base` is where the manifest came from. It goes before what the cache has
    /// recorded for the same kernel and version. A manifest whose source is the Hub says which layers the Hub's builds
    /// serve.
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

    /// Who is trusted for what, in the place of the policies of the machine and the user. Default: those, from the
    /// places that the environment names; see [`crate::policy`].
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// Obeys the policy of the project in this folder, too, which can only tighten.
    #[must_use]
    pub fn project(mut self, folder: impl Into<PathBuf>) -> Self {
        self.project = Some(folder.into());
        self
    }

    /// Resolves for a described machine instead of this one.
    #[must_use]
    pub fn system(mut self, system: SystemInfo) -> Self {
        self.system = Some(system);
        self
    }

    /// Checks every kernel against its contract's formula when it is bound, and refuses one that computes anything
    /// else; see [`crate::bind::LayerKernel::parity`]. Default: no.
    #[must_use]
    pub fn parity(mut self, checked: bool) -> Self {
        self.parity = checked;
        self
    }

    /// How strictly libraries are scanned before they are loaded. Default: [`ScanRules::default`].
    #[must_use]
    pub fn scan_rules(mut self, rules: ScanRules) -> Self {
        self.verify.rules = rules;
        self
    }

    /// Believes the hash of a large file that was recorded for the same inode, size and times, instead of hashing it at
    /// every load; see [`TrustedHashes`] for what that gives up. The records stand in `verified` in the cache's own
    /// folder. Default: what `KERNELHUB_TRUST_RECORDED_HASHES` says, else no.
    #[must_use]
    pub fn trust_recorded_hashes(mut self, trust: bool) -> Self {
        self.trust_recorded_hashes = Some(trust);
        self
    }

    /// Has a child process load each native kernel first; see [`crate::probe`]. Default: no.
    #[must_use]
    pub fn probe(mut self, options: ProbeOptions) -> Self {
        self.probe = Some(options);
        self
    }

    /// The hub. Touches neither the network nor a GPU.
    ///
    /// # Errors
    /// [`HubError::Fetch`] when the environment names no place for the cache, or a variable cannot be read;
    /// [`HubError::Policy`] for a policy that cannot be read.
    pub fn build(self) -> Result<Hub, HubError> {
        let environment = match self.environment {
            Some(environment) => environment,
            None => Environment::read()?,
        };
        let mut policy = match self.policy {
            Some(policy) => policy,
            None => Policy::read(&environment.policy_files())?,
        };
        if let Some(folder) = &self.project {
            policy.add_project(folder)?;
        }
        let cache = match self.cache {
            Some(folder) if environment.disable_symlinks => Cache::at(folder)?.without_links(),
            Some(folder) => Cache::at(folder)?,
            None => Cache::of(&environment)?,
        };
        let trust = self.trust_recorded_hashes.unwrap_or(environment.trust_recorded_hashes);
        let trusted = trust.then(|| TrustedHashes::at(cache.root().join("verified")));
        let mut options = self.fetch.unwrap_or_else(|| FetchOptions::of(&environment));
        if let Some(offline) = self.offline {
            options.offline = offline;
        }
        let switched_off = environment.kernels_off();
        let (endpoint, token) = match self.endpoint {
            Some(endpoint) => (endpoint, self.token),
            None => (environment.endpoint, environment.token),
        };
        let hub_options = HubOptions { endpoint, token, legacy_models: self.legacy_models };
        let local: Vec<_> = self.local.into_iter().chain(environment.local_kernels).collect();
        let kernels = self.manifests.iter().map(|(manifest, _)| manifest.clone()).collect();
        let mut sources: Vec<Box<dyn Source>> = vec![
            Box::new(LocalSource::new(local.clone())),
            Box::new(ArchiveSource::of_manifests(&cache, options.clone(), self.manifests)),
            Box::new(ArchiveSource::recorded(&cache, options.clone())),
        ];
        sources.extend(self.sources);
        Ok(Hub {
            remote: HubSource::new(hub_options, options.clone(), &cache),
            cache,
            options,
            sources,
            parity: self.parity,
            manifests: kernels,
            progress: self.progress.unwrap_or_else(|| Box::new(NoProgress)),
            policy,
            verify: self.verify.trusted(trusted),
            probe: self.probe,
            machine: self.system.map_or_else(Machine::probe, Machine::described).into(),
            version_lists: versions::VersionLists::default(),
            kernels: Interned::default(),
            folders: Interned::default(),
            layers: std::sync::Mutex::default(),
            local,
            switched_off,
            #[cfg(feature = "wgpu")]
            gpus: std::sync::Mutex::default(),
        })
    }
}
