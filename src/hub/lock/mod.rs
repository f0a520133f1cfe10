//! Locked kernels: what a project pins, bringing exactly that, and carrying it to machines without a network.
//!
//! Owns: [`Project`], what a project declares; [`Locks`], its two lock files; the methods
//! [`lock`](super::Hub::lock), [`download`](super::Hub::download), [`export`](super::Hub::export) and
//! [`import`](super::Hub::import) of the hub. Refuses: to believe a lock about trust, or about which server to ask.
//!
//! Leaves behind: after a download or an import, every build that was asked for is in the cache, whole, and what the
//! lock says that it is; or there is an error, and nothing that was not there before counts as locked.
//!
//! # The design choice
//! `kernels.lock` stays what the Python package `kernels` 0.17 reads and writes, to the byte, although it holds commits
//! only: a project has one lock for both tools. What holds builds to their bytes without asking a server again stands
//! in `kernelhub.lock`. The price is two files that must agree, which is checked whenever they are read.

mod bundle;
mod download;
mod error;
mod listing;
mod make;
mod project;

pub use bundle::{BundledBuild, Exported, Imported, MAX_BUNDLE_BYTES};
pub use error::LockError;
pub use project::{Locks, Project};

use crate::fetch::{CommitId, Revision};
use crate::manifest::{Commit, KernelVersion, ManifestError};
use crate::names::RepoId;

/// `owner/name@v1`.
fn named(repo: &RepoId, version: &KernelVersion) -> String {
    format!("{repo}@{version}")
}

fn invalid(origin: &str, field: &str, reason: &dyn std::fmt::Display) -> LockError {
    ManifestError::Invalid { origin: origin.to_owned(), field: field.to_owned(), reason: reason.to_string() }.into()
}

/// A locked version as sources take it.
fn revision_of(version: &KernelVersion) -> Result<Revision, LockError> {
    match version {
        KernelVersion::Version(version) => Ok(Revision::Version(*version)),
        KernelVersion::Revision(text) => text.parse().map_err(|error| invalid("the lock", "revision", &error)),
    }
}

fn checked_revision(repo: &RepoId, text: &str) -> Result<KernelVersion, LockError> {
    KernelVersion::revision(text).map_err(|error| invalid(&repo.to_string(), "kernel-depends", &error))
}

/// A locked commit as sources take it: the Hub's repos are sha1 repos so far.
fn commit_id(kernel: &str, commit: &Commit) -> Result<CommitId, LockError> {
    commit.as_str().parse().map_err(|error| invalid(kernel, "commit", &error))
}

fn commit_of(commit: &CommitId) -> Result<Commit, LockError> {
    commit.to_string().parse().map_err(|error| invalid("the Hub", "commit", &error))
}
