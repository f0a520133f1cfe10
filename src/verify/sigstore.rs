//! Sigstore bundles, judged without a network.
//!
//! `sigstore-verify` checks: the certificate's chain and its validity at every signed time, the timestamp of a log of
//! certificates in it, the proof that the transparency log holds the entry, the log's checkpoint, its promise over the
//! time of the entry, timestamps of RFC 3161, the signature, and that the log's entry is about this signature, key and
//! digest. What it lets pass is refused here before: bundles of the format 0.1, where a promise alone counts; more than
//! one entry, of which the others could be without a proof; envelopes, where a signature over the bytes is meant; and
//! bundles whose JSON has a key twice. What the certificate says about its owner is compared with the policy here.

use std::sync::OnceLock;

use sigstore_verify::trust_root::{SIGSTORE_PRODUCTION_TRUSTED_ROOT, TrustedRoot};
use sigstore_verify::types::bundle::MediaType;
use sigstore_verify::types::{Bundle, SignatureContent};
use sigstore_verify::{CertificateError, Error, TransparencyLogError, VerificationPolicy, Verifier};

use super::signature::Signer;
use super::{MAX_BUNDLE_BYTES, SignatureError};
use crate::digest::Sha256Digest;
use crate::policy::{Claims, Identity, SigstoreRoot};
use crate::regular;

/// Largest trust root that is read, in bytes.
const MAX_ROOT_BYTES: u64 = 1 << 20;

/// Checks a Sigstore bundle over these bytes: signed by one of these identities, under the embedded trust root or the
/// one of a policy.
///
/// # Errors
/// [`SignatureError`]; each kind is one thing that was checked.
pub fn check_sigstore(
    bytes: &[u8],
    bundle: &str,
    identities: &[Identity],
    root: Option<&SigstoreRoot>,
) -> Result<Signer, SignatureError> {
    let bundle = read_bundle(bundle)?;
    let claims = match root {
        None => check_under(embedded()?, &embedded_name(), bytes, &bundle)?,
        Some(root) => check_under(&given(root)?, &root.path.display().to_string(), bytes, &bundle)?,
    };
    if !identities.iter().any(|identity| identity.is_met(&claims)) {
        let expected = identities.iter().map(ToString::to_string).collect::<Vec<_>>().join(", or ");
        return Err(SignatureError::Identity { claims: Box::new(claims), expected });
    }
    Ok(Signer::Identity { claims })
}

/// Parses a bundle, and refuses the forms of which less would be checked.
fn read_bundle(text: &str) -> Result<Bundle, SignatureError> {
    let refuse = |reason: String| Err(SignatureError::Bundle { reason });
    if text.len() as u64 > MAX_BUNDLE_BYTES {
        return refuse(format!("expected at most {MAX_BUNDLE_BYTES} bytes, found {}", text.len()));
    }
    if let Err(error) = crate::manifest::parse_json_strict(text.as_bytes()) {
        return refuse(error.to_string());
    }
    let bundle = match Bundle::from_json(text) {
        Ok(bundle) => bundle,
        Err(error) => return refuse(error.to_string()),
    };
    if !matches!(bundle.media_type, MediaType::Bundle0_2 | MediaType::Bundle0_3) {
        return refuse(format!("its format is {}, expected 0.2 or 0.3", bundle.media_type));
    }
    if !matches!(bundle.content, SignatureContent::MessageSignature(_)) {
        return refuse("it signs an envelope, expected a signature over the file itself".to_owned());
    }
    match bundle.verification_material.tlog_entries.as_slice() {
        [entry] if entry.inclusion_proof.is_some() => Ok(bundle),
        [_] => refuse("its log entry has no proof of inclusion".to_owned()),
        entries => refuse(format!("expected one log entry, found {}", entries.len())),
    }
}

fn check_under(verifier: &Verifier, root: &str, bytes: &[u8], bundle: &Bundle) -> Result<Claims, SignatureError> {
    // Any identity: whose it is, is compared by our own rules afterwards.
    let result =
        verifier.verify(bytes, bundle, &VerificationPolicy::any_identity()).map_err(|error| explain(error, root))?;
    let everything = result.certificate_verified() && result.sct_verified() && result.tlog_verified();
    let Some(certificate) = result.certificate().filter(|_| everything) else {
        return Err(SignatureError::Bundle { reason: "not everything about it could be checked".to_owned() });
    };
    Ok(Claims {
        issuer: certificate.issuer.clone(),
        source_repository: certificate.ci_claims.source_repository_uri.clone(),
        build_signer: certificate.ci_claims.build_signer_uri.clone(),
    })
}

/// The verifier by the embedded trust root, made once.
fn embedded() -> Result<&'static Verifier, SignatureError> {
    static VERIFIER: OnceLock<Result<Verifier, String>> = OnceLock::new();
    let made = VERIFIER.get_or_init(|| {
        let root = TrustedRoot::from_json(SIGSTORE_PRODUCTION_TRUSTED_ROOT).map_err(|error| error.to_string())?;
        Verifier::new(&root).map_err(|error| error.to_string())
    });
    made.as_ref().map_err(|reason| SignatureError::Root { root: embedded_name(), reason: reason.clone() })
}

/// What the embedded root is, with the day of its newest key.
fn embedded_name() -> String {
    static NAME: OnceLock<String> = OnceLock::new();
    let newest = || -> Option<String> {
        let root = TrustedRoot::from_json(SIGSTORE_PRODUCTION_TRUSTED_ROOT).ok()?;
        let logs = root.tlogs.iter().filter_map(|log| log.public_key.valid_for);
        let authorities = root.certificate_authorities.iter().filter_map(|authority| authority.valid_for);
        let starts = logs.chain(authorities).map(|window| window.start);
        starts.max().map(|time| time.to_string().chars().take(10).collect())
    };
    NAME.get_or_init(|| match newest() {
        Some(day) => format!("(embedded, its newest key is of {day})"),
        None => "(embedded)".to_owned(),
    })
    .clone()
}

/// The verifier by a root file, which has to be the one that the policy names.
fn given(root: &SigstoreRoot) -> Result<Verifier, SignatureError> {
    let refuse = |reason: String| SignatureError::Root { root: root.path.display().to_string(), reason };
    let bytes = regular::read(&root.path, MAX_ROOT_BYTES).map_err(|error| refuse(error.to_string()))?;
    let actual = Sha256Digest::of(&bytes);
    if actual != root.sha256 {
        return Err(SignatureError::OtherRoot { path: root.path.clone(), expected: root.sha256, actual });
    }
    let text = std::str::from_utf8(&bytes).map_err(|error| refuse(error.to_string()))?;
    let parsed = TrustedRoot::from_json(text).map_err(|error| refuse(error.to_string()))?;
    Verifier::new(&parsed).map_err(|error| refuse(error.to_string()))
}

/// The library's error, by what was checked.
fn explain(error: Error, root: &str) -> SignatureError {
    use sigstore_verify::bundle::Error as BundleError;
    let (root, reason) = (root.to_owned(), error.to_string());
    match error {
        Error::Certificate(CertificateError::NotYetValid { .. } | CertificateError::Expired { .. }) => {
            SignatureError::CertificateTime { reason }
        }
        Error::Certificate(CertificateError::Sct(_)) => SignatureError::Sct { reason },
        Error::Certificate(_) => SignatureError::Certificate { root, reason },
        Error::TransparencyLog(error) => match error {
            TransparencyLogError::UnknownLog { .. } => SignatureError::UnknownLog { root, reason },
            TransparencyLogError::InclusionProof(_) => SignatureError::InclusionProof { reason },
            TransparencyLogError::Checkpoint(_) => SignatureError::Checkpoint { reason },
            TransparencyLogError::InclusionPromise(_) | TransparencyLogError::IntegratedTime(_) => {
                SignatureError::LogTime { reason }
            }
            _ => SignatureError::LogEntry { reason },
        },
        Error::Bundle(BundleError::LogIndexOutOfRange { .. } | BundleError::CheckpointRootMismatch) => {
            SignatureError::InclusionProof { reason }
        }
        Error::Bundle(BundleError::MissingCheckpoint) => SignatureError::Checkpoint { reason },
        Error::Timestamp(_) => SignatureError::Timestamp { reason },
        Error::SignatureInvalid(_) | Error::ArtifactMismatch(_) => SignatureError::Payload { reason },
        Error::InvalidTrustRoot(_) | Error::TrustRoot(_) | Error::TrustedCertificate(_) => {
            SignatureError::Root { root, reason }
        }
        _ => SignatureError::Bundle { reason },
    }
}
