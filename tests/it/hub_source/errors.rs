//! What a user reads when a kernel or a build is not as it should be.

use std::error::Error as _;

use kernelhub::fetch::FetchError;
use kernelhub::hint::Hint as _;
use kernelhub::hub::HubError;

use super::{REPO, bring_into, one};
use crate::support::hub::{FakeHub, Published, files};
use crate::support::packs::VARIANT;

/// The text of an error with its causes.
fn whole(error: &HubError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

#[test]
fn f07_a_broken_build_is_named_and_does_not_hide_a_good_one() {
    let broken = br#"{"version":1,"python-depends":[]}"#.to_vec();
    let mut published = Published::new(REPO, 1);
    published.files.insert(format!("build/{VARIANT}/metadata.json"), broken.clone());
    let fake = FakeHub::start(vec![published.clone()]);
    let home = tempfile::tempdir().unwrap();
    let error = bring_into(&fake, home.path(), "v1").unwrap_err();
    let text = whole(&error);
    for part in [REPO, VARIANT, "metadata.json", "name, id, backend", &published.commit] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(error.hint().unwrap().contains("another version"));

    // A build whose file system layer is broken, beside one that is whole and serves the same device.
    published.add_build("wgsl-universal", 1, &files(), &[]);
    published.files.insert("build/nonsense!/x".to_owned(), Vec::new());
    let mut good = Published::new(REPO, 1);
    good.files.insert("build/tvm-ffi01-cpu-aarch64-linux/metadata.json".to_owned(), broken);
    good.files.insert("build/nonsense!/x".to_owned(), Vec::new());
    let fake = FakeHub::start(vec![good]);
    let home = tempfile::tempdir().unwrap();
    bring_into(&fake, home.path(), "v1").unwrap();
}

#[test]
fn unknown_versions_repos_and_empty_revisions_are_told_apart() {
    let (fake, published) = one();
    let home = tempfile::tempdir().unwrap();
    let error = bring_into(&fake, home.path(), "v9").unwrap_err();
    assert!(matches!(error, HubError::Fetch(FetchError::RevisionNotFound { .. })), "{error:?}");
    assert!(error.to_string().contains("it has v1") && error.hint().unwrap().contains("v1"), "{error}");

    let mut empty = published.clone();
    empty.files.clear();
    let fake = FakeHub::start(vec![empty]);
    let error = bring_into(&fake, home.path(), "v1").unwrap_err();
    assert!(matches!(error, HubError::Fetch(FetchError::NoBuilds { .. })), "{error:?}");

    let fake = FakeHub::start(Vec::new());
    let error = bring_into(&fake, home.path(), "v1").unwrap_err();
    assert!(matches!(error, HubError::Fetch(FetchError::RepoNotFound { .. })), "{error:?}");
    assert!(error.to_string().contains(&fake.endpoint()), "{error}");
}

#[test]
fn a_build_without_a_digest_or_of_another_kernel_is_refused_before_its_files_are_fetched() {
    let mut published = Published::new(REPO, 1);
    let path = format!("build/{VARIANT}/metadata.json");
    let text = String::from_utf8(published.files[&path].clone()).unwrap();
    for (from, to) in
        [("\"digest\"", "\"nothing\""), ("\"rmsnorm\"", "\"other\""), ("\"version\": 1", "\"version\": 2")]
    {
        assert!(text.contains(from), "{from}: {text}");
        published.files.insert(path.clone(), text.replacen(from, to, 1).into_bytes());
        let fake = FakeHub::start(vec![published.clone()]);
        let home = tempfile::tempdir().unwrap();
        let error = bring_into(&fake, home.path(), "v1").unwrap_err();
        assert!(matches!(error, HubError::Fetch(FetchError::Content { .. })), "{to}: {error:?}");
        assert_eq!(fake.count("/resolve/"), 1, "{to}");
    }
}
