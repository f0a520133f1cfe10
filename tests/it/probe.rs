//! Kernels that take their process down, and the process that is there for that.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use kernelhub::digest::ViolationKind;
use kernelhub::hint::Hint as _;
use kernelhub::hub::HubError;
use kernelhub::load::Handshake;
use kernelhub::probe::{ProbeCommand, ProbeError, ProbeOptions, ProbeReport};
use kernelhub::variant::DeviceKey;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::native::{NativePack, compile, compile_c, norm_layer};

fn options() -> ProbeOptions {
    ProbeOptions::new(ProbeCommand::new(env!("CARGO_BIN_EXE_kernelhub"), ["probe-child"]))
}

/// A pack whose initialiser does this, and the file that it makes when it runs.
struct Doubtful {
    pack: NativePack,
    marker: PathBuf,
    _folder: TempDir,
}

impl Doubtful {
    fn new(what: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let marker = folder.path().join("it-ran");
        let define = format!("-D{what}");
        let library = compile_c("initialiser.c", marker.to_str().unwrap(), &[&define]);
        let name = format!("doubtful-{}", what.to_ascii_lowercase().replace('_', "-"));
        let pack = NativePack::new(&name, &norm_layer("RMSNorm", "rms_norm"), &[("libdoubtful.so", &library)]);
        Self { pack, marker, _folder: folder }
    }

    fn probe(&self, options: &ProbeOptions) -> Result<ProbeReport, HubError> {
        let kernel = &self.pack.manifest().kernel;
        let probed = self.pack.hub().probe(&kernel.repo, kernel.version, DeviceKey::Cpu, options);
        assert!(!fs::read_to_string("/proc/self/maps").unwrap().contains("libdoubtful.so"), "it was loaded here");
        probed.map(|(_, report)| report)
    }

    #[track_caller]
    fn fails(&self, options: &ProbeOptions) -> ProbeError {
        match self.probe(options) {
            Err(HubError::Probe(error)) => error,
            other => panic!("expected a failed probe, got {other:?}"),
        }
    }
}

#[test]
fn a_kernel_that_is_well_is_loaded_by_the_child_and_then_here() {
    let well = Doubtful::new("WELL");
    let report = well.probe(&options()).unwrap();
    assert_eq!(report.handshake, Some(Handshake::VariantTag));
    assert!(report.ms > 0.0 && well.marker.exists(), "its initialiser ran, in the child");
    let pack = NativePack::kit("probed", &norm_layer("RMSNorm", "count_rms_norm"));
    let hub = pack.hub_with(|builder| builder.probe(options()));
    let kernel = hub.get(&pack.manifest().kernel.repo, 1, DeviceKey::Cpu).unwrap();
    assert_eq!(kernel.probe().unwrap().handshake, Some(Handshake::Pack));
    assert!(pack.get().unwrap().probe().is_none(), "off by default");
}

#[test]
fn a_crash_takes_only_the_child_down_and_is_named_by_its_signal() {
    for (what, signal, name) in [("CRASH", 11, "SIGSEGV"), ("ABORT", 6, "SIGABRT")] {
        let doubtful = Doubtful::new(what);
        let error = doubtful.fails(&options());
        assert!(doubtful.marker.exists(), "the initialiser ran");
        assert!(
            matches!(&error, ProbeError::Crashed { signal: found, loaded: false, .. } if *found == signal),
            "{error:?}"
        );
        assert!(error.to_string().contains(name), "{error}");
        assert_eq!(error.output(), "the last words\n");
        assert_eq!(error.hint().as_deref(), Some("its last words: the last words"));
        // The same through `get`: it is not loaded here.
        fs::remove_file(&doubtful.marker).unwrap();
        let hub = doubtful.pack.hub_with(|builder| builder.probe(options()));
        let got = hub.get(&doubtful.pack.manifest().kernel.repo, 1, DeviceKey::Cpu);
        assert!(matches!(got, Err(HubError::Probe(ProbeError::Crashed { .. }))), "{got:?}");
    }
    let error = Doubtful::new("CRASH_AT_END").fails(&options());
    assert!(matches!(&error, ProbeError::Crashed { signal: 11, loaded: true, .. }), "{error:?}");
    assert!(error.to_string().contains("after it was loaded"), "{error}");
}

#[test]
fn a_hang_ends_with_the_time_limit() {
    for what in ["LOOP", "SPIN"] {
        let doubtful = Doubtful::new(what);
        let clock = Instant::now();
        let error = doubtful.fails(&options().time_limit(Duration::from_millis(1500)));
        assert!(matches!(&error, ProbeError::Hung { .. }), "{error:?}");
        assert!(error.to_string().contains("did not end within 1.5 s"), "{error}");
        assert!(clock.elapsed() < Duration::from_secs(20), "{:?}", clock.elapsed());
        assert!(doubtful.marker.exists());
    }
}

#[test]
fn a_library_that_ends_the_process_is_told_from_one_that_is_loaded() {
    for (what, expected) in [("EXIT", 7), ("LEAVE", 0)] {
        let error = Doubtful::new(what).fails(&options());
        assert!(matches!(&error, ProbeError::Exited { code, loaded: false, .. } if *code == expected), "{error:?}");
    }
    // One that leaves a process behind, which holds the pipes, keeps nobody waiting.
    let clock = Instant::now();
    let orphan = Doubtful::new("ORPHAN").probe(&options());
    assert!(clock.elapsed() < Duration::from_mins(1), "{:?}", clock.elapsed());
    assert!(orphan.is_ok() || matches!(orphan, Err(HubError::Probe(ProbeError::Exited { .. }))), "{orphan:?}");
}

#[test]
fn a_handshake_that_fails_and_a_misfit_are_the_childs_to_refuse() {
    let library = compile("value", "0.0", &["--cfg", "newer_abi"]);
    let pack = NativePack::new("probe-newer", &norm_layer("RMSNorm", "rms_norm"), &[("libvalue.so", &library)]);
    let error = pack.hub().probe(&pack.manifest().kernel.repo, 1, DeviceKey::Cpu, &options()).unwrap_err();
    match error {
        HubError::Probe(ProbeError::Refused { reason, .. }) => {
            assert!(reason.contains("speaks version 2 of the pack ABI"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
}

/// The child verifies for itself: what changes between the parent's look and its own is not loaded.
#[test]
fn the_child_verifies_before_it_loads() {
    let doubtful = Doubtful::new("WELL_TOO");
    let hub = doubtful.pack.hub();
    let kernel = &doubtful.pack.manifest().kernel;
    let (build, _) = hub.probe(&kernel.repo, 1, DeviceKey::Cpu, &options()).unwrap();
    fs::remove_file(&doubtful.marker).unwrap();
    let library = build.snapshot.root().join("libdoubtful.so");
    let mut bytes = fs::read(&library).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::remove_file(&library).unwrap();
    fs::write(&library, bytes).unwrap();
    let rules = kernelhub::verify::elf::ScanRules::default();
    match kernelhub::probe::probe(&build.fetched.snapshot, &rules, &options()) {
        Err(error @ ProbeError::Refused { .. }) => {
            assert_eq!(error.violations()[0].kind, ViolationKind::DigestMismatch);
        }
        other => panic!("{other:?}"),
    }
    assert!(!doubtful.marker.exists(), "no code of it ran");
}

#[test]
fn a_child_that_is_none_is_an_error_of_its_own() {
    let pack = NativePack::kit("probe-none", &norm_layer("RMSNorm", "count_rms_norm"));
    let probe = |program: &str, arguments: &[&str]| {
        let options = ProbeOptions::new(ProbeCommand::new(program, arguments.iter().copied()));
        pack.hub().probe(&pack.manifest().kernel.repo, 1, DeviceKey::Cpu, &options).unwrap_err()
    };
    let error = probe("/nowhere/at/all", &[]);
    assert!(matches!(&error, HubError::Probe(ProbeError::Child { action: "start", .. })), "{error:?}");
    assert!(error.hint().unwrap().contains("probe::serve"));
    // A program that answers nothing, or something else.
    for (program, arguments) in [("true", &[][..]), ("echo", &["kernelhub-probe"]), ("cat", &[])] {
        let error = probe(program, arguments);
        assert!(
            matches!(&error, HubError::Probe(ProbeError::Exited { code: 0, .. } | ProbeError::Child { .. })),
            "{program}: {error:?}"
        );
    }
}

fn program(home: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kernelhub"));
    for name in ["KERNELS_CACHE", "HF_HUB_CACHE", "HF_TOKEN", "HF_HUB_OFFLINE", "LOCAL_KERNELS"] {
        command.env_remove(name);
    }
    // A folder's kernel has the owner `local`: whoever names folders trusts it, as the tests do.
    let policy = home.join("policy.toml");
    let local = "\n[[publisher]]\nname = \"local\"\ntrust = true\nfrom = [\"local\"]\n";
    crate::support::trust::write(&policy, &(crate::support::trust::text("http://127.0.0.1:9") + local));
    command.env("KERNELHUB_POLICY", &policy);
    let output =
        command.env("HF_HOME", home).env("HF_ENDPOINT", "http://127.0.0.1:9").args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn the_program_probes_kernels_and_folders() {
    let home = tempfile::tempdir().unwrap();
    let crash = Doubtful::new("CRASH");
    let manifest = crash.pack.folder().join("doubtful-crash.toml");
    let manifest = manifest.to_str().unwrap();
    let name = "kernelhub-tests/doubtful-crash@v1";
    let (code, stdout, stderr) = program(home.path(), &["probe", name, "--manifest", manifest, "--json"]);
    assert_eq!(code, Some(1), "{stderr}");
    let json: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(
        (&json["outcome"], &json["signal"], &json["signal_number"]),
        (&"crashed".into(), &"SIGSEGV".into(), &11.into())
    );
    assert!(stderr.contains("took its process down: SIGSEGV"), "{stderr}");
    let (code, stdout, stderr) = program(home.path(), &["get", name, "--probe"]);
    assert_eq!((code, stdout.as_str()), (Some(1), ""), "{stderr}");
    assert!(stderr.contains("SIGSEGV"), "{stderr}");

    let (files, hang) = (tempfile::tempdir().unwrap(), Doubtful::new("LOOP"));
    let root = hang.pack.hub().probe(
        &hang.pack.manifest().kernel.repo,
        1,
        DeviceKey::Cpu,
        &options().time_limit(Duration::from_millis(10)),
    );
    assert!(root.is_err());
    let folder = hang.pack.unpacked();
    let (code, stdout, _) =
        program(home.path(), &["probe", folder.to_str().unwrap(), "--json", "--probe-timeout", "1.5"]);
    assert_eq!(code, Some(1), "{stdout}");
    let json: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((&json["outcome"], &json["limit_s"]), (&"hung".into(), &1.5.into()));
    let kit = NativePack::kit("probe-folder", &norm_layer("RMSNorm", "count_rms_norm"));
    kit.get().unwrap();
    let (code, stdout, stderr) = program(home.path(), &["probe", kit.unpacked().to_str().unwrap(), "--json"]);
    assert_eq!(code, Some(0), "{stderr}");
    let json: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((&json["outcome"], &json["handshake"]), (&"loaded".into(), &"pack".into()));
    let (code, _, stderr) = program(home.path(), &["probe", files.path().to_str().unwrap()]);
    assert_eq!(code, Some(1));
    assert!(stderr.contains("holds no build"), "{stderr}");
}
