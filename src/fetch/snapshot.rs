//! The files of one build on disk, and what holds them to what was published.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::CommitId;
use crate::digest::{BlobId, Sha256Digest};
use crate::names::RepoId;
use crate::variant::Variant;

/// The type of a Hub repo.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RepoType {
    /// A kernel repo.
    Kernel,
    /// A model repo that holds a kernel, from before the Hub had kernel repos.
    Model,
}

impl RepoType {
    /// The word in the Hub's API paths and in the cache's folder names.
    #[must_use]
    pub const fn plural(self) -> &'static str {
        match self {
            Self::Kernel => "kernels",
            Self::Model => "models",
        }
    }
}

impl fmt::Display for RepoType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Kernel => "kernel",
            Self::Model => "model",
        })
    }
}

/// What the bytes of a build's `metadata.json` are compared with; the digest in it holds every other file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Anchor {
    /// A manifest, which names the archive and the metadata in it.
    Archive {
        /// The digest of the archive.
        sha256: Sha256Digest,
        /// The digest of its `metadata.json`.
        metadata_sha256: Sha256Digest,
    },
    /// The tree of a commit on the Hub.
    Hub {
        /// The type of the repo.
        repo_type: RepoType,
        /// The commit.
        commit: CommitId,
        /// What the commit's tree says that `metadata.json` is. `None`: nobody recorded the tree when the files were
        /// fetched, which happens where another tool filled a cache without links. Then the metadata is taken as it is,
        /// and reports say so.
        metadata: Option<BlobId>,
    },
    /// A folder of this machine, which a user named. Nothing holds its metadata, and its other files are held to the
    /// metadata's digest only where it has one.
    Local,
}

impl Anchor {
    /// The state that the files are of, for reports and lock files: a commit, `sha256:<archive>`, or `local`.
    #[must_use]
    pub fn revision(&self) -> String {
        match self {
            Self::Archive { sha256, .. } => format!("sha256:{sha256}"),
            Self::Hub { commit, .. } => commit.to_string(),
            Self::Local => "local".to_owned(),
        }
    }

    /// The digest of the archive, where the files came by one.
    #[must_use]
    pub const fn archive_sha256(&self) -> Option<Sha256Digest> {
        match self {
            Self::Archive { sha256, .. } => Some(*sha256),
            _ => None,
        }
    }

    /// What `metadata.json` must be, where something says so.
    #[must_use]
    pub const fn metadata(&self) -> Option<BlobId> {
        match self {
            Self::Archive { metadata_sha256, .. } => Some(BlobId::Sha256(*metadata_sha256)),
            Self::Hub { metadata, .. } => *metadata,
            Self::Local => None,
        }
    }
}

impl fmt::Display for Anchor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Archive { sha256, .. } => write!(f, "archive sha256 {sha256}"),
            Self::Hub { repo_type, commit, metadata: Some(_) } => write!(f, "the tree of {repo_type} commit {commit}"),
            Self::Hub { repo_type, commit, metadata: None } => {
                write!(f, "its own digest (no record of the tree of {repo_type} commit {commit})")
            }
            Self::Local => f.write_str("its own digest (a local folder)"),
        }
    }
}

/// The files of one build on disk. Not yet to be trusted: [`crate::verify::verify`] reads them again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    pub(super) repo: RepoId,
    pub(super) version: u32,
    pub(super) variant: Variant,
    pub(super) root: PathBuf,
    pub(super) anchor: Anchor,
    pub(super) blobs: Option<PathBuf>,
}

/// A snapshot as one process hands it to another. It is believed no more than the snapshot itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SnapshotRecord {
    repo: RepoId,
    version: u32,
    variant: Variant,
    root: PathBuf,
    anchor: AnchorRecord,
    blobs: Option<PathBuf>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
enum AnchorRecord {
    Archive { sha256: Sha256Digest, metadata_sha256: Sha256Digest },
    Hub { repo_type: RepoType, commit: CommitId, metadata: Option<BlobId> },
    Local,
}

impl From<&Snapshot> for SnapshotRecord {
    fn from(snapshot: &Snapshot) -> Self {
        let Snapshot { repo, version, variant, root, anchor, blobs } = snapshot.clone();
        let anchor = match anchor {
            Anchor::Archive { sha256, metadata_sha256 } => AnchorRecord::Archive { sha256, metadata_sha256 },
            Anchor::Hub { repo_type, commit, metadata } => AnchorRecord::Hub { repo_type, commit, metadata },
            Anchor::Local => AnchorRecord::Local,
        };
        Self { repo, version, variant, root, anchor, blobs }
    }
}

impl From<SnapshotRecord> for Snapshot {
    fn from(record: SnapshotRecord) -> Self {
        let SnapshotRecord { repo, version, variant, root, anchor, blobs } = record;
        let anchor = match anchor {
            AnchorRecord::Archive { sha256, metadata_sha256 } => Anchor::Archive { sha256, metadata_sha256 },
            AnchorRecord::Hub { repo_type, commit, metadata } => Anchor::Hub { repo_type, commit, metadata },
            AnchorRecord::Local => Anchor::Local,
        };
        Self { repo, version, variant, root, anchor, blobs }
    }
}

impl Snapshot {
    /// The kernel's repo.
    #[must_use]
    pub fn repo(&self) -> &RepoId {
        &self.repo
    }

    /// The kernel's version.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The build.
    #[must_use]
    pub fn variant(&self) -> &Variant {
        &self.variant
    }

    /// The folder of the build's files, `.../build/<variant>`, absolute.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// What holds the files to what was published.
    #[must_use]
    pub fn anchor(&self) -> &Anchor {
        &self.anchor
    }

    /// The one folder that symbolic links in [`Self::root`] may lead into: the repo's blobs in the Hugging Face layout.
    /// `None`: a link is no file of this build.
    #[must_use]
    pub fn blobs(&self) -> Option<&Path> {
        self.blobs.as_deref()
    }
}
