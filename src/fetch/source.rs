//! Where builds come from: the one small trait that the Hub, archives, registries and local folders stand behind.

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::{Cancel, CommitId, FetchError, Fetched, Progress, Reuse, Revision};
use crate::manifest::Metadata;
use crate::names::RepoId;
use crate::policy::{Origin, Word};
use crate::resolve::Candidate;

/// A place that publishes kernels.
///
/// The calls come in this order: [`Self::origin`], which [`crate::policy`] judges, [`Self::builds`], [`Self::metadata`]
/// for builds that are to be taken, until one fits, [`Self::fetch`]. Each blocks, and makes no request where the cache
/// has the answer.
pub trait Source: fmt::Debug + Send + Sync {
    /// What it is, for reports: `Hub https://huggingface.co`.
    fn name(&self) -> String;

    /// Where a revision of a kernel would come from here, as far as that says who vouches for its name. `None`: this
    /// source does not have it, which it knows without a request. Makes none.
    ///
    /// # Errors
    /// [`FetchError`] when what is on this machine cannot be read.
    fn origin(&self, repo: &RepoId, revision: &Revision) -> Result<Option<Origin>, FetchError>;

    /// What the place itself says about a publisher: the Hub's flag `trustedKernelPublisher`. Asked only where a policy
    /// lets it count.
    ///
    /// # Errors
    /// [`FetchError`] when it does not answer and nothing is recorded.
    fn publisher_flag(&self, owner: &str, session: &Session<'_>) -> Result<Word, FetchError> {
        let _ = (owner, session);
        Ok(Word::Silent)
    }

    /// The versions of a kernel, ascending. Empty: this source has none.
    ///
    /// # Errors
    /// [`FetchError`] when the source cannot be asked.
    fn versions(&self, repo: &RepoId, session: &Session<'_>) -> Result<Vec<PublishedVersion>, FetchError>;

    /// The builds of a revision, or `None` where this source does not have the kernel.
    ///
    /// # Errors
    /// [`FetchError`] when the source should have it and cannot be asked, or has the kernel without this revision.
    fn builds(&self, repo: &RepoId, revision: &Revision, session: &Session<'_>) -> Result<Option<Builds>, FetchError>;

    /// The metadata of one build, compared with its anchor. `None`: this source tells nothing before the build is
    /// fetched.
    ///
    /// # Errors
    /// [`FetchError`] when it cannot be read.
    fn metadata(
        &self,
        builds: &Builds,
        candidate: usize,
        session: &Session<'_>,
    ) -> Result<Option<Metadata>, FetchError> {
        let _ = (builds, candidate, session);
        Ok(None)
    }

    /// Brings one build into the cache.
    ///
    /// # Errors
    /// [`FetchError`]; nothing wrong is left in the cache.
    fn fetch(&self, builds: &Builds, candidate: usize, session: &Session<'_>) -> Result<Fetched, FetchError>;
}

/// A version that a source has.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PublishedVersion {
    /// The number.
    pub version: u32,
    /// The commit, where the source has commits.
    pub commit: Option<CommitId>,
}

/// The builds of one revision of a kernel, pinned to one state.
#[derive(Debug, Clone)]
pub struct Builds {
    /// The kernel.
    pub repo: RepoId,
    /// The version. `None`: a commit or a name was asked for, and the metadata says which version it is.
    pub version: Option<u32>,
    /// The builds. A candidate's `artifact` is its place in this list.
    pub candidates: Vec<Candidate>,
    /// What the source needs to find them again.
    pub(super) pin: Pin,
    /// Whether these are all that the source has. No: only those that are in the cache, because nobody has listed them
    /// yet. Ask again with [`Session::fresh_listing`] where none of them fits.
    pub is_whole_listing: bool,
    /// What is worth reporting about how they were found.
    pub notes: Vec<String>,
}

/// How a source finds the builds again.
#[derive(Debug, Clone)]
pub(super) enum Pin {
    /// The place of a manifest in the source's list.
    Archive(std::sync::Arc<super::archives::ArchivePin>),
    /// A commit of a Hub repo.
    Hub(super::hub::HubPin),
    /// The folder of each candidate.
    Local(Vec<std::path::PathBuf>),
}

impl Builds {
    /// The commit, where they are of one.
    #[must_use]
    pub fn commit(&self) -> Option<CommitId> {
        match &self.pin {
            Pin::Hub(pin) => Some(pin.commit),
            Pin::Archive(_) | Pin::Local(_) => None,
        }
    }

    /// What to say where a source is handed the builds of another one.
    pub(super) fn of_another_source(&self) -> FetchError {
        FetchError::NoBuilds {
            repo: self.repo.clone(),
            revision: self.version.map_or_else(|| "(another source's)".to_owned(), |version| format!("v{version}")),
            url: "this source".to_owned(),
        }
    }
}

/// One piece of work: who is told, who may stop it, and what it cost.
#[derive(Clone, Copy)]
pub struct Session<'a> {
    /// Who is told of downloads.
    pub progress: &'a dyn Progress,
    /// Who may stop it.
    pub cancel: &'a Cancel,
    /// What to do about what is in the cache already.
    pub reuse: Reuse,
    /// Ask the source for its builds, even where some are in the cache.
    pub fresh_listing: bool,
    /// What it cost so far.
    pub cost: &'a Cost,
}

impl<'a> Session<'a> {
    /// Work that takes from the cache what is there.
    #[must_use]
    pub fn new(progress: &'a dyn Progress, cancel: &'a Cancel, cost: &'a Cost) -> Self {
        Self { progress, cancel, reuse: Reuse::IfPresent, fresh_listing: false, cost }
    }
}

impl fmt::Debug for Session<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("reuse", &self.reuse).field("cost", &self.cost).finish_non_exhaustive()
    }
}

/// What a piece of work cost.
#[derive(Debug, Default)]
pub struct Cost {
    requests: AtomicU32,
    bytes: AtomicU64,
}

impl Cost {
    /// HTTP requests sent, with retries and redirects.
    #[must_use]
    pub fn requests(&self) -> u32 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Bytes of files that arrived, from the network or from a file. Listings are not counted.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn add_request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn add_bytes(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}
