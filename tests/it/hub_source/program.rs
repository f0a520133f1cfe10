//! `kernelhub get` on a kernel of a Hub, as a user runs it.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use super::REPO;
use crate::support::hub::{FakeHub, Published};
use crate::support::packs::{LAYERS, VARIANT};
use crate::support::trust;

/// A library that can be loaded, or `None` where there is no C compiler.
#[expect(clippy::print_stderr, reason = "a skip says why")]
fn library() -> Option<Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    let (source, library) = (folder.path().join("x.c"), folder.path().join("x.so"));
    std::fs::write(&source, "int __tvm_ffi_rms_norm(void *s, const void *a, int n, void *r) { return 0; }\n").unwrap();
    let status = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
    if status.is_ok_and(|status| status.success()) {
        return Some(std::fs::read(&library).unwrap());
    }
    eprintln!("skipped: no cc");
    None
}

fn get(endpoint: &str, home: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kernelhub"));
    for name in ["KERNELS_CACHE", "HF_HUB_CACHE", "HF_TOKEN", "HF_TOKEN_PATH", "HF_HUB_OFFLINE", "LOCAL_KERNELS"] {
        command.env_remove(name);
    }
    command.env("HF_HOME", home).env("HF_ENDPOINT", endpoint).env("KERNELHUB_POLICY", trust::file(endpoint));
    command.arg("get").args(arguments).arg("--json").output().unwrap()
}

fn report(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn get_tells_what_it_took_and_ends_well_only_with_a_whole_kernel() {
    let Some(library) = library() else { return };
    let mut published = Published::new(REPO, 1);
    published.files.clear();
    let size = library.len() as u64;
    published.add_build(VARIANT, 1, &[("layers.toml", LAYERS.as_bytes().to_vec()), ("x.so", library)], &[]);
    let fake = FakeHub::start(vec![published.clone()]);
    let home = tempfile::tempdir().unwrap();
    let (named, pinned) = (format!("{REPO}@v1"), format!("{REPO}@{}", published.commit));

    let cold = report(&get(&fake.endpoint(), home.path(), &[&named]));
    assert_eq!(cold["repo"], REPO);
    assert_eq!((cold["version"].as_u64(), cold["variant"].as_str()), (Some(1), Some(VARIANT)));
    assert_eq!(cold["revision"], published.commit.as_str());
    assert_eq!(cold["from_cache"], false);
    assert_eq!(cold["requests"].as_u64(), Some(fake.paths().len() as u64));
    assert!(cold["bytes_fetched"].as_u64().unwrap() > size);
    assert_eq!(cold["layers"][0], "RMSNorm");
    for stage in ["resolve", "fetch", "verify", "load"] {
        assert!(cold["ms"][stage].as_f64().unwrap() > 0.0, "{stage}");
    }
    for (arguments, requests) in [(vec![named.as_str()], 1), (vec![&pinned], 0), (vec![&named, "--offline"], 0)] {
        let before = fake.paths().len();
        let warm = report(&get(&fake.endpoint(), home.path(), &arguments));
        assert_eq!((warm["from_cache"].as_bool(), warm["bytes_fetched"].as_u64()), (Some(true), Some(0)));
        assert_eq!(warm["requests"], requests, "{arguments:?}");
        assert_eq!(fake.paths().len() - before, requests, "{arguments:?}");
        assert_eq!(warm["path"], cold["path"]);
    }
    let zeros = format!("{REPO}@{}", "0".repeat(40));
    for (bad, code) in [(format!("{REPO}@v9"), 1), (zeros, 1), ("no-owner@v1".to_owned(), 2)] {
        let output = get(&fake.endpoint(), home.path(), &[&bad]);
        assert_eq!(output.status.code(), Some(code), "{bad}");
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains("error: "), "{text}");
    }
}
