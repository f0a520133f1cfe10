//! Making a lock: from what a project declares to a commit or archives for every kernel that it needs.

use std::collections::BTreeMap;

use super::{LockError, Locks, Project, named};
use crate::fetch::Location;
use crate::hub::Hub;
use crate::manifest::{
    KernelLock, KernelManifest, KernelVersion, KernelsLock, LockEdition, Metadata, Pin, PinnedKernel, kernel_dependency,
};
use crate::names::RepoId;
use crate::variant::{AnyVariant, Variant};

impl Hub {
    /// Locks what a project declares, and what those kernels need themselves.
    ///
    /// A kernel of which a manifest is known is locked to its archives, which are brought into the cache for it: only
    /// their metadata says which kernels they need. Any other kernel is locked to the commit that its version or revision
    /// is at now, and of each build the metadata alone is read.
    ///
    /// # Errors
    /// [`LockError`]; nothing is written by this call, so that a project's files stay as they were.
    pub fn lock(&self, project: &Project, edition: LockEdition) -> Result<Locks, LockError> {
        let mut making = Making { hub: self, done: BTreeMap::new(), path: Vec::new() };
        for dependency in project.dependencies() {
            making.add(&dependency.repo, &dependency.version, &dependency.variants)?;
        }
        Ok(making.locks(edition))
    }
}

struct Making<'a> {
    hub: &'a Hub,
    done: BTreeMap<(RepoId, KernelVersion), PinnedKernel>,
    /// The kernels that led to the one at hand, to tell a circle.
    path: Vec<(RepoId, KernelVersion)>,
}

impl Making<'_> {
    /// Locks a kernel and what it needs. `variants`: the builds that are wanted; empty: all.
    fn add(&mut self, repo: &RepoId, version: &KernelVersion, variants: &[Variant]) -> Result<(), LockError> {
        let key = (repo.clone(), version.clone());
        if let Some(start) = self.path.iter().position(|earlier| *earlier == key) {
            let circle = self.path[start..].iter().chain([&key]);
            return Err(LockError::Cycle { path: circle.map(|(repo, version)| named(repo, version)).collect() });
        }
        if let Some(done) = self.done.get(&key)
            && variants.iter().all(|variant| done.variants().any(|locked| locked == *variant))
            && !variants.is_empty()
        {
            return Ok(());
        }
        self.path.push(key.clone());
        let (pinned, needs) = self.pin(repo, version, variants)?;
        for (repo, version) in needs {
            self.add(&repo, &version, &[])?;
        }
        self.path.pop();
        self.done.insert(key, pinned);
        Ok(())
    }

    /// Finds a kernel and the kernels that its builds need.
    fn pin(
        &self,
        repo: &RepoId,
        version: &KernelVersion,
        variants: &[Variant],
    ) -> Result<(PinnedKernel, Vec<(RepoId, KernelVersion)>), LockError> {
        let KernelVersion::Version(number) = version else {
            return Err(LockError::NoBuilds { kernel: named(repo, version) });
        };
        let (manifest, base) = self.hub.manifest(repo, *number)?;
        self.pin_archives(&manifest, &base, variants)
    }

    fn pin_archives(
        &self,
        manifest: &KernelManifest,
        base: &Location,
        variants: &[Variant],
    ) -> Result<(PinnedKernel, Vec<(RepoId, KernelVersion)>), LockError> {
        let kernel = &manifest.kernel;
        let version = KernelVersion::Version(kernel.version);
        let name = named(&kernel.repo, &version);
        let known: Vec<Variant> = manifest.artifacts.iter().map(|artifact| artifact.variant).collect();
        check_variants(&name, variants, &known)?;
        let recorded = manifest.with_absolute_urls(base)?;
        let mut artifacts = Vec::new();
        let mut needs = Vec::new();
        for (artifact, locked) in manifest.artifacts.iter().zip(recorded.artifacts) {
            if !variants.is_empty() && !variants.contains(&artifact.variant) {
                continue;
            }
            let brought = self.hub.fetch_verified(manifest, artifact, base)?;
            add_needs(brought.snapshot.metadata(), &name, &mut needs)?;
            artifacts.push(locked);
        }
        let license = Some(kernel.license.clone());
        let pinned = PinnedKernel { repo: kernel.repo.clone(), version, license, pin: Pin::Archive(artifacts) };
        Ok((pinned, needs))
    }

    fn locks(self, edition: LockEdition) -> Locks {
        let mut locks = Locks { kernels: KernelsLock { edition, ..KernelsLock::default() }, ..Locks::default() };
        for kernel in self.done.into_values() {
            if let Pin::Hub { commit, builds } = &kernel.pin {
                let hashes = builds.iter().map(|build| (AnyVariant::Known(build.variant), build.hash));
                locks.kernels.kernels.push(KernelLock {
                    repo: kernel.repo.clone(),
                    // The older edition has no place for either.
                    version: (edition == LockEdition::Dependency).then(|| kernel.version.clone()),
                    commit: commit.clone(),
                    variants: if edition == LockEdition::Variants { hashes.collect() } else { BTreeMap::new() },
                });
            }
            locks.sidecar.kernels.push(kernel);
        }
        locks
    }
}

/// Whether a kernel has the builds that a project names.
fn check_variants(kernel: &str, wanted: &[Variant], known: &[Variant]) -> Result<(), LockError> {
    match wanted.iter().find(|variant| !known.contains(variant)) {
        None => Ok(()),
        Some(absent) => Err(LockError::NoSuchVariant {
            kernel: kernel.to_owned(),
            variant: absent.to_string(),
            known: known.iter().map(ToString::to_string).collect(),
        }),
    }
}

/// Adds the kernels that a build needs, each once.
fn add_needs(metadata: &Metadata, kernel: &str, needs: &mut Vec<(RepoId, KernelVersion)>) -> Result<(), LockError> {
    for value in &metadata.kernel_depends {
        let need = kernel_dependency(value, &format!("the metadata of {kernel}"))?;
        if !needs.contains(&need) {
            needs.push(need);
        }
    }
    Ok(())
}
