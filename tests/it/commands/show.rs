//! Commands that show or fetch: the cache, the environment, versions, builds; exit codes and refused options.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use super::{Machine, commit, start_hub, text};
use crate::support::packs::{Published, VARIANT};

#[test]
fn exit_codes_and_completions_are_what_the_help_says() {
    let machine = Machine::new();
    let help = machine.ok(&["--help"]);
    for code in ["0  what was asked for is there and whole", "1  it is not", "2  the command line is wrong"] {
        assert!(help.contains(code), "{help}");
    }
    for wrong in [&["lokc"][..], &["lock", "--editon", "0.17"], &["export"], &["import", "x", "--sha256", "00"]] {
        machine.fails(2, wrong);
    }
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        assert!(machine.ok(&["completions", shell]).contains("kernelhub"), "{shell}");
    }
}

#[test]
fn versions_and_info_show_what_there_is_and_what_fits() {
    let hub = start_hub(&[]);
    let machine = Machine::at(&hub.endpoint());
    let versions = machine.json(&["versions", "o/rmsnorm"]);
    let rows = versions["versions"].as_array().unwrap();
    assert_eq!(rows.iter().map(|row| row["version"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(rows[0]["commit"], commit("o/rmsnorm", 1).as_str());
    assert_eq!((&rows[0]["fits"], rows[0]["variants"].as_array().unwrap().len()), (&Value::from(VARIANT), 2));
    assert!(!hub.paths().iter().any(|path| path.contains("/resolve/")), "a listing reads no file");
    let shown = machine.ok(&["versions", "o/rmsnorm"]);
    assert!(shown.contains("v2 at ") && shown.contains(&format!("{VARIANT} fits this machine")), "{shown}");
    let info = machine.json(&["info", "o/rmsnorm@v1"]);
    assert_eq!((&info["license"], &info["metadata"]["name"]), (&"Apache-2.0".into(), &"rmsnorm".into()));
    assert_eq!(info["metadata"]["kernel_depends"][0]["repo-id"], "o/helper");
    assert!(machine.ok(&["info", "o/rmsnorm"]).starts_with("o/rmsnorm@v2"), "the newest version is described");
    assert!(!hub.paths().iter().any(|path| path.contains("librmsnorm.so")));
    assert!(machine.fails(1, &["versions", "o/nothing"]).contains("o/nothing"));
    assert!(machine.fails(1, &["info", "o/rmsnorm@v9"]).contains("v9"));
    machine.fails(2, &["versions", "nothing"]);
}

#[test]
fn f58_the_cache_is_listed_checked_and_cleaned() {
    let hub = start_hub(&[]);
    let machine = Machine::at(&hub.endpoint());
    let published = Published::new();
    machine.ok(&["fetch", "--manifest", &text(&published.manifest_path())]);
    machine.declare("\"o/rmsnorm\" = 1");
    machine.ok(&["lock"]);
    machine.ok(&["download"]);
    fs::create_dir_all(machine.home().join("hub/models--o--other/blobs")).unwrap();
    let listed = machine.json(&["cache", "ls"]);
    let states: Vec<_> = listed["entries"].as_array().unwrap().iter().map(|e| e["state"].as_str().unwrap()).collect();
    // The other machine's build, of which the lock read the metadata alone, is partial.
    assert_eq!(
        ["complete", "partial", "foreign"].map(|state| states.iter().filter(|s| **s == state).count()),
        [3, 1, 1]
    );
    let sum: u64 = listed["entries"].as_array().unwrap().iter().map(|entry| entry["bytes"].as_u64().unwrap()).sum();
    assert_eq!(listed["bytes"], sum);
    assert!(machine.ok(&["cache", "ls"]).contains("KiB ("));
    let place = machine.json(&["cache", "where"]);
    assert_eq!(
        (&place["hub"], &place["archives"]),
        (&text(&machine.home().join("hub")).into(), &text(&machine.home().join("kernelhub")).into())
    );

    assert_eq!(machine.json(&["cache", "verify"])["verified"], 3);
    let would = machine.json(&["cache", "prune", "--dry-run"]);
    let done = machine.json(&["cache", "prune"]);
    assert_eq!((&would["bytes"], &would["removed"], &done["removed"]), (&done["bytes"], &false.into(), &true.into()));
    assert!(!machine.json(&["cache", "ls"]).to_string().contains("partial"));
    assert_eq!(machine.json(&["cache", "verify"])["verified"], 3);

    let library = PathBuf::from(machine.json(&["download"])[0]["path"].as_str().unwrap()).join("librmsnorm.so");
    let blob = library.canonicalize().unwrap();
    let mut bytes = fs::read(&blob).unwrap();
    bytes[9] ^= 1;
    fs::write(&blob, bytes).unwrap();
    let output = machine.run(&["cache", "verify", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["clean"], report["damaged"].as_u64().unwrap() > 0), (&false.into(), true));
    assert!(String::from_utf8(output.stderr).unwrap().contains("not as published"));
    // While online the next download repairs it.
    assert!(machine.json(&["download"]).as_array().unwrap().iter().any(|row| row["repaired"] == true));
    assert_eq!(machine.json(&["cache", "verify"])["clean"], true);
}

#[test]
fn the_environment_is_shown_without_its_secrets() {
    let machine = Machine::new();
    let mut command = machine.command(&["env", "--json"]);
    command.env("ZE_AFFINITY_MASK", "0,2").env("CUDA_VISIBLE_DEVICES", "").env("HSA_OVERRIDE_GFX_VERSION_1", "10.3.0");
    command.env("HF_TOKEN", "hf_hunter2").env("HTTPS_PROXY", "http://me:hunter2@proxy:1").env("NO_COLOR", "1");
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && !text.contains("hunter2"), "{text}");
    let rows: Vec<Value> = serde_json::from_str(&text).unwrap();
    let effective = |name: &str| rows.iter().find(|row| row["name"] == name).unwrap()["effective"].clone();
    assert_eq!(effective("HF_TOKEN"), "(set)");
    assert_eq!(effective("HTTPS_PROXY"), "(set)");
    assert_eq!(effective("ZE_AFFINITY_MASK"), "0,2");
    assert_eq!(effective("CUDA_VISIBLE_DEVICES"), "(empty)");
    assert_eq!(effective("HSA_OVERRIDE_GFX_VERSION_1"), "10.3.0");
    assert_eq!(effective("KERNELHUB_TVM_FFI"), "searched for");
    assert_eq!(effective("HF_ENDPOINT"), "http://127.0.0.1:9");
    assert_eq!(effective("HF_HUB_CACHE"), machine.home().join("hub").to_str().unwrap());
    for name in ["HF_HUB_OFFLINE", "KERNELS_CACHE", "LOCAL_KERNELS", "USE_HUB_KERNELS", "KERNELHUB_LOG", "NO_COLOR"] {
        assert!(effective(name).is_string(), "{name}");
    }
    assert!(machine.ok(&["env"]).contains("HF_TOKEN"));
    let mut broken = machine.command(&["env"]);
    assert_eq!(broken.env("HF_HUB_DOWNLOAD_TIMEOUT", "soon").status().unwrap().code(), Some(1));
}

#[test]
fn builds_are_fetched_by_name_and_by_device() {
    let published = Published::new();
    let manifest = text(&published.manifest_path());
    let machine = Machine::new();
    for arguments in [["--variant", VARIANT], ["--backend", "cpu"]] {
        assert_eq!(
            machine.json(&[&["fetch", "--manifest", &manifest], &arguments[..]].concat())[0]["variant"],
            VARIANT
        );
    }
    for arguments in [["--variant", "wgsl-universal"], ["--backend", "cuda"]] {
        let error = machine.fails(1, &[&["fetch", "--manifest", &manifest], &arguments[..]].concat());
        assert!(error.contains("no such build"), "{error}");
    }
    machine.fails(2, &["fetch", "--manifest", &manifest, "--variant", "nonsense"]);
    machine.fails(2, &["fetch", "--manifest", &manifest, "--backend", "gpu"]);
    machine.fails(2, &["fetch", "--manifest", &manifest, "--backend", "cpu", "--all-variants"]);
}

#[test]
fn options_that_would_have_no_effect_beside_no_kernels_are_refused() {
    let machine = Machine::new();
    for option in ["--config", "--manifest"] {
        let output =
            machine.run(&["generate", "--model", "m", "--prompt", "p", "--no-kernels", option, "kernels.toml"]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains("--no-kernels") && error.contains("cannot be used with"), "{error}");
    }
}
