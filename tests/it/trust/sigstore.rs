//! A bundle that the public-good instance made for a workflow, and what is made of it when something in it is forged.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use kernelhub::digest::Sha256Digest;
use kernelhub::policy::{Identity, SigstoreRoot};
use kernelhub::verify::{MAX_BUNDLE_BYTES, SignatureError, Signer, check_sigstore};
use serde_json::{Value, json};

const ISSUER: &str = "https://token.actions.githubusercontent.com";
const REPOSITORY: &str = "https://github.com/trailofbits/rfc8785.py";

fn fixture(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixtures/sigstore").join(name)).unwrap()
}

fn wheel() -> Vec<u8> {
    fixture("rfc8785-0.1.2.whl")
}

fn bundle() -> Value {
    serde_json::from_slice(&fixture("rfc8785-0.1.2.whl.sigstore")).unwrap()
}

fn identity(issuer: &str, repository: &str) -> Identity {
    Identity::All(vec![Identity::Issuer(issuer.to_owned()), Identity::SourceRepository(repository.to_owned())])
}

fn check(bytes: &[u8], bundle: &Value, root: Option<&SigstoreRoot>) -> Result<Signer, SignatureError> {
    check_sigstore(bytes, &bundle.to_string(), &[identity(ISSUER, REPOSITORY)], root)
}

/// The bundle with one part replaced.
fn forged(pointer: &str, value: impl Into<Value>) -> Value {
    let mut forged = bundle();
    *forged.pointer_mut(pointer).unwrap() = value.into();
    forged
}

/// The bundle with one bit of a base64 text flipped, that many bytes before its end.
fn flipped(pointer: &str, from_end: usize) -> Value {
    let whole = bundle();
    let mut bytes = BASE64.decode(whole.pointer(pointer).unwrap().as_str().unwrap()).unwrap();
    let at = bytes.len() - from_end;
    bytes[at] ^= 1;
    forged(pointer, BASE64.encode(bytes))
}

const ENTRY: &str = "/verificationMaterial/tlogEntries/0";

fn entry(part: &str) -> String {
    format!("{ENTRY}/{part}")
}

#[test]
fn a_real_bundle_of_a_workflow_says_who_signed() {
    let Signer::Identity { claims } = check(&wheel(), &bundle(), None).unwrap() else { panic!("not an identity") };
    assert_eq!((claims.issuer.as_deref(), claims.source_repository.as_deref()), (Some(ISSUER), Some(REPOSITORY)));
    let signer = claims.build_signer.unwrap();
    assert!(signer.starts_with(&format!("{REPOSITORY}/.github/workflows/")), "{signer}");
}

/// Reads `SignatureError` as a word, so that a test can say that all are different.
fn kind(error: &SignatureError) -> String {
    format!("{error:?}").split([' ', '{', '(']).next().unwrap_or_default().to_owned()
}

#[test]
fn f25_one_byte_changed_in_each_part_is_a_rejection_of_its_own() {
    let (wheel, whole) = (wheel(), bundle());
    let mut payload = wheel.clone();
    payload[100] ^= 1;
    let certificate = "/verificationMaterial/x509CertificateChain/certificates/0/rawBytes";
    // Within the certificate's extensions, where the names of the workflow stand.
    let text = BASE64.decode(whole.pointer(certificate).unwrap().as_str().unwrap()).unwrap();
    let name = b"rfc8785.py";
    let at = text.windows(name.len()).position(|window| window == name).unwrap();
    let other_name = flipped(certificate, text.len() - at);
    let time: i64 = whole.pointer(&entry("integratedTime")).unwrap().as_str().unwrap().parse().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let root_file = |change: bool| {
        let mut root = sigstore_verify::trust_root::SIGSTORE_PRODUCTION_TRUSTED_ROOT.as_bytes().to_vec();
        let sha256 = Sha256Digest::of(&root);
        let at = root.windows(4).position(|window| window == b"MFkw").unwrap() + 40;
        root[at] ^= u8::from(change);
        let path = folder.path().join(format!("root-{change}.json"));
        std::fs::write(&path, root).unwrap();
        SigstoreRoot { path, sha256 }
    };
    check(&wheel, &whole, Some(&root_file(false))).unwrap();
    let errors = [
        ("InclusionProof", check(&wheel, &flipped(&entry("inclusionProof/hashes/0"), 1), None)),
        ("LogTime", check(&wheel, &forged(&entry("integratedTime"), (time + 1).to_string()), None)),
        ("Certificate", check(&wheel, &other_name, None)),
        ("Payload", check(&payload, &whole, None)),
        ("OtherRoot", check(&wheel, &whole, Some(&root_file(true)))),
    ];
    for (expected, result) in errors {
        let error = result.unwrap_err();
        assert_eq!(kind(&error), expected, "{error}");
    }
}

#[test]
fn whatever_else_is_forged_is_rejected() {
    let wheel = wheel();
    let checkpoint =
        bundle().pointer(&entry("inclusionProof/checkpoint/envelope")).unwrap().as_str().unwrap().to_owned();
    let mut without = bundle();
    without.pointer_mut(ENTRY).unwrap().as_object_mut().unwrap().remove("inclusionPromise");
    for (what, forgery, expected) in [
        ("the log's index", forged(&entry("logIndex"), "79605084"), "LogTime"),
        ("the promise", flipped(&entry("inclusionPromise/signedEntryTimestamp"), 1), "LogTime"),
        ("the log's id", flipped(&entry("logId/keyId"), 1), "LogTime"),
        ("the entry's body", flipped(&entry("canonicalizedBody"), 9), "LogTime"),
        ("no promise, so no time", without, "Timestamp"),
        ("the proof's index", forged(&entry("inclusionProof/logIndex"), "75441651"), "InclusionProof"),
        ("the proof's root", flipped(&entry("inclusionProof/rootHash"), 1), "InclusionProof"),
        (
            "the checkpoint",
            forged(&entry("inclusionProof/checkpoint/envelope"), checkpoint.replace("75441653", "75441654")),
            "Checkpoint",
        ),
        (
            "the certificate's signature",
            flipped("/verificationMaterial/x509CertificateChain/certificates/0/rawBytes", 1),
            "Certificate",
        ),
        ("the digest", flipped("/messageSignature/messageDigest/digest", 1), "Payload"),
        ("the signature", flipped("/messageSignature/signature", 1), "Payload"),
    ] {
        let error = check(&wheel, &forgery, None).unwrap_err();
        assert_eq!(kind(&error), expected, "{what}: {error}");
    }
}

#[test]
fn forms_of_which_less_would_be_checked_are_not_taken() {
    let wheel = wheel();
    let refused = |bundle: &Value| match check(&wheel, bundle, None) {
        Err(SignatureError::Bundle { reason }) => reason,
        other => panic!("{other:?}"),
    };
    // The promise alone counts in the old format.
    let mut old = forged("/mediaType", "application/vnd.dev.sigstore.bundle+json;version=0.1");
    assert!(refused(&old).contains("0.2 or 0.3"));
    old.pointer_mut(ENTRY).unwrap().as_object_mut().unwrap().remove("inclusionProof");
    refused(&old);
    *old.pointer_mut("/mediaType").unwrap() = bundle().pointer("/mediaType").unwrap().clone();
    assert!(refused(&old).contains("no proof"));
    // A second entry, of which nothing would be proved.
    let mut second = bundle();
    let mut entry = bundle().pointer(ENTRY).unwrap().clone();
    entry.as_object_mut().unwrap().remove("inclusionProof");
    second.pointer_mut("/verificationMaterial/tlogEntries").unwrap().as_array_mut().unwrap().push(entry);
    assert!(refused(&second).contains("found 2"));
    assert!(refused(&forged("/verificationMaterial/tlogEntries", json!([]))).contains("found 0"));
    // An envelope signs what it carries, and not these bytes.
    let envelope = String::from_utf8(fixture("envelope.sigstore")).unwrap();
    let identities = [identity(ISSUER, REPOSITORY)];
    let error = check_sigstore(&wheel, &envelope, &identities, None).unwrap_err();
    assert!(matches!(&error, SignatureError::Bundle { reason } if reason.contains("envelope")), "{error}");
    // Two readers of one text must see one bundle; and no text is endless.
    let text = bundle().to_string();
    let twice = text.replacen("{\"mediaType\":", "{\"mediaType\":\"x\",\"mediaType\":", 1);
    assert_ne!(twice, text);
    let long = format!("{text}{}", " ".repeat(usize::try_from(MAX_BUNDLE_BYTES).unwrap()));
    for bad in ["", "{}", "[]", "not json", &text[..text.len() / 2], &twice, &long] {
        let error = check_sigstore(&wheel, bad, &identities, None).unwrap_err();
        assert!(matches!(error, SignatureError::Bundle { .. }), "{error}");
    }
}

#[test]
fn whose_signature_it_is_is_what_the_policy_says() {
    let (wheel, text) = (wheel(), bundle().to_string());
    let with = |identities: &[Identity]| check_sigstore(&wheel, &text, identities, None);
    for wrong in [
        identity("https://accounts.google.com", REPOSITORY),
        identity(ISSUER, "https://github.com/trailofbits/rfc8785"),
        Identity::All(vec![identity(ISSUER, REPOSITORY), Identity::BuildSigner("https://github.com/x".to_owned())]),
    ] {
        let error = with(&[wrong]).unwrap_err();
        assert!(matches!(error, SignatureError::Identity { .. }), "{error}");
        assert!(error.to_string().contains(REPOSITORY), "who it was: {error}");
    }
    assert!(matches!(with(&[]), Err(SignatureError::Identity { .. })), "no identity is nobody");
    with(&[identity(ISSUER, "https://github.com/x/y"), identity(ISSUER, REPOSITORY)]).unwrap();
}

#[test]
fn a_root_of_somebody_else_knows_none_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("root.json");
    let pin = |text: &str| {
        std::fs::write(&path, text).unwrap();
        SigstoreRoot { path: path.clone(), sha256: Sha256Digest::of(text.as_bytes()) }
    };
    let staging = pin(sigstore_verify::trust_root::SIGSTORE_STAGING_TRUSTED_ROOT);
    let error = check(&wheel(), &bundle(), Some(&staging)).unwrap_err();
    assert!(matches!(error, SignatureError::LogTime { .. } | SignatureError::UnknownLog { .. }), "{error}");
    for bad in ["", "{}", "[]"] {
        let error = check(&wheel(), &bundle(), Some(&pin(bad))).unwrap_err();
        assert!(!matches!(error, SignatureError::OtherRoot { .. }), "{error}");
    }
    let absent = SigstoreRoot { path: folder.path().join("none"), sha256: Sha256Digest::of(b"") };
    assert!(matches!(check(&wheel(), &bundle(), Some(&absent)), Err(SignatureError::Root { .. })));
}
