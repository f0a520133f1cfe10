//! The Hub, and mirrors that speak its protocol.
//!
//! Owns: [`HubSource`]: refs, listings, which files of a build are missing, and their way into the cache. Refuses:
//! trust in sizes, names and lengths; a file is its digest.
//!
//! Every answer about a commit is kept, because a commit never changes. Hence the requests: a pinned commit in the
//! cache takes none; a branch takes one, which is never repeated within a piece of work; a cold kernel takes one for
//! the refs, one for `build/`, one for the chosen build's files, one for each file; and before them one for its
//! publisher, where the policy asks for the Hub's word and that is not on record.
//!
//! The anchor: the commit's tree says what the bytes of `metadata.json` are, by a git object id or a sha256; the digest
//! in the metadata says what every other file is; and both must agree on each file.
//!
//! One process of this machine works on a kernel at a time. The others wait, and then find it in the cache.

mod api;
mod build;
mod publisher;
mod repair;

#[cfg(feature = "fuzzing")]
pub(crate) use api::read_listing;

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use reqwest::Url;

use super::hf_cache::{BuildRecord, FileLock, HubCache, Records, RepoFolder};
use super::http::{Http, HttpOptions, RetryPolicy};
use super::source::Pin;
use super::{Builds, CommitId, FetchError, FetchOptions, Fetched, PublishedVersion, RepoType, Revision, Session};
use super::{Source, Token};
use crate::manifest::Metadata;
use crate::names::RepoId;
use crate::policy::{Origin, Word};
use crate::resolve::Candidate;
use crate::variant::{AnyVariant, Variant};
use api::Refs;

/// How a Hub is used.
#[derive(Debug, Clone)]
pub struct HubOptions {
    /// The Hub, without a slash at its end.
    pub endpoint: Url,
    /// The token, sent to the endpoint's own origin only.
    pub token: Option<Token>,
    /// Ask for a repo of type `model` where there is none of type `kernel`. Default: no; results say which type it was.
    pub legacy_models: bool,
}

/// A Hub as a source of kernels.
#[derive(Debug)]
pub struct HubSource {
    options: HubOptions,
    fetch: FetchOptions,
    http: Arc<Http>,
    cache: HubCache,
    records: Records,
}

/// A state of a repo, found.
#[derive(Debug, Clone)]
struct Pinned {
    repo_type: RepoType,
    commit: CommitId,
    notes: Vec<String>,
}

impl HubSource {
    /// A source that fetches into this cache. Opens nothing.
    #[must_use]
    pub fn new(options: HubOptions, fetch: FetchOptions, cache: &super::Cache) -> Self {
        let token = options.token.clone().map(|token| (options.endpoint.clone(), token));
        let http = Http::new(HttpOptions {
            answer_timeout: fetch.answer_timeout,
            read_timeout: fetch.timeout,
            retry: fetch.retry,
            token,
        });
        Self { options, fetch, http: Arc::new(http), cache: cache.hub().clone(), records: cache.records() }
    }

    /// The options.
    #[must_use]
    pub fn options(&self) -> &HubOptions {
        &self.options
    }

    /// The types of repo to ask for, in order.
    fn types(&self) -> &'static [RepoType] {
        if self.options.legacy_models { &[RepoType::Kernel, RepoType::Model] } else { &[RepoType::Kernel] }
    }

    fn folder(&self, repo: &RepoId, repo_type: RepoType) -> RepoFolder {
        self.cache.repo(repo, repo_type)
    }

    /// The commit that a revision is at. At most one request; none for a commit, nor offline.
    ///
    /// # Errors
    /// [`FetchError::RepoNotFound`], [`FetchError::RevisionNotFound`], [`FetchError::Offline`] when the revision is not
    /// recorded, and the errors of a request.
    pub fn commit(
        &self,
        repo: &RepoId,
        revision: &Revision,
        session: &Session<'_>,
    ) -> Result<(RepoType, CommitId), FetchError> {
        self.pin(repo, revision, session).map(|pinned| (pinned.repo_type, pinned.commit))
    }

    fn pin(&self, repo: &RepoId, revision: &Revision, session: &Session<'_>) -> Result<Pinned, FetchError> {
        if let Revision::Commit(commit) = revision {
            return Ok(Pinned { repo_type: self.type_of(repo, *commit), commit: *commit, notes: Vec::new() });
        }
        let recorded = self.recorded(repo, revision);
        if self.fetch.offline {
            return recorded.ok_or_else(|| Self::offline(repo, revision));
        }
        // A kernel that is here must not wait for a Hub that is not.
        let retry = if recorded.is_some() { RetryPolicy::never() } else { self.fetch.retry };
        // Whoever has it as a model from before asks for it as that, too.
        let was_model = recorded.as_ref().is_some_and(|pinned| pinned.repo_type == RepoType::Model);
        match self.refs(repo, was_model, retry, session) {
            Ok((repo_type, refs)) => {
                let commit = refs.find(revision).ok_or_else(|| FetchError::RevisionNotFound {
                    repo: repo.clone(),
                    revision: revision.clone(),
                    known: refs.names(),
                })?;
                Ok(Pinned { repo_type, commit, notes: Vec::new() })
            }
            Err(error) => match (recorded, may_pass(&error)) {
                (Some(mut pinned), true) => {
                    let note = format!(
                        "{repo}@{revision} is taken at commit {}, as recorded: the Hub could not be asked: {error}",
                        pinned.commit
                    );
                    tracing::warn!("{note}");
                    session.progress.note(&note);
                    pinned.notes.push(note);
                    Ok(pinned)
                }
                _ => Err(error),
            },
        }
    }

    /// The commit that was recorded for a branch or tag.
    fn recorded(&self, repo: &RepoId, revision: &Revision) -> Option<Pinned> {
        [RepoType::Kernel, RepoType::Model].into_iter().find_map(|repo_type| {
            let commit = self.folder(repo, repo_type).read_ref(&revision.to_string())?;
            Some(Pinned { repo_type, commit, notes: Vec::new() })
        })
    }

    /// The type under which a commit is in the cache; `kernel` where it is not.
    fn type_of(&self, repo: &RepoId, commit: CommitId) -> RepoType {
        let is_here = |repo_type: &RepoType| !self.folder(repo, *repo_type).variants(commit).is_empty();
        [RepoType::Kernel, RepoType::Model].into_iter().find(is_here).unwrap_or(RepoType::Kernel)
    }

    fn offline(repo: &RepoId, revision: &Revision) -> FetchError {
        FetchError::Offline { what: format!("{repo}@{revision}"), url: format!("{repo}@{revision}") }
    }

    /// The refs of a repo, with the type under which the Hub has it.
    fn refs(
        &self,
        repo: &RepoId,
        was_model: bool,
        retry: RetryPolicy,
        session: &Session<'_>,
    ) -> Result<(RepoType, Refs), FetchError> {
        let mut tried = Vec::new();
        let types = if was_model { &[RepoType::Kernel, RepoType::Model] } else { self.types() };
        for repo_type in types {
            let url = self.api(*repo_type, repo, &["refs"]);
            match self.http.block_on(session, self.get_refs(&url, retry, session)) {
                Err(FetchError::Status { status: 404, .. }) => tried.push((*repo_type, url.to_string())),
                other => return Ok((*repo_type, other?)),
            }
        }
        Err(FetchError::RepoNotFound { repo: repo.clone(), tried })
    }

    /// Takes the kernel's lock, unless the cache cannot be written, which is an error where something is missing.
    fn lock(&self, repo: &RepoId, folder: &RepoFolder, session: &Session<'_>) -> Result<FileLock, FetchError> {
        let what = repo.to_string();
        FileLock::acquire(&folder.lock_path(), &what, self.fetch.lock_timeout, session)
            .map_err(|error| error.cache_io(&what))
    }

    /// The builds of a commit as far as this machine knows them, without a request. `None`: it knows none.
    fn known_builds(&self, repo: &RepoId, pinned: &Pinned, session: &Session<'_>) -> Option<Vec<String>> {
        if let Some(record) = self.records.builds(repo, pinned.repo_type, pinned.commit) {
            return Some(record.builds);
        }
        // Another tool fetched them: what is here has to do, as long as it does.
        let here = self.folder(repo, pinned.repo_type).variants(pinned.commit);
        (!here.is_empty() && !session.fresh_listing).then_some(here)
    }

    fn to_builds(
        &self,
        repo: &RepoId,
        revision: &Revision,
        pinned: Pinned,
        names: &[String],
        lock: Option<FileLock>,
    ) -> Builds {
        let candidates =
            names.iter().enumerate().map(|(index, name)| Candidate::new(AnyVariant::read(name), index)).collect();
        let reference = match revision {
            Revision::Commit(_) => None,
            other => Some(other.to_string()),
        };
        let is_listed = self.records.builds(repo, pinned.repo_type, pinned.commit).is_some();
        Builds {
            repo: repo.clone(),
            version: revision.version(),
            candidates,
            is_whole_listing: is_listed,
            notes: pinned.notes,
            pin: Pin::Hub(HubPin {
                repo_type: pinned.repo_type,
                commit: pinned.commit,
                reference,
                lock: lock.map(Arc::new),
                brought: Arc::default(),
            }),
        }
    }

    /// Lists `build/` of a commit and records it.
    fn list_builds(
        &self,
        repo: &RepoId,
        revision: &Revision,
        pinned: &mut Pinned,
        session: &Session<'_>,
    ) -> Result<Vec<String>, FetchError> {
        let mut types = vec![pinned.repo_type];
        // A commit says nothing about its repo's type.
        if matches!(revision, Revision::Commit(_)) {
            types.extend(self.types().iter().filter(|repo_type| **repo_type != pinned.repo_type));
        }
        let mut tried = Vec::new();
        for repo_type in types {
            let url = self.tree_url(repo_type, repo, pinned.commit, None);
            let names = match self.http.block_on(session, self.get_builds(&url, session)) {
                Err(FetchError::Status { status: 404, .. }) => {
                    tried.push((repo_type, url.to_string()));
                    continue;
                }
                other => other?,
            };
            if names.is_empty() {
                let revision = revision.to_string();
                return Err(FetchError::NoBuilds { repo: repo.clone(), revision, url: url.to_string() });
            }
            pinned.repo_type = repo_type;
            let record = BuildRecord { builds: names.clone(), ..BuildRecord::default() };
            self.records
                .write_builds(repo, repo_type, pinned.commit, &record)
                .map_err(|error| error.cache_io(&format!("{repo}@{revision}")))?;
            return Ok(names);
        }
        match tried.first() {
            // The refs were found, so that it is the builds that are not.
            Some((_, url)) if !matches!(revision, Revision::Commit(_)) => {
                Err(FetchError::NoBuilds { repo: repo.clone(), revision: revision.to_string(), url: url.clone() })
            }
            _ => Err(FetchError::RepoNotFound { repo: repo.clone(), tried }),
        }
    }
}

/// Whether a failed question to the Hub may be answered from the cache: nobody was there to answer it.
fn may_pass(error: &FetchError) -> bool {
    matches!(
        error,
        FetchError::Transport { .. }
            | FetchError::TimedOut { .. }
            | FetchError::TooSlow { .. }
            | FetchError::Status { status: 408 | 425 | 429 | 500..=599, .. }
    )
}

/// How the Hub finds builds again.
#[derive(Debug, Clone)]
pub(super) struct HubPin {
    pub(super) repo_type: RepoType,
    pub(super) commit: CommitId,
    /// The branch or tag to record once a build is whole.
    reference: Option<String>,
    /// Held while this process lists and fetches; `None` while everything was in the cache.
    lock: Option<Arc<FileLock>>,
    /// The builds whose metadata was not in the cache before this work.
    brought: Arc<Mutex<HashSet<Variant>>>,
}

impl Source for HubSource {
    fn name(&self) -> String {
        format!("Hub {}", self.options.endpoint.as_str().trim_end_matches('/'))
    }

    fn origin(&self, _: &RepoId, _: &Revision) -> Result<Option<Origin>, FetchError> {
        Ok(Some(Origin::Hub { endpoint: self.options.endpoint.clone() }))
    }

    fn publisher_flag(&self, owner: &str, session: &Session<'_>) -> Result<Word, FetchError> {
        self.flag_of(owner, session)
    }

    fn versions(&self, repo: &RepoId, session: &Session<'_>) -> Result<Vec<PublishedVersion>, FetchError> {
        if self.fetch.offline {
            let recorded = self.cache.recorded_versions(repo).into_iter();
            return Ok(recorded.map(|(version, commit)| PublishedVersion { version, commit: Some(commit) }).collect());
        }
        Ok(self.refs(repo, false, self.fetch.retry, session)?.1.versions())
    }

    fn builds(&self, repo: &RepoId, revision: &Revision, session: &Session<'_>) -> Result<Option<Builds>, FetchError> {
        let span = tracing::debug_span!("builds", %repo, %revision);
        let _entered = span.enter();
        let is_recorded = match revision {
            Revision::Commit(_) => true,
            other => self.recorded(repo, other).is_some(),
        };
        if !is_recorded && !self.fetch.offline {
            // Nothing is here: of all processes that ask now, one goes on, and the others find what it brought.
            let folder = self.folder(repo, RepoType::Kernel);
            let lock = self.lock(repo, &folder, session)?;
            let found = self.recorded(repo, revision);
            let mut pinned = match found {
                Some(pinned) => pinned,
                None => self.pin(repo, revision, session)?,
            };
            let names = match self.known_builds(repo, &pinned, session) {
                Some(names) => names,
                None => self.list_builds(repo, revision, &mut pinned, session)?,
            };
            return Ok(Some(self.to_builds(repo, revision, pinned, &names, Some(lock))));
        }
        let mut pinned = self.pin(repo, revision, session)?;
        if let Some(names) = self.known_builds(repo, &pinned, session) {
            return Ok(Some(self.to_builds(repo, revision, pinned, &names, None)));
        }
        if self.fetch.offline {
            return Err(Self::offline(repo, revision));
        }
        let folder = self.folder(repo, RepoType::Kernel);
        let lock = self.lock(repo, &folder, session)?;
        let names = match self.known_builds(repo, &pinned, session) {
            Some(names) => names,
            None => self.list_builds(repo, revision, &mut pinned, session)?,
        };
        Ok(Some(self.to_builds(repo, revision, pinned, &names, Some(lock))))
    }

    fn metadata(
        &self,
        builds: &Builds,
        candidate: usize,
        session: &Session<'_>,
    ) -> Result<Option<Metadata>, FetchError> {
        let build = self.build(builds, candidate)?;
        let (metadata, _) = build.metadata(session).inspect_err(|error| build.doubt_listing(error))?;
        build.check_metadata(builds, &metadata)?;
        Ok(Some(metadata))
    }

    fn fetch(&self, builds: &Builds, candidate: usize, session: &Session<'_>) -> Result<Fetched, FetchError> {
        let build = self.build(builds, candidate)?;
        build.fetch(builds, session).inspect_err(|error| build.doubt_listing(error))
    }
}
