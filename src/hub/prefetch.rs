//! Bringing builds into the cache without loading them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;
use std::time::Instant;

use super::find::{Found, Listed};
use super::{Hub, HubError, KernelTimes, milliseconds};
use crate::fetch::{Anchor, Cancel, Cost, Fetched, Reuse, Revision, Session};
use crate::manifest::{KernelManifest, LayerSpec, Source as ManifestSource, hub_manifests};
use crate::names::RepoId;
use crate::resolve::{Candidate, Request, resolve};
use crate::variant::{DeviceKey, Variant};
use crate::verify::{VerifiedSnapshot, VerifyError, verify_with};

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
    /// The source that had it.
    pub source: String,
    /// What is worth reporting about how it was found.
    pub notes: Vec<String>,
}

impl Hub {
    /// Fetches and verifies builds of a kernel and what they depend on, and loads none of them.
    ///
    /// # Errors
    /// [`HubError`] with the stage that failed; builds that were brought before it stay in the cache.
    pub fn prefetch(
        &self,
        repo: &RepoId,
        revision: impl Into<Revision>,
        selection: Selection,
    ) -> Result<Vec<Prefetched>, HubError> {
        self.prefetch_where(repo, &revision.into(), selection, &|_| true)
    }

    /// As [`Self::prefetch`], of [`Selection::AllVariants`] those that `wanted` takes. Empty: it takes none.
    ///
    /// # Errors
    /// As [`Self::prefetch`].
    pub fn prefetch_where(
        &self,
        repo: &RepoId,
        revision: &Revision,
        selection: Selection,
        wanted: &dyn Fn(&Variant) -> bool,
    ) -> Result<Vec<Prefetched>, HubError> {
        let (cancel, cost) = (Cancel::default(), Cost::default());
        // What another tool fetched may not be all that there is.
        let fresh_listing = selection == Selection::AllVariants && !self.options.offline;
        let session = Session { fresh_listing, ..Session::new(&*self.progress, &cancel, &cost) };
        let mut listed = self.builds(repo, revision, &session)?;
        let chosen = match selection {
            Selection::AllVariants => {
                listed.builds.candidates.retain(|c| c.variant.known().is_some_and(|variant| wanted(&variant)));
                self.every_build(&listed)
            }
            Selection::ThisMachine => match self.for_this_machine(&listed, revision, &session) {
                Ok(chosen) => chosen,
                Err(error) => {
                    // Its lock ends here: a version's is taken one at a time.
                    drop(listed);
                    return Err(self.with_other_versions(error, DeviceKey::Cpu, &session));
                }
            },
        };
        let mut brought = Vec::new();
        for (found, _) in &chosen {
            brought.push(self.fetch_verified(found, &session)?);
        }
        // Listings and metadata belong to all of them, and count for the first.
        if let Some((first, others)) = brought.split_first_mut() {
            first.fetched.requests = cost.requests() - others.iter().map(|build| build.fetched.requests).sum::<u32>();
            first.fetched.bytes_fetched =
                cost.bytes() - others.iter().map(|build| build.fetched.bytes_fetched).sum::<u64>();
        }
        let devices: Vec<_> = chosen.iter().map(|(_, device)| *device).collect();
        // The locks end here: a dependency's are taken one at a time.
        drop((chosen, listed));
        let mut needed: Vec<Prefetched> = Vec::new();
        for (build, device) in brought.iter().zip(devices) {
            let Some(device) = device else { continue };
            for dependency in self.dependencies(build, revision, device, &session)? {
                if !needed.iter().any(|known| known.snapshot.root() == dependency.snapshot.root()) {
                    needed.push(dependency);
                }
            }
        }
        brought.extend(needed);
        Ok(brought)
    }

    /// Every build whose name is known. Dependencies are those of a machine that is not here, so that none come along.
    pub(super) fn every_build<'a>(&self, listed: &Listed<'a>) -> Vec<(Found<'a>, Option<DeviceKey>)> {
        let Listed { source, builds, admission } = listed;
        let machine = self.machine.lock().unwrap_or_else(PoisonError::into_inner);
        let resolution = resolve(&builds.candidates, &machine.system, &Request::any());
        let known = |(index, candidate): (usize, &Candidate)| candidate.variant.known().map(|_| index);
        let indices: Vec<usize> = builds.candidates.iter().enumerate().filter_map(known).collect();
        let found = |chosen| Found {
            source: *source,
            builds: builds.clone(),
            admission: admission.clone(),
            chosen,
            resolution: resolution.clone(),
        };
        indices.into_iter().map(|index| (found(index), None)).collect()
    }

    /// The builds that the machine's devices would be given, each once, in the listing's order.
    pub(super) fn for_this_machine<'a>(
        &'a self,
        listed: &Listed<'a>,
        revision: &Revision,
        session: &Session<'_>,
    ) -> Result<Vec<(Found<'a>, Option<DeviceKey>)>, HubError> {
        let mut keys = BTreeSet::from([DeviceKey::Cpu]);
        {
            let mut machine = self.machine.lock().unwrap_or_else(PoisonError::into_inner);
            keys.extend(machine.with_all_for(&listed.builds.candidates).devices.iter().map(|device| device.key));
        }
        let mut chosen: BTreeMap<usize, (Found<'a>, Option<DeviceKey>)> = BTreeMap::new();
        let mut refusal = None;
        for key in keys {
            match self.choose(listed.clone(), revision, key, session) {
                Ok(found) => {
                    chosen.entry(found.chosen).or_insert((found, Some(key)));
                }
                // Not every kernel serves every device; the processor's trace is the one worth showing.
                Err(error @ HubError::Resolve { .. }) => {
                    refusal.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        match refusal {
            Some(error) if chosen.is_empty() => Err(error),
            _ => Ok(chosen.into_values().collect()),
        }
    }

    /// Fetches one build if it isn't there, and verifies it. Damaged files are fetched again, once, unless
    /// offline.
    pub(super) fn fetch_verified(&self, found: &Found<'_>, session: &Session<'_>) -> Result<Prefetched, HubError> {
        let Found { source, builds, admission, chosen, .. } = found;
        let mut times = KernelTimes::default();
        let clock = Instant::now();
        let fetched = source.fetch(builds, *chosen, session)?;
        times.fetch_ms = milliseconds(clock);
        let clock = Instant::now();
        let verified = verify_with(&fetched.snapshot, admission, &self.verify);
        times.verify_ms = milliseconds(clock);
        let done = |snapshot: VerifiedSnapshot, fetched, repaired, times| {
            let (repo, variant) = (snapshot.repo(), snapshot.variant());
            let unsigned = snapshot.signature().warning().map(|warning| format!("{repo} ({variant}): {warning}"));
            Prefetched {
                notes: builds.notes.iter().cloned().chain(unsigned).collect(),
                snapshot: self.with_layers(snapshot),
                fetched,
                repaired,
                times,
                source: source.name(),
            }
        };
        // Offline means what is here: damage is said, whatever could be fetched from this machine.
        let may_repair = !self.options.offline && *fetched.snapshot.anchor() != Anchor::Local;
        let damage = match verified {
            Ok(snapshot) => return Ok(done(snapshot, fetched, false, times)),
            // A signature that is absent or wrong may be what is damaged; where it is not, the verdict stays.
            Err(error @ (VerifyError::Violations { .. } | VerifyError::Signature { .. })) if may_repair => error,
            Err(error) => return Err(error.into()),
        };
        let (repo, variant) = (&builds.repo, fetched.snapshot.variant());
        self.progress.note(&format!("{repo} ({variant}) is damaged in the cache, fetching it again: {damage}"));
        let clock = Instant::now();
        let again = source.fetch(builds, *chosen, &Session { reuse: Reuse::Replace, ..*session })?;
        times.fetch_ms += milliseconds(clock);
        let clock = Instant::now();
        let snapshot = verify_with(&again.snapshot, admission, &self.verify)?;
        times.verify_ms += milliseconds(clock);
        let requests = fetched.requests + again.requests;
        let bytes_fetched = fetched.bytes_fetched + again.bytes_fetched;
        Ok(done(snapshot, Fetched { requests, bytes_fetched, ..again }, true, times))
    }

    /// Adds the layers that a manifest names, for a build that does not say.
    fn with_layers(&self, snapshot: VerifiedSnapshot) -> VerifiedSnapshot {
        if !snapshot.layers().layers.is_empty() {
            return snapshot;
        }
        let layers = self.manifest_layers(snapshot.repo(), snapshot.version());
        snapshot.with_layers(layers)
    }

    /// The layers that a kernel of the Hub serves, by a manifest given to this hub, else by one shipped with this crate.
    /// Empty: neither says.
    pub(super) fn manifest_layers(&self, repo: &RepoId, version: u32) -> Vec<LayerSpec> {
        let is_of = |manifest: &KernelManifest| {
            let kernel = &manifest.kernel;
            kernel.source == ManifestSource::Hub && kernel.repo == *repo && kernel.version == version
        };
        let given = self.manifests.iter().find(|manifest| is_of(manifest)).cloned();
        given.or_else(|| hub_manifests().find(is_of)).map(|manifest| manifest.layers).unwrap_or_default()
    }
}
