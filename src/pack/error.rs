//! Why a folder was not packed.

use std::io;
use std::path::PathBuf;

use crate::digest::{Sha256Digest, Violation};
use crate::hint::Hint;
use crate::manifest::ManifestError;
use crate::names::NameError;
use crate::variant::Variant;

/// A pack that was not made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PackError {
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
    /// A file's name cannot be unpacked everywhere.
    #[error("{} cannot be packed", path.display())]
    Name {
        /// The file.
        path: PathBuf,
        /// The rule that its name breaks.
        #[source]
        source: NameError,
    },
    /// Something that is neither a regular file nor a folder, or a name that is not UTF-8.
    #[error("{} cannot be packed: {reason}", path.display())]
    NotAFile {
        /// The entry.
        path: PathBuf,
        /// What it is.
        reason: &'static str,
    },
    /// The folder holds no `layers.toml`.
    #[error("{} holds no layers.toml, which says how the kernel is called", folder.display())]
    LayersAbsent {
        /// The folder.
        folder: PathBuf,
    },
    /// Two files whose names differ in case only.
    #[error("{} and {} differ in case only", path.display(), earlier.display())]
    CaseCollision {
        /// The later file.
        path: PathBuf,
        /// The earlier one.
        earlier: PathBuf,
    },
    /// The spec contradicts itself.
    #[error("the spec contradicts itself: {}", crate::digest::list(.violations))]
    Spec {
        /// In what.
        violations: Vec<Violation>,
    },
    /// An archive does not stand in the manifest's folder, so that no relative URL names it.
    #[error("{} is not below {}, where its manifest will stand", archive.display(), folder.display())]
    NotBeside {
        /// The archive.
        archive: PathBuf,
        /// The manifest's folder.
        folder: PathBuf,
    },
    /// A manifest lists no archive, so that there is nothing to publish.
    #[error("{} lists no archive to publish", manifest.display())]
    NothingToPublish {
        /// The manifest.
        manifest: PathBuf,
    },
    /// An archive is not on this machine.
    #[error("the archive of {variant} is not on this machine but at {url}")]
    NotLocal {
        /// The build.
        variant: Variant,
        /// Where the manifest says that it is.
        url: String,
    },
    /// An archive is not the one that its manifest names.
    #[error(
        "{}: expected {expected_bytes} bytes with sha256 {expected}, found {actual} over the first {actual_bytes} bytes",
        archive.display()
    )]
    OtherArchive {
        /// The archive.
        archive: PathBuf,
        /// The digest in the manifest.
        expected: Sha256Digest,
        /// The size in the manifest, in bytes.
        expected_bytes: u64,
        /// The digest of what was read.
        actual: Sha256Digest,
        /// The bytes that were read: at most one more than expected.
        actual_bytes: u64,
    },
    /// The version is in the mirror already, with another content.
    #[error("{} is there already with another content", manifest.display())]
    Conflict {
        /// The manifest in the mirror.
        manifest: PathBuf,
    },
    /// A key cannot be made or used.
    #[error("cannot {action} the signing key {}: {reason}", path.display())]
    Key {
        /// The operation, as a verb.
        action: &'static str,
        /// The key's file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A signature could not be made.
    #[error("cannot sign: {reason}")]
    Sign {
        /// What went wrong.
        reason: String,
    },
    /// A manifest, a metadata or a `layers.toml` that would be refused.
    #[error("the pack would be refused")]
    Format {
        /// What is wrong with it.
        #[source]
        source: ManifestError,
    },
}

impl Hint for PackError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Format { source } => source.hint(),
            Self::NotLocal { .. } => Some("fetch it first, or pack the kernel anew".to_owned()),
            Self::OtherArchive { .. } => {
                Some("pack the kernel anew: archive and manifest are of two builds".to_owned())
            }
            Self::Conflict { .. } => {
                Some("publish it as a new version; with --replace, machines that have the old one keep it".to_owned())
            }
            Self::Io { action: "make", source, .. } if source.kind() == io::ErrorKind::AlreadyExists => {
                Some("it is not replaced; name another file, or use the one that is there".to_owned())
            }
            _ => None,
        }
    }
}
