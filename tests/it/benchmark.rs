//! `kernelhub benchmark`, run as a user runs it, on shapes that take no time.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::support::embedded;
use crate::support::native::{NativePack, compile, layer};
use crate::support::trust;

const QUICK: [&str; 6] = ["--iterations", "3", "--warmup", "1", "--seconds", "0.05"];

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn program(home: &Path, policy: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kernelhub"));
    command.env_clear().env("HF_HOME", home.join("cache")).env("HOME", home).env("KERNELHUB_POLICY", policy);
    command.env("NODEVICE_SELECT", "1").current_dir(home).args(["benchmark", "--offline"]);
    command
}

/// A kernel of one RMSNorm, by a function of `fixtures/parity.rs`.
struct Norm {
    pack: NativePack,
    home: tempfile::TempDir,
}

impl Norm {
    fn new(function: &str) -> Self {
        let layers = layer("RMSNorm", "rms_norm", function, &["out", "x", "weight", "eps", "offset"]);
        let layers = layers + "[[layer.benchmark]]\nshape = { rows = 3, hidden = 24 }\n";
        let pack = NativePack::new("norm", &layers, &[("libparity.so", &compile("parity", "", &[]))]);
        Self { pack, home: tempfile::tempdir().unwrap() }
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = program(self.home.path(), &trust::file("http://127.0.0.1:9"));
        command.arg("kernelhub-tests/norm@v1").args(QUICK).arg("--manifest").arg(self.pack.folder());
        command.args(arguments).output().unwrap()
    }

    /// The JSON of a run with this exit code.
    fn json(&self, code: i32, arguments: &[&str]) -> Value {
        let output = self.run(&[&["--json", "-", "--no-ceilings"], arguments].concat());
        assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// The errors of a run that measures nothing.
    fn fails(&self, code: i32, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", text(&output.stderr));
        assert_eq!(text(&output.stdout), "", "{arguments:?}");
        text(&output.stderr)
    }
}

#[test]
fn a_right_kernel_is_measured_at_its_own_shape() {
    let norm = Norm::new("norm");
    let report = norm.json(0, &[]);
    assert_eq!((&report["schema"], &report["device"]), (&1.into(), &"cpu".into()));
    assert_eq!(report["kernel"]["repo"], "kernelhub-tests/norm");
    let [case] = &report["results"].as_array().unwrap()[..] else { panic!("{report:#}") };
    assert_eq!((&case["layer"], &case["shape"], &case["dtype"]), (&"RMSNorm".into(), &"3x24".into(), &"f32".into()));
    assert_eq!((&case["match"]["passed"], &case["match"]["elements"]), (&true.into(), &72.into()));
    for side in ["kernel", "kernel_alone", "reference"] {
        assert_eq!(case[side]["samples_us"].as_array().unwrap().len(), 3, "{side}");
        assert!(case[side]["median_us"].as_f64().unwrap() > 0.0, "{side}");
    }
    let speedup = &case["speedup"];
    let ratio = case["reference"]["median_us"].as_f64().unwrap() / case["kernel"]["median_us"].as_f64().unwrap();
    assert!((speedup["ratio"].as_f64().unwrap() / ratio - 1.0).abs() < 1e-9, "{speedup}");
    assert!(report["ceilings"].is_null() && case["ceiling_fraction"].is_null());
    // 2 of x and out, and the weight.
    assert_eq!((&case["bytes_read"], &case["bytes_written"]), (&(4 * (72 + 24)).into(), &(4 * 72).into()));
}

#[test]
fn wrong_results_have_an_exit_code_of_their_own() {
    let norm = Norm::new("norm_writes_less");
    let report = norm.json(3, &[]);
    let matched = &report["results"][0]["match"];
    assert_eq!((&matched["passed"], &matched["wrong"]), (&false.into(), &1.into()), "one element is no number");
    assert!(matched["max_error"].is_null());
    let output = norm.run(&["--no-ceilings"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stdout).contains("NO: 1 of 72 elements"), "{}", text(&output.stdout));
    assert!(text(&output.stderr).contains("error: 1 of 1 results are not the reference's"), "{}", text(&output.stderr));
}

#[test]
fn a_kernel_that_refuses_is_an_ordinary_failure() {
    let stderr = Norm::new("norm_refuses").fails(1, &["--no-ceilings"]);
    assert!(stderr.contains("RMSNorm 3x24 in f32: the kernel fails") && stderr.contains("not on a Sunday"), "{stderr}");
}

#[test]
fn what_cannot_be_measured_is_refused_with_advice() {
    let norm = Norm::new("norm");
    for (arguments, error, hint) in [
        (&["--layer", "RmsNorm"][..], "has no layer \"RmsNorm\"", "did you mean \"RMSNorm\"?"),
        (&["--dtype", "bf16"], "does not compute bf16", "it computes f32"),
        (&["--shapes", "3"], "\"3\" is no shape of rms_norm: it has 1 axes", "its axes are rows, hidden"),
        (&["--shapes", "4000000000x4000000"], "needs about", "--shapes takes smaller ones"),
        (&["--shapes", "3x24,5x24,3x24"], "the shape 3x24 is given twice", "give each shape once"),
        (&["--compare", "absent.json"], "cannot read absent.json", ""),
        // Asked before anything is measured.
        (&["--json", "absent/run.json"], "cannot write absent/run.json", ""),
        (&["--plots", "/dev/null/plots"], "cannot make /dev/null/plots", ""),
        (&["--device", "cuda"], "kernelhub-tests/norm", ""),
    ] {
        let stderr = norm.fails(1, arguments);
        assert!(stderr.contains(error) && stderr.contains(hint), "{arguments:?}: {stderr}");
    }
    for (arguments, error) in [
        (&["--dtype", "f33"][..], "f33"),
        (&["--device", "cup"], "cup"),
        (&["--threads", "0"], "--threads"),
        (&["--iterations", "0"], "--iterations"),
        (&["--seconds", "0"], "--seconds"),
    ] {
        assert!(norm.fails(2, arguments).contains(error), "{arguments:?}");
    }
    // Kernels that are switched off would be compared with themselves.
    let mut command = program(norm.home.path(), &trust::file("http://127.0.0.1:9"));
    command.arg("kernelhub-tests/norm@v1").args(QUICK).arg("--manifest").arg(norm.pack.folder());
    let output = command.env("USE_HUB_KERNELS", "0").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("kernels are switched off"), "{}", text(&output.stderr));
}

#[test]
fn a_run_is_compared_with_an_earlier_one_and_drawn() {
    let norm = Norm::new("norm");
    let output = norm.run(&["--json", "before.json", "--no-ceilings", "--shapes", "3x24,5x24"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let path = norm.home.path().join("before.json");
    let mut before: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    // The earlier kernel took a millionth of the time, and its reference as long as it takes.
    for sample in before["results"][0]["kernel"]["samples_us"].as_array_mut().unwrap() {
        *sample = (sample.as_f64().unwrap() / 1e6).into();
    }
    let median = before["results"][0]["kernel"]["median_us"].as_f64().unwrap() / 1e6;
    before["results"][0]["kernel"]["median_us"] = median.into();
    fs::write(&path, before.to_string()).unwrap();

    let arguments =
        ["--compare", "before.json", "--json", "now.json", "--plots", "plots", "--details", "--threads", "1"];
    let output = norm.run(&arguments);
    let stdout = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(stdout.contains("regression") && stdout.contains("only in the earlier run: RMSNorm 5x24 f32"), "{stdout}");
    assert!(stdout.contains("1 threads") && stdout.contains("outliers") && stdout.contains("ceilings"), "{stdout}");
    let now = fs::read_to_string(norm.home.path().join("now.json")).unwrap();
    let now: Value = serde_json::from_str(&now).unwrap();
    assert_eq!(now["settings"]["threads"], 1);
    assert_eq!(now["comparison"]["changes"][0]["verdict"], "regression");
    let fraction = now["results"][0]["ceiling_fraction"].as_f64().unwrap();
    assert!(fraction > 0.0 && now["ceilings"]["f32_fma_gflop_per_s"].as_f64().unwrap() > 0.0);
    for picture in ["norm-RMSNorm-memory.svg", "norm-speedup.svg"] {
        assert!(fs::read_to_string(norm.home.path().join("plots").join(picture)).unwrap().contains("</svg>"));
    }
    // A run of something else has nothing in common.
    let other = ["--compare", "before.json", "--json", "other.json", "--no-ceilings", "--shapes", "7x8"];
    let output = norm.run(&other);
    assert_eq!(output.status.code(), Some(1));
    let stderr = text(&output.stderr);
    assert!(stderr.contains("before.json has no result of kernelhub-tests/norm"), "{stderr}");
    // What was measured is not lost by that.
    assert!(text(&output.stdout).contains("7x8") && norm.home.path().join("other.json").is_file());
}

/// A shape of each contract's layers that takes no time.
fn tiny(pack: &str, layer: &str) -> &'static str {
    match (pack, layer) {
        ("rotary", _) => "1x4x2x3x8",
        ("flash-attn2", "FlashAttentionVarlen") => "3x4x2x8x5",
        ("flash-attn2", "FlashAttentionPaged") => "2x4x2x8x2x5x4",
        ("flash-attn2", _) => "2x4x2x8x3x5",
        ("linear", _) => "3x16x8",
        ("embedding", _) => "3x11x8",
        _ => "3x32",
    }
}

fn layers_of(hub: &kernelhub::hub::Hub, pack: &str) -> Vec<String> {
    let repo = format!("kernelhub/{pack}").parse().unwrap();
    let kernel = hub.get(&repo, 1, kernelhub::variant::DeviceKey::Cpu).unwrap();
    kernel.snapshot().layers().layers.iter().map(|layer| layer.name.clone()).collect()
}

#[test]
fn every_layer_of_our_own_packs_is_measured_and_right() {
    let Some(registry) = embedded::registry() else { return };
    let home = tempfile::tempdir().unwrap();
    let policy = home.path().join("policy.toml");
    trust::write(&policy, &embedded::policy_text(&registry));
    let hub = embedded::hub().unwrap();
    for pack in embedded::NAMES.into_iter().chain(embedded::newer(&registry)) {
        for layer in layers_of(hub, pack) {
            let mut command = program(home.path(), &policy);
            command.arg(format!("kernelhub/{pack}@v1")).args(QUICK).args(["--json", "-", "--no-ceilings"]);
            command.args(["--layer", &layer, "--shapes", tiny(pack, &layer)]).arg("--manifest").arg(&registry);
            let output = command.output().unwrap();
            assert_eq!(output.status.code(), Some(0), "{pack}:{layer}: {}", text(&output.stderr));
            let report: Value = serde_json::from_slice(&output.stdout).unwrap();
            let cases = report["results"].as_array().unwrap();
            assert_eq!(cases.len(), 3, "{pack}:{layer}: f32, bf16 and f16");
            for case in cases {
                assert_eq!(case["match"]["passed"], true, "{case:#}");
                assert!(case["kernel_alone"]["median_us"].as_f64().unwrap() > 0.0, "{case:#}");
            }
        }
    }
}

#[cfg(feature = "wgpu")]
#[test]
fn shader_layers_are_measured_on_their_device() {
    let Some(registry) = embedded::registry() else { return };
    if kernelhub::gpu::adapters().is_err() {
        println!("skipped: no adapter");
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let policy = home.path().join("policy.toml");
    trust::write(&policy, &embedded::policy_text(&registry));
    for (pack, shape) in [("rmsnorm", "3x32"), ("activation", "3x32")] {
        let mut command = program(home.path(), &policy);
        command.arg(format!("kernelhub/{pack}@v1")).args(QUICK).args(["--device", "wgpu", "--json", "-"]);
        let output = command.args(["--shapes", shape]).arg("--manifest").arg(&registry).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{pack}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains("no ceilings are measured on a GPU"), "{}", text(&output.stderr));
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let [case] = &report["results"].as_array().unwrap()[..] else { panic!("{report:#}") };
        assert_eq!(case["match"]["passed"], true, "{case:#}");
        assert!(case["kernel_alone"].is_null() && report["device_name"].is_string() && report["ceilings"].is_null());
    }
}
