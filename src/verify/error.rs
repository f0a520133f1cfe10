//! Why a build is not loaded.

use std::io;
use std::path::PathBuf;

use super::SignatureError;
use crate::digest::Violation;
use crate::hint::Hint;
use crate::manifest::ManifestError;
use crate::names::RepoId;
use crate::policy::OriginKind;
use crate::variant::Variant;

/// A build that was not verified.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// The build's folder is not there.
    #[error("{repo} v{version}, {variant}: not in the cache at {}", root.display())]
    Absent {
        /// The kernel.
        repo: RepoId,
        /// Its version.
        version: u32,
        /// The build.
        variant: Variant,
        /// Where it should be.
        root: PathBuf,
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
    /// The build's `metadata.json`, which is the anchored one, cannot be read.
    #[error("{repo} v{version}, {variant}: its metadata cannot be used")]
    Metadata {
        /// The kernel.
        repo: RepoId,
        /// Its version.
        version: u32,
        /// The build.
        variant: Variant,
        /// What is wrong with it.
        #[source]
        source: Box<ManifestError>,
    },
    /// The build was not admitted by the policy: the admission at hand is another one's.
    #[error("{repo} from {kind} was not admitted; the admission at hand is of {admitted} from {from}")]
    NotAdmitted {
        /// The kernel of the build.
        repo: RepoId,
        /// The kind of place that it is from.
        kind: OriginKind,
        /// The kernel of the admission.
        admitted: RepoId,
        /// The kind of place of the admission.
        from: OriginKind,
    },
    /// The policy demands a signature, and there is no right one.
    #[error("{repo} v{version}, {variant}: the policy demands a signature that is right")]
    Signature {
        /// The kernel.
        repo: RepoId,
        /// Its version.
        version: u32,
        /// The build.
        variant: Variant,
        /// What is wrong with the signature.
        #[source]
        source: Box<SignatureError>,
    },
    /// The files are not what was published.
    #[error("{repo} v{version}, {variant}: not as published: {}", crate::digest::list(.violations))]
    Violations {
        /// The kernel.
        repo: RepoId,
        /// Its version.
        version: u32,
        /// The build.
        variant: Variant,
        /// Every violation, in a stable order. A `metadata.json` that is not the anchored one is the only one reported:
        /// nothing that it says about the other files counts.
        violations: Vec<Violation>,
    },
    /// The build holds more files than a kernel has.
    #[error("{}: more than {maximum} files and folders", root.display())]
    TooManyFiles {
        /// The build's folder.
        root: PathBuf,
        /// The limit.
        maximum: usize,
    },
    /// A text file is larger than a text of a kernel is.
    #[error("{}: expected at most {maximum} bytes in a text file", path.display())]
    TextTooLarge {
        /// The file.
        path: PathBuf,
        /// The limit, in bytes.
        maximum: u64,
    },
    /// The build has no `layers.toml`, or one that is not UTF-8.
    #[error("{repo} v{version}, {variant}: no layers.toml in UTF-8, which says how the kernel is called")]
    LayersAbsent {
        /// The kernel.
        repo: RepoId,
        /// Its version.
        version: u32,
        /// The build.
        variant: Variant,
    },
    /// The build's `layers.toml` is outside its format.
    #[error("{repo} v{version}, {variant}: its layers.toml cannot be used")]
    Layers {
        /// The kernel.
        repo: RepoId,
        /// Its version.
        version: u32,
        /// The build.
        variant: Variant,
        /// What is wrong with it.
        #[source]
        source: Box<ManifestError>,
    },
    /// A native library was asked for, and the build has not exactly one.
    #[error("{repo} v{version}, {variant}: expected one native library, found {}", .found.len())]
    LibraryCount {
        /// The kernel.
        repo: RepoId,
        /// Its version.
        version: u32,
        /// The build.
        variant: Variant,
        /// The libraries' paths in the build.
        found: Vec<String>,
    },
}

impl VerifyError {
    /// What is not as published. Empty for the other errors.
    #[must_use]
    pub fn violations(&self) -> &[Violation] {
        match self {
            Self::Violations { violations, .. } => violations,
            _ => &[],
        }
    }
}

impl Hint for VerifyError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Absent { .. } => Some("fetch the kernel first".to_owned()),
            Self::Violations { .. } => {
                Some("get the kernel once while online: damaged files are then fetched again".to_owned())
            }
            Self::Signature { source, .. } => source.hint(),
            Self::Metadata { source, .. } | Self::Layers { source, .. } => source.hint(),
            Self::LibraryCount { found, .. } if found.is_empty() => {
                Some("this build holds shaders or Python only; load it by that route".to_owned())
            }
            Self::LibraryCount { found, .. } => Some(format!("it holds {}", found.join(", "))),
            _ => None,
        }
    }
}
