//! One build of a commit: what is there, what is missing, and bringing that.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::PoisonError;

use futures_util::StreamExt as _;

use super::api::git_part;
use super::{HubPin, HubSource};
use crate::digest::{BlobId, Sha256Digest, Violation, ViolationKind};
use crate::fetch::hf_cache::{BuildRecord, FileLock, LockTag, RepoFolder, TreeFile};
use crate::fetch::http::{Wanted, download};
use crate::fetch::limits::MAX_FILE_BYTES;
use crate::fetch::source::Pin;
use crate::fetch::{Anchor, Builds, FetchError, Fetched, Reuse, Session, Snapshot};
use crate::manifest::{MAX_METADATA_BYTES, METADATA_FILE, Metadata, SIGNATURE_FILES};
use crate::names::{RelativePath, RepoId};
use crate::variant::Variant;

/// One build of a pinned commit.
pub(in crate::fetch) struct Build<'a> {
    source: &'a HubSource,
    repo: &'a RepoId,
    pin: &'a HubPin,
    pub(super) folder: RepoFolder,
    variant: Variant,
}

/// One blob to bring, with every place that needs it.
struct Job {
    blob: BlobId,
    sha256: Option<Sha256Digest>,
    size: Option<u64>,
    limit: u64,
    /// The path of the first place, which names it to the server and to whoever watches.
    path: RelativePath,
    places: Vec<PathBuf>,
}

impl HubSource {
    pub(in crate::fetch) fn build<'a>(&'a self, builds: &'a Builds, candidate: usize) -> Result<Build<'a>, FetchError> {
        let variant = builds.candidates.get(candidate).and_then(|candidate| candidate.variant.known());
        let (Pin::Hub(pin), Some(variant)) = (&builds.pin, variant) else {
            return Err(builds.of_another_source());
        };
        let folder = self.folder(&builds.repo, pin.repo_type);
        Ok(Build { source: self, repo: &builds.repo, pin, folder, variant })
    }
}

impl Build<'_> {
    fn what(&self) -> String {
        format!("{}@{} ({})", self.repo, self.pin.commit, self.variant)
    }

    pub(super) fn root(&self) -> PathBuf {
        self.folder.variant(self.pin.commit, &self.variant)
    }

    fn url_of(&self, path: &str) -> reqwest::Url {
        let path = format!("build/{}/{path}", self.variant);
        self.source.resolve_url(self.pin.repo_type, self.repo, self.pin.commit, &path)
    }

    /// The recorded listing of this build, if any.
    fn recorded_files(&self) -> Option<Vec<TreeFile>> {
        let record = self.source.records.builds(self.repo, self.pin.repo_type, self.pin.commit)?;
        record.files.get(&self.variant.to_string()).cloned()
    }

    /// The listing of this build: the recorded one, else the Hub's.
    pub(in crate::fetch) fn files(&self, session: &Session<'_>) -> Result<Vec<TreeFile>, FetchError> {
        if let Some(files) = self.recorded_files() {
            return Ok(files);
        }
        self.check_online()?;
        let (repo_type, commit) = (self.pin.repo_type, self.pin.commit);
        let url = self.source.tree_url(repo_type, self.repo, commit, Some(&self.variant));
        let files = self.source.http.block_on(session, self.source.get_files(&url, &self.variant, session)).map_err(
            |error| match error {
                FetchError::Status { status: 404, .. } => {
                    FetchError::NoBuilds { repo: self.repo.clone(), revision: commit.to_string(), url: url.to_string() }
                }
                other => other,
            },
        )?;
        let mut record = self.source.records.builds(self.repo, repo_type, commit).unwrap_or_else(|| BuildRecord {
            // Another tool filled the cache, and `build/` itself was never listed.
            builds: self.folder.variants(commit),
            ..BuildRecord::default()
        });
        record.files.insert(self.variant.to_string(), files.clone());
        if !record.builds.is_empty() {
            self.source
                .records
                .write_builds(self.repo, repo_type, commit, &record)
                .map_err(|error| error.cache_io(&self.what()))?;
        }
        Ok(files)
    }

    fn check_online(&self) -> Result<(), FetchError> {
        if self.source.fetch.offline {
            return Err(FetchError::Offline { what: self.what(), url: format!("{}@{}", self.repo, self.pin.commit) });
        }
        Ok(())
    }

    /// What the commit's tree says that the cached `metadata.json` is, as far as it was recorded.
    fn recorded_anchor(&self) -> Option<BlobId> {
        self.folder.anchor(self.repo, self.pin.commit, &self.variant, &self.source.records)
    }

    /// The cached metadata, if it is there and is the anchored one. Damaged metadata is fetched again where that can
    /// be.
    fn cached_metadata(&self) -> Result<Option<(Metadata, Option<BlobId>)>, FetchError> {
        let Some(bytes) = self.folder.metadata_bytes(self.pin.commit, &self.variant)? else { return Ok(None) };
        let anchor = self.recorded_anchor();
        if let Some(expected) = anchor
            && expected.of_same_kind(&bytes) != expected
        {
            if !self.source.fetch.offline {
                return Ok(None);
            }
            let actual = expected.of_same_kind(&bytes);
            return Err(FetchError::Damaged { path: self.root().join(METADATA_FILE), expected, actual });
        }
        self.parse(&bytes).map(|metadata| Some((metadata, anchor)))
    }

    fn parse(&self, bytes: &[u8]) -> Result<Metadata, FetchError> {
        let origin = format!("{}: build/{}/{METADATA_FILE}", self.what(), self.variant);
        Metadata::parse(bytes, &origin).map_err(|source| FetchError::Metadata { url: origin, source })
    }

    /// The metadata: the cached one, else the Hub's, brought into the cache.
    pub(in crate::fetch) fn metadata(&self, session: &Session<'_>) -> Result<(Metadata, Option<BlobId>), FetchError> {
        if let Some(found) = self.cached_metadata()? {
            return Ok(found);
        }
        self.check_online()?;
        let _lock = self.lock(session)?;
        if let Some(found) = self.cached_metadata()? {
            return Ok(found);
        }
        let files = self.files(session)?;
        let Some(file) = files.iter().find(|file| file.path.as_str() == METADATA_FILE) else {
            return Err(FetchError::Listing {
                url: format!("{}: build/{}", self.what(), self.variant),
                reason: format!("it holds no {METADATA_FILE}"),
            });
        };
        let job = Job {
            blob: file.blob(),
            sha256: file.lfs,
            size: file.size_hint(),
            limit: MAX_METADATA_BYTES,
            path: file.path.clone(),
            places: vec![self.root().join(METADATA_FILE)],
        };
        self.run(vec![job], session)?;
        self.pin.brought.lock().unwrap_or_else(PoisonError::into_inner).insert(self.variant);
        match self.cached_metadata()? {
            Some(found) => Ok(found),
            None => Err(FetchError::io("find what was just moved into place in", self.root())(
                std::io::ErrorKind::NotFound.into(),
            )),
        }
    }

    /// The digest of the cached `metadata.json`.
    pub(in crate::fetch) fn metadata_sha256(&self) -> Result<Sha256Digest, FetchError> {
        let bytes = self.folder.metadata_bytes(self.pin.commit, &self.variant)?;
        let path = || self.root().join(METADATA_FILE);
        bytes
            .map(|bytes| Sha256Digest::of(&bytes))
            .ok_or_else(|| FetchError::io("open", path())(std::io::ErrorKind::NotFound.into()))
    }

    /// The lock of the kernel, unless this work holds it already.
    fn lock(&self, session: &Session<'_>) -> Result<Option<FileLock>, FetchError> {
        if self.pin.lock.is_some() {
            return Ok(None);
        }
        let folder = self.source.folder(self.repo, crate::fetch::RepoType::Kernel);
        self.source.lock(self.repo, &folder, session).map(Some)
    }

    /// Drops the recorded listing where the files or the metadata are other than it says: a commit's listing never
    /// changes, but a server may have given a wrong one, and the next try asks again.
    pub(super) fn doubt_listing(&self, error: &FetchError) {
        if matches!(error, FetchError::Content { .. } | FetchError::Listing { .. } | FetchError::FileDigest { .. }) {
            self.source.records.forget_builds(self.repo, self.pin.repo_type, self.pin.commit);
        }
    }

    /// Brings what is missing.
    pub(super) fn fetch(&self, builds: &Builds, session: &Session<'_>) -> Result<Fetched, FetchError> {
        let span = tracing::debug_span!("fetch", repo = %self.repo, commit = %self.pin.commit, variant = %self.variant);
        let _entered = span.enter();
        let before = (session.cost.requests(), session.cost.bytes());
        if session.reuse == Reuse::Replace {
            self.check_online()?;
            let _lock = self.lock(session)?;
            self.remove_damage(session)?;
        }
        let (metadata, anchor) = self.metadata(session)?;
        self.check_metadata(builds, &metadata)?;
        let mut missing = self.missing(&metadata);
        let mut from_cache = session.reuse == Reuse::IfPresent;
        if !missing.is_empty() {
            if self.source.fetch.offline {
                let names: Vec<_> = missing.iter().map(ToString::to_string).collect();
                return Err(FetchError::Offline {
                    what: format!("{} of {}", names.join(", "), self.what()),
                    url: format!("{}@{}", self.repo, self.pin.commit),
                });
            }
            let _lock = self.lock(session)?;
            // Another process may have brought it while this one waited.
            missing = self.missing(&metadata);
            if !missing.is_empty() {
                from_cache = false;
                self.bring(&metadata, &missing, session)?;
            }
        }
        // The metadata itself may be what was missing.
        from_cache &= !self.pin.brought.lock().unwrap_or_else(PoisonError::into_inner).contains(&self.variant);
        self.record_ref(session);
        let snapshot = Snapshot {
            repo: self.repo.clone(),
            version: metadata.version,
            variant: self.variant,
            root: self.root(),
            anchor: Anchor::Hub { repo_type: self.pin.repo_type, commit: self.pin.commit, metadata: anchor },
            blobs: Some(self.folder.blobs()),
        };
        Ok(Fetched {
            snapshot,
            from_cache,
            requests: session.cost.requests() - before.0,
            bytes_fetched: session.cost.bytes() - before.1,
        })
    }

    /// What no file needs to be fetched for: no digest at all, or another kernel.
    pub(in crate::fetch) fn check_metadata(&self, builds: &Builds, metadata: &Metadata) -> Result<(), FetchError> {
        let version = builds.version.unwrap_or(metadata.version);
        let mut violations = metadata.identity_violations(self.repo, version, &self.variant);
        match &metadata.digest {
            None => violations.push(Violation {
                kind: ViolationKind::DigestAbsent,
                path: METADATA_FILE.to_owned(),
                expected: None,
                actual: None,
            }),
            Some(digest) => violations.extend(digest.faults.iter().cloned()),
        }
        if violations.is_empty() {
            return Ok(());
        }
        violations.sort();
        Err(FetchError::Content { repo: self.repo.clone(), version, variant: self.variant, violations })
    }

    /// Records the branch or tag, now that a build of its commit is whole.
    fn record_ref(&self, session: &Session<'_>) {
        let Some(name) = &self.pin.reference else { return };
        // A hit serves from a cache that cannot be written, too.
        if let Err(error) = self.folder.write_ref(name, self.pin.commit) {
            tracing::debug!(%error, "the ref of a cached kernel could not be recorded");
            session.progress.note(&format!("{name} could not be recorded for offline use: {error}"));
        }
    }

    /// The files that are not here: those that the metadata lists, and while online the signatures that the recorded
    /// listing has. Without one of those a build may still be whole, which its policy decides.
    fn missing(&self, metadata: &Metadata) -> Vec<RelativePath> {
        let mut missing = self.folder.missing(self.pin.commit, &self.variant, metadata);
        if !self.source.fetch.offline {
            missing.extend(self.unsigned(&self.recorded_files().unwrap_or_default()));
        }
        missing
    }

    /// The signatures in a listing that are not here.
    fn unsigned(&self, listed: &[TreeFile]) -> Vec<RelativePath> {
        let paths = listed.iter().map(|file| &file.path);
        let signatures = paths.filter(|path| SIGNATURE_FILES.contains(&path.as_str()));
        signatures.filter(|path| !path.below(&self.root()).is_file()).cloned().collect()
    }

    fn bring(&self, metadata: &Metadata, missing: &[RelativePath], session: &Session<'_>) -> Result<(), FetchError> {
        let files = self.files(session)?;
        let listed: BTreeMap<&RelativePath, &TreeFile> = files.iter().map(|file| (&file.path, file)).collect();
        let digests = metadata.digest.as_ref().map(|digest| &digest.files);
        let mut jobs: BTreeMap<BlobId, Job> = BTreeMap::new();
        let mut violations = Vec::new();
        let signatures = self.unsigned(&files);
        for path in missing.iter().chain(signatures.iter().filter(|path| !missing.contains(path))) {
            let sha256 = digests.and_then(|digests| digests.get(path)).copied();
            let violation = |kind, actual| Violation {
                kind,
                path: path.to_string(),
                expected: sha256.map(|digest| format!("sha256 {digest}")),
                actual,
            };
            let Some(file) = listed.get(path) else {
                violations.push(violation(ViolationKind::FileMissing, None));
                continue;
            };
            // Both sides name a sha256, so that a disagreement shows before anything is fetched.
            if let (Some(expected), Some(listed)) = (sha256, file.lfs)
                && expected != listed
            {
                violations.push(violation(ViolationKind::DigestMismatch, Some(format!("sha256 {listed}"))));
                continue;
            }
            let place = path.below(&self.root());
            let job = jobs.entry(file.blob()).or_insert_with(|| Job {
                blob: file.blob(),
                sha256: sha256.or(file.lfs),
                size: file.size_hint(),
                limit: MAX_FILE_BYTES,
                path: path.clone(),
                places: Vec::new(),
            });
            job.places.push(place);
        }
        if !violations.is_empty() {
            violations.sort();
            let (version, variant) = (metadata.version, self.variant);
            return Err(FetchError::Content { repo: self.repo.clone(), version, variant, violations });
        }
        self.run(jobs.into_values().collect(), session)
    }

    /// Brings blobs, several at a time, and puts each in its places. The first failed file ends the work.
    fn run(&self, jobs: Vec<Job>, session: &Session<'_>) -> Result<(), FetchError> {
        fs::create_dir_all(self.folder.blobs())
            .map_err(FetchError::io("make the folder", self.folder.blobs()))
            .map_err(|error| error.cache_io(&self.what()))?;
        let work = async {
            let mut running = futures_util::stream::iter(jobs)
                .map(|job| self.blob(job, session))
                .buffer_unordered(self.source.fetch.parallel.max(1));
            while let Some(result) = running.next().await {
                result?;
            }
            Ok(())
        };
        self.source.http.block_on(session, work).map_err(|error| error.cache_io(&self.what()))
    }

    async fn blob(&self, job: Job, session: &Session<'_>) -> Result<(), FetchError> {
        let lock_path = self.folder.blob_lock_path(job.blob);
        let lock = FileLock::acquire(&lock_path, job.path.as_str(), self.source.fetch.lock_timeout, session)?;
        let blob = self.folder.blob(job.blob);
        if !RepoFolder::holds(&blob, job.blob, job.sha256)? {
            let name = format!("{}/{}", self.repo, job.path);
            session.progress.started(&name, job.size);
            let url = self.url_of(job.path.as_str());
            let wanted = Wanted {
                url: &url,
                name: &name,
                size: job.size,
                limit: job.limit,
                sha256: job.sha256,
                git: git_part(job.blob),
            };
            // Without locks another process may write the same partial file, so that each has its own.
            let partial = if lock.is_absent() {
                self.folder.blobs().join(format!("{}.{}.incomplete", job.blob, std::process::id()))
            } else {
                self.folder.partial(job.blob)
            };
            download(&self.source.http, wanted, &partial, &mut LockTag(lock), session).await?;
            fs::rename(&partial, &blob).map_err(FetchError::io("move into place", &blob))?;
            session.progress.finished(&name);
        }
        for (index, place) in job.places.iter().enumerate() {
            self.folder.place(job.blob, place, index + 1 == job.places.len())?;
        }
        Ok(())
    }
}
