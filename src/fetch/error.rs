//! What can go wrong between a manifest and the cache.

mod hint;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use super::{ArchiveError, RepoType, Revision};
use crate::digest::{BlobId, Sha256Digest, Violation};
use crate::manifest::ManifestError;
use crate::names::RepoId;
use crate::oci::OciError;
use crate::variant::Variant;

/// A fetch that did not fill the cache.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FetchError {
    /// No folder for the cache could be named.
    #[error("no cache folder: neither KERNELS_CACHE, HF_HUB_CACHE, HF_HOME, XDG_CACHE_HOME nor a home folder is set")]
    NoCacheRoot,
    /// A text that names no place to read from.
    #[error("cannot read from {value:?}: {reason}")]
    Location {
        /// The text as it arrived.
        value: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A remote manifest points at a file of this machine.
    #[error("the manifest {manifest} points at a file of this machine, {url}")]
    RemoteToLocal {
        /// Where the manifest came from.
        manifest: String,
        /// What it points at.
        url: String,
    },
    /// The network is needed, and the fetcher is offline.
    #[error("offline, and {what} is not in the cache")]
    Offline {
        /// What is missing.
        what: String,
        /// Where it would be fetched from.
        url: String,
    },
    /// The manifest cannot be read.
    #[error("the manifest from {location} cannot be used")]
    Manifest {
        /// Where it came from.
        location: String,
        /// What is wrong with it.
        #[source]
        source: ManifestError,
    },
    /// An artifact was asked for that its manifest does not list.
    #[error("{repo} v{version}: the manifest does not list this artifact of {variant}")]
    NotListed {
        /// The kernel.
        repo: RepoId,
        /// Its version.
        version: u32,
        /// The artifact's variant.
        variant: Variant,
    },
    /// A file operation failed.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// The operation, as a verb.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// The HTTP client or its runtime could not be made.
    #[error("cannot start the HTTP client")]
    Client {
        /// What failed.
        #[source]
        source: io::Error,
    },
    /// No answer, or an answer that broke off.
    #[error("{url}: the transfer failed after {bytes} bytes")]
    Transport {
        /// What was asked for.
        url: String,
        /// Bytes of the body that had arrived.
        bytes: u64,
        /// What failed.
        #[source]
        source: reqwest::Error,
    },
    /// The server was silent for too long.
    #[error("{url}: nothing came for {:.1} s, after {bytes} bytes", .after.as_secs_f64())]
    TimedOut {
        /// What was asked for.
        url: String,
        /// Bytes of the body that had arrived.
        bytes: u64,
        /// How long it was waited for.
        after: Duration,
    },
    /// The transfer is so slow that it would not end.
    #[error("{url}: only {bytes} bytes came in {seconds} s")]
    TooSlow {
        /// What was asked for.
        url: String,
        /// Bytes of the body that arrived in that time.
        bytes: u64,
        /// The time, in seconds.
        seconds: u64,
    },
    /// A redirect that is not followed: from https to http, to a foreign scheme, to nowhere, or one too many.
    #[error("{url}: a redirect is refused: it leads {reason}, to {target}")]
    Redirect {
        /// What was asked for.
        url: String,
        /// Where it led, without credentials.
        target: String,
        /// Why that is refused.
        reason: &'static str,
    },
    /// The server did not answer with the file.
    #[error("{url}: expected HTTP status 200, got {status}")]
    Status {
        /// What was asked for.
        url: String,
        /// The status.
        status: u16,
        /// How long the server asks to wait before the next request.
        retry_after: Option<Duration>,
    },
    /// The server sends other parts of the file than those that were asked for, again and again.
    #[error("{url}: the transfer cannot go on at byte {offset}: {reason}")]
    Range {
        /// What was asked for.
        url: String,
        /// The byte to go on at.
        offset: u64,
        /// What the server did.
        reason: String,
    },
    /// A file is not the one that its listing names. Nothing of it stays.
    #[error("{url}: expected {}, got {} over {bytes} bytes", .expected.describe(), .actual.describe())]
    FileDigest {
        /// What was asked for.
        url: String,
        /// The digest that it should have.
        expected: BlobId,
        /// The digest of what came.
        actual: BlobId,
        /// The bytes that came.
        bytes: u64,
    },
    /// An answer that should be JSON is not.
    #[error("{url}: expected JSON, got something else (content type {content_type})")]
    Json {
        /// What was asked for.
        url: String,
        /// What the server calls it.
        content_type: String,
        /// Line, column and cause.
        #[source]
        source: serde_json::Error,
    },
    /// A listing is not of the Hub's form, or names what no kernel has.
    #[error("{url}: the listing is refused: {reason}")]
    Listing {
        /// What was asked for.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The pages of a listing do not end, or lead elsewhere.
    #[error("{url}: the listing's pages are refused: {reason}")]
    Paging {
        /// What was asked for.
        url: String,
        /// What is wrong with them.
        reason: &'static str,
    },
    /// The Hub has no repo of this name, of any type that was tried.
    #[error("{repo} was not found; asked for a repo of type {}", list_tried(.tried))]
    RepoNotFound {
        /// The kernel.
        repo: RepoId,
        /// The types that were tried, each with the address.
        tried: Vec<(RepoType, String)>,
    },
    /// The repo has no such version, branch or tag.
    #[error("{repo} has no {revision}; {}", list_known(.known))]
    RevisionNotFound {
        /// The kernel.
        repo: RepoId,
        /// What was asked for.
        revision: Revision,
        /// The versions, or else the names, that it has.
        known: Vec<String>,
    },
    /// The revision holds no builds.
    #[error("{repo}@{revision} holds no builds: {url} lists none")]
    NoBuilds {
        /// The kernel.
        repo: RepoId,
        /// What was asked for.
        revision: String,
        /// Where they should be.
        url: String,
    },
    /// Another process works on the same kernel for longer than this one waits.
    #[error("{} is still held by another process after {:.0} s", path.display(), .waited.as_secs_f64())]
    LockTimeout {
        /// The lock file.
        path: PathBuf,
        /// How long it was waited for.
        waited: Duration,
    },
    /// Something is not in the cache, and the cache cannot be written.
    #[error("{what} is not in the cache, and {} cannot be written", path.display())]
    ReadOnly {
        /// What is missing.
        what: String,
        /// The file or folder that could not be written.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// A file in the cache is not the one that its commit's tree names, and cannot be fetched again now.
    #[error("{} is damaged: expected {}, found {}", path.display(), .expected.describe(), .actual.describe())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What the tree says that it is.
        expected: BlobId,
        /// What it is.
        actual: BlobId,
    },
    /// A folder that was named as a kernel is none.
    #[error("{} is no kernel: {reason}", path.display())]
    LocalFolder {
        /// The folder.
        path: PathBuf,
        /// What is missing.
        reason: String,
    },
    /// An environment variable has a value that cannot be read.
    #[error("the environment variable {name} is {value:?}; expected {expected}")]
    Environment {
        /// The variable.
        name: &'static str,
        /// Its value, or a stand-in for a secret one.
        value: String,
        /// What it should be.
        expected: &'static str,
    },
    /// The caller stopped the work. What was downloaded stays, to be resumed.
    #[error("stopped by the caller")]
    Cancelled,
    /// The server sends the body in an encoding that was not asked for.
    #[error("{url}: expected the file as it is, got content encoding {encoding:?}")]
    Encoding {
        /// What was asked for.
        url: String,
        /// The encoding.
        encoding: String,
    },
    /// More bytes came than the manifest declares, or than this version accepts. The rest was not read.
    #[error("{url}: expected at most {maximum} bytes, got more")]
    TooLong {
        /// What was asked for.
        url: String,
        /// The limit, in bytes.
        maximum: u64,
    },
    /// Fewer bytes came than the manifest declares.
    #[error("{url}: expected {expected} bytes, got {actual}")]
    TooShort {
        /// What was asked for.
        url: String,
        /// The bytes that the manifest declares.
        expected: u64,
        /// The bytes that came.
        actual: u64,
    },
    /// The archive is not the one that the manifest names.
    #[error("{url}: expected sha256 {expected}, got {actual} over {bytes} bytes")]
    ArchiveDigest {
        /// What was asked for.
        url: String,
        /// The digest in the manifest.
        expected: Sha256Digest,
        /// The digest of what came.
        actual: Sha256Digest,
        /// The bytes that came.
        bytes: u64,
    },
    /// The archive breaks a rule. Nothing of it is in the cache.
    #[error("{url}: the archive of {variant} is refused")]
    Archive {
        /// Where it came from.
        url: String,
        /// The variant that it should hold.
        variant: Variant,
        /// The rule.
        #[source]
        source: ArchiveError,
    },
    /// A build's `metadata.json` cannot be read.
    #[error("{url}: the metadata cannot be used")]
    Metadata {
        /// Where it came from.
        url: String,
        /// What is wrong with it.
        #[source]
        source: ManifestError,
    },
    /// The OCI registry, or what came from it.
    #[error(transparent)]
    Oci(#[from] OciError),
    /// The files are not as the build's metadata says, or its metadata is not as its anchor says.
    #[error("{repo} v{version}, {variant}: the build is refused: {}", crate::digest::list(.violations))]
    Content {
        /// The kernel.
        repo: RepoId,
        /// Its version.
        version: u32,
        /// The build.
        variant: Variant,
        /// Every violation, in a stable order.
        violations: Vec<Violation>,
    },
}

fn list_tried(tried: &[(RepoType, String)]) -> String {
    tried.iter().map(|(repo_type, url)| format!("{repo_type} at {url}")).collect::<Vec<_>>().join(", and of type ")
}

fn list_known(known: &[String]) -> String {
    if known.is_empty() { "it has no versions".to_owned() } else { format!("it has {}", known.join(", ")) }
}

impl FetchError {
    /// What is not as published. Empty for the other errors.
    #[must_use]
    pub fn violations(&self) -> &[Violation] {
        match self {
            Self::Content { violations, .. } => violations,
            _ => &[],
        }
    }

    /// Wraps a failed write into the cache: one that cannot be written is told apart.
    pub(super) fn cache_io(self, what: &str) -> Self {
        match self {
            Self::Io { path, source, .. }
                if matches!(source.kind(), io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied) =>
            {
                Self::ReadOnly { what: what.to_owned(), path, source }
            }
            other => other,
        }
    }

    /// Wraps a failed file operation.
    pub(super) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::FetchError;

    #[test]
    fn f17_a_cache_that_cannot_be_written_is_told_apart_from_other_failures() {
        for (kind, is_read_only) in [
            (io::ErrorKind::ReadOnlyFilesystem, true),
            (io::ErrorKind::PermissionDenied, true),
            (io::ErrorKind::StorageFull, false),
            (io::ErrorKind::NotFound, false),
        ] {
            let error = FetchError::io("make the folder", "/cache/x")(kind.into()).cache_io("o/n@v1");
            assert_eq!(matches!(error, FetchError::ReadOnly { .. }), is_read_only, "{kind}");
            assert!(error.to_string().contains("/cache/x"), "{error}");
        }
        let error = io::Error::from_raw_os_error(rustix::io::Errno::ROFS.raw_os_error());
        assert!(matches!(FetchError::io("open", "/x")(error).cache_io("o/n"), FetchError::ReadOnly { .. }));
    }
}
