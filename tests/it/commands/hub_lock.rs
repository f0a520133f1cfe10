//! `lock` and `download`, of kernels of the Hub.

use std::fs;

use serde_json::{Value, json};

use super::{Machine, commit, start_hub};
use crate::support::packs::VARIANT;

#[test]
fn kernels_of_the_hub_are_locked_with_what_they_need_and_held_to_the_lock() {
    let hub = start_hub(&[]);
    let machine = Machine::at(&hub.endpoint());
    machine.declare("\"o/rmsnorm\" = 1");
    let locked = machine.json(&["lock"]);
    let revisions: Vec<_> =
        locked["kernels"].as_array().unwrap().iter().map(|k| (&k["repo"], &k["revision"])).collect();
    let (helper, rmsnorm) = (commit("o/helper", 1), commit("o/rmsnorm", 1));
    assert_eq!(
        revisions,
        [
            (&Value::from("o/helper"), &Value::from(helper.as_str())),
            (&Value::from("o/rmsnorm"), &Value::from(rmsnorm.as_str())),
        ]
    );
    assert_eq!(locked["kernels"][1]["variants"].as_array().unwrap().len(), 2);
    // Of each build the metadata alone was read.
    assert!(!hub.paths().iter().any(|path| path.contains("librmsnorm.so")), "{:?}", hub.paths());
    let lock = fs::read(machine.project().join("kernels.lock")).unwrap();
    let parsed = kernelhub::manifest::KernelsLock::parse(&lock, "kernels.lock").unwrap();
    assert_eq!(parsed.edition, kernelhub::manifest::LockEdition::Dependency);
    assert_eq!(parsed.kernels.len(), 2);

    // The download brings what fits, follows the lock when the branch moves, and asks nobody when warm.
    let first = hub.paths().len();
    let (from, to) = (rmsnorm.clone(), commit("o/rmsnorm", 2));
    hub.lie(move |request, mut reply| {
        if request.path.ends_with("/refs") {
            reply.body = String::from_utf8(reply.body).unwrap().replace(&from, &to).into_bytes();
        }
        reply
    });
    let rows = machine.json(&["download"]);
    let brought: Vec<_> = rows.as_array().unwrap().iter().map(|row| (&row["variant"], &row["revision"])).collect();
    assert_eq!(
        brought,
        [
            (&Value::from(VARIANT), &Value::from(helper.as_str())),
            (&Value::from(VARIANT), &Value::from(rmsnorm.as_str())),
        ]
    );
    let paths = hub.paths();
    let files = paths[first..].iter().filter(|path| path.contains("librmsnorm.so")).count();
    assert_eq!(files, 2, "{paths:?}");
    let warm = hub.paths().len();
    assert!(machine.json(&["download"]).as_array().unwrap().iter().all(|row| row["from_cache"] == true));
    assert_eq!(hub.paths().len(), warm, "a warm download asks nobody: {:?}", &hub.paths()[warm..]);
    let all = machine.json(&["download", "--all-variants"]);
    assert_eq!(all.as_array().unwrap().len(), 3);

    // A lock that names other bytes is not met, whatever the Hub says, and before any library is fetched.
    let sidecar = fs::read_to_string(machine.project().join("kernelhub.lock")).unwrap();
    let other = Machine::at(&hub.endpoint());
    fs::write(other.project().join("kernels.lock"), &lock).unwrap();
    let digest = sidecar.split("metadata_sha256 = \"").nth(1).unwrap().split('"').next().unwrap();
    fs::write(other.project().join("kernelhub.lock"), sidecar.replace(digest, &"0".repeat(64))).unwrap();
    let before = hub.paths().len();
    let error = other.fails(1, &["download", "--all-variants"]);
    assert!(error.contains("not as locked") && error.contains(digest), "{error}");
    assert!(!hub.paths()[before..].iter().any(|path| path.contains("librmsnorm.so")));
    // A commit of another version is not what the lock says, even alone.
    let bare = Machine::at(&hub.endpoint());
    let text = String::from_utf8(lock.clone()).unwrap();
    fs::write(bare.project().join("kernels.lock"), text.replace(&rmsnorm, &commit("o/rmsnorm", 2))).unwrap();
    let error = bare.fails(1, &["download"]);
    assert!(error.contains("expected version 1") && error.contains("version 2"), "{error}");
    // Two files that disagree are no lock.
    fs::write(other.project().join("kernelhub.lock"), sidecar.replace(&rmsnorm, &helper)).unwrap();
    assert!(other.fails(1, &["download"]).contains("stands there twice"));
    fs::write(other.project().join("kernels.lock"), "[]").unwrap();
    assert!(other.fails(1, &["download"]).contains("not about the same kernels"));
}

#[test]
fn a_lock_of_either_edition_is_enough_alone() {
    let hub = start_hub(&[]);
    let machine = Machine::at(&hub.endpoint());
    machine.declare("\"o/rmsnorm\" = { version = 1, variants = [\"tvm-ffi01-cpu-x86_64-linux\"] }");
    for edition in ["0.17", "0.16"] {
        machine.ok(&["lock", "--edition", edition]);
        let lock = fs::read_to_string(machine.project().join("kernels.lock")).unwrap();
        assert_eq!(lock.contains("git_lfs_concat"), edition == "0.16", "{lock}");
        assert!(!lock.contains("aarch64"), "{lock}");
        let other = Machine::at(&hub.endpoint());
        fs::write(other.project().join("kernels.lock"), &lock).unwrap();
        assert_eq!(other.json(&["download"]).as_array().unwrap().len(), 2);
        if edition == "0.16" {
            let hash = lock.split("sha256-").nth(1).unwrap().split('"').next().unwrap();
            let third = Machine::at(&hub.endpoint());
            fs::write(third.project().join("kernels.lock"), lock.replace(hash, &"0".repeat(64))).unwrap();
            assert!(third.fails(1, &["download"]).contains("not as locked"));
        }
        // Without digests there is nothing to hold a bundle to.
        assert!(other.fails(1, &["export", "b.tar"]).contains("without the digests"));
    }
}

#[test]
fn kernels_that_need_each_other_are_not_locked() {
    let hub = start_hub(&[json!({"repo-id": "o/rmsnorm", "version": 1})]);
    let machine = Machine::at(&hub.endpoint());
    machine.declare("\"o/rmsnorm\" = 1");
    let error = machine.fails(1, &["lock"]);
    assert!(error.contains("o/rmsnorm@v1 -> o/helper@v1 -> o/rmsnorm@v1"), "{error}");
    assert!(!machine.project().join("kernels.lock").exists());
}
