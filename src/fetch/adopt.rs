//! Builds that reach the cache by another way than a download of ours: from a bundle. And what a lock needs to know of
//! the builds of a source.

use std::fs;
use std::path::Path;
use std::time::Duration;

use super::cache::make_folder;
use super::hf_cache::{BuildRecord, FileLock, RepoFolder, TreeFile};
use super::hub::HubSource;
use super::lock::exchange;
use super::source::Pin;
use super::{Builds, Cache, CommitId, FetchError, Location, RepoType, Revision, Session};
use crate::digest::Sha256Digest;
use crate::manifest::{KernelManifest, Metadata};
use crate::names::RepoId;
use crate::variant::Variant;

/// How long to wait for another process that works on the same kernel.
const PATIENCE: Duration = Duration::from_mins(10);

impl KernelManifest {
    /// This manifest with every URL made absolute, so that it serves from the cache. `base` is where it came from.
    pub(crate) fn with_absolute_urls(&self, base: &Location) -> Result<Self, FetchError> {
        let mut manifest = self.clone();
        for artifact in &mut manifest.artifacts {
            artifact.url = base.artifact(&artifact.url)?.to_artifact_url()?;
        }
        Ok(manifest)
    }
}

impl Builds {
    /// The manifest that lists them, with absolute URLs. `None`: they are no archives.
    pub(crate) fn manifest(&self) -> Option<Result<KernelManifest, FetchError>> {
        match &self.pin {
            Pin::Archive(pin) => Some(pin.absolute()),
            Pin::Hub(_) | Pin::Local(_) => None,
        }
    }
}

impl HubSource {
    /// The metadata of a build, and the digest of its bytes. Brings that one file where it is not in the cache.
    ///
    /// # Errors
    /// As [`Source::metadata`](super::Source::metadata), and [`FetchError::Content`] for metadata that no build can be
    /// held to: about another kernel, or without a digest.
    pub(crate) fn anchored_metadata(
        &self,
        builds: &Builds,
        candidate: usize,
        session: &Session<'_>,
    ) -> Result<(Metadata, Sha256Digest), FetchError> {
        let build = self.build(builds, candidate)?;
        let (metadata, _) = build.metadata(session)?;
        build.check_metadata(builds, &metadata)?;
        Ok((metadata, build.metadata_sha256()?))
    }

    /// The files of a build as the commit's tree lists them: recorded, else asked for.
    ///
    /// # Errors
    /// [`FetchError::Offline`] when nobody recorded them, else the errors of a listing.
    pub(crate) fn listing(
        &self,
        builds: &Builds,
        candidate: usize,
        session: &Session<'_>,
    ) -> Result<Vec<TreeFile>, FetchError> {
        self.build(builds, candidate)?.files(session)
    }
}

impl Cache {
    /// Puts an unpacked and checked archive in its place, in exchange for what is there. `folder` is on the cache's
    /// file system; it holds `build/<variant>/...`.
    pub(crate) fn adopt_archive(
        &self,
        archive: Sha256Digest,
        folder: &Path,
        session: &Session<'_>,
    ) -> Result<(), FetchError> {
        let _lock = self.lock(archive, "the same archive", PATIENCE, session)?;
        self.install(folder, archive)
    }

    /// Takes an archive out again: the other half of an adoption that is undone.
    pub(crate) fn forget_archive(&self, archive: Sha256Digest, session: &Session<'_>) -> Result<(), FetchError> {
        let _lock = self.lock(archive, "the same archive", PATIENCE, session)?;
        let folder = self.archive_folder(archive);
        fs::remove_dir_all(&folder).map_err(FetchError::io("remove", folder))
    }

    /// Puts the checked files of one build of a commit in their place, in exchange for what is there, and records the
    /// commit's listing of them. They stay files, without links to blobs, which is one of the layout's two forms.
    pub(crate) fn adopt_build(
        &self,
        place: HubPlace<'_>,
        folder: &Path,
        listing: Option<&[TreeFile]>,
        session: &Session<'_>,
    ) -> Result<(), FetchError> {
        let HubPlace { repo, commit, variant } = place;
        let repo_folder = self.repo_folder(repo);
        let _lock = FileLock::acquire(&repo_folder.lock_path(), &repo.to_string(), PATIENCE, session)?;
        if let Some(files) = listing {
            let records = self.records();
            let mut record = records.builds(repo, RepoType::Kernel, commit).unwrap_or_default();
            if !record.builds.contains(&variant.to_string()) {
                record.builds.push(variant.to_string());
                record.builds.sort();
            }
            record.files.insert(variant.to_string(), files.to_vec());
            records.write_builds(repo, RepoType::Kernel, commit, &record)?;
        }
        let builds = repo_folder.builds(commit);
        make_folder(&builds)?;
        let place = repo_folder.variant(commit, variant);
        if place.symlink_metadata().is_err() {
            return fs::rename(folder, &place).map_err(FetchError::io("move into place", &place));
        }
        exchange(folder, &place).map_err(FetchError::io("replace", &place))
    }

    /// Takes a build out again.
    pub(crate) fn forget_build(&self, place: HubPlace<'_>, session: &Session<'_>) -> Result<(), FetchError> {
        let folder = self.repo_folder(place.repo);
        let _lock = FileLock::acquire(&folder.lock_path(), &place.repo.to_string(), PATIENCE, session)?;
        let path = folder.variant(place.commit, place.variant);
        fs::remove_dir_all(&path).map_err(FetchError::io("remove", path))
    }

    /// What the records say that the files of a build are. `None`: nobody recorded it.
    pub(crate) fn recorded_listing(&self, place: HubPlace<'_>) -> Option<Vec<TreeFile>> {
        let record: BuildRecord = self.records().builds(place.repo, RepoType::Kernel, place.commit)?;
        record.files.get(&place.variant.to_string()).cloned()
    }

    /// Records the commit of a version, branch or tag, so that it resolves offline.
    pub(crate) fn record_ref(&self, repo: &RepoId, revision: &Revision, commit: CommitId) -> Result<(), FetchError> {
        match revision {
            Revision::Commit(_) => Ok(()),
            name => self.repo_folder(repo).write_ref(&name.to_string(), commit),
        }
    }

    fn repo_folder(&self, repo: &RepoId) -> RepoFolder {
        self.hub().repo(repo, RepoType::Kernel)
    }

    /// A new folder for a bundle's content, on the cache's file system. It is removed with the value.
    pub(crate) fn import_folder(&self) -> Result<tempfile::TempDir, FetchError> {
        work_folder(&self.root().join("tmp"))
    }

    /// The same beside the Hub's repos, which may be on another file system.
    pub(crate) fn hub_import_folder(&self) -> Result<tempfile::TempDir, FetchError> {
        work_folder(&self.hub().root().join(".locks"))
    }
}

/// Where a build of the Hub stands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HubPlace<'a> {
    pub(crate) repo: &'a RepoId,
    pub(crate) commit: CommitId,
    pub(crate) variant: &'a Variant,
}

/// After this time nobody works in an import's folder any more.
const ORPHANED: Duration = Duration::from_hours(24);

fn work_folder(parent: &Path) -> Result<tempfile::TempDir, FetchError> {
    make_folder(parent)?;
    // What killed imports left.
    for entry in fs::read_dir(parent).map_err(FetchError::io("list", parent))?.flatten() {
        let age = entry.metadata().and_then(|metadata| metadata.modified()).ok().and_then(|time| time.elapsed().ok());
        if entry.file_name().to_string_lossy().starts_with("import-") && age.is_some_and(|age| age > ORPHANED) {
            fs::remove_dir_all(entry.path()).map_err(FetchError::io("remove", entry.path()))?;
        }
    }
    tempfile::Builder::new().prefix("import-").tempdir_in(parent).map_err(FetchError::io("make a folder in", parent))
}
