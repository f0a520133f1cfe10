//! The steps from an artifact in a manifest to a snapshot in the cache.

use std::time::Duration;

use super::download::{Client, Download};
use super::lock::ArchiveLock;
use super::{Cache, FetchError, Location, MAX_ARCHIVE_BYTES, Progress, Snapshot, archive, env};
use crate::digest::{Sha256Digest, Violation, ViolationKind};
use crate::manifest::{Artifact, KernelManifest, MAX_MANIFEST_BYTES, METADATA_FILE, Metadata};

/// How to fetch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchOptions {
    /// Open no socket. Files of this machine are still read. Default: false.
    pub offline: bool,
    /// How long to wait for a connection, and for each next piece of an answer. A slow but steady transfer is not cut
    /// off. Default: 30 s.
    pub timeout: Duration,
    /// Largest archive to accept, in bytes. Default: [`MAX_ARCHIVE_BYTES`].
    pub max_archive_bytes: u64,
}

impl Default for FetchOptions {
    fn default() -> Self {
        Self { offline: false, timeout: Duration::from_secs(30), max_archive_bytes: MAX_ARCHIVE_BYTES }
    }
}

impl FetchOptions {
    /// The defaults, and offline where `HF_HUB_OFFLINE` says so.
    #[must_use]
    pub fn from_env() -> Self {
        Self { offline: env::offline(&env::process), ..Self::default() }
    }
}

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
    /// HTTP requests that this fetch made, redirects not counted.
    pub requests: u32,
    /// Bytes of the archive that this fetch read, from the network or from a file.
    pub bytes_fetched: u64,
}

/// Fetches manifests and archives. Makes its HTTP client and its runtime at the first request, so that a warm hit has
/// neither.
#[derive(Debug)]
pub struct Fetcher {
    options: FetchOptions,
    client: Client,
}

impl Fetcher {
    /// A fetcher. Opens nothing.
    #[must_use]
    pub fn new(options: FetchOptions) -> Self {
        Self { client: Client::new(options.timeout), options }
    }

    /// The options.
    #[must_use]
    pub fn options(&self) -> &FetchOptions {
        &self.options
    }

    /// Reads a manifest from a URL or a file.
    ///
    /// # Errors
    /// [`FetchError::Offline`] for a URL while offline; [`FetchError::Manifest`] when the text is no manifest; the
    /// errors of a transfer, or of reading the file.
    pub fn fetch_manifest(&self, location: &Location) -> Result<KernelManifest, FetchError> {
        let mut text = Vec::new();
        self.read(location, "the manifest", MAX_MANIFEST_BYTES, &mut |piece| {
            text.extend_from_slice(piece);
            Ok(())
        })?;
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
    /// error nothing of it stays.
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
                tracing::warn!(%error, "the manifest of a cached archive could not be recorded");
                progress.note(&format!("the manifest could not be recorded for offline use: {error}"));
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
        let lock = cache.lock(artifact.sha256, progress)?;
        // Another process may have brought it while this one waited.
        if reuse == Reuse::IfPresent
            && let Some(fetched) = hit()
        {
            return Ok(fetched);
        }
        progress.started(&what, Some(artifact.size));
        let (requests, bytes_fetched) =
            self.bring(cache, manifest, artifact, &location, &lock, &|bytes| progress.advanced(&what, bytes))?;
        cache.record_manifest(&recorded)?;
        let snapshot = cache.snapshot(manifest, artifact).ok_or_else(|| FetchError::Io {
            action: "find what was just moved into place in",
            path: cache.root().to_path_buf(),
            source: std::io::ErrorKind::NotFound.into(),
        })?;
        progress.finished(&what);
        Ok(Fetched { snapshot, from_cache: false, requests, bytes_fetched })
    }

    /// Downloads, checks, unpacks, checks again, and moves into place. Returns (requests, bytes).
    fn bring(
        &self,
        cache: &Cache,
        manifest: &KernelManifest,
        artifact: &Artifact,
        location: &Location,
        lock: &ArchiveLock,
        advanced: &(dyn Fn(u64) + Sync),
    ) -> Result<(u32, u64), FetchError> {
        let url = location.to_string();
        if artifact.size > self.options.max_archive_bytes {
            return Err(FetchError::TooLong { url, maximum: self.options.max_archive_bytes });
        }
        let work = lock.work_folder()?;
        let path = work.path().join("archive.tar.zst");
        let mut download = Download::create(&path)?;
        let requests = self.read(location, "the archive", artifact.size, &mut |piece| {
            advanced(piece.len() as u64);
            download.write(piece)
        })?;
        let (actual, bytes) = download.finish();
        if bytes < artifact.size {
            return Err(FetchError::TooShort { url, expected: artifact.size, actual: bytes });
        }
        if actual != artifact.sha256 {
            return Err(FetchError::ArchiveDigest { url, expected: artifact.sha256, actual, bytes });
        }
        let unpacked = work.path().join("unpacked");
        let found = archive::unpack(&path, &unpacked, &artifact.variant).map_err(|error| match error {
            archive::UnpackError::Refused(source) => {
                FetchError::Archive { url: url.clone(), variant: artifact.variant, source }
            }
            archive::UnpackError::Io { action, path, source } => FetchError::Io { action, path, source },
        })?;
        check_content(manifest, artifact, &url, &found)?;
        cache.install(&unpacked, lock)?;
        Ok((requests, bytes))
    }

    fn check_online(&self, location: &Location, what: &str) -> Result<(), FetchError> {
        match location {
            Location::Remote(_) if self.options.offline => {
                Err(FetchError::Offline { what: what.to_owned(), url: location.to_string() })
            }
            _ => Ok(()),
        }
    }

    /// Streams a file or an answer, at most `limit` bytes of it. Returns the number of requests made.
    pub(super) fn read(
        &self,
        location: &Location,
        what: &str,
        limit: u64,
        sink: &mut (dyn FnMut(&[u8]) -> Result<(), FetchError> + Send),
    ) -> Result<u32, FetchError> {
        self.check_online(location, what)?;
        match location {
            Location::Remote(url) => self.client.get(url, limit, sink).map(|()| 1),
            Location::Local(path) => super::download::read_file(path, limit, sink).map(|()| 0),
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
