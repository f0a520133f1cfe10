//! `kernelhub doctor`, run as a user runs it.

use std::fs;
use std::process::{Command, Output};

use serde_json::Value;

use crate::support::native::{NativePack, compile, layer};
use crate::support::trust;

/// The patient's policy, in its home.
const POLICY: &str = ".config/kernelhub/policy.toml";

/// The check's own environment, one configured kernel, and nothing of the default table.
struct Patient {
    pack: NativePack,
    folder: tempfile::TempDir,
}

impl Patient {
    fn new(function: &str) -> Self {
        let layers = layer("RMSNorm", "rms_norm", function, &["out", "x", "weight", "eps", "offset"]);
        let pack = NativePack::new("patient", &layers, &[("libparity.so", &compile("parity", "", &[]))]);
        let folder = tempfile::tempdir().unwrap();
        let config = "inherit = false\n[RMSNorm]\ncpu = \"kernelhub-tests/patient@v1:RMSNorm\"\n\
                      [SiluAndMul]\ntpu = \"kernelhub-tests/patient@v1:RMSNorm\"\n";
        fs::write(folder.path().join("kernels.toml"), config).unwrap();
        trust::write(&folder.path().join(POLICY), &trust::text("http://127.0.0.1:9"));
        Self { pack, folder }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kernelhub"));
        command.env_clear().env("HF_HOME", self.folder.path().join("home")).env("HOME", self.folder.path());
        command.current_dir(self.folder.path()).args(["doctor", "--offline", "--config", "kernels.toml"]);
        command.arg("--manifest").arg(self.pack.folder()).args(arguments);
        command
    }

    fn json(&self) -> (Option<i32>, Value) {
        let output = self.command(&["--json"]).output().unwrap();
        (output.status.code(), serde_json::from_slice(&output.stdout).unwrap())
    }
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The lines of one area.
fn of<'a>(report: &'a Value, area: &str) -> Vec<&'a Value> {
    report["checks"].as_array().unwrap().iter().filter(|check| check["area"] == area).collect()
}

#[test]
fn a_healthy_machine_exits_with_0_and_shows_every_area() {
    let patient = Patient::new("norm");
    let (code, report) = patient.json();
    assert_eq!(
        (code, &report["healthy"], &report["failed"]),
        (Some(0), &Value::Bool(true), &Value::from(0)),
        "{report:#}"
    );
    for area in ["environment", "cache", "source", "device", "kernel"] {
        assert!(!of(&report, area).is_empty(), "{area}: {report:#}");
    }
    let kernels = of(&report, "kernel");
    let cpu = kernels.iter().find(|check| check["subject"].as_str().unwrap().starts_with("RMSNorm on cpu: ")).unwrap();
    assert_eq!(cpu["outcome"], "ok");
    assert!(cpu["detail"].as_str().unwrap().contains("f32 at parity in "), "{cpu}");
    let tpu = kernels.iter().find(|check| check["subject"] == "tpu").unwrap();
    assert_eq!(
        (&tpu["outcome"], tpu["reason"].as_str().unwrap().contains("no such device")),
        (&"skipped".into(), true)
    );
    let shown = text(&patient.command(&[]).output().unwrap());
    assert!(shown.contains("ok       kernel       RMSNorm on cpu: "), "{shown}");
    assert!(shown.trim_end().ends_with(" skipped") && shown.contains(" 0 failed, "), "{shown}");
}

#[test]
fn a_kernel_with_wrong_numbers_is_a_failure_with_its_stage_and_its_case() {
    let patient = Patient::new("norm_ignores_eps");
    let (code, report) = patient.json();
    assert_eq!((code, &report["healthy"]), (Some(1), &Value::Bool(false)));
    let failed: Vec<_> =
        report["checks"].as_array().unwrap().iter().filter(|check| check["outcome"] == "failed").collect();
    let at_fault = failed.iter().find(|check| check["stage"] == "parity").unwrap();
    let error = at_fault["error"].as_str().unwrap();
    assert!(error.contains("kernelhub-tests/patient@v1:RMSNorm is not at parity with rms_norm in f32: "), "{error}");
    assert!(error.contains("eps 0.5") && error.contains("its numbers are those of eps = 1e-5"), "{error}");
    assert!(at_fault["hint"].is_string());
    let output = patient.command(&[]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("failed   kernel       RMSNorm on cpu: "), "{}", text(&output));
}

#[test]
fn each_stage_that_fails_is_named() {
    // A function that the library does not have.
    let (code, report) = Patient::new("norm_of_nothing").json();
    assert_eq!(code, Some(1));
    assert!(of(&report, "kernel").iter().any(|check| check["stage"] == "bind"), "{report:#}");
    // A kernel that is nowhere.
    let patient = Patient::new("norm");
    fs::write(
        patient.folder.path().join("kernels.toml"),
        "inherit = false\n[RMSNorm]\ncpu = \"kernelhub-tests/absent@v1:X\"\n",
    )
    .unwrap();
    let (code, report) = patient.json();
    assert_eq!(code, Some(1));
    assert!(
        of(&report, "kernel").iter().any(|check| check["stage"] == "resolve" || check["stage"] == "fetch"),
        "{report:#}"
    );
    // A variable that cannot be read: nothing else is looked at.
    let output = patient.command(&["--json"]).env("HF_HUB_DOWNLOAD_TIMEOUT", "soon").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let checks = report["checks"].as_array().unwrap();
    assert_eq!((checks.len(), &checks[0]["area"], &checks[0]["outcome"]), (1, &"environment".into(), &"failed".into()));
}

#[test]
fn a_damaged_build_in_the_cache_is_found() {
    let patient = Patient::new("norm");
    assert_eq!(patient.json().0, Some(0));
    let damaged = std::process::Command::new("find").arg(patient.folder.path()).args(["-name", "layers.toml"]).output();
    let path = String::from_utf8(damaged.unwrap().stdout).unwrap().lines().next().unwrap().to_owned();
    let text = fs::read_to_string(&path).unwrap();
    fs::remove_file(&path).unwrap();
    fs::write(&path, text + "\n").unwrap();
    let (code, report) = patient.json();
    assert_eq!(code, Some(1));
    let failed =
        of(&report, "cache").into_iter().find(|check| check["outcome"] == "failed").expect("the damage is found");
    assert_eq!(failed["stage"], "verify");
}

#[test]
fn a_publisher_that_is_not_trusted_is_a_failure_of_the_policy_with_its_advice() {
    let patient = Patient::new("norm");
    fs::remove_file(patient.folder.path().join(POLICY)).unwrap();
    let (code, report) = patient.json();
    assert_eq!(code, Some(1), "{report:#}");
    let failed: Vec<_> = of(&report, "kernel").into_iter().filter(|check| check["outcome"] == "failed").collect();
    assert_eq!((failed.len(), &failed[0]["stage"]), (1, &"policy".into()), "{report:#}");
    assert!(failed[0]["hint"].as_str().unwrap().contains("`kernelhub trust "), "{report:#}");
}
