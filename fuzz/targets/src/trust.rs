//! Parsers of what says who is trusted: policies and signatures.

use std::path::Path;

use kernelhub::policy::{Level, Policy, PublicKey};
use kernelhub::verify::{check_minisign, check_sigstore};

use crate::outcome_with_causes;

/// What the signatures are said to be over.
pub(crate) const SIGNED: &[u8] = include_bytes!("../../../tests/it/fixtures/sigstore/rfc8785-0.1.2.whl");
/// A key of minisign's documentation.
const KEY: &str = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3";

pub(crate) fn policy(data: &[u8]) -> String {
    let Ok(text) = std::str::from_utf8(data) else { return "no UTF-8".to_owned() };
    let mut told = Vec::new();
    for level in [Level::Machine, Level::User, Level::Program, Level::Project] {
        let mut policy = Policy::builtin();
        let before = policy.signature_mode();
        let added = policy.add(text, level, Path::new("/a/policy.toml"));
        assert!(added.is_err() || policy.signature_mode() >= before, "a policy only tightens");
        told.push(outcome_with_causes(&added));
    }
    told.join(" | ")
}

pub(crate) fn signature_bundle(data: &[u8]) -> String {
    let Ok(text) = std::str::from_utf8(data) else { return "no UTF-8".to_owned() };
    // With no identity that would do, nothing is ever accepted.
    let checked = check_sigstore(SIGNED, text, &[], None);
    assert!(checked.is_err(), "accepted without an identity");
    outcome_with_causes(&checked)
}

pub(crate) fn minisign(data: &[u8]) -> String {
    let Ok(text) = std::str::from_utf8(data) else { return "no UTF-8".to_owned() };
    // A text may be the key alone or the whole file of it.
    if let Ok(key) = text.parse::<PublicKey>() {
        assert_eq!((key.as_str().parse::<PublicKey>().ok(), key.id().len()), (Some(key.clone()), 16));
    }
    let key: PublicKey = KEY.parse().expect("a key");
    let checked = check_minisign(b"not what was signed", text, &[key]);
    assert!(checked.is_err(), "a signature over other bytes");
    outcome_with_causes(&checked)
}
