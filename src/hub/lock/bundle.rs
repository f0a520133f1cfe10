//! Bundles: one file that carries locked kernels to a machine without a network.
//!
//! A tar, compressed by zstd where its name ends in `.zst`:
//!
//! ```text
//! bundle.json                                          the edition, and which builds it carries
//! kernels.lock, kernelhub.lock                         the project's lock files, whole
//! archives/<sha256 of the archive>/build/<variant>/... the files of a build that came by an archive
//! hub/<owner>/<name>/<commit>/build/<variant>/...      the files of a build of the Hub
//! hub/<owner>/<name>/<commit>/build/<variant>.json     what the commit's tree says that they are, where that was known
//! ```
//!
//! A bundle is unpacked under the archive rules into a folder of its own, and every build in it is held to the lock, by
//! the digest of its metadata and by that to every file, before the first one is placed. What was placed is taken out
//! again when a later one cannot be.

mod export;
mod import;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use crate::fetch::MAX_BUNDLE_BYTES;

use crate::digest::Sha256Digest;
use crate::manifest::{KernelVersion, Pin, PinnedKernel};
use crate::names::RepoId;
use crate::variant::Variant;

const INDEX_FILE: &str = "bundle.json";
const BUNDLE_SCHEMA: u32 = 1;
/// Largest index that is read, in bytes.
const MAX_INDEX_BYTES: u64 = 16 << 20;

/// A build that a bundle carries.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BundledBuild {
    /// The kernel's repo.
    pub repo: RepoId,
    /// Its version or revision, as it is locked.
    pub version: KernelVersion,
    /// The build.
    pub variant: Variant,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Index {
    schema: u32,
    builds: Vec<BundledBuild>,
}

/// A bundle that was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Exported {
    /// The file.
    pub file: PathBuf,
    /// Its length, in bytes.
    pub bytes: u64,
    /// Its digest, to compare where it arrives.
    pub sha256: Sha256Digest,
    /// The builds in it.
    pub builds: Vec<BundledBuild>,
}

/// A bundle that was taken in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Imported {
    /// The builds that are in the cache now.
    pub builds: Vec<BundledBuild>,
    /// How many of them were there before, whole.
    pub present: usize,
    /// Whether something outside the bundle said what it holds: a digest, or the project's own lock. Without it, the
    /// bundle is only known to be whole.
    pub anchored: bool,
}

/// The folder of a build in a bundle, and the digest of its metadata. `None`: that build is not locked.
fn place(kernel: &PinnedKernel, variant: Variant) -> Option<(String, Sha256Digest)> {
    match &kernel.pin {
        Pin::Archive(artifacts) => {
            let artifact = artifacts.iter().find(|artifact| artifact.variant == variant)?;
            Some((format!("archives/{}/build/{variant}", artifact.sha256), artifact.metadata_sha256))
        }
        Pin::Hub { commit, builds } => {
            let build = builds.iter().find(|build| build.variant == variant)?;
            let folder = format!("hub/{}/{commit}/build/{variant}", kernel.repo);
            Some((folder, build.metadata_sha256))
        }
    }
}

/// Where the commit's listing of a build stands in a bundle.
fn listing_path(folder: &str) -> String {
    format!("{folder}.json")
}
