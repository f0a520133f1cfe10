//! Making a lock: from what a project declares to a commit or archives for every kernel that it needs.

use std::collections::BTreeMap;
use std::path::Path;

use super::listing::variant_hash;
use super::{LockError, Locks, Project, named, revision_of};
use crate::fetch::{Builds, Cancel, Cost, Location, Session};
use crate::hub::find::Listed;
use crate::hub::{Dependency, Hub};
use crate::manifest::{
    ArtifactUrl, HubBuild, KernelLock, KernelManifest, KernelVersion, KernelsLock, LockEdition, Pin, PinnedKernel,
};
use crate::names::{RelativePath, RepoId};
use crate::variant::{AnyVariant, Variant};

type Needs = Vec<(RepoId, KernelVersion)>;

impl Hub {
    /// Locks what a project declares, and what those kernels need themselves.
    ///
    /// A kernel of the Hub is locked to the commit that its version or revision is at now, and of each of its builds
    /// the metadata alone is read. A kernel of which a manifest is known is locked to its archives, which are brought
    /// into the cache for it: only their metadata says which kernels they need. A build without a readable name and
    /// metadata is left out, which whoever watches the progress is told.
    ///
    /// # Errors
    /// [`LockError`]; nothing is written by this call, so that a project's files stay as they were.
    pub fn lock(&self, project: &Project, edition: LockEdition) -> Result<Locks, LockError> {
        let mut making = Making { hub: self, folder: project.folder(), done: BTreeMap::new(), path: Vec::new() };
        for dependency in project.dependencies() {
            making.add(&dependency.repo, &dependency.version, &dependency.variants)?;
        }
        Ok(making.locks(edition))
    }
}

struct Making<'a> {
    hub: &'a Hub,
    folder: &'a Path,
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
            && !variants.is_empty()
            && variants.iter().all(|variant| done.variants().any(|locked| locked == *variant))
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

    /// Finds a kernel, and the kernels that its builds need.
    fn pin(
        &self,
        repo: &RepoId,
        version: &KernelVersion,
        variants: &[Variant],
    ) -> Result<(PinnedKernel, Needs), LockError> {
        let (cancel, cost) = (Cancel::default(), Cost::default());
        // What another tool fetched is not all that there is.
        let session = self.hub.asking(&cancel, &cost);
        let name = named(repo, version);
        let listed = self.hub.builds(repo, &revision_of(version)?, &session)?;
        let builds = &listed.builds;
        let known: Vec<Variant> = builds.candidates.iter().filter_map(|c| c.variant.known()).collect();
        if let Some(absent) = variants.iter().find(|variant| !known.contains(variant)) {
            return Err(LockError::NoSuchVariant {
                kernel: name,
                variant: absent.to_string(),
                known: known.iter().map(ToString::to_string).collect(),
            });
        }
        let wanted = |variant: &Variant| variants.is_empty() || variants.contains(variant);
        match (builds.commit(), builds.manifest()) {
            (Some(_), _) => self.pin_hub(builds, version, &wanted, !variants.is_empty(), &session),
            (None, Some(manifest)) => self.pin_archives(&listed, manifest?, &wanted, &session),
            (None, None) => Err(LockError::Local { kernel: name, source_name: listed.source.name() }),
        }
    }

    fn pin_hub(
        &self,
        builds: &Builds,
        version: &KernelVersion,
        wanted: &dyn Fn(&Variant) -> bool,
        all_must_be_whole: bool,
        session: &Session<'_>,
    ) -> Result<(PinnedKernel, Needs), LockError> {
        let name = named(&builds.repo, version);
        let hub = self.hub.hub();
        let mut license = None;
        let (mut locked, mut needs) = (Vec::new(), Vec::new());
        for (index, candidate) in builds.candidates.iter().enumerate() {
            let AnyVariant::Known(variant) = candidate.variant else {
                session
                    .progress
                    .note(&format!("{name}: the build {} is left out: its name is unknown", shown(&candidate.variant)));
                continue;
            };
            if !wanted(&variant) {
                continue;
            }
            let (metadata, metadata_sha256) = match hub.anchored_metadata(builds, index, session) {
                Ok(found) => found,
                Err(error) if !all_must_be_whole && is_about_the_build(&error) => {
                    session.progress.note(&format!("{name}: the build {variant} is left out: {error}"));
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let hash = variant_hash(&hub.listing(builds, index, session)?);
            locked.push(HubBuild { variant, hash, metadata_sha256 });
            add_needs(Dependency::of(&builds.repo, &metadata)?, &mut needs)?;
            license = license.or(metadata.license);
        }
        let Some(commit) = builds.commit().filter(|_| !locked.is_empty()) else {
            return Err(LockError::NoBuilds { kernel: name });
        };
        locked.sort();
        let commit = super::commit_of(&commit)?;
        let pin = Pin::Hub { commit, builds: locked };
        Ok((PinnedKernel { repo: builds.repo.clone(), version: version.clone(), license, pin }, needs))
    }

    fn pin_archives(
        &self,
        listed: &Listed<'_>,
        manifest: KernelManifest,
        wanted: &dyn Fn(&Variant) -> bool,
        session: &Session<'_>,
    ) -> Result<(PinnedKernel, Needs), LockError> {
        let (mut artifacts, mut needs) = (Vec::new(), Vec::new());
        let builds = &listed.builds;
        for (found, _) in self.hub.every_build(listed) {
            let artifact = builds.candidates.get(found.chosen).and_then(|c| manifest.artifacts.get(c.artifact));
            let Some(artifact) = artifact.filter(|artifact| wanted(&artifact.variant)) else { continue };
            let brought = self.hub.fetch_verified(&found, session)?;
            add_needs(Dependency::of(&builds.repo, brought.snapshot.metadata())?, &mut needs)?;
            let mut artifact = artifact.clone();
            artifact.url = relative_to(artifact.url, self.folder);
            artifacts.push(artifact);
        }
        let kernel = manifest.kernel;
        let pinned = PinnedKernel {
            repo: kernel.repo,
            version: KernelVersion::Version(kernel.version),
            license: Some(kernel.license),
            pin: Pin::Archive(artifacts),
        };
        Ok((pinned, needs))
    }

    fn locks(self, edition: LockEdition) -> Locks {
        let mut locks = Locks { kernels: KernelsLock { edition, ..KernelsLock::default() }, ..Locks::default() };
        for kernel in self.done.into_values() {
            if let Pin::Hub { commit, builds } = &kernel.pin {
                let hashes = builds.iter().map(|build| (AnyVariant::Known(build.variant), build.hash));
                locks.kernels.kernels.push(KernelLock {
                    repo: kernel.repo.clone(),
                    // Each edition has a place for one of the two.
                    version: (edition == LockEdition::Dependency).then(|| kernel.version.clone()),
                    commit: commit.clone(),
                    variants: if edition == LockEdition::Variants { hashes.collect() } else { BTreeMap::new() },
                });
            }
            locks.sidecar.kernels.push(kernel);
        }
        if locks.kernels.kernels.is_empty() {
            // An empty list is of no edition.
            locks.kernels.edition = LockEdition::default();
        }
        locks
    }
}

/// Whether an error is about what the publisher built, and not about reaching it.
fn is_about_the_build(error: &crate::fetch::FetchError) -> bool {
    use crate::fetch::FetchError::{Content, Listing, Metadata};
    matches!(error, Content { .. } | Listing { .. } | Metadata { .. })
}

/// A name from a listing, for a message.
fn shown(variant: &AnyVariant) -> String {
    variant.to_string().chars().take(100).collect::<String>().escape_debug().to_string()
}

/// Adds the kernels that a build needs, each once.
fn add_needs(dependencies: Vec<Dependency>, needs: &mut Needs) -> Result<(), LockError> {
    for Dependency { repo, revision } in dependencies {
        let version = match revision.version() {
            Some(version) => KernelVersion::Version(version),
            None => super::checked_revision(&repo, &revision.to_string())?,
        };
        if !needs.contains(&(repo.clone(), version.clone())) {
            needs.push((repo, version));
        }
    }
    Ok(())
}

/// A file of this machine as seen from the project, so that a project that carries its archives can be moved.
fn relative_to(url: ArtifactUrl, folder: &Path) -> ArtifactUrl {
    let relative = |url: &ArtifactUrl| -> Option<RelativePath> {
        let Ok(Location::Local(path)) = url.to_string().parse::<Location>() else { return None };
        let inside = path.strip_prefix(folder.canonicalize().ok()?).ok()?;
        let parts: Option<Vec<&str>> = inside.components().map(|part| part.as_os_str().to_str()).collect();
        parts?.join("/").parse().ok()
    };
    match relative(&url) {
        Some(path) => ArtifactUrl::Relative(path),
        None => url,
    }
}
