//! `kernelhub plan`: which kernel takes which layer, without running anything.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use candle_core::{DType, Device};
use kernelhub::swap::{KernelConfig, Report};
use kernelhub::variant::DeviceKey;
use serde_json::{Value, json};

use crate::llama::config::Config;
use crate::llama::model::Llama;
use crate::support::{embedded, trust};

/// A folder with the configuration of a Qwen3 model and no weights.
fn model(folder: &Path) -> &Path {
    let config = json!({
        "architectures": ["Qwen3ForCausalLM"],
        "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151_936, "max_position_embeddings": 40960,
        "rms_norm_eps": 1e-6, "rope_theta": 1_000_000, "hidden_act": "silu", "tie_word_embeddings": false,
    });
    fs::write(folder.join("config.json"), config.to_string()).unwrap();
    folder
}

fn run(folder: &Path, environment: &[(&str, &str)], arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kernelhub"));
    command.env_clear().env("HOME", folder).env("HF_ENDPOINT", "http://127.0.0.1:9").env("XDG_RUNTIME_DIR", folder);
    command.envs(environment.iter().copied()).args(["plan", "--offline", "--model"]).arg(folder).args(arguments);
    command.output().unwrap()
}

#[track_caller]
fn ok(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[track_caller]
fn failed(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn an_outline_has_the_layers_of_the_model() {
    for (qk_norm, dtype) in [(false, DType::F32), (true, DType::BF16)] {
        let config = Config { qk_norm, ..Config::tiny() };
        let model = Llama::random(config.clone(), 1, dtype, &Device::Cpu).unwrap();
        let outline = Llama::outline(config, dtype, DeviceKey::Cpu).unwrap();
        let lines =
            |report: Report| -> Vec<_> { report.layers.into_iter().map(|line| (line.path, line.layer)).collect() };
        assert_eq!(lines(outline.report()), lines(model.slots().report()));
        // Planned alike, widths and element types too.
        if let Some(hub) = embedded::hub() {
            let standard = KernelConfig::standard().unwrap();
            assert_eq!(outline.use_kernels(hub, &standard).unwrap(), model.use_kernels(hub, &standard).unwrap());
        }
    }
}

#[test]
fn a_device_that_is_not_here_is_resolved_by_name_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let folder = model(folder.path());
    let config = folder.join("k.toml");
    fs::write(
        &config,
        "[RMSNorm]\n'cuda:90-' = 'org/hopper@v2:Norm'\ncuda = 'org/norm@v1'\n[SiluAndMul]\ncuda = 'Disabled'",
    )
    .unwrap();
    let arguments = |more: &[&'static str]| {
        let mut arguments = vec!["--config", config.to_str().unwrap(), "--device", "cuda"];
        arguments.extend(more);
        run(folder, &[], &arguments)
    };
    let text = ok(&arguments(&["--capability", "90"]));
    assert!(text.starts_with("Resolve only: no kernel for cuda can be brought up here."), "{text}");
    assert!(text.contains("145 x RMSNorm          picks org/hopper@v2:Norm\n"), "{text}");
    assert!(text.contains("36 x SiluAndMul       reference: disabled by the configuration"), "{text}");
    assert!(text.contains("362 of 471 layers are picked a kernel for inference on cuda, by name alone"), "{text}");
    assert!(text.contains("org/hopper@v2:Norm: its builds are not known: "), "{text}");

    let text = ok(&arguments(&["--capability", "86", "--mode", "training|compile", "--json"]));
    let plan: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&plan["resolve_only"], &plan["swapped"], &plan["total"]), (&json!(true), &json!(362), &json!(471)));
    assert_eq!(plan["report"]["mode"], "training+compile");
    let first = &plan["report"]["layers"][1];
    assert_eq!(
        *first,
        json!({"path": "model.layers.0.input_layernorm", "layer": "RMSNorm",
        "outcome": {"picks": ["org/norm@v1"]}})
    );
    assert!(plan["kernels"]["org/norm@v1"]["fault"].is_string(), "{plan}");

    // Which of the ranges holds cannot be told.
    let text = ok(&arguments(&[]));
    assert!(text.contains("its entries go by the capability of the cuda device, which is not known"), "{text}");
}

#[test]
fn what_is_wrong_is_an_error_with_the_near_word() {
    let folder = tempfile::tempdir().unwrap();
    let folder = model(folder.path());
    fs::write(folder.join("kernels.toml"), "RmsNorm = 'org/norm@v1'").unwrap();
    let error = failed(&run(folder, &[], &["--device", "cuda"]));
    assert!(error.contains("the model has no layer RmsNorm") && error.contains("did you mean RMSNorm?"), "{error}");
    fs::write(folder.join("kernels.toml"), "'model.layers.40.mlp' = 'org/norm@v1'").unwrap();
    let error = failed(&run(folder, &[], &["--device", "cuda"]));
    assert!(error.contains("the model has no layer at model.layers.40.mlp"), "{error}");
    let output = run(folder, &[], &["--device", "cuda", "--mode", "training+inference"]);
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("it must name exactly one of inference and training"), "{error}");
    fs::write(folder.join("kernels.toml"), "[RMSNorm]\ncup = 'org/norm@v1'").unwrap();
    let error = failed(&run(folder, &[], &["--device", "cuda"]));
    assert!(error.contains("RMSNorm.cup: unknown device") && error.contains("did you mean \"cpu\"?"), "{error}");
}

#[test]
fn a_capability_of_a_device_that_has_none_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = model(folder.path());
    for device in ["cpu", "xpu", "wgpu"] {
        let error = failed(&run(folder, &[], &["--device", device, "--capability", "90"]));
        assert!(error.contains(&format!("--capability is given, and {device} devices have none")), "{error}");
        assert!(error.contains("hint: leave it out, or plan for cuda or rocm"), "{error}");
    }
}

#[test]
fn a_folder_that_is_no_model_of_a_known_kind_is_an_error_with_advice() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let error = failed(&run(folder, &[], &[]));
    assert!(error.contains("cannot read") && error.contains("hint: name the folder of a model"), "{error}");
    fs::write(folder.join("config.json"), r#"{"architectures": ["MambaForCausalLM"]}"#).unwrap();
    let error = failed(&run(folder, &[], &[]));
    assert!(error.contains("MambaForCausalLM") && error.contains("hint: plan knows the layers of"), "{error}");
    fs::write(folder.join("config.json"), r#"{"architectures": ["#).unwrap();
    let error = failed(&run(folder, &[], &[]));
    assert!(error.contains("is not a valid JSON file") && !error.contains("hint: plan knows"), "{error}");
}

#[test]
fn a_layer_without_a_kernel_is_told_with_the_mode_that_has_none() {
    let folder = tempfile::tempdir().unwrap();
    let folder = model(folder.path());
    let config = "inherit = false\n[RMSNorm]\ncuda = { inference = 'org/norm@v1' }";
    fs::write(folder.join("kernels.toml"), config).unwrap();
    let text = ok(&run(folder, &[], &["--device", "cuda", "--mode", "inference+compile"]));
    assert!(text.contains("reference: no kernel is mapped to it on cuda for inference+compile"), "{text}");
    let text = ok(&run(folder, &[], &["--device", "cuda"]));
    assert!(text.contains("145 x RMSNorm          picks org/norm@v1\n"), "{text}");
}

#[test]
fn this_machines_device_is_planned_whole_and_the_switches_are_told() {
    let Some(registry) = embedded::registry() else { return };
    let folder = tempfile::tempdir().unwrap();
    let folder = model(folder.path());
    let config = "inherit = false\nRMSNorm = 'kernelhub/rmsnorm@v1:RMSNorm'\n'model.layers.0.mlp.act_fn' = 'Disabled'";
    fs::write(folder.join("kernels.toml"), config).unwrap();
    // The user of this home trusts the key of the packs.
    trust::write(&folder.join(".config/kernelhub/policy.toml"), &embedded::policy_text(&registry));
    let registry = registry.to_str().unwrap().to_owned();
    let arguments = ["--manifest", &registry, "--json"];
    let output = run(folder, &[], &arguments);
    let plan: Value = serde_json::from_str(&ok(&output)).unwrap();
    assert_eq!((&plan["resolve_only"], &plan["swapped"], &plan["total"]), (&json!(false), &json!(145), &json!(471)));
    assert!(plan["config"].as_str().unwrap().ends_with("kernels.toml"), "{plan}");
    assert_eq!(plan["report"]["layers"][1]["outcome"]["kernel"]["layer"], "RMSNorm");

    let output = run(folder, &[("DISABLE_KERNEL_MAPPING", "1")], &arguments);
    let plan: Value = serde_json::from_str(&ok(&output)).unwrap();
    assert_eq!(plan["swapped"], 0);
    assert_eq!(
        plan["report"]["layers"][0]["outcome"]["reference"],
        json!({"kind": "switched-off", "switch": "DISABLE_KERNEL_MAPPING says yes"})
    );
}
