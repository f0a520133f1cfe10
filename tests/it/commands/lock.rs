//! `lock` and `download`, of archives.

use std::fs;

use super::{Machine, locked, text};
use crate::support::packs::{Published, VARIANT};
use crate::support::server::Server;

#[test]
fn archives_are_locked_downloaded_and_held_to_the_lock() {
    let published = Published::new();
    let server = Server::folder(published.folder.path());
    let machine = Machine::new();
    machine.declare("\"kernelhub/rmsnorm\" = 1");
    let locked = machine.json(&["lock", "--manifest", &server.url("rmsnorm.toml")]);
    assert_eq!(locked["changed"], true);
    assert_eq!(locked["kernels"][0]["source"], "archive");
    assert_eq!(locked["kernels"][0]["variants"][0], VARIANT);
    // The Python tool cannot fetch archives: its own file says nothing about them.
    assert!(!machine.project().join("kernels.lock").exists());
    let sidecar = fs::read_to_string(machine.project().join("kernelhub.lock")).unwrap();
    assert!(sidecar.contains(&published.artifact().sha256.to_string()), "{sidecar}");
    assert!(sidecar.contains(&server.url(&published.archive_name())), "{sidecar}");

    // Locking again changes nothing, byte for byte.
    assert_eq!(machine.json(&["lock", "--manifest", &server.url("rmsnorm.toml")])["changed"], false);
    machine.ok(&["lock", "--check", "--manifest", &server.url("rmsnorm.toml")]);

    // Another machine needs the lock alone, and brings it once.
    let other = Machine::new();
    fs::write(other.project().join("kernelhub.lock"), &sidecar).unwrap();
    let rows = other.json(&["download"]);
    assert_eq!((&rows[0]["variant"], &rows[0]["from_cache"]), (&VARIANT.into(), &false.into()));
    let before = server.requests().len();
    let rows = other.json(&["download", "--all-variants"]);
    assert_eq!((rows.as_array().unwrap().len(), &rows[0]["from_cache"]), (1, &true.into()));
    assert_eq!(server.requests().len(), before, "a warm download asks nobody");
    other.ok(&["download", "--offline"]);

    // A lock that says something else about the metadata is not met, whatever the cache holds.
    let metadata = published.artifact().metadata_sha256.to_string();
    let third = Machine::new();
    fs::write(third.project().join("kernelhub.lock"), sidecar.replace(&metadata, &"0".repeat(64))).unwrap();
    let error = third.fails(1, &["download"]);
    assert!(error.contains("metadata.json") && error.contains(&metadata), "{error}");
    let digest = published.artifact().sha256.to_string();
    fs::write(third.project().join("kernelhub.lock"), sidecar.replace(&digest, &"0".repeat(64))).unwrap();
    let error = third.fails(1, &["download"]);
    assert!(error.contains(&digest), "{error}");
}

#[test]
fn a_project_that_carries_its_archives_can_be_moved() {
    let published = Published::new();
    let machine = Machine::new();
    let registry = machine.project().join("registry");
    fs::create_dir(&registry).unwrap();
    for entry in fs::read_dir(published.folder.path()).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), registry.join(entry.file_name())).unwrap();
    }
    machine.declare("\"kernelhub/rmsnorm\" = 1");
    machine.ok(&["lock", "--manifest", "registry"]);
    let lock = fs::read_to_string(machine.project().join("kernelhub.lock")).unwrap();
    assert!(lock.contains("url = \"registry/"), "{lock}");
    let other = Machine::new();
    fs::rename(machine.project(), other.project().join("moved")).unwrap();
    assert_eq!(other.json(&["download", "moved/Cargo.toml"])[0]["from_cache"], false);
    assert!(other.fails(1, &["download", "nowhere"]).contains("nowhere"));
}

#[test]
fn a_lock_of_a_few_builds_hides_none_of_the_others() {
    let machine = Machine::new();
    let files = machine.folder.path().join("files");
    fs::create_dir(&files).unwrap();
    crate::support::packs::write_files(&files);
    let builds = [VARIANT, "tvm-ffi01-cpu-aarch64-linux"].map(|variant| format!("{variant}={}", text(&files)));
    let about = ["--repo", "kernelhub/rmsnorm", "--version", "1", "--license", "MIT", "--description", "a test"];
    let pack: Vec<&str> = ["pack"].into_iter().chain(builds.iter().map(String::as_str)).chain(about).collect();
    machine.ok(&[&pack[..], &["--out", "registry"]].concat());
    machine.ok(&["fetch", "--manifest", "registry", "--all-variants"]);
    machine.declare(&format!("\"kernelhub/rmsnorm\" = {{ version = 1, variants = [\"{VARIANT}\"] }}"));
    machine.ok(&["lock"]);
    assert_eq!(machine.json(&["download", "--all-variants"]).as_array().unwrap().len(), 1);
    machine.ok(&["export", "b.tar"]);
    machine.ok(&["import", "b.tar"]);
    let info = machine.json(&["info", "kernelhub/rmsnorm@v1"]);
    assert_eq!((&info["description"], info["variants"].as_array().unwrap().len()), (&"a test".into(), 2));
}

#[test]
fn what_is_declared_wrongly_changes_no_file() {
    let published = Published::new();
    let manifest = text(&published.manifest_path());
    let machine = locked(&published);
    let before = fs::read(machine.project().join("kernelhub.lock")).unwrap();
    for (dependencies, expected) in [
        ("\"kernelhub/rmsnorm\" = 2", "v2"),
        (
            "\"kernelhub/rmsnorm\" = { version = 1, variants = [\"tvm-ffi01-cpu-aarch64-linux\"] }",
            "did you mean tvm-ffi01-cpu-x86_64-linux?",
        ),
        ("\"kernelhub/rmsnorm\" = { verison = 1 }", "did you mean `version`?"),
        ("\"nobody/nothing\" = 1", "nobody/nothing"),
        ("", "no kernels are declared"),
    ] {
        machine.declare(dependencies);
        let error = machine.fails(1, &["lock", "--offline", "--manifest", &manifest]);
        assert!(error.contains(expected), "{dependencies}\n{error}");
        assert_eq!(fs::read(machine.project().join("kernelhub.lock")).unwrap(), before);
    }
    // A KernelConfig declares kernels, too.
    fs::write(machine.project().join("k.toml"), "RMSNorm = \"kernelhub/rmsnorm@v1:RMSNorm\"\n").unwrap();
    machine.ok(&["lock", "k.toml", "--manifest", &manifest]);
    assert_eq!(fs::read(machine.project().join("kernelhub.lock")).unwrap(), before);
    // A project that is not locked, and one whose files disagree.
    let bare = Machine::new();
    assert!(bare.fails(1, &["download"]).contains("hint: run `kernelhub lock`"));
    assert!(bare.fails(1, &["lock"]).contains("neither a Cargo.toml nor a pyproject.toml"));
    machine.declare("\"kernelhub/rmsnorm\" = 1");
    fs::write(machine.project().join("kernelhub.lock"), "schema = 1\n").unwrap();
    assert!(machine.fails(1, &["lock", "--check", "--manifest", &manifest]).contains("out of date"));
}
