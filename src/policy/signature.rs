//! How signatures are met.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Identity, PublicKey};
use crate::digest::Sha256Digest;

/// How signatures are met. The order is that of strictness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SignatureMode {
    /// No signature is looked at, and the report says that.
    Off,
    /// A signature that is absent or wrong is a warning.
    #[default]
    Warn,
    /// A build without a right signature is refused.
    Require,
}

impl SignatureMode {
    /// The word in a policy file.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Warn => "warn",
            Self::Require => "require",
        }
    }
}

impl fmt::Display for SignatureMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A file with a Sigstore trust root, and which one it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SigstoreRoot {
    /// The file.
    pub path: PathBuf,
    /// Its digest. Another file is not used.
    pub sha256: Sha256Digest,
}

/// What is asked of one build's signature.
#[derive(Debug, Clone)]
pub struct SignatureRule {
    pub(super) mode: SignatureMode,
    pub(super) identities: Vec<Identity>,
    pub(super) keys: Vec<PublicKey>,
    pub(super) root: Option<Arc<SigstoreRoot>>,
}

impl SignatureRule {
    /// How a signature that is absent or wrong is met.
    #[must_use]
    pub const fn mode(&self) -> SignatureMode {
        self.mode
    }

    /// The Sigstore identities whose signature counts, each by itself.
    #[must_use]
    pub fn identities(&self) -> &[Identity] {
        &self.identities
    }

    /// The keys whose signature counts, each by itself.
    #[must_use]
    pub fn keys(&self) -> &[PublicKey] {
        &self.keys
    }

    /// The Sigstore trust root to use instead of the embedded one.
    #[must_use]
    pub fn root(&self) -> Option<&SigstoreRoot> {
        self.root.as_deref()
    }
}
