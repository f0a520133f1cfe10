//! Kernels that need kernels.

use kernelhub::hub::{HubError, Selection};
use serde_json::{Value, json};

use super::{REPO, repo};
use crate::support::hub::{FakeHub, Published, builder, files};
use crate::support::packs::VARIANT;

fn needing(name: &str, depends: &[Value]) -> Published {
    let mut published = Published::new(name, 1);
    published.add_build(VARIANT, 1, &files(), depends);
    published
}

fn prefetch(kernels: Vec<Published>) -> Result<Vec<String>, HubError> {
    let fake = FakeHub::start(kernels);
    let home = tempfile::tempdir().unwrap();
    let hub = builder(&fake.endpoint(), home.path()).build().unwrap();
    let builds = hub.prefetch(&repo(), 1, Selection::ThisMachine)?;
    Ok(builds.iter().map(|build| build.snapshot.repo().to_string()).collect())
}

#[test]
fn dependencies_come_along_once_each() {
    let on = |name: &str| json!({"repo-id": name, "version": 1});
    let brought = prefetch(vec![
        needing(REPO, &[on("o/a"), on("o/b")]),
        needing("o/a", &[on("o/c")]),
        needing("o/b", &[on("o/c")]),
        needing("o/c", &[]),
    ]);
    assert_eq!(brought.unwrap(), [REPO, "o/a", "o/c", "o/b"]);
}

#[test]
fn circles_and_what_names_no_kernel_are_refused() {
    let on = |name: &str| json!({"repo-id": name, "version": 1});
    let error = prefetch(vec![needing(REPO, &[on("o/a")]), needing("o/a", &[on(REPO)])]).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, HubError::Dependency { .. }) && text.contains("a circle"), "{text}");
    let error = prefetch(vec![needing(REPO, &[json!({"repo-id": "../x", "version": 1})])]).unwrap_err();
    assert!(matches!(error, HubError::Dependency { .. }), "{error}");
    let error = prefetch(vec![needing(REPO, &[on("o/absent")])]).unwrap_err();
    assert!(matches!(&error, HubError::DependencyFailed { dependency, .. } if dependency == "o/absent@v1"), "{error}");
}
