//! The decision that a kernel may be taken.

use std::fmt;
use std::path::PathBuf;

use super::{ElfRules, Origin, SignatureMode, SignatureRule};
use crate::names::RepoId;

/// Why a publisher is trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Basis {
    /// It is one of the built-in publishers.
    BuiltIn,
    /// A policy says so.
    Policy {
        /// The file.
        path: PathBuf,
    },
    /// A Hub whose word counts calls it trusted.
    Endpoint {
        /// The Hub.
        endpoint: String,
    },
    /// In the child of a probe: the parent's word.
    Parent,
    /// Only by a signature of a signer whom the policy names, which every build is held to.
    Signature,
}

impl fmt::Display for Basis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BuiltIn => f.write_str("built in"),
            Self::Policy { path } => write!(f, "by {}", path.display()),
            Self::Endpoint { endpoint } => write!(f, "{endpoint} calls it trusted"),
            Self::Parent => f.write_str("by the process that asks for the probe"),
            Self::Signature => f.write_str("by its signature alone"),
        }
    }
}

/// A kernel that may be fetched, and loaded once it is verified. Only [`super::Policy`] makes one.
#[derive(Debug, Clone)]
pub struct Admission {
    pub(super) repo: RepoId,
    pub(super) origin: Origin,
    pub(super) basis: Basis,
    pub(super) signature: SignatureRule,
    pub(super) elf: ElfRules,
}

impl Admission {
    /// For the child of a probe: its parent has admitted this very build, judged its signature, and rests on the probe
    /// before it loads anything itself.
    pub(crate) fn of_parent(repo: RepoId, origin: Origin) -> Self {
        let signature =
            SignatureRule { mode: SignatureMode::Off, identities: Vec::new(), keys: Vec::new(), root: None };
        Self { repo, origin, basis: Basis::Parent, signature, elf: ElfRules::default() }
    }

    /// The kernel that it is about.
    #[must_use]
    pub fn repo(&self) -> &RepoId {
        &self.repo
    }

    /// Where it may be taken from.
    #[must_use]
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Why its publisher is trusted.
    #[must_use]
    pub fn basis(&self) -> &Basis {
        &self.basis
    }

    /// What is asked of its builds' signatures.
    #[must_use]
    pub fn signature(&self) -> &SignatureRule {
        &self.signature
    }

    /// Whether a build without a right signature is refused.
    #[must_use]
    pub fn requires_signature(&self) -> bool {
        self.signature.mode == SignatureMode::Require
    }

    /// The rules for its libraries.
    #[must_use]
    pub fn elf(&self) -> &ElfRules {
        &self.elf
    }
}

impl fmt::Display for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "publisher {}: {}", self.repo.owner(), self.basis)
    }
}
