//! `kernelhub verify`, and what `get` says of violations.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::hub::{FakeHub, Published};
use crate::support::native::{NativePack, compile_c, norm_layer};
use crate::support::packs::{LAYERS, VARIANT};

struct Home {
    folder: TempDir,
    endpoint: String,
}

impl Home {
    fn new(endpoint: &str) -> Self {
        Self { folder: tempfile::tempdir().unwrap(), endpoint: endpoint.to_owned() }
    }

    /// Exit code, standard output, standard error.
    fn run(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kernelhub"));
        for name in ["KERNELS_CACHE", "HF_HUB_CACHE", "HF_TOKEN", "HF_TOKEN_PATH", "HF_HUB_OFFLINE", "LOCAL_KERNELS"] {
            command.env_remove(name);
        }
        command.env("HF_HOME", self.folder.path()).env("HF_ENDPOINT", &self.endpoint);
        command.env("KERNELHUB_POLICY", crate::support::trust::file(&self.endpoint));
        let output = command.args(arguments).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    }

    #[track_caller]
    fn json(&self, code: i32, arguments: &[&str]) -> Value {
        let (actual, stdout, stderr) = self.run(&[arguments, &["--json"]].concat());
        assert_eq!(actual, Some(code), "{arguments:?}\n{stdout}\n{stderr}");
        serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}\n{stderr}"))
    }
}

fn found(json: &Value) -> Vec<(String, String)> {
    let pair = |violation: &Value| {
        for key in ["kind", "path", "expected", "actual"] {
            assert!(violation.get(key).is_some(), "{key} in {violation}");
        }
        (violation["kind"].as_str().unwrap().to_owned(), violation["path"].as_str().unwrap().to_owned())
    };
    json["violations"].as_array().unwrap().iter().map(pair).collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(kind, path)| ((*kind).to_owned(), (*path).to_owned())).collect()
}

/// Damages the cache in every way at once: a changed byte, a missing file, one more.
fn damage(build: &Path) {
    let library = build.join("libx.so");
    let mut bytes = fs::read(&library).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    replace(&library, &bytes);
    fs::remove_file(build.join("doc.txt")).unwrap();
    fs::write(build.join("evil.so"), "evil").unwrap();
}

/// Writes a file anew, also where it is a link or read-only.
fn replace(path: &Path, bytes: &[u8]) {
    fs::remove_file(path).unwrap();
    fs::write(path, bytes).unwrap();
}

fn library() -> Vec<u8> {
    compile_c("shared_static.cpp", "verify-command", &["-fno-gnu-unique"])
}

fn build_of(json: &Value) -> PathBuf {
    PathBuf::from(json["path"].as_str().unwrap())
}

const ALL: [(&str, &str); 3] =
    [("digest-mismatch", "libx.so"), ("file-missing", "doc.txt"), ("file-unlisted", "evil.so")];

#[test]
fn an_archive_is_verified_whole_and_every_violation_is_listed() {
    let pack = NativePack::new(
        "verified",
        &norm_layer("RMSNorm", "rms_norm"),
        &[("libx.so", &library()), ("doc.txt", b"text")],
    );
    let home = Home::new("http://127.0.0.1:9");
    let manifest = pack.folder().join("verified.toml");
    let got = home.json(0, &["get", "kernelhub-tests/verified@v1", "--manifest", manifest.to_str().unwrap()]);
    for arguments in
        [&["verify", "kernelhub-tests/verified@v1"][..], &["verify", "kernelhub-tests/verified@v1", "--all-variants"]]
    {
        let clean = home.json(0, arguments);
        assert_eq!((clean["clean"].as_bool(), found(&clean).len()), (Some(true), 0));
        assert_eq!((&clean["builds"][0]["files"], &clean["builds"][0]["variant"]), (&3.into(), &VARIANT.into()));
    }
    damage(&build_of(&got));
    let faulty = home.json(1, &["verify", "kernelhub-tests/verified@v1"]);
    assert_eq!(found(&faulty), pairs(&ALL));
    assert_eq!(faulty["violations"][0]["variant"], VARIANT);
    let (_, human, stderr) = home.run(&["verify", "kernelhub-tests/verified@v1"]);
    for (_, path) in ALL {
        assert!(human.contains(path), "{human}");
    }
    assert!(stderr.contains("1 of 1 builds") && stderr.contains("hint: "), "{stderr}");
    // Offline, `get` says the same and fails; online it repairs, says so, and ends well.
    let offline = home.json(1, &["get", "kernelhub-tests/verified@v1", "--offline"]);
    assert_eq!(found(&offline), pairs(&ALL));
    let repaired = home.json(0, &["get", "kernelhub-tests/verified@v1"]);
    assert_eq!(repaired["repaired"], true);
    home.json(0, &["verify", "kernelhub-tests/verified@v1"]);

    fs::remove_file(build_of(&got).join("metadata.json")).unwrap();
    assert_eq!(
        found(&home.json(1, &["verify", "kernelhub-tests/verified@v1"])),
        pairs(&[("file-missing", "metadata.json")])
    );
    let (code, _, stderr) = home.run(&["verify", "kernelhub-tests/other@v1"]);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("is not in the cache") && stderr.contains("kernelhub get"), "{stderr}");
}

#[test]
fn a_kernel_of_the_hub_is_verified_by_what_its_commit_says() {
    const REPO: &str = "o/verified";
    let mut published = Published::new(REPO, 1);
    published.files.clear();
    let files = [("layers.toml", LAYERS.as_bytes().to_vec()), ("libx.so", library()), ("doc.txt", b"text".to_vec())];
    published.add_build(VARIANT, 1, &files, &[]);
    let fake = FakeHub::start(vec![published.clone()]);
    let home = Home::new(&fake.endpoint());
    let named = format!("{REPO}@v1");
    let got = home.json(0, &["get", &named]);
    let before = fake.paths().len();
    assert_eq!(home.json(0, &["verify", &named])["clean"], true);
    assert_eq!(home.json(0, &["verify", &format!("{REPO}@{}", published.commit)])["clean"], true);
    let build = build_of(&got);
    damage(&build);
    assert_eq!(found(&home.json(1, &["verify", &named])), pairs(&[("file-missing", "doc.txt")]), "a partial build");
    fs::write(build.join("doc.txt"), "text").unwrap();
    assert_eq!(found(&home.json(1, &["verify", &named])), pairs(&[ALL[0], ALL[2]]));
    // Metadata that cannot be read, and metadata about something else, are the anchor's to refuse.
    let metadata = fs::read_to_string(build.join("metadata.json")).unwrap();
    for other in [metadata.replace('{', "("), metadata.replace("\"version\": 1", "\"version\": 7")] {
        assert_ne!(other, metadata);
        replace(&build.join("metadata.json"), other.as_bytes());
        assert_eq!(found(&home.json(1, &["verify", &named])), pairs(&[("metadata-mismatch", "metadata.json")]));
    }
    assert_eq!(fake.paths().len(), before, "no request");
    assert_eq!(home.json(0, &["get", &named])["repaired"], true, "online, it is fetched again");
    home.json(0, &["verify", &named]);
}

#[test]
fn a_library_that_is_published_as_unsafe_is_refused_and_not_fetched_again() {
    const REPO: &str = "o/stack";
    let mut published = Published::new(REPO, 1);
    published.files.clear();
    let stack = compile_c("helper.c", "", &["-Wl,-z,execstack"]);
    published.add_build(VARIANT, 1, &[("layers.toml", LAYERS.as_bytes().to_vec()), ("libx.so", stack)], &[]);
    let fake = FakeHub::start(vec![published]);
    let home = Home::new(&fake.endpoint());
    let named = format!("{REPO}@v1");
    let expected = pairs(&[("executable-stack", "libx.so")]);
    assert_eq!(found(&home.json(1, &["get", &named])), expected);
    let files = fake.count("libx.so");
    assert_eq!(found(&home.json(1, &["get", &named])), expected);
    assert_eq!(fake.count("libx.so"), files, "other bytes would not be better");
    assert_eq!(found(&home.json(1, &["verify", &named])), expected);
}
