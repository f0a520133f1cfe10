//! The program, as a user's shell runs it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::native::{KIT, NativePack, VARIANT, norm_layer};
use crate::support::server::Server;
use crate::support::trust;

/// What a run left.
#[derive(Debug)]
struct Run {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

/// Runs the program with a cache and nothing of this process's settings.
fn run(cache: &Path, arguments: &[&str]) -> Run {
    let arguments: Vec<&OsStr> = arguments.iter().map(OsStr::new).collect();
    run_os(cache, &arguments)
}

fn run_os(cache: &Path, arguments: &[&OsStr]) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kernelhub"));
    for variable in ["KERNELHUB_LOG", "HF_HUB_OFFLINE", "HF_HUB_CACHE", "HF_HOME"] {
        command.env_remove(variable);
    }
    // A Hub that nobody answers for: no test asks the real one.
    command.env("HF_ENDPOINT", "http://127.0.0.1:1").env("KERNELHUB_POLICY", trust::file("http://127.0.0.1:1"));
    // A graphics driver complains on standard error where there is no such folder.
    command.env("KERNELS_CACHE", cache).env("XDG_RUNTIME_DIR", cache);
    let Output { status, stdout, stderr } = command.args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Run { code: status.code(), stdout: text(stdout), stderr: text(stderr) }
}

impl Run {
    #[track_caller]
    fn succeeded(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.stdout
    }

    /// The error's text: exit code 1, and no line of it twice. What was told of downloads comes before it.
    #[track_caller]
    fn failed(self) -> String {
        assert_eq!(self.code, Some(1), "{self:?}");
        assert!(!self.stderr.contains("panicked"), "{self:?}");
        let start = self.stderr.find("error: ").expect("an error");
        let text = &self.stderr[start..];
        let words = |line: &str| line.trim().trim_start_matches("error: ").trim_start_matches("caused by: ").to_owned();
        let lines: Vec<String> = text.lines().map(words).collect();
        for (at, line) in lines.iter().enumerate() {
            assert!(!lines[..at].contains(line), "{line:?} stands twice in {text}");
        }
        text.to_owned()
    }
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

fn cache() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn devices_lists_the_processor() {
    let cache = cache();
    let human = run(cache.path(), &["devices"]).succeeded();
    assert!(human.contains("cpu"), "{human}");
    let json: Value = serde_json::from_str(&run(cache.path(), &["devices", "--json"]).succeeded()).unwrap();
    let devices = json["devices"].as_array().unwrap();
    assert!(devices.iter().any(|device| device["key"] == "cpu") || json.get("cpu").is_some(), "{json:#}");
}

#[test]
fn pack_fetch_get_is_a_round_trip() {
    let (files, out, cache) = (cache(), cache(), cache());
    std::fs::write(files.path().join("libkit.so"), &*KIT).unwrap();
    let layers = format!("schema = 1\n\n{}", norm_layer("RMSNorm", "count_rms_norm"));
    std::fs::write(files.path().join("layers.toml"), layers).unwrap();
    let build = format!("{VARIANT}={}", text(files.path()));
    let pack =
        ["pack", "--repo", "somebody/norm", "--version", "3", "--license", "MIT", "--out", text(out.path()), &build];
    let packed = run(cache.path(), &pack).succeeded();
    assert!(packed.contains("somebody--norm-v3-tvm-ffi01-cpu") && packed.contains("norm.toml"), "{packed}");

    // A folder of manifests, then the file itself; the second time nothing is read.
    let fetched = run(cache.path(), &["fetch", "--manifest", text(out.path())]).succeeded();
    assert!(fetched.starts_with("fetched") && fetched.contains("somebody/norm@v3"), "{fetched}");
    let manifest = out.path().join("norm.toml");
    let again = run(cache.path(), &["fetch", "--json", "--manifest", text(&manifest)]).succeeded();
    let again: Value = serde_json::from_str(&again).unwrap();
    assert_eq!((&again[0]["from_cache"], &again[0]["bytes_fetched"]), (&Value::Bool(true), &0.into()), "{again:#}");

    let human = run(cache.path(), &["get", "somebody/norm@v3", "--offline"]).succeeded();
    for part in [
        "somebody/norm@v3\n",
        "\npath      ",
        "\nfrom      the cache (0 requests, 0 bytes)",
        "\nverified  2 files",
        "\nloaded    ",
        "\nms        resolve ",
    ] {
        assert!(human.contains(part), "{part:?} in {human}");
    }
    let json = run(cache.path(), &["get", "somebody/norm@v3", "--json", "--offline"]).succeeded();
    let json: Value = serde_json::from_str(&json).unwrap();
    for key in ["repo", "version", "revision", "variant", "path", "from_cache", "requests", "bytes_fetched", "ms"] {
        assert!(keys(&json).contains(&key), "{key} in {json:#}");
    }
    assert_eq!(
        (&json["repo"], &json["version"], &json["variant"]),
        (&"somebody/norm".into(), &3.into(), &VARIANT.into())
    );
    assert_eq!((&json["from_cache"], &json["requests"], &json["bytes_fetched"]), (&true.into(), &0.into(), &0.into()));
    assert!(json["revision"].as_str().unwrap().strip_prefix("sha256:").unwrap().len() == 64, "{json:#}");
    assert!(Path::new(json["path"].as_str().unwrap()).join("libkit.so").is_file());
    let mut times = keys(&json["ms"]);
    times.sort_unstable();
    assert_eq!(times, ["fetch", "load", "resolve", "verify"]);
    assert!(times.iter().all(|stage| json["ms"][stage].as_f64().unwrap() >= 0.0));
}

#[test]
fn get_fetches_over_http_what_a_manifest_url_names() {
    let (pack, cache) = (NativePack::kit("served", &norm_layer("RMSNorm", "count_rms_norm")), cache());
    let server = Server::folder(pack.folder());
    let url = server.url("served.toml");
    let json = run(cache.path(), &["get", "kernelhub-tests/served@v1", "--json", "--manifest", &url]).succeeded();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["from_cache"], &json["requests"]), (&false.into(), &1.into()), "{json:#}");
    assert_eq!(json["bytes_fetched"], pack.manifest().artifacts[0].size);
    assert_eq!(server.requests().len(), 2, "the manifest and the archive");
}

#[test]
fn errors_have_a_cause_and_a_hint() {
    let cache = cache();
    let unknown = run(cache.path(), &["get", "kernelhub/absent@v1"]).failed();
    assert!(unknown.contains("kernelhub/absent@v1 is not known here") && unknown.contains("\nhint: "), "{unknown}");
    let layer = run(cache.path(), &["get", "somebody/absent@v1:RMSNorm"]);
    assert!(layer.code == Some(2) && layer.stderr.contains("leave out the part after ':'"), "{layer:?}");
    let name = run(cache.path(), &["get", "../absent@v1"]);
    assert!(name.code == Some(2) && name.stderr.contains("unsafe repo id \"../absent\""), "{name:?}");
    let none = run(cache.path(), &["fetch"]).failed();
    assert!(none.contains("no manifest was given") && none.contains("hint: name one with --manifest"), "{none}");

    let pack = NativePack::kit("refused", &norm_layer("RMSNorm", "count_rms_norm"));
    let manifest = pack.folder().join("refused.toml");
    let device = ["get", "kernelhub-tests/refused@v1", "--device", "cuda", "--manifest", text(&manifest)];
    let device = run(cache.path(), &device).failed();
    assert!(device.starts_with("error: no build of kernelhub-tests/refused@v1 fits\n  caused by: "), "{device}");
    assert!(device.contains(VARIANT), "the trace: {device}");

    // A digest that is another's: refused, and nothing of it stays.
    let broken = std::fs::read_to_string(&manifest).unwrap();
    let digest = pack.manifest().artifacts[0].sha256.to_string();
    std::fs::write(&manifest, broken.replace(&digest, &"0".repeat(64))).unwrap();
    let error = run(cache.path(), &["fetch", "--manifest", text(&manifest)]).failed();
    assert!(error.contains(&digest) && error.contains(&"0".repeat(64)), "expected and actual: {error}");
    assert!(!cache.path().join("kernelhub/archives").exists());
    std::fs::write(&manifest, "schema = 1\nsurprise = true\n").unwrap();
    let error = run(cache.path(), &["fetch", "--manifest", text(&manifest)]).failed();
    assert!(error.contains("caused by: "), "{error}");
}

#[test]
fn a_wrong_command_line_exits_with_2() {
    let cache = cache();
    let lines: [&[&str]; 11] = [
        &[],
        &["frobnicate"],
        &["get"],
        &["get", "a/b@v1", "--device", "banana"],
        &["get", "a/b@v1", "--frobnicate"],
        &["get", "a/b@v1", "c/d@v1"],
        &["devices", "extra"],
        &["pack", "--repo", "../x", "--version", "1", "--license", "MIT", "--out", "x", "a=b"],
        &["pack", "--repo", "a/b", "--version", "-1", "--license", "MIT", "--out", "x", "a=b"],
        &["fetch-file", "x", "--sha256", "short", "--size", "1", "--out", "x"],
        &["fetch-file", "x", "--sha256", "short", "--size", "99999999999999999999999", "--out", "x"],
    ];
    for line in lines {
        let run = run(cache.path(), line);
        assert_eq!(run.code, Some(2), "{line:?}: {run:?}");
        assert!(!run.stderr.contains("panicked"), "{line:?}: {run:?}");
    }
    assert_eq!(run(cache.path(), &["--help"]).code, Some(0));
    assert_eq!(run(cache.path(), &["--version"]).code, Some(0));
}

#[test]
fn garbage_is_refused_without_a_panic() {
    let cache = cache();
    let long = "x".repeat(10_000);
    let garbage = [
        "",
        " ",
        "@",
        ":",
        "a/b@",
        "a/b@v",
        "a/b@v99999999999",
        "a//b@v1",
        "/",
        "\u{0}x".trim_start_matches('\0'),
        "💥/💥@v1",
        "-",
        "a\nb/c",
        &long,
    ];
    for text in garbage {
        for line in [
            &["get", text][..],
            &["fetch", "--manifest", text],
            &["get", "a/b@v1", "--manifest", text],
            &["pack", "--repo", "a/b", "--version", "1", "--license", "MIT", "--out", "/dev/null/x", text],
        ] {
            let run = run(cache.path(), line);
            assert!(matches!(run.code, Some(1 | 2)), "{line:?}: {run:?}");
            assert!(!run.stderr.contains("panicked") && run.stderr.contains("error: "), "{line:?}: {run:?}");
        }
    }
    for line in [["info", "norm"], ["get", "norm"], ["versions", "norm"], ["info", "a/b@"]] {
        assert_eq!(run(cache.path(), &line).code, Some(2), "{line:?}");
    }
    let no_text = OsStr::from_bytes(b"a/\xff@v1");
    let run = run_os(cache.path(), &[OsStr::new("get"), no_text]);
    assert_eq!(run.code, Some(2), "{run:?}");
}

#[test]
fn a_reader_that_is_gone_is_no_panic_and_a_full_disk_is_an_error() {
    let cache = cache();
    let command = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kernelhub"));
        command.env("KERNELS_CACHE", cache.path()).env("XDG_RUNTIME_DIR", cache.path()).args(arguments);
        command
    };
    for line in [&["completions", "bash"][..], &["env", "--json"], &["cache", "where"], &["devices"], &["--help"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = command(line).stdout(writer).output().unwrap();
        assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]), "{line:?}: {output:?}");
    }
    if let Ok(full) = std::fs::File::create("/dev/full") {
        let output = command(&["cache", "where"]).stdout(full).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.starts_with("error: cannot write to standard output\n  caused by: "), "{error}");
        // Where standard error takes nothing either, the exit code is all that is left.
        let full = std::fs::File::create("/dev/full").unwrap();
        assert_eq!(command(&["get", "a/b@v1", "--offline"]).stderr(full).status().unwrap().code(), Some(1));
    }
}

#[test]
fn a_text_of_others_gives_the_terminal_no_commands_and_no_endless_lines() {
    let cache = cache();
    let manifest = cache.path().join("evil.toml");
    std::fs::write(&manifest, format!("schema = 1\nx = \"\u{1b}[2J\u{202e}{}\"\n", "a".repeat(1 << 19))).unwrap();
    let error = run(cache.path(), &["fetch", "--manifest", text(&manifest)]).failed();
    assert!(!error.contains('\u{1b}') && !error.contains('\u{202e}'), "{error}");
    assert!(error.contains("\\u{1b}[2J") && error.len() < 10_000, "{} bytes: {error:.2000}", error.len());

    let config = cache.path().join("kernels.json");
    std::fs::write(&config, r#"{"L\u001b[2J": {"cpu\u0000": "a/b@v1"}}"#).unwrap();
    let error = run(cache.path(), &["lock", text(&config)]).failed();
    assert!(!error.contains(['\u{1b}', '\0']) && error.contains("unknown device"), "{error}");
}

#[test]
fn a_build_that_cannot_be_read_is_not_called_damaged() {
    use std::os::unix::fs::PermissionsExt as _;
    let (pack, cache) = (NativePack::kit("unreadable", &norm_layer("RMSNorm", "count_rms_norm")), cache());
    let fetched =
        run(cache.path(), &["get", "kernelhub-tests/unreadable@v1", "--json", "--manifest", text(pack.folder())]);
    let fetched: Value = serde_json::from_str(&fetched.succeeded()).unwrap();
    let library = Path::new(fetched["library"]["path"].as_str().unwrap());
    std::fs::set_permissions(library, std::fs::Permissions::from_mode(0o000)).unwrap();
    if std::fs::File::open(library).is_ok() {
        return; // This user may read everything.
    }
    let run = run(cache.path(), &["cache", "verify"]);
    assert!(run.stdout.contains("0 builds verified, 0 damaged, 1 unreadable"), "{run:?}");
    assert!(run.stdout.contains("Permission denied"), "{run:?}");
    assert!(run.failed().contains("cannot be read"));
}
