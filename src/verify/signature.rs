//! Whether a build's metadata is signed by somebody whom the policy names.
//!
//! The signature is over the raw bytes of `metadata.json`, which hold the digest of every other file, and is judged
//! before they are parsed.

use std::fmt;
use std::path::Path;

use serde::Serialize;

use super::sigstore::check_sigstore;
use super::walk::{Beside, open_beside, read_limited};
use super::{SignatureError, VerifyError};
use crate::manifest::{MINISIGN_FILE, SIGNATURE_FILE};
use crate::names::RepoId;
use crate::policy::{Admission, Claims, KeyError, PublicKey, SIGNED_COMMENT, SignatureMode};
use crate::variant::Variant;

/// Largest Sigstore bundle that is read, in bytes.
pub const MAX_BUNDLE_BYTES: u64 = 256 << 10;
/// Largest minisign signature that is read, in bytes.
pub const MAX_MINISIGN_BYTES: u64 = 4 << 10;

/// Who signed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Signer {
    /// The holder of a key that the policy names.
    Key {
        /// The key's id.
        id: String,
        /// The comment that was signed with the metadata.
        comment: String,
    },
    /// An identity that the policy names, by a certificate of Sigstore.
    Identity {
        /// What the certificate says about it.
        claims: Claims,
    },
}

impl fmt::Display for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key { id, .. } => write!(f, "the key {id}"),
            Self::Identity { claims: Claims { source_repository, build_signer, issuer } } => {
                let named = build_signer.as_ref().or(source_repository.as_ref()).or(issuer.as_ref());
                f.write_str(named.map_or("a certificate without claims", String::as_str))
            }
        }
    }
}

/// What is known about a build's signature.
#[derive(Debug)]
#[non_exhaustive]
pub enum SignatureStatus {
    /// The policy says to look at none.
    Off,
    /// No policy says who signs for this publisher, so that no signature could be right.
    NoSigner,
    /// There is none.
    Absent,
    /// It is right.
    Signed(Signer),
    /// It is not right, which the policy only warns of.
    Wrong(SignatureError),
}

impl SignatureStatus {
    /// Who signed, where that is certain.
    #[must_use]
    pub fn signer(&self) -> Option<&Signer> {
        match self {
            Self::Signed(signer) => Some(signer),
            _ => None,
        }
    }

    /// What to warn of. `None`: nothing.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        match self {
            Self::Absent => Some("it is not signed".to_owned()),
            Self::Wrong(error) => {
                let cause = std::error::Error::source(error).map_or_else(String::new, |cause| format!(": {cause}"));
                Some(format!("its signature is not right: {error}{cause}"))
            }
            Self::Off | Self::NoSigner | Self::Signed(_) => None,
        }
    }
}

impl fmt::Display for SignatureStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("not looked at: the policy says off"),
            Self::NoSigner => f.write_str("not looked at: no policy says who signs for this publisher"),
            Self::Absent => f.write_str("none"),
            Self::Signed(signer) => write!(f, "by {signer}"),
            Self::Wrong(error) => write!(f, "WRONG: {error}"),
        }
    }
}

/// A build whose signature is looked for in its folder.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SignedBuild<'a> {
    pub(crate) repo: &'a RepoId,
    pub(crate) version: u32,
    pub(crate) variant: &'a Variant,
    pub(crate) root: &'a Path,
    /// As [`crate::fetch::Snapshot::blobs`].
    pub(crate) blobs: Option<&'a Path>,
}

/// Judges the signature of a build by its admission. `metadata`: the bytes of its `metadata.json`.
pub(crate) fn check_signature(
    build: &SignedBuild<'_>,
    admission: &Admission,
    metadata: &[u8],
) -> Result<SignatureStatus, VerifyError> {
    let rule = admission.signature();
    if rule.mode() == SignatureMode::Off {
        return Ok(SignatureStatus::Off);
    }
    if rule.keys().is_empty() && rule.identities().is_empty() {
        return Ok(SignatureStatus::NoSigner);
    }
    let mut outcomes = Vec::new();
    if !rule.keys().is_empty()
        && let Some(text) = read(build, MINISIGN_FILE, MAX_MINISIGN_BYTES)?
    {
        let kernel = format!("{}@v{} {}", build.repo, build.version, build.variant);
        let checked = text.and_then(|text| check_minisign(metadata, &text, rule.keys()));
        outcomes.push(checked.and_then(|signer| is_for(signer, &kernel)));
    }
    if !rule.identities().is_empty()
        && let Some(text) = read(build, SIGNATURE_FILE, MAX_BUNDLE_BYTES)?
    {
        outcomes.push(text.and_then(|text| check_sigstore(metadata, &text, rule.identities(), rule.root())));
    }
    // One that is right is enough; a wrong one beside it is another signer's.
    let mut wrong = None;
    for outcome in outcomes {
        match outcome {
            Ok(signer) => return Ok(SignatureStatus::Signed(signer)),
            Err(error) => _ = wrong.get_or_insert(error),
        }
    }
    if rule.mode() == SignatureMode::Require {
        return Err(VerifyError::Signature {
            repo: build.repo.clone(),
            version: build.version,
            variant: *build.variant,
            source: Box::new(wrong.unwrap_or(SignatureError::Absent)),
        });
    }
    Ok(wrong.map_or(SignatureStatus::Absent, SignatureStatus::Wrong))
}

/// The text of a signature beside the metadata. `None`: there is none.
fn read(
    build: &SignedBuild<'_>,
    name: &'static str,
    maximum: u64,
) -> Result<Option<Result<String, SignatureError>>, VerifyError> {
    let path = build.root.join(name);
    let file = match open_beside(&path, build.blobs)? {
        Beside::Absent => return Ok(None),
        Beside::NotAFile(_) => return Ok(Some(Err(SignatureError::NotAFile { name }))),
        Beside::File(file) => file,
    };
    let bytes = read_limited(file, maximum, &path)?;
    if bytes.len() as u64 > maximum {
        return Ok(Some(Err(SignatureError::TooLarge { name, maximum })));
    }
    Ok(Some(String::from_utf8(bytes).map_err(|_| SignatureError::NotText { name })))
}

/// Checks a minisign signature over these bytes by one of these keys.
///
/// # Errors
/// [`SignatureError::UnknownKey`] when it is by none of them, [`SignatureError::Minisign`] when it is not right.
pub fn check_minisign(bytes: &[u8], signature: &str, keys: &[PublicKey]) -> Result<Signer, SignatureError> {
    for key in keys {
        match key.check(bytes, signature) {
            Ok(comment) => return Ok(Signer::Key { id: key.id(), comment }),
            Err(KeyError::OtherKey) => {}
            Err(source) => return Err(SignatureError::Minisign { id: key.id(), source }),
        }
    }
    Err(SignatureError::UnknownKey { known: keys.iter().map(PublicKey::id).collect() })
}

/// A signature that names a kernel is of no other one. One that names none, as other tools make them, is of its bytes.
fn is_for(signer: Signer, kernel: &str) -> Result<Signer, SignatureError> {
    if let Signer::Key { comment, .. } = &signer
        && let Some(named) = comment.strip_prefix(SIGNED_COMMENT).and_then(|rest| rest.strip_prefix(' '))
        && named != kernel
    {
        return Err(SignatureError::OtherKernel { expected: kernel.to_owned(), actual: named.to_owned() });
    }
    Ok(signer)
}
