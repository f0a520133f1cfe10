//! The whole look-up table: which kernel takes a layer, by mode, by what is registered and by what the kernel can do.

use std::fmt::Write as _;

use kernelhub::bind::{Contract, Rounding};
use kernelhub::dtype::DType;
use kernelhub::swap::{KernelConfig, Mode, Outcome, Reason, SlotSpec, Slots, SwapError};
use kernelhub::variant::DeviceKey;

use crate::support::native::{NativePack, norm_layer};

/// The published chains, written out: for each mode what is looked up, in order.
const CHAINS: [(&str, &[&str]); 4] = [
    ("inference", &["inference", "inference+compile", "training", "training+compile", "fallback"]),
    ("inference+compile", &["inference+compile", "training+compile", "fallback"]),
    ("training", &["training", "training+compile", "fallback"]),
    ("training+compile", &["training+compile", "fallback"]),
];

/// What can be registered, with the name of the layer that stands for it in the test's kernel.
const REGISTERED: [(&str, &str); 5] =
    [("inference", "I"), ("inference+compile", "IC"), ("training", "T"), ("training+compile", "TC"), ("fallback", "F")];

/// The name of a layer of the test's kernel: what it is registered for, and what it can do.
fn layer_name(of: &str, has_backward: bool, can_compile: bool) -> String {
    format!("{of}_{}{}", u8::from(has_backward), u8::from(can_compile))
}

/// A kernel with a layer for everything that can be registered and every ability.
fn pack() -> NativePack {
    let mut layers = String::new();
    for (_, of) in REGISTERED {
        for (has_backward, can_compile) in [(false, false), (false, true), (true, false), (true, true)] {
            layers += &norm_layer(&layer_name(of, has_backward, can_compile), "count_rms_norm");
            writeln!(layers, "can_compile = {can_compile}").unwrap();
            if has_backward {
                let arguments = r#"["dx", "dweight", "dy", "x", "weight", "eps"]"#;
                writeln!(layers, "backward = {{ function = \"count_rms_norm\", args = {arguments} }}").unwrap();
            }
        }
    }
    NativePack::kit("chains", &layers)
}

#[test]
fn every_mode_takes_what_its_chain_comes_to_if_the_kernel_is_able() {
    let pack = pack();
    let hub = pack.hub();
    let mut checked = 0;
    for set in 0_u32..1 << REGISTERED.len() {
        let registered: Vec<_> =
            (0..REGISTERED.len()).filter(|at| set & 1 << at != 0).map(|at| REGISTERED[at]).collect();
        for (has_backward, can_compile) in [(false, false), (false, true), (true, false), (true, true)] {
            let lines: Vec<String> = registered
                .iter()
                .map(|(mode, of)| {
                    let layer = layer_name(of, has_backward, can_compile);
                    format!("\"{mode}\" = \"kernelhub-tests/chains@v1:{layer}\"")
                })
                .collect();
            let config =
                KernelConfig::from_toml(&format!("inherit = false\n[RMSNorm.cpu]\n{}", lines.join("\n")), "x").unwrap();
            for (mode, chain) in CHAINS {
                let slots = Slots::new(DeviceKey::Cpu);
                let _slot = slots.slot(SlotSpec {
                    path: "norm".to_owned(),
                    layer: "RMSNorm".to_owned(),
                    contract: Contract::RmsNorm,
                    dtype: DType::F32,
                    last_dim: 8,
                    trainable: false,
                    options: Vec::new(),
                    rounding: Rounding::F32WeightF32,
                });
                slots.set_mode(mode.parse().unwrap());
                let planned = slots.use_kernels(&hub, &config);
                let expected = chain.iter().find_map(|step| registered.iter().find(|(mode, _)| mode == step));
                let name =
                    |of: &str| format!("kernelhub-tests/chains@v1:{}", layer_name(of, has_backward, can_compile));
                let context = format!("{mode} with {registered:?}, backward {has_backward}, compile {can_compile}");
                let (trains, compiles) = (mode.starts_with("training"), mode.ends_with("+compile"));
                checked += 1;
                let report = match planned {
                    Ok(report) => report,
                    // Asked for and had nothing: an error in inference, where nothing else explains it.
                    Err(SwapError::NothingSwapped { reasons, .. }) => {
                        assert!(!trains && (expected.is_none() || !can_compile && compiles), "{context}: {reasons:?}");
                        continue;
                    }
                    Err(error) => panic!("{context}: {error}"),
                };
                assert_eq!(report.mode.as_str(), mode);
                match (&report.layers[0].outcome, expected) {
                    (Outcome::Reference(Reason::NotMapped { .. }), None) => {}
                    (Outcome::Kernel(kernel), Some((_, of))) => {
                        assert_eq!(kernel.to_string(), name(of), "{context}");
                        assert!((has_backward || !trains) && (can_compile || !compiles), "{context}");
                    }
                    (Outcome::Reference(Reason::NotCompilable { kernel }), Some((_, of))) => {
                        assert!(compiles && !can_compile, "{context}");
                        assert_eq!(*kernel, name(of), "{context}");
                    }
                    (Outcome::Reference(Reason::NoBackward { kernel, trainable: false }), Some((_, of))) => {
                        assert!(trains && !has_backward && (can_compile || !compiles), "{context}");
                        assert_eq!(*kernel, name(of), "{context}");
                    }
                    (outcome, expected) => panic!("{context}: {outcome:?}, expected {expected:?}"),
                }
            }
        }
    }
    assert_eq!(checked, 32 * 4 * 4);
}

#[test]
fn train_eval_and_compile_plan_again_by_the_chains() {
    let pack = pack();
    let hub = pack.hub();
    let config = "inherit = false\n[RMSNorm.cpu]\ninference = 'kernelhub-tests/chains@v1:I_00'\n\
                  'inference+compile' = 'kernelhub-tests/chains@v1:IC_01'\n\
                  training = 'kernelhub-tests/chains@v1:T_00'\n'training+compile' = 'kernelhub-tests/chains@v1:TC_10'";
    let config = KernelConfig::from_toml(config, "x").unwrap();
    let slots = Slots::new(DeviceKey::Cpu);
    let _slot = slots.slot(SlotSpec {
        path: "norm".to_owned(),
        layer: "RMSNorm".to_owned(),
        contract: Contract::RmsNorm,
        dtype: DType::F32,
        last_dim: 8,
        trainable: false,
        options: Vec::new(),
        rounding: Rounding::F32WeightF32,
    });
    let outcome = |report: kernelhub::swap::Report| match &report.layers[0].outcome {
        Outcome::Kernel(kernel) => (report.mode, kernel.layer.clone()),
        Outcome::Reference(reason) => (report.mode, reason.to_string()),
        fused @ Outcome::Fused { .. } => panic!("{fused:?}"),
    };
    assert_eq!(outcome(slots.use_kernels(&hub, &config).unwrap()), (Mode::Inference, "I_00".to_owned()));
    for _ in 0..3 {
        assert_eq!(outcome(slots.compile(true)), (Mode::InferenceCompile, "IC_01".to_owned()));
        let (mode, reason) = outcome(slots.train());
        assert_eq!(mode, Mode::TrainingCompile);
        assert!(reason.contains("chains@v1:TC_10 cannot be recorded and replayed"), "{reason}");
        let (mode, reason) = outcome(slots.compile(false));
        assert_eq!(mode, Mode::Training);
        assert!(reason.contains("chains@v1:T_00 has no backward, and training needs one"), "{reason}");
        assert_eq!(outcome(slots.eval()), (Mode::Inference, "I_00".to_owned()));
    }
}
