//! The steps from an artifact in a manifest to a snapshot in the cache.

use std::path::Path;

use super::file::{Incoming, copy_file, read_file};
use super::http::{Http, HttpOptions, TagStore, Wanted, download};
use super::lock::ArchiveLock;
use super::{Cache, Cancel, Cost, FetchError, FetchOptions, Location, NoProgress, Progress};
use super::{Session, Snapshot, archive};
use crate::digest::{BlobId, Sha256Digest, Violation, ViolationKind};
use crate::manifest::{Artifact, KernelManifest, MAX_MANIFEST_BYTES, METADATA_FILE, Metadata};

/// What to do about an archive that is in the cache already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reuse {
    /// Take it as it is; [`crate::verify`] decides whether it is whole.
    #[default]
    IfPresent,
    /// Fetch it again and put the new one in its place: the repair of a damaged cache.
    Replace,
}

/// The result of a fetch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// The files.
    pub snapshot: Snapshot,
    /// Whether they were in the cache already, or another process brought them while this one waited.
    pub from_cache: bool,
    /// HTTP requests that this fetch made, with retries and redirects.
    pub requests: u32,
    /// Bytes of files that this fetch read, from the network or from a file. Listings are not counted.
    pub bytes_fetched: u64,
}

/// Fetches manifests and archives. Makes its HTTP client and its runtime at the first request, so that a warm hit has
/// neither.
#[derive(Debug)]
pub struct Fetcher {
    options: FetchOptions,
    http: Http,
}

impl Fetcher {
    /// A fetcher. Opens nothing.
    #[must_use]
    pub fn new(options: FetchOptions) -> Self {
        let http = Http::new(HttpOptions {
            answer_timeout: options.answer_timeout,
            read_timeout: options.timeout,
            retry: options.retry,
            token: None,
        });
        Self { options, http }
    }

    /// The options.
    #[must_use]
    pub fn options(&self) -> &FetchOptions {
        &self.options
    }

    /// Reads a manifest from a URL, a file or an OCI registry.
    ///
    /// # Errors
    /// [`FetchError::Offline`] for a URL while offline; [`FetchError::Manifest`] when the text is no manifest; the
    /// errors of a transfer, or of reading the file.
    pub fn fetch_manifest(&self, location: &Location) -> Result<KernelManifest, FetchError> {
        self.check_online(location, "the manifest")?;
        let text = match location {
            Location::Oci(reference) => return Ok(crate::oci::pull_manifest(reference, self.options.timeout)?),
            Location::Local(path) => read_file(path, MAX_MANIFEST_BYTES)?,
            Location::Remote(url) => {
                let (cancel, cost) = (Cancel::default(), Cost::default());
                let session = Session::new(&NoProgress, &cancel, &cost);
                let work = self.http.get_small(url, MAX_MANIFEST_BYTES, self.options.retry, &session);
                self.http.block_on(&session, work)?.0
            }
        };
        let name = location.to_string();
        let invalid = |source| FetchError::Manifest { location: name.clone(), source };
        let text = String::from_utf8(text).map_err(|error| {
            invalid(crate::manifest::ManifestError::Invalid {
                origin: name.clone(),
                field: "manifest".to_owned(),
                reason: format!("not UTF-8 at byte {}", error.utf8_error().valid_up_to()),
            })
        })?;
        KernelManifest::parse(&text, &name).map_err(invalid)
    }

    /// Brings an artifact into the cache, and records its manifest there. `base` is where the manifest came from.
    ///
    /// The archive is streamed into a temporary file while it is hashed, compared with the manifest's digest, unpacked
    /// beside its final place under the archive rules, checked file by file, and moved into place by one rename. On any
    /// error nothing of it stays, except the start of a download that broke off: the next fetch goes on with it.
    ///
    /// # Errors
    /// Every [`FetchError`]; which one says what failed.
    pub fn fetch_artifact(
        &self,
        cache: &Cache,
        manifest: &KernelManifest,
        artifact: &Artifact,
        base: &Location,
        progress: &dyn Progress,
        reuse: Reuse,
    ) -> Result<Fetched, FetchError> {
        let (cancel, cost) = (Cancel::default(), Cost::default());
        let session = Session { reuse, ..Session::new(progress, &cancel, &cost) };
        self.fetch_artifact_in(cache, manifest, artifact, base, &session)
    }

    /// As [`Self::fetch_artifact`], as a part of other work.
    pub(super) fn fetch_artifact_in(
        &self,
        cache: &Cache,
        manifest: &KernelManifest,
        artifact: &Artifact,
        base: &Location,
        session: &Session<'_>,
    ) -> Result<Fetched, FetchError> {
        let (progress, reuse) = (session.progress, session.reuse);
        let before = (session.cost.requests(), session.cost.bytes());
        let kernel = &manifest.kernel;
        if !manifest.artifacts.contains(artifact) {
            return Err(FetchError::NotListed {
                repo: kernel.repo.clone(),
                version: kernel.version,
                variant: artifact.variant,
            });
        }
        let location = base.artifact(&artifact.url)?;
        let recorded = manifest.with_absolute_urls(base)?;
        let hit = || {
            let snapshot = cache.snapshot(manifest, artifact)?;
            // A hit serves from a cache that cannot be written, too. What is missing then is that the version resolves
            // without this manifest at hand.
            if let Err(error) = cache.record_manifest(&recorded) {
                let cause = std::error::Error::source(&error).map_or_else(String::new, |cause| format!(": {cause}"));
                tracing::debug!(%error, cause, "the manifest of a cached archive could not be recorded");
                progress.note(&format!("the manifest could not be recorded for offline use: {error}{cause}"));
            }
            Some(Fetched { snapshot, from_cache: true, requests: 0, bytes_fetched: 0 })
        };
        if reuse == Reuse::IfPresent
            && let Some(fetched) = hit()
        {
            return Ok(fetched);
        }
        let what = format!("{} v{} ({})", kernel.repo, kernel.version, artifact.variant);
        self.check_online(&location, &what)?;
        let lock =
            cache.lock(artifact.sha256, &what, self.options.lock_timeout, session).map_err(|e| e.cache_io(&what))?;
        // Another process may have brought it while this one waited.
        if reuse == Reuse::IfPresent
            && let Some(fetched) = hit()
        {
            return Ok(fetched);
        }
        progress.started(&what, Some(artifact.size));
        self.bring(cache, manifest, artifact, &location, lock, &what, session)
            .map_err(|error| error.cache_io(&what))?;
        cache.record_manifest(&recorded)?;
        let snapshot = cache.snapshot(manifest, artifact).ok_or_else(|| FetchError::Io {
            action: "find what was just moved into place in",
            path: cache.root().to_path_buf(),
            source: std::io::ErrorKind::NotFound.into(),
        })?;
        progress.finished(&what);
        Ok(Fetched {
            snapshot,
            from_cache: false,
            requests: session.cost.requests() - before.0,
            bytes_fetched: session.cost.bytes() - before.1,
        })
    }

    /// Downloads, checks, unpacks, checks again, and moves into place.
    #[expect(clippy::too_many_arguments, reason = "the steps' one caller")]
    fn bring(
        &self,
        cache: &Cache,
        manifest: &KernelManifest,
        artifact: &Artifact,
        location: &Location,
        lock: ArchiveLock,
        what: &str,
        session: &Session<'_>,
    ) -> Result<(), FetchError> {
        let url = location.to_string();
        if artifact.size > self.options.max_archive_bytes {
            return Err(FetchError::TooLong { url, maximum: self.options.max_archive_bytes });
        }
        let (place, mut tag) = lock.split();
        let path = place.partial()?;
        self.read_exactly(location, artifact.size, artifact.sha256, &path, &mut tag, what, session)?;
        let work = place.work_folder()?;
        let unpacked = work.path().join("unpacked");
        let found = archive::unpack(&path, &unpacked, &artifact.variant);
        // Whole and right, but of no further use.
        std::fs::remove_file(&path).map_err(FetchError::io("remove", &path))?;
        let found = found.map_err(|error| match error {
            archive::UnpackError::Refused(source) => {
                FetchError::Archive { url: url.clone(), variant: artifact.variant, source }
            }
            archive::UnpackError::Io { action, path, source } => FetchError::Io { action, path, source },
        })?;
        check_content(manifest, artifact, &url, &found)?;
        cache.install(&unpacked, artifact.sha256)?;
        Ok(())
    }

    /// Brings a file of exactly this size and digest to `partial`, from the network or from this machine.
    #[expect(clippy::too_many_arguments, reason = "what a file is, where it goes, and who is told")]
    pub(super) fn read_exactly(
        &self,
        location: &Location,
        size: u64,
        sha256: Sha256Digest,
        partial: &Path,
        tag: &mut dyn TagStore,
        name: &str,
        session: &Session<'_>,
    ) -> Result<(), FetchError> {
        self.check_online(location, name)?;
        let outcome = match location {
            Location::Remote(url) => {
                let wanted = Wanted { url, name, size: Some(size), limit: size, sha256: Some(sha256), git: None };
                self.http.block_on(session, download(&self.http, wanted, partial, tag, session))
            }
            Location::Local(path) => {
                let mut incoming = Incoming::create(location.to_string(), size, partial, name, session)?;
                copy_file(path, &mut incoming)?;
                incoming.finish(sha256)
            }
            Location::Oci(reference) => {
                let mut incoming = Incoming::create(location.to_string(), size, partial, name, session)?;
                let pulled = crate::oci::pull_blob(reference, size, self.options.timeout, &mut |piece: &[u8]| {
                    incoming.push(piece)
                });
                // A pull does not go on where another broke off, so that nothing of it is kept.
                let requests = pulled.inspect_err(|_: &FetchError| _ = std::fs::remove_file(partial))?;
                (0..requests).for_each(|_| session.cost.add_request());
                incoming.finish(sha256)
            }
        };
        outcome.map(|_| ()).map_err(|error| match error {
            FetchError::FileDigest { url, actual: BlobId::Sha256(actual), bytes, .. } => {
                FetchError::ArchiveDigest { url, expected: sha256, actual, bytes }
            }
            other => other,
        })
    }

    fn check_online(&self, location: &Location, what: &str) -> Result<(), FetchError> {
        match location {
            Location::Remote(_) | Location::Oci(_) if self.options.offline => {
                Err(FetchError::Offline { what: what.to_owned(), url: location.to_string() })
            }
            _ => Ok(()),
        }
    }
}

/// Compares what was unpacked with the manifest and with the archive's own metadata.
fn check_content(
    manifest: &KernelManifest,
    artifact: &Artifact,
    url: &str,
    unpacked: &archive::Unpacked,
) -> Result<(), FetchError> {
    let kernel = &manifest.kernel;
    let refuse = |violations| {
        Err(FetchError::Content {
            repo: kernel.repo.clone(),
            version: kernel.version,
            variant: artifact.variant,
            violations,
        })
    };
    // The anchor first: metadata that is not the manifest's own says nothing about the other files.
    let actual = Sha256Digest::of(&unpacked.metadata);
    if actual != artifact.metadata_sha256 {
        return refuse(vec![Violation {
            kind: ViolationKind::MetadataMismatch,
            path: METADATA_FILE.to_owned(),
            expected: Some(format!("sha256 {}", artifact.metadata_sha256)),
            actual: Some(format!("sha256 {actual}")),
        }]);
    }
    let metadata = Metadata::parse(&unpacked.metadata, &format!("{url}: {METADATA_FILE}"))
        .map_err(|source| FetchError::Metadata { url: url.to_owned(), source })?;
    let mut violations = metadata.violations(&unpacked.files);
    violations.extend(metadata.identity_violations(&kernel.repo, kernel.version, &artifact.variant));
    violations.sort();
    if violations.is_empty() { Ok(()) } else { refuse(violations) }
}
