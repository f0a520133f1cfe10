//! The Hub as a source, against a fake one on loopback.

mod cache;
mod depends;
mod errors;
mod lies;
mod processes;
#[cfg(feature = "cli")]
mod program;
mod python;
mod resume;
mod tokens;
mod versions;
mod warm;

use std::path::Path;

use kernelhub::hub::{Hub, HubError, Prefetched, Selection};
use kernelhub::names::RepoId;

use crate::support::hub::{FakeHub, Published, builder};

pub(super) const REPO: &str = "kernels-community/rmsnorm";

pub(super) fn repo() -> RepoId {
    REPO.parse().unwrap()
}

/// A Hub with one kernel, and that kernel.
pub(super) fn one() -> (FakeHub, Published) {
    let published = Published::new(REPO, 1);
    (FakeHub::start(vec![published.clone()]), published)
}

/// Brings the build for this machine of a version, commit or name.
pub(super) fn bring(hub: &Hub, revision: &str) -> Result<Prefetched, HubError> {
    let revision: kernelhub::fetch::Revision = revision.parse().unwrap();
    let mut builds = hub.prefetch(&repo(), revision, Selection::ThisMachine)?;
    Ok(builds.remove(0))
}

/// The same, as a new process with this cache would.
pub(super) fn bring_into(fake: &FakeHub, home: &Path, revision: &str) -> Result<Prefetched, HubError> {
    bring(&builder(&fake.endpoint(), home).build().unwrap(), revision)
}
