//! The Hugging Face cache, shared with the Python tools both ways.
//!
//! ```text
//! <root>/kernels--<owner>--<name>/blobs/<etag>                                  one file's bytes
//!                                 blobs/<etag>.incomplete                       a download to be resumed
//!                                 snapshots/<commit>/build/<variant>/...        links to the blobs, or the files
//!                                 refs/<branch or tag>                          the commit that it was at last time
//! <root>/.locks/kernels--<owner>--<name>/<etag>.lock                            held while one process fetches a file
//!                                        kernelhub.lock                         ... while one of ours fetches a kernel
//! ```
//!
//! An etag is the sha256 of a large file and the git object id of another. Repos of type `model`, which old caches hold
//! kernels in, have the prefix `models--`.
//!
//! Owns: paths, links, refs, locks. Refuses: trust; what stands here is what some tool put here, and
//! [`crate::verify`] reads all of it again.
//!
//! Invariant: a blob without the `.incomplete` ending had its digest when we named it; a ref names a commit of which a
//! build is whole. A kill at any moment leaves this true: names are given by one rename, last.
//!
//! The design choice: the Python layout as it is, with links where the file system has them, and no marker of our own
//! in it. What we need besides (a commit's listings, publishers) stands apart, under our own root. The price is that
//! "whole" is not a flag: it is found out by the digest in the build's metadata each time.

mod blobs;
mod inventory;
mod layout;
mod lock;
mod prune;
mod records;

pub use inventory::{CacheEntry, EntryKind, EntryState};
pub use layout::HubCache;
pub(super) use layout::{RepoFolder, write_atomically};
pub(super) use lock::{FileLock, LockTag};
pub use prune::{PruneItem, PruneOptions, PrunePlan};
pub(super) use records::{BuildRecord, Records};
pub use records::{Publisher, TreeFile};
