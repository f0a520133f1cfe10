//! Pipes and devices in the places of files that are read: refused at once, and by name.

use std::ffi::OsString;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::support::native::{KIT, NativePack, VARIANT, norm_layer};
use crate::support::trust;

/// The most that a command may take that has only to say no.
const AT_ONCE: Duration = Duration::from_secs(20);

/// What stands where a file is expected.
#[derive(Clone, Copy)]
enum Special {
    /// A pipe that nobody writes into.
    Pipe,
    /// A device without an end, behind a link.
    Endless,
}

impl Special {
    const BOTH: [Self; 2] = [Self::Pipe, Self::Endless];

    /// Puts it at a path, in the place of what is there.
    fn put(self, path: &Path) {
        let _ = fs::remove_file(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        match self {
            Self::Pipe => {
                let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
                rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
            }
            Self::Endless => std::os::unix::fs::symlink("/dev/zero", path).unwrap(),
        }
    }

    fn told(self) -> &'static str {
        match self {
            Self::Pipe => "expected a regular file, found a pipe",
            Self::Endless => "expected a regular file, found a device",
        }
    }
}

/// Runs the program, and ends it where it does not end by itself. Its standard error; `None`: it was ended.
fn run(home: &Path, settings: &[(&str, OsString)], arguments: &[OsString]) -> (Option<i32>, Option<String>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kernelhub"));
    command.env("HF_ENDPOINT", "http://127.0.0.1:1").env("KERNELHUB_POLICY", trust::file("http://127.0.0.1:1"));
    command.env("KERNELS_CACHE", home.join("cache")).env("XDG_RUNTIME_DIR", home).env("HF_HUB_OFFLINE", "1");
    command.envs(settings.iter().map(|(name, value)| (name, value))).args(arguments);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut pipe = child.stderr.take().unwrap();
    // Read beside the wait: a program that tells much must not wait for its reader.
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        pipe.read_to_string(&mut text).unwrap();
        text
    });
    let start = Instant::now();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break Some(status),
            None if start.elapsed() > AT_ONCE => break None,
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    if status.is_none() {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let text = reader.join().unwrap();
    status.map_or((None, None), |status| (status.code(), Some(text)))
}

/// A command whose arguments and settings name a file below a folder: `@` stands for the folder.
struct Case {
    /// The file, in the folder.
    file: &'static str,
    settings: &'static [(&'static str, &'static str)],
    arguments: &'static [&'static str],
}

const fn case(file: &'static str, arguments: &'static [&'static str]) -> Case {
    Case { file, settings: &[], arguments }
}

const CASES: &[Case] = &[
    case("system.json", &["resolve", "kernels-community/x@v1", "--system", "@/system.json"]),
    case("builds.txt", &["resolve", "@/builds.txt", "--device", "cpu"]),
    case("manifest.toml", &["fetch", "--manifest", "@/manifest.toml"]),
    case("model/config.json", &["plan", "--model", "@/model"]),
    case("kernels.toml", &["doctor", "--config", "@/kernels.toml"]),
    case("project/kernels.lock", &["download", "@/project"]),
    case("project/kernelhub.lock", &["download", "@/project"]),
    case("project/Cargo.toml", &["lock", "@/project"]),
    case("build/metadata.json", &["sign", "@/build", "--key", "@/key"]),
    case("key", &["pack", "--key", "@/key", "--out", "@/out"]),
    case("bundle.tar", &["import", "@/bundle.tar"]),
    case("pushed/x.toml", &["push", "@/pushed/x.toml", "@/mirror"]),
    case("library.so", &["check-abi", "@/library.so"]),
    Case {
        file: "policy.toml",
        settings: &[("KERNELHUB_POLICY", "@/policy.toml")],
        arguments: &["get", "kernelhub-tests/x@v1"],
    },
    Case {
        file: "token",
        settings: &[("HF_TOKEN_PATH", "@/token"), ("HF_HUB_OFFLINE", "0")],
        arguments: &["get", "kernels-community/x@v1"],
    },
    case("cache/kernelhub/manifests/kernelhub-tests--x/v1.toml", &["get", "kernelhub-tests/x@v1"]),
];

#[test]
fn every_file_that_the_program_reads_has_to_be_a_regular_one() {
    let mut faults = Vec::new();
    for special in Special::BOTH {
        for Case { file, settings, arguments } in CASES {
            let home = TempDir::new().unwrap();
            special.put(&home.path().join(file));
            let named = |text: &str| OsString::from(text.replace('@', home.path().to_str().unwrap()));
            // A kernel's name has this sign as well.
            let argument = |text: &&str| if text.starts_with('@') { named(text) } else { OsString::from(text) };
            let mut arguments: Vec<OsString> = arguments.iter().map(argument).collect();
            prepare(file, home.path(), &mut arguments);
            let settings: Vec<_> = settings.iter().map(|(name, value)| (*name, named(value))).collect();
            let (code, told) = run(home.path(), &settings, &arguments);
            match told {
                Some(told) if code == Some(1) && told.contains(special.told()) => {}
                Some(told) => faults.push(format!("{arguments:?}: {code:?} {told}")),
                None => faults.push(format!("{arguments:?} had to be ended: {}", special.told())),
            }
        }
    }
    assert_eq!(faults, [""; 0]);
}

/// What a command wants beside the file in question.
fn prepare(file: &str, home: &Path, arguments: &mut Vec<OsString>) {
    match file {
        "key" => {
            let build = home.join("files");
            fs::create_dir_all(&build).unwrap();
            fs::write(build.join("layers.toml"), norm_layer("RMSNorm", "count_rms_norm")).unwrap();
            fs::write(build.join("libx.so"), &*KIT).unwrap();
            let more = ["--repo", "a/b", "--version", "1", "--license", "MIT"].map(OsString::from);
            arguments.extend(more);
            arguments.push(format!("{VARIANT}={}", build.display()).into());
        }
        "build/metadata.json" => {
            let key = home.join("key");
            let made = Command::new(env!("CARGO_BIN_EXE_kernelhub"))
                .args(["sign", "--new", "--key"])
                .arg(&key)
                .output()
                .unwrap();
            assert!(key.is_file(), "{made:?}");
        }
        _ => {}
    }
}

#[test]
fn a_folders_build_has_no_special_files() {
    let layers = norm_layer("RMSNorm", "count_rms_norm");
    for special in Special::BOTH {
        for file in ["metadata.json", "libspecial.so", "layers.toml"] {
            let pack = NativePack::new("special", &layers, &[("libspecial.so", &KIT)]);
            drop(pack.get().unwrap());
            let home = TempDir::new().unwrap();
            let build = copy(&pack.unpacked(), &home.path().join("build").join(VARIANT));
            special.put(&build.join(file));
            let local = format!("kernelhub-tests/special={}", home.path().display());
            let settings = [("LOCAL_KERNELS", local.into())];
            let arguments = ["get", "kernelhub-tests/special@v1"].map(OsString::from);
            let (code, told) = run(home.path(), &settings, &arguments);
            let told = told.unwrap_or_else(|| panic!("{file} is waited for"));
            assert_eq!(code, Some(1), "{file}: {told}");
        }
    }
}

fn copy(from: &Path, to: &Path) -> PathBuf {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
    to.to_path_buf()
}
