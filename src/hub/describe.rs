//! What there is of a kernel, without bringing it.

use std::sync::PoisonError;

use serde::Serialize;

use super::{Hub, HubError};
use crate::fetch::{Builds, Cancel, Cost, PublishedVersion, Revision, Session, Source};
use crate::manifest::{LayerSpec, Metadata};
use crate::names::RepoId;
use crate::policy::Admission;
use crate::resolve::{Request, Resolution, resolve};
use crate::verify::inspect;

/// One version of a kernel and its builds.
#[derive(Debug, Clone, Serialize)]
pub struct VersionBuilds {
    /// The number.
    pub version: u32,
    /// The commit that it is at. `None`: it is published as archives.
    pub commit: Option<String>,
    /// Why each build fits this machine or doesn't, by its name; the one that would be taken comes first.
    pub resolution: Resolution,
}

/// A kernel as its publisher describes it.
#[derive(Debug)]
pub struct KernelDescription {
    /// The kernel.
    pub repo: RepoId,
    /// What was asked for.
    pub revision: Revision,
    /// Whether its publisher is admitted from there: why, or why not.
    pub trust: Result<Admission, HubError>,
    /// The commit. `None`: the builds are archives, or a local folder.
    pub commit: Option<String>,
    /// Where it was found.
    pub source: String,
    /// SPDX expression of its licence. `None`: nobody states one.
    pub license: Option<String>,
    /// One line about it. `None`: nobody says.
    pub description: Option<String>,
    /// The metadata of the build that would be taken, else of the first that can be read. `None`: it comes with a build
    /// that was not fetched yet.
    pub metadata: Option<Metadata>,
    /// The layers that it serves. Empty: nobody says before the build is fetched.
    pub layers: Vec<LayerSpec>,
    /// Why each build fits this machine or doesn't, by its name.
    pub resolution: Resolution,
    /// What is worth reporting about how it was found.
    pub notes: Vec<String>,
}

impl Hub {
    /// Every version of a kernel in the first source that has it, ascending, with its builds; and that source's name.
    ///
    /// # Errors
    /// [`HubError::Unknown`] when no source has a version of it, else the errors of asking.
    pub fn version_builds(&self, repo: &RepoId) -> Result<(String, Vec<VersionBuilds>), HubError> {
        let (source, versions) = self.versions(repo)?;
        if versions.is_empty() {
            return Err(HubError::Unknown { repo: repo.clone(), revision: Revision::Version(1), known: Vec::new() });
        }
        let (cancel, cost) = (Cancel::default(), Cost::default());
        let session = self.asking(&cancel, &cost);
        let mut described = Vec::new();
        for PublishedVersion { version, commit } in versions {
            // A commit takes one request less than the version that is at it.
            let revision = commit.map_or(Revision::Version(version), Revision::Commit);
            let (_, builds) = self.described_builds(repo, &revision, &session)?;
            let resolution = self.decide(&builds);
            described.push(VersionBuilds { version, commit: commit.map(|commit| commit.to_string()), resolution });
        }
        Ok((source, described))
    }

    /// Describes one revision of a kernel. Of its builds, at most the metadata of one is brought.
    ///
    /// # Errors
    /// [`HubError`] when no source has it, or it cannot be asked.
    pub fn describe(&self, repo: &RepoId, revision: &Revision) -> Result<KernelDescription, HubError> {
        let (cancel, cost) = (Cancel::default(), Cost::default());
        let session = self.asking(&cancel, &cost);
        let (source, builds) = self.described_builds(repo, revision, &session)?;
        let resolution = self.decide(&builds);
        let mut notes = builds.notes.clone();
        let metadata = Self::metadata_of(source, &builds, &resolution, &session, &mut notes);
        let manifest = builds.manifest().transpose()?;
        let (mut layers, mut cached) = (Vec::new(), None);
        if let Some(manifest) = &manifest {
            let mut fetched = manifest.artifacts.iter().filter_map(|artifact| self.cache.snapshot(manifest, artifact));
            // What is damaged describes nothing; `cache verify` names it.
            if let Some(build) = fetched.find_map(|snapshot| inspect(&snapshot).ok()) {
                layers.clone_from(&build.layers().layers);
                cached = Some(build.metadata().clone());
            }
        }
        let metadata = metadata.or(cached);
        if layers.is_empty() {
            let version = revision.version().or_else(|| metadata.as_ref().map(|metadata| metadata.version));
            layers = version.map(|version| self.manifest_layers(repo, version)).unwrap_or_default();
        }
        let kernel = manifest.map(|manifest| manifest.kernel);
        let stated = metadata.as_ref().and_then(|metadata| metadata.license.clone());
        Ok(KernelDescription {
            repo: repo.clone(),
            revision: revision.clone(),
            trust: self.admission(repo, revision),
            commit: builds.commit().map(|commit| commit.to_string()),
            source: source.name(),
            license: stated.or_else(|| kernel.as_ref().map(|kernel| kernel.license.clone())),
            description: kernel.and_then(|kernel| kernel.description),
            metadata,
            layers,
            resolution,
            notes,
        })
    }

    /// The metadata of the build that would be taken, else of the first that can be read.
    fn metadata_of(
        source: &dyn Source,
        builds: &Builds,
        resolution: &Resolution,
        session: &Session<'_>,
        notes: &mut Vec<String>,
    ) -> Option<Metadata> {
        let known = |index: &usize| builds.candidates.get(*index).is_some_and(|c| c.variant.known().is_some());
        let order = resolution.chosen.into_iter().chain(0..builds.candidates.len()).filter(known);
        for index in order {
            match source.metadata(builds, index, session) {
                Ok(metadata) => return metadata,
                // One broken or absent build hides no other one.
                Err(error) => notes.push(error.to_string()),
            }
        }
        None
    }

    /// A session that asks for the whole listing.
    pub(super) fn asking<'a>(&'a self, cancel: &'a Cancel, cost: &'a Cost) -> Session<'a> {
        Session { fresh_listing: !self.options.offline, ..Session::new(&*self.progress, cancel, cost) }
    }

    /// Decides on builds by their names, for any device of this machine.
    fn decide(&self, builds: &Builds) -> Resolution {
        let mut machine = self.machine.lock().unwrap_or_else(PoisonError::into_inner);
        resolve(&builds.candidates, machine.with_all_for(&builds.candidates), &Request::any())
    }
}
