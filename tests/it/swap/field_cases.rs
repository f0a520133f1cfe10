//! What went wrong for users of similar loaders, and does not here.

use kernelhub::bind::{Contract, Rounding};
use kernelhub::dtype::DType;
use kernelhub::hint::Hint as _;
use kernelhub::swap::{Choice, KernelConfig, Mode, Outcome, Reason, SlotSpec, Slots, SwapError};
use kernelhub::variant::DeviceKey;

use super::NoKernels;
use crate::support::native::{NativePack, layer, norm_layer};

const NORM: &str = "kernelhub-tests/field@v1:RMSNorm";

fn pack() -> NativePack {
    let silu = layer("SiluAndMul", "gated_activation.silu", "count_silu_and_mul", &["out", "x"]);
    NativePack::kit("field", &(norm_layer("RMSNorm", "count_rms_norm") + &silu))
}

/// Slots of a model with four norms and two activations.
fn slots() -> Slots {
    let slots = Slots::new(DeviceKey::Cpu);
    let add = |path: String, layer: &str, contract: &str| {
        let contract = Contract::from_name(contract).unwrap();
        let layer = layer.to_owned();
        let spec = SlotSpec {
            path,
            layer,
            contract,
            dtype: DType::F32,
            last_dim: 8,
            trainable: false,
            options: Vec::new(),
            rounding: Rounding::F32WeightF32,
        };
        drop(slots.slot(spec));
    };
    for index in 0..2 {
        add(format!("model.layers.{index}.input_layernorm"), "RMSNorm", "rms_norm");
        add(format!("model.layers.{index}.post_attention_layernorm"), "RMSNorm", "rms_norm");
        add(format!("model.layers.{index}.mlp"), "SiluAndMul", "gated_activation.silu");
    }
    slots
}

fn config(text: &str) -> KernelConfig {
    KernelConfig::from_toml(text, "kernels.toml").unwrap()
}

#[test]
fn f34_a_name_that_replaces_nothing_is_an_error_with_the_near_one() {
    let (pack, slots) = (pack(), slots());
    let error = slots.use_kernels(&pack.hub(), &config(&format!("inherit = false\nRmsNorm = '{NORM}'"))).unwrap_err();
    assert!(matches!(&error, SwapError::UnknownLayer { layer, .. } if layer == "RmsNorm"), "{error:?}");
    assert_eq!(error.hint().as_deref(), Some("did you mean RMSNorm?"));
    let report = slots.use_kernels(&pack.hub(), &config(&format!("inherit = false\nRMSNorm = '{NORM}'"))).unwrap();
    let norms: Vec<_> = report.layers.iter().filter(|line| line.layer == "RMSNorm").collect();
    assert!(norms.len() == 4 && norms.iter().all(|line| matches!(line.outcome, Outcome::Kernel(_))), "{report}");
    assert_eq!(report.swapped(), 4);

    // The same for a place in the model: a pattern that matches nothing names the near one.
    let error = slots.use_kernels(&pack.hub(), &config("'model.layer.*.mlp' = 'Disabled'")).unwrap_err();
    assert_eq!(error.to_string(), "the model has no layer at model.layer.*.mlp; the nearest is model.layers.*.mlp");
    assert_eq!(error.hint().as_deref(), Some("did you mean \"model.layers.*.mlp\"?"));
    let error = slots.use_kernels(&pack.hub(), &config("'model.layers.7.mlp' = 'Disabled'")).unwrap_err();
    assert!(matches!(&error, SwapError::UnknownPath { near: Some(_), .. }), "{error:?}");
}

#[test]
fn f36_two_devices_of_one_layer_are_both_kept() {
    let config = KernelConfig::from_json(r#"{"RMSNorm": {"cuda": "a/a@v1", "rocm": "a/b@v1"}}"#, "x").unwrap();
    let on = |device| config.choice("RMSNorm", device, Mode::Inference).map(ToString::to_string);
    assert_eq!(on(DeviceKey::Cuda).as_deref(), Some("a/a@v1"));
    assert_eq!(on(DeviceKey::Rocm).as_deref(), Some("a/b@v1"));

    // Every device key is read, whether anything is built for it or not; aliases only by the fixed table.
    for device in DeviceKey::all() {
        let config = self::config(&format!("[L]\n{device} = 'a/b@v1'"));
        assert!(config.choice("L", device, Mode::Training).is_some(), "{device}");
    }
    for (alias, device) in [("hip", DeviceKey::Rocm), ("gaudi", DeviceKey::Hpu), ("metal", DeviceKey::Mps)] {
        assert!(self::config(&format!("[L]\n{alias} = 'a/b@v1'")).choice("L", device, Mode::Inference).is_some());
    }
    for bad in ["CUDA", "cuda:1", "", "ascend"] {
        let error = KernelConfig::from_toml(&format!("[L]\n'{bad}' = 'a/b@v1'"), "x").unwrap_err();
        assert!(error.to_string().contains(&format!("unknown device {bad:?}; known: cpu, cuda")), "{error}");
    }
}

#[test]
fn f37_one_kernel_is_turned_off_or_used_alone() {
    let (pack, slots) = (pack(), slots());
    let hub = pack.hub();
    let both = format!("RMSNorm = '{NORM}'\nSiluAndMul = 'kernelhub-tests/field@v1'");
    assert_eq!(slots.use_kernels(&hub, &config(&both)).unwrap().swapped(), 6);

    // One layer off, the rest as it was: over a default table, for one device, for one place.
    let defaults = KernelConfig::default_table(&both, "defaults").unwrap();
    assert_eq!(slots.use_kernels(&hub, &defaults).unwrap().swapped(), 6);
    for (off, swapped) in [
        ("SiluAndMul = 'Disabled'", 4),
        ("[SiluAndMul]\ncpu = 'Disabled'", 4),
        ("'model.layers.1.mlp' = 'Disabled'", 5),
    ] {
        slots.use_kernels(&hub, &defaults).unwrap();
        let over = slots.override_kernels(&hub, &config(off)).unwrap();
        assert_eq!(over.report().swapped(), swapped, "{off}");
        let off: Vec<_> = over.report().layers.iter().filter(|l| !matches!(l.outcome, Outcome::Kernel(_))).collect();
        assert!(off.iter().all(|line| line.outcome == Outcome::Reference(Reason::Disabled)), "{off:?}");
    }

    // Only one.
    let report = slots.use_kernels(&hub, &config(&format!("inherit = false\nRMSNorm = '{NORM}'"))).unwrap();
    assert_eq!(report.swapped(), 4);
    assert!(report.to_string().contains("reference: no kernel is mapped to it on cpu"), "{report}");

    // All of them, from outside of the program.
    for (name, value, why) in [
        ("DISABLE_KERNEL_MAPPING", "1", "DISABLE_KERNEL_MAPPING says yes"),
        ("USE_HUB_KERNELS", "0", "USE_HUB_KERNELS says no"),
    ] {
        let home = tempfile::tempdir().unwrap();
        let lookup = |asked: &str| match asked {
            "HOME" => Some(home.path().as_os_str().to_owned()),
            asked if asked == name => Some(value.into()),
            _ => None,
        };
        let environment = kernelhub::fetch::Environment::read_with(&lookup).unwrap();
        let hub = kernelhub::hub::Hub::builder()
            .environment(environment)
            .policy(crate::support::trust::policy())
            .manifest(pack.manifest().clone(), pack.location())
            .build()
            .unwrap();
        assert_eq!(hub.switched_off(), Some(why));
        let report = slots.use_kernels(&hub, &config(&both)).unwrap();
        assert_eq!(report.swapped(), 0);
        assert!(report.to_string().contains(&format!("reference: kernels are off: {why}")), "{report}");
        // Later changes of mode, layers and overrides don't switch them on again.
        assert_eq!(slots.train().swapped() + slots.eval().swapped(), 0);
        assert_eq!(slots.override_kernels(&hub, &config(&both)).unwrap().report().swapped(), 0);
        assert!(slots.report().to_string().contains(why));
    }
}

#[test]
fn f39_training_never_takes_an_inference_kernel_and_eval_brings_it_back() {
    let (pack, slots) = (pack(), slots());
    let text = format!("inherit = false\n[RMSNorm.cpu]\ninference = '{NORM}'");
    let inference = slots.use_kernels(&pack.hub(), &config(&text)).unwrap();
    assert_eq!(inference.swapped(), 4);
    for _ in 0..3 {
        let training = slots.train();
        assert_eq!(training.swapped(), 0);
        let norm = &training.layers[0].outcome;
        assert_eq!(*norm, Outcome::Reference(Reason::NotMapped { device: DeviceKey::Cpu, mode: Mode::Training }));
        assert_eq!(slots.eval(), inference);
    }
    // A kernel that says that it has no backward takes no part in training, whatever it was registered for.
    let text = format!("inherit = false\n[RMSNorm.cpu]\ntraining = '{NORM}'");
    slots.use_kernels(&pack.hub(), &config(&text)).unwrap();
    let norm = slots.train().layers[0].outcome.clone();
    assert!(matches!(norm, Outcome::Reference(Reason::NoBackward { .. })), "{norm:?}");
}

#[test]
fn f41_a_bad_default_harms_only_the_layer_that_asks_for_it() {
    let (pack, slots) = (pack(), slots());
    let table = format!("RMSNorm = '{NORM}'\nSiluAndMul = 'nonsense'\n[Conv2d]\nbanana = 1");
    let defaults = KernelConfig::default_table(&table, "defaults").unwrap();
    // A plain model works, and asks for nothing.
    assert_eq!(slots.report().swapped(), 0);
    let report = slots.use_kernels(&pack.hub(), &defaults).unwrap();
    assert_eq!(report.swapped(), 4);
    let bad: Vec<_> = report.layers.iter().filter(|line| line.layer == "SiluAndMul").collect();
    for line in &bad {
        let Outcome::Reference(reason @ Reason::BadDefault { .. }) = &line.outcome else { panic!("{line:?}") };
        assert!(reason.to_string().contains("defaults: SiluAndMul: \"nonsense\" names no kernel"), "{reason}");
    }
    assert_eq!(bad.len(), 2);

    // One whose kernel cannot be had, likewise; what an application asks for itself must be had.
    let table = format!("RMSNorm = '{NORM}'\nSiluAndMul = 'kernelhub-tests/absent@v1'");
    let defaults = KernelConfig::default_table(&table, "defaults").unwrap();
    let report = slots.use_kernels(&pack.hub(), &defaults).unwrap();
    assert_eq!(report.swapped(), 4);
    let Outcome::Reference(Reason::Unavailable { kernel, cause }) = &report.layers[2].outcome else { panic!() };
    assert_eq!(kernel, "kernelhub-tests/absent@v1");
    assert!(cause.contains("kernelhub-tests/absent@v1 is not in the cache"), "{cause}");
    let error = slots.use_kernels(&pack.hub(), &config(&table)).unwrap_err();
    assert!(matches!(&error, SwapError::Kernel { layer, .. } if layer == "SiluAndMul"), "{error:?}");

    // Where nothing at all can be had, the cause is the error.
    let error = slots.use_kernels(&NoKernels, &defaults).unwrap_err();
    assert!(matches!(&error, SwapError::Kernel { .. }), "{error:?}");
    assert_eq!(error.hint().as_deref(), Some("look elsewhere"));
}

#[test]
fn the_default_table_has_what_transformers_maps() {
    use DeviceKey::{Cpu, Cuda, Mps, Npu, Rocm, Wgpu, Xpu};
    use Mode::{Inference, InferenceCompile, Training, TrainingCompile};

    let config = KernelConfig::standard().unwrap();
    let of = |layer: &str, device: DeviceKey, mode: Mode| match config.choice(layer, device, mode) {
        Some(Choice::Kernel(kernel)) => kernel.to_string(),
        Some(other) => other.to_string(),
        None => "-".to_owned(),
    };
    let liger = "kernels-community/liger-kernels@v3";
    let expected = [
        ("RMSNorm", Npu, Training, format!("{liger}:LigerRMSNorm")),
        ("RMSNorm", Mps, Inference, "kernels-community/mlx-rmsnorm@v1:RMSNorm".to_owned()),
        ("RMSNorm", Mps, Training, "-".to_owned()),
        ("RMSNorm", Cuda, InferenceCompile, "-".to_owned()),
        ("RMSNorm", Wgpu, Inference, "kernelhub/rmsnorm@v1:RMSNorm".to_owned()),
        (
            "RMSNorm",
            Xpu,
            Inference,
            "the first of kernels-community/rmsnorm@v1:RMSNorm, kernelhub/rmsnorm@v1:RMSNorm".to_owned(),
        ),
        ("rotary_pos_emb", Rocm, Inference, "kernels-community/aiter-rope@v3:apply_rotary_transformers".to_owned()),
        ("rotary_pos_emb", Cuda, Training, "-".to_owned()),
        ("MegaBlocksMoeMLP", Cpu, Inference, "kernels-community/megablocks@v1:CPUMegaBlocksMoeMLP".to_owned()),
        ("SwiGLUMLP", Cuda, Inference, format!("{liger}:LigerSwiGLUMLP")),
        ("SwiGLUMLP", Cuda, Training, format!("{liger}:LigerTiledSwiGLUMLP")),
        ("Linear", Cuda, TrainingCompile, format!("{liger}:LigerLinear")),
        ("Linear", Cpu, Inference, "kernelhub/linear@v1:Linear".to_owned()),
        ("SiLU", Xpu, InferenceCompile, "kernels-community/activation@v1:Silu".to_owned()),
        ("SiLU", Cpu, Inference, "kernelhub/activation@v1:Silu".to_owned()),
        ("SiluAndMul", Xpu, Inference, "kernelhub/activation@v1:SiluAndMul".to_owned()),
        ("chunk_kda", Xpu, Training, "-".to_owned()),
    ];
    for (layer, device, mode, kernel) in expected {
        assert_eq!(of(layer, device, mode), kernel, "{layer} on {device} for {mode}");
    }
}
