//! In what a signature is not right: one kind for each thing that is checked.

use std::path::PathBuf;

use crate::digest::Sha256Digest;
use crate::hint::Hint;
use crate::policy::{Claims, KeyError};

/// A signature that is absent or not right.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SignatureError {
    /// There is none, and the policy demands one.
    #[error("not signed")]
    Absent,
    /// Something that is no regular file stands in its place.
    #[error("{name} is no regular file")]
    NotAFile {
        /// The file's name.
        name: &'static str,
    },
    /// The file is larger than any signature.
    #[error("{name}: expected at most {maximum} bytes")]
    TooLarge {
        /// The file's name.
        name: &'static str,
        /// The limit, in bytes.
        maximum: u64,
    },
    /// The file is not UTF-8.
    #[error("{name} is not UTF-8")]
    NotText {
        /// The file's name.
        name: &'static str,
    },
    /// No key in the policy made it.
    #[error("signed by a key that the policy does not name; it names {}", .known.join(", "))]
    UnknownKey {
        /// The ids of the keys in the policy.
        known: Vec<String>,
    },
    /// A minisign signature that is not right.
    #[error("the minisign signature does not hold for the key {id}")]
    Minisign {
        /// The key's id.
        id: String,
        /// Why not.
        #[source]
        source: KeyError,
    },
    /// The signature names another kernel.
    #[error("signed as {actual:?}, expected {expected:?}")]
    OtherKernel {
        /// The kernel that was asked for.
        expected: String,
        /// The kernel that the signature names.
        actual: String,
    },
    /// The bundle is outside its format, or of a form that is not taken.
    #[error("the Sigstore bundle is not one to judge by: {reason}")]
    Bundle {
        /// What is wrong with it.
        reason: String,
    },
    /// The trust root cannot be used.
    #[error("the Sigstore trust root {root} cannot be used: {reason}")]
    Root {
        /// The root.
        root: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The trust root is another file than the policy names.
    #[error("{} is not the Sigstore trust root that the policy names: expected sha256 {expected}, found {actual}", path.display())]
    OtherRoot {
        /// The file.
        path: PathBuf,
        /// The digest in the policy.
        expected: Sha256Digest,
        /// The digest of the file.
        actual: Sha256Digest,
    },
    /// The certificate is not issued by an authority of the trust root.
    #[error("the certificate does not hold under the Sigstore trust root {root}: {reason}")]
    Certificate {
        /// The root.
        root: String,
        /// What is wrong.
        reason: String,
    },
    /// The certificate was not valid when it signed.
    #[error("the certificate was not valid at the signed time: {reason}")]
    CertificateTime {
        /// The times.
        reason: String,
    },
    /// The certificate is in no log of certificates.
    #[error("no log of certificates vouches for the certificate: {reason}")]
    Sct {
        /// What is wrong.
        reason: String,
    },
    /// The certificate is somebody else's.
    #[error("signed by {}, expected {expected}", claims_of(.claims))]
    Identity {
        /// What the certificate says.
        claims: Box<Claims>,
        /// The identities of the policy.
        expected: String,
    },
    /// A log is not one of the trust root's.
    #[error("the signature's log is not in the Sigstore trust root {root}: {reason}")]
    UnknownLog {
        /// The root.
        root: String,
        /// The log.
        reason: String,
    },
    /// The proof that the log holds the signature does not hold.
    #[error("the proof that the log holds the signature does not hold: {reason}")]
    InclusionProof {
        /// What is wrong.
        reason: String,
    },
    /// The log's signed state is not right.
    #[error("the log's checkpoint does not hold: {reason}")]
    Checkpoint {
        /// What is wrong.
        reason: String,
    },
    /// The time at which the log took the entry in is not the one that the log signed.
    #[error("the log did not sign this entry with this time: {reason}")]
    LogTime {
        /// What is wrong.
        reason: String,
    },
    /// The log's entry is about something else.
    #[error("the log's entry is about another signature: {reason}")]
    LogEntry {
        /// What is wrong.
        reason: String,
    },
    /// Nobody vouches for the time of the signature.
    #[error("no time of the signature is vouched for: {reason}")]
    Timestamp {
        /// What is wrong.
        reason: String,
    },
    /// The signature is over other bytes.
    #[error("the signature is not over these bytes of metadata.json: {reason}")]
    Payload {
        /// What is wrong.
        reason: String,
    },
}

fn claims_of(claims: &Claims) -> String {
    let one = |name: &str, value: &Option<String>| value.as_ref().map(|value| format!("{name} {value}"));
    let named = [
        one("issuer", &claims.issuer),
        one("source repository", &claims.source_repository),
        one("build signer", &claims.build_signer),
    ];
    let named: Vec<_> = named.into_iter().flatten().collect();
    if named.is_empty() { "a certificate without claims".to_owned() } else { named.join("; ") }
}

impl Hint for SignatureError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Absent => Some("ask the publisher for a signed build".to_owned()),
            Self::UnknownLog { .. } | Self::Certificate { .. } | Self::Sct { .. } => Some(
                "a log or an authority that is newer than the trust root is unknown to it: update kernelhub, or name a \
                 newer root with `sigstore_root` in your policy, after you have checked where it comes from"
                    .to_owned(),
            ),
            Self::OtherRoot { .. } => {
                Some("if you replaced the root yourself, put its new sha256 into the policy".to_owned())
            }
            Self::UnknownKey { .. } => {
                Some("if the publisher has a new key, `kernelhub trust key` adds it; check it by another way".to_owned())
            }
            _ => None,
        }
    }
}
