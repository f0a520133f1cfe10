//! What can go wrong between a manifest and the cache.

use std::io;
use std::path::PathBuf;

use super::ArchiveError;
use crate::digest::{Sha256Digest, Violation};
use crate::hint::Hint;
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
    /// A redirect that is not followed: from https to another scheme, to a foreign scheme, or too many.
    #[error("{url}: a redirect is refused")]
    Redirect {
        /// What was asked for.
        url: String,
        /// Where it led, and why that is refused.
        #[source]
        source: reqwest::Error,
    },
    /// The server did not answer with the file.
    #[error("{url}: expected HTTP status 200, got {status}")]
    Status {
        /// What was asked for.
        url: String,
        /// The status.
        status: u16,
    },
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
    /// The archive's `metadata.json` cannot be read.
    #[error("{url}: the archive's metadata.json cannot be used")]
    Metadata {
        /// Where the archive came from.
        url: String,
        /// What is wrong with it.
        #[source]
        source: ManifestError,
    },
    /// The OCI registry, or what came from it.
    #[error(transparent)]
    Oci(#[from] OciError),
    /// The archive's files are not as its metadata says, or its metadata is not as the manifest says.
    #[error("{repo} v{version}, {variant}: the archive is refused: {}", crate::digest::list(.violations))]
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

impl FetchError {
    /// Wraps a failed file operation.
    pub(super) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }
}

impl Hint for FetchError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::NoCacheRoot => Some("set HF_HOME or KERNELS_CACHE to a folder".to_owned()),
            Self::Offline { url, .. } => Some(format!("fetch {url} once while online; the cache serves it afterwards")),
            Self::Oci(source) => source.hint(),
            Self::Manifest { source, .. } | Self::Metadata { source, .. } => source.hint(),
            Self::Io { source, path, .. } => match source.kind() {
                io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => Some(format!(
                    "{} cannot be written; name another cache folder by KERNELS_CACHE or HF_HOME",
                    path.display()
                )),
                io::ErrorKind::StorageFull => Some("free space on that file system".to_owned()),
                _ => None,
            },
            Self::Status { status: 404 | 410, .. } => {
                Some("the file is not there; check the manifest's URL, or fetch a newer manifest".to_owned())
            }
            Self::Status { status: 401 | 403, .. } => Some("the server wants a login for this file".to_owned()),
            Self::Status { status: 429 | 500..=599, .. } | Self::Transport { .. } | Self::TooShort { .. } => {
                Some("the server or the network failed; try again".to_owned())
            }
            Self::ArchiveDigest { .. } | Self::TooLong { .. } => Some(
                "the server's file is not the one in the manifest: fetch the manifest again, and if it still differs, \
                 do not use this archive"
                    .to_owned(),
            ),
            Self::RemoteToLocal { .. } | Self::Archive { .. } | Self::Content { .. } => {
                Some("the publisher's archive or manifest is wrong; do not use it".to_owned())
            }
            _ => None,
        }
    }
}
