//! What we remember about the Hub besides its files: a commit's listings, and publishers.
//!
//! Under our own root, because the Python tools' folders have no place for it:
//!
//! ```text
//! <root>/hub/<kernels--owner--name>/<commit>.json         what the Hub listed for a commit, which never changes
//! <root>/publishers/<endpoint's host and port>/<owner>.json
//! ```
//!
//! A record that cannot be read counts as absent: it is asked for again.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use reqwest::Url;
use serde::{Deserialize, Serialize};

use super::layout::write_atomically;
use crate::digest::{BlobId, GitOid, Sha256Digest};
use crate::fetch::{CommitId, FetchError, RepoType};
use crate::names::{RelativePath, RepoId};
use crate::regular;

/// How long the Hub's word about a publisher counts.
pub(in crate::fetch) const PUBLISHER_EXPIRY: Duration = Duration::from_hours(7 * 24);

const SCHEMA: u32 = 1;
/// Largest record, in bytes: the listing of every build of a commit.
const MAX_RECORD_BYTES: u64 = 64 << 20;

/// What the Hub listed for a commit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::fetch) struct BuildRecord {
    pub(in crate::fetch) schema: u32,
    /// The folders in `build/`.
    pub(in crate::fetch) builds: Vec<String>,
    /// The files of each build whose listing was asked for.
    pub(in crate::fetch) files: BTreeMap<String, Vec<TreeFile>>,
}

/// One file of a commit's tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeFile {
    /// Its path in the listed folder.
    pub path: RelativePath,
    /// Its size, in bytes, as the listing says: a hint.
    pub size: u64,
    /// The git object id: of the file, or for a large file of the pointer to it.
    pub oid: GitOid,
    /// The sha256 of a large file. `None`: git holds the file itself.
    pub lfs: Option<Sha256Digest>,
}

impl TreeFile {
    /// The name of its blob.
    #[must_use]
    pub fn blob(&self) -> BlobId {
        self.lfs.map_or(BlobId::Git(self.oid), BlobId::Sha256)
    }
}

/// What the Hub said about a publisher.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Publisher {
    /// The owner part of its repos.
    pub owner: String,
    /// The Hub that said so.
    pub endpoint: String,
    /// Its field `trustedKernelPublisher`. `None`: the Hub has no such organisation, or does not say.
    pub trusted: Option<bool>,
    /// When it was asked, in seconds since 1970.
    pub checked_at: u64,
    /// From when on it does not count any more, in seconds since 1970.
    pub expires_at: u64,
}

impl Publisher {
    /// Whether it has not expired.
    #[must_use]
    pub fn is_current(&self) -> bool {
        (self.checked_at..self.expires_at).contains(&seconds_now())
    }

    pub(in crate::fetch) fn now(owner: &str, endpoint: &Url, trusted: Option<bool>) -> Self {
        let checked_at = seconds_now();
        Self {
            owner: owner.to_owned(),
            endpoint: endpoint.to_string(),
            trusted,
            checked_at,
            expires_at: checked_at + PUBLISHER_EXPIRY.as_secs(),
        }
    }
}

fn seconds_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs())
}

/// The records of this machine.
#[derive(Debug, Clone)]
pub(in crate::fetch) struct Records {
    root: PathBuf,
}

impl Records {
    pub(in crate::fetch) fn at(root: PathBuf) -> Self {
        Self { root }
    }

    fn builds_path(&self, repo: &RepoId, repo_type: RepoType, commit: CommitId) -> PathBuf {
        let folder = format!("{}--{}--{}", repo_type.plural(), repo.owner(), repo.name());
        self.root.join("hub").join(folder).join(format!("{commit}.json"))
    }

    pub(in crate::fetch) fn builds(&self, repo: &RepoId, repo_type: RepoType, commit: CommitId) -> Option<BuildRecord> {
        let text = regular::read(&self.builds_path(repo, repo_type, commit), MAX_RECORD_BYTES).ok()?;
        let record: BuildRecord = serde_json::from_slice(&text).ok()?;
        (record.schema == SCHEMA).then_some(record)
    }

    /// Drops what was listed for a commit: it turned out to disagree with the commit's files.
    pub(in crate::fetch) fn forget_builds(&self, repo: &RepoId, repo_type: RepoType, commit: CommitId) {
        let path = self.builds_path(repo, repo_type, commit);
        if let Err(error) = std::fs::remove_file(&path)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(%error, path = %path.display(), "a listing that disagrees with its files could not be dropped");
        }
    }

    pub(in crate::fetch) fn write_builds(
        &self,
        repo: &RepoId,
        repo_type: RepoType,
        commit: CommitId,
        record: &BuildRecord,
    ) -> Result<(), FetchError> {
        let path = self.builds_path(repo, repo_type, commit);
        let record = BuildRecord { schema: SCHEMA, ..record.clone() };
        write_json(&path, &record)
    }

    fn publisher_path(&self, owner: &str, endpoint: &Url) -> PathBuf {
        let host = endpoint.host_str().unwrap_or("none").replace(['[', ']', ':'], "_");
        let place = format!("{}-{host}-{}", endpoint.scheme(), endpoint.port_or_known_default().unwrap_or(0));
        self.root.join("publishers").join(place).join(format!("{owner}.json"))
    }

    /// What is on record about a publisher, expired or not.
    pub(in crate::fetch) fn publisher(&self, owner: &str, endpoint: &Url) -> Option<Publisher> {
        let text = regular::read(&self.publisher_path(owner, endpoint), MAX_RECORD_BYTES).ok()?;
        let publisher: Publisher = serde_json::from_slice(&text).ok()?;
        (publisher.owner == owner && publisher.endpoint == endpoint.as_str()).then_some(publisher)
    }

    pub(in crate::fetch) fn write_publisher(&self, publisher: &Publisher, endpoint: &Url) -> Result<(), FetchError> {
        write_json(&self.publisher_path(&publisher.owner, endpoint), publisher)
    }
}

fn write_json(path: &std::path::Path, value: &impl Serialize) -> Result<(), FetchError> {
    let text =
        serde_json::to_vec(value).map_err(|error| FetchError::io("write", path)(std::io::Error::other(error)))?;
    write_atomically(path, &text)
}
