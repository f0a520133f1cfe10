//! Kernels of a publisher with a workflow's identity, from a Hub to a verified build.

use std::path::Path;

use kernelhub::digest::Sha256Digest;
use kernelhub::hub::{HubError, Prefetched, Selection};
use kernelhub::verify::{SignatureError, SignatureStatus, Signer, VerifyError};
use serde_json::Value;

use crate::support::hub::{FakeHub, Published, builder};
use crate::support::packs::VARIANT;
use crate::support::sigstore::{ISSUER, REPOSITORY, SIGNED_AT, SIGNER, Signing, Sigstore};
use crate::support::trust;

const REPO: &str = "acme/rmsnorm";
const METADATA: &str = "metadata.json";

/// Publishes a kernel with this bundle beside its metadata.
fn publish(bundle: Option<&Value>) -> FakeHub {
    let mut published = Published::new(REPO, 1);
    if let Some(bundle) = bundle {
        let path = format!("build/{VARIANT}/{METADATA}.sigstore");
        published.files.insert(path, bundle.to_string().into_bytes());
    }
    FakeHub::start(vec![published])
}

fn metadata() -> Vec<u8> {
    Published::new(REPO, 1).files[&format!("build/{VARIANT}/{METADATA}")].clone()
}

/// A user's policy: acme by its workflow, under the tests' Sigstore.
fn policy(sigstore: &Sigstore, folder: &Path, fake: &FakeHub, more: &str) -> String {
    let root = folder.join("root.json");
    std::fs::write(&root, sigstore.root()).unwrap();
    let sha256 = Sha256Digest::of(sigstore.root().as_bytes());
    format!(
        "schema = 1\nsigstore_root = {{ path = \"{}\", sha256 = \"{sha256}\" }}\n\
         [[endpoint]]\nurl = \"{}\"\n[[publisher]]\nname = \"acme\"\n{more}\n\
         identity = {{ all = [{{ issuer = \"{ISSUER}\" }}, {{ source_repository = \"{REPOSITORY}\" }}, \
         {{ any = [{{ build_signer = \"https://nobody\" }}, {{ build_signer = \"{SIGNER}\" }}] }}] }}\n",
        root.display(),
        fake.endpoint()
    )
}

fn bring(sigstore: &Sigstore, bundle: Option<&Value>, more: &str) -> Result<Prefetched, HubError> {
    let (fake, home) = (publish(bundle), tempfile::tempdir().unwrap());
    let policy = trust::policy_of(&policy(sigstore, home.path(), &fake, more));
    let hub = || builder(&fake.endpoint(), &home.path().join("hf")).policy(policy.clone());
    let brought = hub().build().unwrap().prefetch(&REPO.parse().unwrap(), 1, Selection::ThisMachine)?;
    // Offline, the signature is judged again.
    let again = hub().offline(true).build().unwrap();
    let again = again.prefetch(&REPO.parse().unwrap(), 1, Selection::ThisMachine)?;
    assert_eq!(again[0].snapshot.signature().to_string(), brought[0].snapshot.signature().to_string());
    Ok(brought.into_iter().next().unwrap())
}

#[track_caller]
fn refusal(sigstore: &Sigstore, bundle: Option<&Value>) -> SignatureError {
    match bring(sigstore, bundle, "") {
        Err(HubError::Verify(VerifyError::Signature { source, .. })) => *source,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_publisher_is_trusted_by_its_workflow_s_signature_alone() {
    let sigstore = Sigstore::new();
    let bundle = sigstore.sign(&metadata(), &Signing::default());
    let brought = bring(&sigstore, Some(&bundle), "").unwrap();
    let SignatureStatus::Signed(Signer::Identity { claims }) = brought.snapshot.signature() else {
        panic!("{:?}", brought.snapshot.signature())
    };
    assert_eq!(claims.build_signer.as_deref(), Some(SIGNER));
    assert!(brought.snapshot.admission().to_string().ends_with("by its signature alone"));
    assert!(matches!(refusal(&sigstore, None), SignatureError::Absent));
}

#[test]
fn every_forged_signature_is_a_refusal_that_says_what_is_wrong() {
    let sigstore = Sigstore::new();
    let sign = |signing: Signing<'_>| sigstore.sign(&metadata(), &signing);
    let (day, other) = (24 * 60 * 60, "https://github.com/acme/other");
    let fork = "https://github.com/stranger/kernels/.github/workflows/build.yaml@refs/heads/main";
    let refused = |signing| refusal(&sigstore, Some(&sign(signing)));
    for at in [SIGNED_AT + day, SIGNED_AT - day] {
        let error = refused(Signing { at, ..Signing::default() });
        assert!(
            matches!(error, SignatureError::CertificateTime { .. } | SignatureError::Certificate { .. }),
            "{error}"
        );
    }
    let error = refused(Signing { with_sct: false, ..Signing::default() });
    assert!(matches!(error, SignatureError::Sct { .. }), "{error}");
    let error = refused(Signing { foreign_ct: true, ..Signing::default() });
    assert!(matches!(error, SignatureError::Sct { .. }), "{error}");
    for signing in [
        Signing { issuer: "https://issuer.test", ..Signing::default() },
        Signing { repository: other, ..Signing::default() },
        Signing { signer: fork, ..Signing::default() },
    ] {
        let error = refused(signing);
        assert!(matches!(error, SignatureError::Identity { .. }), "{error}");
    }
    let error = refusal(&sigstore, Some(&sigstore.sign(b"{}", &Signing::default())));
    assert!(matches!(error, SignatureError::Payload { .. }), "{error}");
    let error = refusal(&sigstore, Some(&Sigstore::new().sign(&metadata(), &Signing::default())));
    assert!(matches!(error, SignatureError::LogTime { .. } | SignatureError::UnknownLog { .. }), "{error}");
}

#[test]
fn a_warning_says_that_a_trusted_publisher_s_signature_is_not_right() {
    let sigstore = Sigstore::new();
    let wrong = sigstore.sign(b"{}", &Signing::default());
    let brought = bring(&sigstore, Some(&wrong), "trust = true").unwrap();
    assert!(matches!(brought.snapshot.signature(), SignatureStatus::Wrong(SignatureError::Payload { .. })));
    assert!(brought.notes.iter().any(|note| note.contains("signature is not right")), "{:?}", brought.notes);
    let strict = bring(&sigstore, Some(&wrong), "trust = true\nsignature = \"require\"");
    assert!(matches!(strict, Err(HubError::Verify(VerifyError::Signature { .. }))), "{strict:?}");
    bring(&sigstore, Some(&sigstore.sign(&metadata(), &Signing::default())), "trust = true\nsignature = \"require\"")
        .unwrap();
}
