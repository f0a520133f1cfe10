//! From files on disk to bytes that may be loaded.
//!
//! Owns: the check of every file of a build against its `metadata.json`, of that against its anchor, and of the
//! signature over it; the scan of its libraries ([`elf`]). Refuses: the network, and to repair: what is wrong is
//! reported, all of it at once. Who is trusted was decided by [`crate::policy`] before anything was fetched; its
//! [`crate::policy::Admission`] is the key to this room.
//!
//! Leaves behind a [`VerifiedSnapshot`], which only [`verify`] makes, and only from an admission: whoever holds one
//! holds bytes that had their digest when they were read, not names of files that had it once.
//!
//! # The design choice
//! What is hashed is what is loaded. A file could change between its check and its loading, so that a library is copied
//! while it is hashed: on Linux into an anonymous file that is sealed against every change, elsewhere into a private
//! folder. Texts stay in memory. Several large files are read at a time, and a second thread writes the copy of a very
//! large one, so that a load takes little longer than hashing does; a small build is read by the calling thread, since
//! waking others takes longer. The price is one copy of each library per process, in memory that the system can share
//! with no other process; and that a library cannot find siblings by its own path.

pub mod elf;
mod error;
mod library;
mod options;
mod read;
mod signature;
mod signature_error;
mod sigstore;
mod snapshot;
mod trusted;
mod walk;

pub use error::VerifyError;
pub use library::VerifiedLibrary;
pub use options::VerifyOptions;
pub use signature::{MAX_BUNDLE_BYTES, MAX_MINISIGN_BYTES, SignatureStatus, Signer, check_minisign};
pub(crate) use signature::{SignedBuild, check_signature};
pub use signature_error::SignatureError;
pub use sigstore::check_sigstore;
pub use snapshot::{
    IntactBuild, MAX_FILES, MAX_TEXT_BYTES, VerifiedSnapshot, inspect, inspect_with, verify, verify_with,
};
pub use trusted::{TRUSTED_MIN_BYTES, TrustedHashes};
