//! Who is trusted for what.
//!
//! Owns: the policy files of the machine, the user and the project; the publishers, endpoints, keys and identities in
//! them; and the decision whether a kernel of some publisher may be taken from some place. Refuses: I/O beyond its own
//! files and the resolving of links in a folder's path, and to look at a kernel: it decides by names, before anything
//! of a kernel is fetched.
//!
//! Leaves behind an [`Admission`], which only a [`Policy`] makes. [`crate::verify::verify`] takes one, so that no code
//! reaches the loader without a decision about its publisher, whatever way it came by.
//!
//! # The design choice
//! A name is only as good as whoever vouches for it. The owner of a repo on the Hub is known by the Hub's word; a
//! manifest, an archive, a bundle or a local folder can write any name on itself. Hence every statement of trust says
//! where it holds ([`OriginKind`]), by default on the Hub alone, and what comes from elsewhere is believed by its
//! signature or by a statement that says so. The price is one more word for whoever uses unsigned archives.
//!
//! Policies only ever add up to something stricter: of two signature modes the stricter one holds, a publisher that
//! any file refuses is refused, and a project's file can do nothing but tighten, since a repository could otherwise
//! trust itself. A file that is not there does not count.
//!
//! Source: docs/policy.md describes the format.

mod admission;
mod builtin;
mod decide;
mod edit;
mod elf;
mod error;
mod file;
mod files;
mod identity;
mod key;
mod origin;
mod signature;
#[cfg(test)]
mod tests;

pub use admission::{Admission, Basis};
pub use decide::{Decision, Pending, Policy};
pub use edit::{Edit, add};
pub use elf::{ElfRules, Severity};
pub use error::PolicyError;
pub use files::{Level, PolicyFile, PolicyFiles};
pub use identity::{Claims, Identity};
pub use key::{KeyError, PublicKey};
pub use origin::{Origin, OriginKind, Word};
pub use signature::{SignatureMode, SignatureRule, SigstoreRoot};

/// The endpoint whose names and flags count without a word in any policy.
pub const DEFAULT_ENDPOINT: &str = "https://huggingface.co";
/// Where the machine's policy stands.
pub const MACHINE_FILE: &str = "/etc/kernelhub/policy.toml";
/// The name of a project's policy, in the project's folder.
pub const PROJECT_FILE: &str = "kernelhub-policy.toml";
/// The first word of the comment that is signed with a build's metadata. What follows it names the kernel, so that a
/// signature of one build is none of another one: `kernelhub owner/name@v1 <variant>`.
pub const SIGNED_COMMENT: &str = "kernelhub";
/// Largest policy file that is read, in bytes.
pub const MAX_POLICY_BYTES: u64 = 1 << 20;
