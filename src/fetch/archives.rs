//! Archive mirrors, by their manifests, as a source.

use std::sync::Arc;

use super::Source;
use super::source::Pin;
use super::{Builds, Cache, FetchError, FetchOptions, Fetched, Fetcher, Location, PublishedVersion, Revision, Session};
use crate::manifest::{KernelManifest, Source as ManifestSource};
use crate::names::RepoId;
use crate::policy::Origin;
use crate::resolve::Candidate;
use crate::variant::AnyVariant;

/// Kernels whose archives a manifest lists: the manifests given here, then those that the cache has recorded.
#[derive(Debug)]
pub struct ArchiveSource {
    cache: Cache,
    fetcher: Fetcher,
    given: Vec<(KernelManifest, Location)>,
    /// Whether to look among the recorded manifests.
    recorded: bool,
}

/// A manifest, and where its relative URLs start.
#[derive(Debug)]
pub(super) struct ArchivePin {
    manifest: KernelManifest,
    base: Location,
}

impl ArchivePin {
    /// The manifest as it can be recorded.
    pub(super) fn absolute(&self) -> Result<KernelManifest, FetchError> {
        self.manifest.with_absolute_urls(&self.base)
    }
}

impl ArchiveSource {
    /// The kernels of these manifests, each with where it came from.
    #[must_use]
    pub fn of_manifests(cache: &Cache, options: FetchOptions, given: Vec<(KernelManifest, Location)>) -> Self {
        Self { cache: cache.clone(), fetcher: Fetcher::new(options), given, recorded: false }
    }

    /// The kernels whose manifests the cache has recorded.
    #[must_use]
    pub fn recorded(cache: &Cache, options: FetchOptions) -> Self {
        Self { cache: cache.clone(), fetcher: Fetcher::new(options), given: Vec::new(), recorded: true }
    }

    fn find(&self, repo: &RepoId, version: u32) -> Result<Option<ArchivePin>, FetchError> {
        let given = self.given.iter().find(|(manifest, _)| {
            manifest.kernel.source == ManifestSource::Archive
                && manifest.kernel.repo == *repo
                && manifest.kernel.version == version
        });
        if let Some((manifest, base)) = given {
            return Ok(Some(ArchivePin { manifest: manifest.clone(), base: base.clone() }));
        }
        if !self.recorded {
            return Ok(None);
        }
        // A recorded manifest has absolute URLs, so that the base plays no part.
        let base = Location::Local(self.cache.root().to_path_buf());
        Ok(self.cache.manifest(repo, version)?.map(|manifest| ArchivePin { manifest, base }))
    }
}

impl Source for ArchiveSource {
    fn name(&self) -> String {
        if self.recorded { "recorded archives" } else { "manifests" }.to_owned()
    }

    fn origin(&self, repo: &RepoId, revision: &Revision) -> Result<Option<Origin>, FetchError> {
        let Some(version) = revision.version() else { return Ok(None) };
        Ok(self.find(repo, version)?.map(|_| Origin::Archive))
    }

    fn versions(&self, repo: &RepoId, _: &Session<'_>) -> Result<Vec<PublishedVersion>, FetchError> {
        let given = self.given.iter().map(|(manifest, _)| &manifest.kernel);
        let mut versions: Vec<u32> = given
            .filter(|kernel| kernel.repo == *repo && kernel.source == ManifestSource::Archive)
            .map(|kernel| kernel.version)
            .collect();
        if self.recorded {
            versions.extend(self.cache.versions(repo)?);
        }
        versions.sort_unstable();
        versions.dedup();
        Ok(versions.into_iter().map(|version| PublishedVersion { version, commit: None }).collect())
    }

    fn builds(&self, repo: &RepoId, revision: &Revision, _: &Session<'_>) -> Result<Option<Builds>, FetchError> {
        // An archive has no commits and no branches.
        let Revision::Version(version) = revision else { return Ok(None) };
        let Some(pin) = self.find(repo, *version)? else { return Ok(None) };
        let listed = pin.manifest.artifacts.iter().enumerate();
        let candidates = listed
            .map(|(index, artifact)| Candidate {
                size_bytes: Some(artifact.size),
                ..Candidate::new(AnyVariant::Known(artifact.variant), index)
            })
            .collect();
        Ok(Some(Builds {
            repo: repo.clone(),
            version: Some(*version),
            candidates,
            is_whole_listing: true,
            notes: Vec::new(),
            pin: Pin::Archive(Arc::new(pin)),
        }))
    }

    fn fetch(&self, builds: &Builds, candidate: usize, session: &Session<'_>) -> Result<Fetched, FetchError> {
        let (Pin::Archive(pin), Some(candidate)) = (&builds.pin, builds.candidates.get(candidate)) else {
            return Err(builds.of_another_source());
        };
        let artifact = pin.manifest.artifacts.get(candidate.artifact).ok_or_else(|| builds.of_another_source())?;
        self.fetcher.fetch_artifact_in(&self.cache, &pin.manifest, artifact, &pin.base, session)
    }
}
