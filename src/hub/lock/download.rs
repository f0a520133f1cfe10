//! Bringing what is locked.

use std::collections::BTreeSet;
use std::path::Path;

use super::listing::variant_hash;
use super::{LockError, Locks, commit_id, named};
use crate::digest::{Violation, ViolationKind};
use crate::fetch::{ArchiveSource, Builds, Cancel, Cost, FetchError, Location, Revision, Session, Source};
use crate::hub::find::{Found, Listed};
use crate::hub::{Hub, HubError, Prefetched, Selection};
use crate::manifest::{
    Artifact, KernelLock, KernelManifest, KernelVersion, METADATA_FILE, Pin, PinnedKernel, SIDECAR_FILE, VariantHash,
};
use crate::policy::Origin;
use crate::resolve::{Candidate, Request, choose};
use crate::variant::{AnyVariant, DeviceKey, Variant};

impl Hub {
    /// Brings locked kernels into the cache, verified against the lock. `folder` is where the lock files are.
    ///
    /// A kernel of which only `kernels.lock` speaks, as after a lock by the Python tool, is held to its commit, and in
    /// the older edition to the hashes of its variants.
    ///
    /// # Errors
    /// [`LockError::Violations`] when a build is not what is locked, before more than its metadata is fetched;
    /// [`LockError::Hub`] when it cannot be brought. Builds that were brought before stay in the cache.
    pub fn download(&self, locks: &Locks, folder: &Path, selection: Selection) -> Result<Vec<Prefetched>, LockError> {
        let (cancel, cost) = (Cancel::default(), Cost::default());
        let session = Session::new(&*self.progress, &cancel, &cost);
        // Paths in a lock are relative to it, as they are in a manifest.
        let base = Location::Local(folder.join(SIDECAR_FILE));
        // All of them before the first one is fetched.
        for kernel in &locks.sidecar.kernels {
            self.admit_locked(kernel, &session)?;
        }
        for kernel in &locks.kernels.kernels {
            self.admit_from_hub(&kernel.repo, &session)?;
        }
        let mut brought = Vec::new();
        for kernel in &locks.sidecar.kernels {
            if let Some(manifest) = kernel.manifest() {
                brought.extend(self.download_archives(&manifest, &base, selection, &session)?);
            }
        }
        for kernel in &locks.kernels.kernels {
            let pinned = locks.sidecar.pinned(kernel, &folder.display().to_string())?;
            brought.extend(self.download_hub(kernel, pinned, selection, &session)?);
        }
        Ok(brought)
    }

    fn download_archives(
        &self,
        locked: &KernelManifest,
        base: &Location,
        selection: Selection,
        session: &Session<'_>,
    ) -> Result<Vec<Prefetched>, LockError> {
        let (repo, revision) = (locked.kernel.repo.clone(), Revision::Version(locked.kernel.version));
        let admission = self.admit(&repo, &Origin::Archive, self.hub(), session)?;
        let given = vec![(self.widened(locked, base)?, base.clone())];
        let source = ArchiveSource::of_manifests(&self.cache, self.options.clone(), given);
        let unknown = || HubError::Unknown { repo: repo.clone(), revision: revision.clone(), known: Vec::new() };
        let mut builds = source.builds(&repo, &revision, session).map_err(HubError::from)?.ok_or_else(unknown)?;
        builds.candidates.retain(|c| c.variant.known().is_some_and(|variant| locked.artifact(&variant).is_some()));
        let listed = Listed { source: &source, builds, admission };
        let found = match selection {
            Selection::AllVariants => self.every_build(&listed),
            Selection::ThisMachine => self.for_this_machine(&listed, &revision, session)?,
        };
        found.iter().map(|(found, _)| Ok(self.fetch_verified(found, session)?)).collect()
    }

    /// A locked manifest with what the cache's record of the same archives says beyond it. A lock may hold a few of a
    /// kernel's builds; recording those alone would hide the others from everybody else who uses the cache.
    pub(super) fn widened(&self, locked: &KernelManifest, base: &Location) -> Result<KernelManifest, LockError> {
        let locked = locked.with_absolute_urls(base)?;
        // A record that cannot be read is replaced.
        let Some(mut recorded) = self.cache.manifest(&locked.kernel.repo, locked.kernel.version).ok().flatten() else {
            return Ok(locked);
        };
        for artifact in &locked.artifacts {
            let same = |earlier: &&mut Artifact| {
                let pins = |a: &Artifact| (a.variant, a.size, a.sha256, a.metadata_sha256);
                pins(earlier) == pins(artifact)
            };
            match recorded.artifacts.iter_mut().find(same) {
                Some(earlier) => earlier.url = artifact.url.clone(),
                None => return Ok(locked),
            }
        }
        Ok(recorded)
    }

    fn download_hub(
        &self,
        kernel: &KernelLock,
        pinned: Option<&PinnedKernel>,
        selection: Selection,
        session: &Session<'_>,
    ) -> Result<Vec<Prefetched>, LockError> {
        let admission = self.admit_from_hub(&kernel.repo, session)?;
        let name = pinned.map_or_else(|| kernel.to_string(), |pinned| named(&pinned.repo, &pinned.version));
        let revision = Revision::Commit(commit_id(&name, &kernel.commit)?);
        let locked: Option<Vec<Variant>> = match pinned {
            Some(pinned) => Some(pinned.variants().collect()),
            None if kernel.variants.is_empty() => None,
            None => Some(kernel.variants.keys().filter_map(AnyVariant::known).collect()),
        };
        let mut builds = self.locked_builds(kernel, &revision, locked.as_deref(), selection, session)?;
        if let Some(locked) = &locked {
            let known = |variant: &Variant| builds.candidates.iter().any(|c| c.variant.known() == Some(*variant));
            let needed = match selection {
                Selection::AllVariants => locked.clone(),
                Selection::ThisMachine => Vec::new(),
            };
            if let Some(absent) = needed.iter().find(|variant| !known(variant)) {
                let known = builds.candidates.iter().map(|candidate| candidate.variant.to_string()).collect();
                return Err(LockError::NoSuchVariant { kernel: name, variant: absent.to_string(), known });
            }
            builds.candidates.retain(|c| c.variant.known().is_some_and(|variant| locked.contains(&variant)));
        }
        let listed = Listed { source: self.hub(), builds, admission };
        let found = match selection {
            Selection::AllVariants => self.every_build(&listed),
            Selection::ThisMachine => self.for_this_machine(&listed, &revision, session)?,
        };
        let mut brought = Vec::new();
        for (found, _) in &found {
            let unchecked = self.check_found(&name, kernel, pinned, found, session)?;
            let mut build = self.fetch_verified(found, session)?;
            build.notes.extend(unchecked);
            brought.push(build);
        }
        Ok(brought)
    }

    /// The builds of a locked commit. The Hub is asked for its listing where one of them is wanted that is not here.
    fn locked_builds(
        &self,
        kernel: &KernelLock,
        revision: &Revision,
        locked: Option<&[Variant]>,
        selection: Selection,
        session: &Session<'_>,
    ) -> Result<Builds, LockError> {
        let absent = || HubError::Unknown { repo: kernel.repo.clone(), revision: revision.clone(), known: Vec::new() };
        let ask = |session: &Session<'_>| -> Result<Builds, LockError> {
            Ok(self.hub().builds(&kernel.repo, revision, session).map_err(HubError::from)?.ok_or_else(absent)?)
        };
        let builds = ask(session)?;
        let here = |variant: &Variant| builds.candidates.iter().any(|c| c.variant.known() == Some(*variant));
        let is_enough = match locked {
            Some(locked) => locked.iter().all(here),
            None => selection == Selection::ThisMachine && self.fits_something(&builds),
        };
        if is_enough || builds.is_whole_listing || self.options.offline {
            return Ok(builds);
        }
        drop(builds);
        ask(&Session { fresh_listing: true, ..*session })
    }

    fn fits_something(&self, builds: &Builds) -> bool {
        let known: Vec<Variant> = builds.candidates.iter().filter_map(|c| c.variant.known()).collect();
        self.fitting(&known).is_ok()
    }

    /// Compares a build with the lock before its files are fetched. Returns what could not be compared.
    fn check_found(
        &self,
        name: &str,
        kernel: &KernelLock,
        pinned: Option<&PinnedKernel>,
        found: &Found<'_>,
        session: &Session<'_>,
    ) -> Result<Option<String>, LockError> {
        let Some(variant) = found.builds.candidates.get(found.chosen).and_then(|c| c.variant.known()) else {
            return Ok(None);
        };
        let refuse = |kind, path: &str, expected: String, actual: String| LockError::Violations {
            kernel: name.to_owned(),
            variant: variant.to_string(),
            violations: vec![Violation { kind, path: path.to_owned(), expected: Some(expected), actual: Some(actual) }],
        };
        let build = match pinned.map(|pinned| &pinned.pin) {
            Some(Pin::Hub { builds, .. }) => builds.iter().find(|build| build.variant == variant),
            _ => None,
        };
        let (metadata, actual) = self.hub().anchored_metadata(&found.builds, found.chosen, session)?;
        // A commit says nothing about its version, and the lock may be another tool's or anybody's.
        if let Some(KernelVersion::Version(version)) = kernel.version
            && version != metadata.version
        {
            let (expected, actual) = (format!("version {version}"), format!("version {}", metadata.version));
            return Err(refuse(ViolationKind::IdentityMismatch, METADATA_FILE, expected, actual));
        }
        if let Some(build) = build {
            if actual != build.metadata_sha256 {
                let expected = format!("sha256 {}", build.metadata_sha256);
                return Err(refuse(
                    ViolationKind::MetadataMismatch,
                    METADATA_FILE,
                    expected,
                    format!("sha256 {actual}"),
                ));
            }
            return Ok(None);
        }
        let Some(expected): Option<&VariantHash> = kernel.variants.get(&AnyVariant::Known(variant)) else {
            return Ok(None);
        };
        let actual = match self.hub().listing(&found.builds, found.chosen, session) {
            Ok(files) => variant_hash(&files),
            Err(FetchError::Offline { .. }) => {
                let note = format!(
                    "{name}, {variant}: offline, and the commit's listing is not recorded, so that the variant's hash in \
                     the lock was not compared; its files were, with the metadata of the locked commit"
                );
                self.progress.note(&note);
                return Ok(Some(note));
            }
            Err(error) => return Err(error.into()),
        };
        if actual == *expected {
            return Ok(None);
        }
        Err(refuse(ViolationKind::DigestMismatch, ".", expected.to_string(), actual.to_string()))
    }

    /// The locked builds of a kernel that a selection means.
    pub(super) fn locked_variants(
        &self,
        kernel: &PinnedKernel,
        selection: Selection,
    ) -> Result<Vec<Variant>, LockError> {
        let locked: Vec<Variant> = kernel.variants().collect();
        if selection == Selection::AllVariants {
            return Ok(locked);
        }
        self.fitting(&locked).map_err(|source| {
            let repo = kernel.repo.clone();
            match super::revision_of(&kernel.version) {
                Ok(revision) => HubError::Resolve { repo, revision, source, others: None }.into(),
                Err(error) => error,
            }
        })
    }

    /// Of these builds, the ones that the devices of this machine would be given, by their names.
    fn fitting(&self, variants: &[Variant]) -> Result<Vec<Variant>, crate::resolve::ResolveError> {
        let candidates: Vec<Candidate> =
            variants.iter().enumerate().map(|(index, variant)| Candidate::new((*variant).into(), index)).collect();
        let mut machine = self.machine.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let system = machine.with_all_for(&candidates);
        let keys: BTreeSet<DeviceKey> =
            system.devices.iter().map(|device| device.key).chain([DeviceKey::Cpu]).collect();
        let mut chosen = BTreeSet::new();
        let mut refusal = None;
        for key in keys {
            match choose(&candidates, system, &Request::device(key)) {
                Ok((index, _)) => drop(chosen.insert(variants[index])),
                Err(error) => drop(refusal.get_or_insert(error)),
            }
        }
        match refusal {
            Some(error) if chosen.is_empty() => Err(error),
            _ => Ok(chosen.into_iter().collect()),
        }
    }
}
