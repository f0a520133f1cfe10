//! What can go wrong with a project's lock, and with bundles of locked kernels.

use std::io;
use std::path::PathBuf;

use crate::digest::{Sha256Digest, Violation};
use crate::fetch::{ArchiveError, FetchError};
use crate::hint::{Hint, nearest};
use crate::hub::HubError;
use crate::manifest::ManifestError;
use crate::names::RepoId;
use crate::swap::SwapError;

/// A lock that was not made, not met or not carried over.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// A folder holds no project.
    #[error("{} holds neither a Cargo.toml nor a pyproject.toml", folder.display())]
    NoProject {
        /// The folder.
        folder: PathBuf,
    },
    /// A file is of no kind that declares kernels.
    #[error("{} is no Cargo.toml, pyproject.toml, or KernelConfig (.toml or .json)", file.display())]
    UnknownFile {
        /// The file.
        file: PathBuf,
    },
    /// A project declares no kernels.
    #[error("no kernels are declared in {}", .files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(" and "))]
    NothingDeclared {
        /// The files that were read.
        files: Vec<PathBuf>,
    },
    /// A project has no lock files.
    #[error("{} holds neither a kernels.lock nor a kernelhub.lock", folder.display())]
    NotLocked {
        /// The folder.
        folder: PathBuf,
    },
    /// The two lock files are not about the same kernels.
    #[error("kernels.lock and kernelhub.lock in {} are not about the same kernels", folder.display())]
    Disagree {
        /// The folder.
        folder: PathBuf,
    },
    /// A project wants a variant that the kernel does not have.
    #[error("{kernel} has no build {variant}")]
    NoSuchVariant {
        /// The kernel, with its version.
        kernel: String,
        /// The variant.
        variant: String,
        /// The variants that it has.
        known: Vec<String>,
    },
    /// A kernel is taken from a place that no lock can name.
    #[error("{kernel} comes from {source_name}, which cannot be locked")]
    Local {
        /// The kernel, with its version.
        kernel: String,
        /// The place, such as a local folder.
        source_name: String,
    },
    /// A kernel has no build that can be locked.
    #[error("{kernel} has no build with a readable name and metadata")]
    NoBuilds {
        /// The kernel, with its version.
        kernel: String,
    },
    /// A kernel needs itself, over others.
    #[error("kernels depend on each other in a circle: {}", .path.join(" -> "))]
    Cycle {
        /// The kernels of the circle; the first one is the last one too.
        path: Vec<String>,
    },
    /// A kernel is locked without the digests that a bundle is checked against.
    #[error("{kernel} is locked without the digests of its builds")]
    NoDigests {
        /// The kernel, with its version.
        kernel: String,
    },
    /// What was found is not what is locked.
    #[error("{kernel}, {variant}: not as locked: {}", crate::digest::list(.violations))]
    Violations {
        /// The kernel, with its version.
        kernel: String,
        /// The build.
        variant: String,
        /// Every violation, in a stable order.
        violations: Vec<Violation>,
    },
    /// A locked kernel is not in the cache.
    #[error("{kernel}, {variant}: not in the cache")]
    NotCached {
        /// The kernel, with its version.
        kernel: String,
        /// The build.
        variant: String,
    },
    /// A bundle is not the file that was named by its digest.
    #[error("{}: expected sha256 {expected}, found {actual}", file.display())]
    BundleDigest {
        /// The file.
        file: PathBuf,
        /// The digest that was given.
        expected: Sha256Digest,
        /// The digest of the file.
        actual: Sha256Digest,
    },
    /// A bundle breaks the archive rules.
    #[error("{}: the bundle is refused", file.display())]
    Archive {
        /// The file.
        file: PathBuf,
        /// The rule that it breaks.
        #[source]
        source: ArchiveError,
    },
    /// A bundle's content is not what its lock files announce.
    #[error("{}: {reason}", file.display())]
    Bundle {
        /// The bundle.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A bundle holds other kernels than the project locks.
    #[error("{}: {repo} is not locked as the project locks it", file.display())]
    NotTheProjects {
        /// The bundle.
        file: PathBuf,
        /// The kernel.
        repo: RepoId,
    },
    /// A file is longer than any of its kind.
    #[error("{}: expected at most {maximum} bytes", file.display())]
    TooLarge {
        /// The file.
        file: PathBuf,
        /// The limit, in bytes.
        maximum: u64,
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
    /// A file is outside its format, or says two things.
    #[error(transparent)]
    Format(#[from] ManifestError),
    /// A `KernelConfig` is outside its format.
    #[error(transparent)]
    Config(#[from] SwapError),
    /// A kernel cannot be found, fetched or verified.
    #[error(transparent)]
    Hub(#[from] HubError),
}

impl LockError {
    pub(super) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }
}

impl From<FetchError> for LockError {
    fn from(error: FetchError) -> Self {
        Self::Hub(error.into())
    }
}

impl Hint for LockError {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::NoProject { .. } | Self::UnknownFile { .. } => {
                "name a project folder, or the file that declares its kernels".to_owned()
            }
            Self::NothingDeclared { .. } => "write [package.metadata.kernels.dependencies] with \"org/name\" = 1 into \
                                             Cargo.toml, or [tool.kernels.dependencies] into pyproject.toml"
                .to_owned(),
            Self::NotLocked { .. } | Self::Disagree { .. } | Self::NoDigests { .. } => {
                "run `kernelhub lock` in the project".to_owned()
            }
            Self::NoSuchVariant { variant, known, .. } => match nearest(variant, known.iter().map(String::as_str)) {
                Some(near) => format!("did you mean {near}?"),
                None => format!("it has {}", known.join(", ")),
            },
            Self::Violations { .. } => {
                "what the server or the cache holds changed after the lock; if that is meant, lock again".to_owned()
            }
            Self::NotCached { .. } => "run `kernelhub download --all-variants` first".to_owned(),
            Self::BundleDigest { .. } | Self::Archive { .. } | Self::Bundle { .. } => {
                "export it again and copy it whole".to_owned()
            }
            Self::NotTheProjects { .. } => "export the bundle from the same lock files as this project has".to_owned(),
            Self::Format(source) => return source.hint(),
            Self::Config(source) => return source.hint(),
            Self::Hub(source) => return source.hint(),
            Self::Local { .. } => "take the kernel out of LOCAL_KERNELS".to_owned(),
            Self::NoBuilds { .. } | Self::Cycle { .. } | Self::TooLarge { .. } | Self::Io { .. } => return None,
        })
    }
}
