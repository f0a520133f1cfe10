//! `kernelhub resolve`, as a user runs it.

use std::fs;

use serde_json::{Value, json};

use crate::commands::{Machine, text};
use crate::support::hub::{FakeHub, Published, files};

const NAMES: &str = "\
# what a publisher has
tvm-ffi01-cpu-x86_64-linux
tvm-ffi01-cu126-x86_64-linux
tvm-ffi01-cu128-x86_64-linux
tvm-ffi01-cu130-x86_64-linux   # newer than the machine
torch213-cxx11-cu128-x86_64-linux
wgsl-universal
jax05-cu130-x86_64-linux
";

/// A machine with two different GPUs, of which a mask hides a third.
const MIXED: &str = r#"{
    "os": "linux", "arch": "x86_64", "libc": {"glibc": "2.36"},
    "devices": [
        {"key": "cuda", "index": 0, "name": "A10", "route": "native", "backend_version": "12.9", "capability": "8.6"},
        {"key": "cuda", "index": 1, "name": "B200", "route": "native", "backend_version": "12.9", "capability": "10.0"},
        {"key": "cuda", "index": 2, "name": "T4", "route": "native", "masked_by": "CUDA_VISIBLE_DEVICES=0,1"}
    ]
}"#;

/// A place of its own with these files.
fn place(contents: &[(&str, &str)]) -> Machine {
    let machine = Machine::new();
    for (name, text) in contents {
        fs::write(machine.project().join(name), text).unwrap();
    }
    machine
}

/// The JSON and the standard error of a run that ends with this code.
fn json_of(machine: &Machine, code: i32, arguments: &[&str]) -> (Value, String) {
    let output = machine.run(&[arguments, &["--json"]].concat());
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}\n{stderr}");
    (serde_json::from_slice(&output.stdout).unwrap(), stderr)
}

fn kinds(json: &Value) -> Vec<String> {
    let decisions = json["decisions"].as_array().unwrap();
    decisions.iter().map(|d| d["reason"]["kind"].as_str().unwrap_or("chosen").to_owned()).collect()
}

#[test]
fn a_list_is_decided_for_a_described_machine() {
    let machine = place(&[("builds.txt", NAMES), ("machine.json", MIXED)]);
    let arguments = ["resolve", "builds.txt", "--system", "machine.json", "--device", "cuda"];
    let (json, stderr) = json_of(&machine, 0, &arguments);
    assert_eq!(stderr, "");
    assert_eq!((&json["chosen"], &json["device"]), (&"tvm-ffi01-cu128-x86_64-linux".into(), &"cuda".into()));
    assert_eq!(
        kinds(&json),
        [
            "chosen",
            "outranked-by",
            "backend",
            "backend-version",
            "framework-missing",
            "shader-needs-adapter",
            "unknown-form"
        ]
    );
    let decisions = json["decisions"].as_array().unwrap();
    for decision in decisions {
        assert!(decision["variant"].is_string() && decision["accepted"].is_boolean(), "{decision}");
    }
    let version = json!({"kind": "backend-version", "backend": "cuda", "expected": "13.0", "actual": "12.9"});
    assert_eq!(decisions[3]["reason"], version);
    assert_eq!(json["source"], "list builds.txt");
    let shown = machine.ok(&arguments);
    for part in ["->  tvm-ffi01-cu128-x86_64-linux", "cuda:0", "outranked by", "jax05-cu130-x86_64-linux"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    // As a program that could load builds for Torch, on a machine with libtorch.
    let torch = MIXED.replacen("\"devices\"", "\"torch\": {\"path\": \"/t\", \"version\": \"2.13.0\"}, \"devices\"", 1);
    fs::write(machine.project().join("torch.json"), torch).unwrap();
    let of = |more: &[&str]| {
        let arguments = [&["resolve", "builds.txt", "--system", "torch.json", "--device", "cuda"], more].concat();
        let (json, _) = json_of(&machine, 0, &arguments);
        kinds(&json)
    };
    assert!(of(&[]).contains(&"framework-unsupported".to_owned()));
    assert!(!of(&["--torch-loader"]).contains(&"framework-unsupported".to_owned()));
}

#[test]
fn nothing_that_fits_has_an_exit_code_of_its_own_and_its_json_comes_out() {
    let machine = place(&[("builds.txt", NAMES), ("machine.json", MIXED)]);
    let arguments = ["resolve", "builds.txt", "--system", "machine.json", "--device", "rocm"];
    let (json, stderr) = json_of(&machine, 3, &arguments);
    assert_eq!((&json["chosen"], json["decisions"].as_array().unwrap().len()), (&Value::Null, 7));
    assert!(stderr.starts_with("error: none of 7 builds fits device rocm\n"), "{stderr}");
    assert!(stderr.contains("hint: device cpu of this machine would take tvm-ffi01-cpu-x86_64-linux"), "{stderr}");
    assert_eq!(json["alternatives"][0], json!({"device": "cpu", "variant": "tvm-ffi01-cpu-x86_64-linux"}));
    let backends: Vec<_> =
        json["backends"].as_array().unwrap().iter().map(|b| b["backend"].as_str().unwrap()).collect();
    assert_eq!(backends, ["cpu", "cuda", "wgsl-universal"]);
    assert_eq!(json["backends"][1]["versions"], json!(["12.6", "12.8", "13.0"]));
    let output = machine.run(&arguments);
    let shown = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert!(shown.contains("BACKEND") && shown.contains("12.6 12.8 13.0"), "{shown}");
    assert!(machine.ok(&["--help"]).contains("3  resolve: "));
}

#[test]
fn one_device_of_a_mixed_machine_is_the_one_that_is_checked() {
    let list = r#"[{"variant": "tvm-ffi01-cu128-x86_64-linux", "archs": ["10.0a"]}]"#;
    let machine = place(&[("builds.json", list), ("machine.json", MIXED)]);
    let on = |device: &str, code| {
        json_of(&machine, code, &["resolve", "builds.json", "--system", "machine.json", "--device", device]).0
    };
    assert_eq!(on("cuda", 0)["decisions"][0]["device"]["index"], 1);
    assert_eq!(on("cuda:1", 0)["decisions"][0]["device"]["index"], 1);
    let first = on("cuda:0", 3);
    let reason = json!({"kind": "capability", "archs": ["10.0a"], "actual": "8.6"});
    assert_eq!(first["decisions"][0]["reason"], reason);
    let hidden = on("cuda:2", 3);
    assert_eq!(hidden["decisions"][0]["reason"]["masked_by"], "CUDA_VISIBLE_DEVICES=0,1");
    let beyond = on("cuda:9", 3);
    assert_eq!(
        (&beyond["decisions"][0]["reason"]["index"], &beyond["decisions"][0]["reason"]["masked_by"]),
        (&9.into(), &Value::Null)
    );
}

#[test]
fn a_folder_is_decided_by_what_its_metadata_says() {
    let machine = place(&[("machine.json", MIXED)]);
    let folder = machine.project().join("kernel");
    let build = |name: &str, metadata: Option<&str>| {
        let place = folder.join("build").join(name);
        fs::create_dir_all(&place).unwrap();
        if let Some(metadata) = metadata {
            fs::write(place.join("metadata.json"), metadata).unwrap();
        }
    };
    let metadata = |archs: &str| {
        format!(
            r#"{{"name": "x", "id": "x_1", "version": 1, "python-depends": [], "backend": {{"type": "cuda", "archs": {archs}}}}}"#
        )
    };
    build("tvm-ffi01-cu128-x86_64-linux", Some(&metadata(r#"["9.0a"]"#)));
    build("tvm-ffi01-cu126-x86_64-linux", Some(&metadata(r#"["8.0", "9.0+PTX"]"#)));
    build("tvm-ffi01-cu125-x86_64-linux", Some(r#"{"version": 1}"#));
    build("tvm-ffi01-cu124-x86_64-linux", None);
    build("my notes", None);
    let arguments = ["resolve", "kernel", "--system", "machine.json", "--device", "cuda:1"];
    let (json, _) = json_of(&machine, 0, &arguments);
    assert_eq!(json["chosen"], "tvm-ffi01-cu126-x86_64-linux");
    let of = |name: &str| {
        let decisions = json["decisions"].as_array().unwrap();
        decisions.iter().find(|d| d["variant"] == name).unwrap_or_else(|| panic!("{name}: {json}"))["reason"].clone()
    };
    assert_eq!(of("tvm-ffi01-cu128-x86_64-linux")["kind"], "capability");
    assert!(of("tvm-ffi01-cu125-x86_64-linux")["fault"].as_str().unwrap().contains("name, id"), "{json}");
    assert!(of("tvm-ffi01-cu124-x86_64-linux")["fault"].as_str().unwrap().contains("no metadata.json"));
    assert_eq!(of("my notes")["kind"], "metadata");

    let one = text(&folder.join("build/tvm-ffi01-cu126-x86_64-linux"));
    assert_eq!(json_of(&machine, 0, &["resolve", &one, "--system", "machine.json"]).0["chosen"], json["chosen"]);
    fs::create_dir(machine.project().join("empty")).unwrap();
    assert!(machine.fails(1, &["resolve", "empty"]).contains("holds a build"));
}

/// The libraries of a folder's build say which glibc they ask for.
#[cfg(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64"))]
#[test]
fn the_c_library_that_a_folders_build_asks_for_is_compared() {
    let at = |glibc: &str| format!(r#"{{"os": "linux", "arch": "x86_64", "libc": {{"glibc": "{glibc}"}}}}"#);
    let machine = place(&[("old.json", &at("2.3")), ("new.json", &at("2.99"))]);
    let build = machine.project().join("kernel/build/tvm-ffi01-cpu-x86_64-linux");
    fs::create_dir_all(&build).unwrap();
    let metadata = r#"{"name": "x", "id": "x_1", "version": 1, "python-depends": [], "backend": {"type": "cpu"}}"#;
    fs::write(build.join("metadata.json"), metadata).unwrap();
    // This program needs a C library as any build does; another file is none.
    std::os::unix::fs::symlink(std::env::current_exe().unwrap(), build.join("x.so")).unwrap();
    fs::write(build.join("y.so"), "no library").unwrap();
    assert!(json_of(&machine, 0, &["resolve", "kernel", "--system", "new.json"]).0["chosen"].is_string());
    let old = json_of(&machine, 3, &["resolve", "kernel", "--system", "old.json"]).0;
    let reason = &old["decisions"][0]["reason"];
    assert_eq!((&reason["kind"], &reason["actual"]), (&"glibc-too-old".into(), &"2.3".into()));
    assert!(reason["required"].as_str().unwrap().starts_with("2."), "{reason}");
}

/// A version with builds of these names.
fn version(number: u32, variants: &[&str]) -> Published {
    let mut published = Published::new("o/flash", number);
    published.files.clear();
    published.branches = vec![format!("v{number}")];
    for variant in variants {
        published.add_build(variant, number, &files(), &[]);
    }
    published
}

#[test]
fn f06_a_kernel_of_the_hub_names_the_versions_that_fit_in_a_table() {
    let gpu = "tvm-ffi01-cu128-x86_64-linux";
    let fake = FakeHub::start(vec![
        version(1, &["torch29-cxx11-cu128-x86_64-linux"]),
        version(3, &["torch-cuda", "tvm-ffi01-cu130-x86_64-linux"]),
        version(10, &[gpu, "wgsl-universal"]),
    ]);
    let machine = Machine::at(&fake.endpoint());
    fs::write(machine.project().join("machine.json"), MIXED).unwrap();
    let arguments = ["resolve", "o/flash@v1", "--system", "machine.json", "--device", "cuda"];
    let (json, stderr) = json_of(&machine, 3, &arguments);
    assert!(stderr.contains("error: none of 1 build fits device cuda; v10 has a usable build"), "{stderr}");
    assert!(stderr.contains("ask for o/flash@v10"), "{stderr}");
    assert_eq!((&json["repo"], &json["revision"]), (&"o/flash".into(), &"v1".into()));
    let versions = json["other_versions"]["versions"].as_array().unwrap();
    let rows: Vec<_> = versions.iter().map(|v| (v["version"].as_u64().unwrap(), v["fits"].as_str())).collect();
    assert_eq!(rows, [(3, None), (10, Some(gpu))]);
    assert_eq!(versions[0]["without_torch"], "tvm-ffi01-cu130-x86_64-linux");
    assert_eq!(fake.count("/resolve/"), 0, "nothing is downloaded");
    let shown = String::from_utf8(machine.run(&arguments).stdout).unwrap();
    assert!(shown.contains("VERSION") && shown.contains("v10") && shown.contains("FITS HERE"), "{shown}");

    // A version that fits: its metadata is read, and no other file.
    let (json, _) = json_of(&machine, 0, &["resolve", "o/flash@v10", "--system", "machine.json"]);
    assert_eq!((&json["chosen"], &json["other_versions"]), (&gpu.into(), &Value::Null));
    assert_eq!(json["commit"].as_str().unwrap().len(), 40);
    assert!(fake.paths().iter().filter(|path| path.contains("/resolve/")).all(|path| path.ends_with("/metadata.json")));
    // What is recorded is decided offline.
    let commit = format!("o/flash@{}", json["commit"].as_str().unwrap());
    let before = fake.paths().len();
    json_of(&machine, 0, &["resolve", &commit, "--system", "machine.json", "--offline"]);
    assert_eq!(fake.paths().len(), before);
    assert!(machine.fails(1, &["resolve", "o/flash@v7"]).contains("v7"));
}

#[test]
fn files_that_are_none_are_refused_with_their_place_and_a_hint() {
    let machine = place(&[
        ("builds.txt", NAMES),
        ("machine.json", MIXED),
        ("slip.json", r#"{"os": "linux", "arch": "x86_64", "devises": []}"#),
        ("device.json", &MIXED.replacen("capability", "capabilty", 1)),
        ("deep.json", &"[".repeat(200_000)),
        ("twice.json", r#"{"os": "linux", "os": "linux", "arch": "x86_64"}"#),
        ("comments.txt", "# none\n\n"),
        ("list.json", r#"[{"variant": "a", "arch": []}]"#),
    ]);
    let write = |name: &str, bytes: Vec<u8>| fs::write(machine.project().join(name), bytes).unwrap();
    write("latin.txt", b"torch-cuda\nna\xefve\n".to_vec());
    write("zeros", vec![0; 100]);
    write("long.txt", b"torch-cuda\n".repeat(100_000));
    write("long.json", [br#"{"os": "linux", "arch": ""#.to_vec(), vec![b' '; 2 << 20]].concat());
    for (arguments, said, hint) in [
        (["builds.txt", "slip.json"], "the description has the unknown key \"devises\"", "did you mean \"devices\"?"),
        (["builds.txt", "device.json"], "devices[0] has the unknown key \"capabilty\"", "\"capability\""),
        (["builds.txt", "deep.json"], "not JSON", "devices --json"),
        (["builds.txt", "twice.json"], "stands twice", "devices --json"),
        (["builds.txt", "zeros"], "not JSON", "devices --json"),
        (["builds.txt", "long.json"], "more than 1048576 bytes", "devices --json"),
        (["builds.txt", "absent.json"], "cannot read absent.json", ""),
        (["builds.txt", "."], "cannot read .", ""),
        (["comments.txt", "machine.json"], "names no build", "one build a line"),
        (["list.json", "machine.json"], "entry 0 has the unknown key \"arch\"", "did you mean \"archs\"?"),
        (["latin.txt", "machine.json"], "latin.txt, line 2: not UTF-8", "one build a line"),
        (["long.txt", "machine.json"], "more than 1048576 bytes", "one build a line"),
        (["absent.txt", "machine.json"], "no such file or folder", ""),
    ] {
        let error = machine.fails(1, &["resolve", arguments[0], "--system", arguments[1]]);
        assert!(error.contains(said) && error.contains(hint), "{arguments:?}: {error}");
        assert!(!error.contains("panicked"), "{error}");
    }
    for device in ["gpu", "cuda:", "cuda:-1", "CUDA"] {
        machine.fails(2, &["resolve", "builds.txt", "--device", device]);
    }
    let error = machine.fails(1, &["resolve", "builds.txt", "--manifest", "m.toml"]);
    assert!(error.contains("--manifest has no effect"), "{error}");
}

#[test]
fn names_of_strangers_give_the_terminal_no_commands() {
    let names = format!("evil\u{1b}[2J\u{202e}name\n{}\ntorch-cuda\n", "x".repeat(5_000));
    let system = MIXED.replacen("CUDA_VISIBLE_DEVICES=0,1", "\\u001b[31mX", 1);
    let note = format!("\"notes\": [\"{}\"], \"devices\"", "\\u001b[2J".repeat(10_000));
    let system = system.replacen("\"devices\"", &note, 1);
    let machine = place(&[("builds.txt", &names), ("machine.json", &system)]);
    for device in ["cuda", "cuda:2", "auto"] {
        let output = machine.run(&["resolve", "builds.txt", "--system", "machine.json", "--device", device]);
        assert_eq!(output.status.code(), Some(3));
        let shown = [output.stdout, output.stderr].concat();
        assert!(!shown.contains(&0x1b) && !String::from_utf8_lossy(&shown).contains('\u{202e}'));
        let longest = String::from_utf8_lossy(&shown).lines().map(str::len).max();
        assert!(longest < Some(2_000), "{longest:?}");
    }
}

#[test]
fn this_machine_is_looked_at_for_what_decides_alone() {
    let os = if cfg!(target_os = "macos") { "darwin" } else { std::env::consts::OS };
    let own = format!("tvm-ffi01-cpu-{}-{os}", std::env::consts::ARCH);
    let machine = place(&[("builds.txt", &format!("{own}\ntorch213-cxx11-cu130-x86_64-linux\ntorch-cuda\n"))]);
    let (json, _) = json_of(&machine, 0, &["resolve", "builds.txt", "--device", "cpu"]);
    assert_eq!(json["chosen"], own.as_str());
}
