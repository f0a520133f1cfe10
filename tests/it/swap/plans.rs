//! What a plan does to a model's layers, and that it is published whole or not at all.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use candle_core::{DType, Device, Tensor, Var};
use kernelhub::bind::{Contract, KernelIdentity, Rounding};
use kernelhub::hint::Hint as _;
use kernelhub::host::candle::RmsNorm;
use kernelhub::swap::{KernelConfig, Mode, Outcome, Reason, Report, RoundingDifference, SlotSpec, Slots, SwapError};
use kernelhub::variant::DeviceKey;

use super::{NoKernels, config};
use crate::llama::config::Config;
use crate::llama::model::Llama;
use crate::support::embedded;
use crate::support::native::{NativePack, norm_layer};

const NORM: &str = "kernelhub/rmsnorm@v1:RMSNorm";
const SILU: &str = "kernelhub/activation@v1:SiluAndMul";

fn model(dtype: DType) -> Llama {
    Llama::random(Config::tiny(), 7, dtype, &Device::Cpu).unwrap()
}

fn outcomes<'a>(report: &'a Report, layer: &str) -> Vec<&'a Outcome> {
    report.layers.iter().filter(|line| line.layer == layer).map(|line| &line.outcome).collect()
}

fn reasons(report: &Report) -> Vec<Reason> {
    let mut reasons: Vec<_> = report
        .layers
        .iter()
        .filter_map(|line| match &line.outcome {
            Outcome::Reference(reason) => Some(reason.clone()),
            Outcome::Kernel(_) | Outcome::Fused { .. } => None,
        })
        .collect();
    reasons.sort();
    reasons.dedup();
    reasons
}

fn logits(model: &Llama) -> Vec<f32> {
    let tokens = Tensor::new(&[5_u32, 17, 3, 99, 1], &Device::Cpu).unwrap().unsqueeze(0).unwrap();
    model.forward_all(&tokens, None).unwrap().to_dtype(DType::F32).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

#[test]
fn the_standard_mapping_takes_every_layer() {
    let Some(hub) = embedded::hub() else { return };
    let model = model(DType::F32);
    let off = logits(&model);
    assert_eq!(reasons(&model.slots().report()), [Reason::KernelsOff]);
    let report = model.use_kernels(hub, &KernelConfig::standard().unwrap()).unwrap();
    let decoders = Config::tiny().layers;
    assert_eq!((report.total(), report.swapped()), (11 * decoders + 3, 11 * decoders + 3));
    assert_eq!(outcomes(&report, "RMSNorm").len(), 2 * decoders + 1);
    // The norms that come after an add may run with it, by the kernel for both.
    let alone = |kernel: &&&KernelIdentity| kernel.layer != "AddRMSNorm";
    assert_eq!(report.kernels().iter().filter(alone).count(), 6);
    let text = report.to_string();
    assert!(text.contains("kernelhub/flash-attn2@v1:FlashAttention  tvm-ffi01-cpu-"), "{text}");
    assert!(text.ends_with(&format!("{0} of {0} layers swapped for inference on cpu", report.total())), "{text}");
    assert_eq!(model.slots().report(), report);
    let on = logits(&model);
    for (off, on) in off.iter().zip(&on) {
        assert!((off - on).abs() <= 1e-4 * off.abs().max(1.0), "{off} without kernels, {on} with them");
    }
    assert_eq!(model.disable_kernels().swapped(), 0);
    assert_eq!(logits(&model), off, "the reference is what it was");
}

#[test]
fn training_keeps_the_kernels_with_a_backward_and_inference_returns_the_others() {
    let Some(hub) = embedded::hub() else { return };
    let model = model(DType::F32);
    let off = logits(&model);
    let swapped = model.use_kernels(hub, &KernelConfig::standard().unwrap()).unwrap();
    let on = logits(&model);
    let plan = model.slots().pin().clone();
    for _ in 0..3 {
        let report = model.train();
        assert_eq!((report.total(), report.mode), (swapped.total(), Mode::Training));
        for layer in &report.layers {
            let has_backward = layer.outcome.kernel().is_some();
            // Turning back is the gradient of turning, so that a rotary kernel always has its backward.
            assert!(has_backward || layer.layer != "RotaryEmbedding", "{report}");
        }
        for reason in reasons(&report) {
            assert!(matches!(&reason, Reason::NoBackward { trainable: false, .. }), "{reason:?}");
            assert!(reason.to_string().ends_with("has no backward, and training needs one"), "{reason}");
        }
        for (off, trained) in off.iter().zip(logits(&model)) {
            assert!((off - trained).abs() <= 1e-4 * off.abs().max(1.0), "{off}, {trained}");
        }
        assert_eq!(model.eval(), swapped);
        assert_eq!(logits(&model), on);
    }
    // The plan that was pinned before all that is what it was.
    assert_eq!(plan.report(), &swapped);
}

#[test]
fn planning_again_uses_the_same_kernels() {
    let Some(hub) = embedded::hub() else { return };
    let slots = Slots::new(DeviceKey::Cpu);
    let norm = Tensor::ones(8, DType::F32, &Device::Cpu).unwrap();
    let _layer = RmsNorm::new(norm, 1e-5, &slots, "norm").unwrap();
    let slot = slots.slot(SlotSpec {
        path: "another".to_owned(),
        layer: "RMSNorm".to_owned(),
        contract: Contract::RmsNorm,
        dtype: kernelhub::dtype::DType::F32,
        last_dim: 8,
        trainable: false,
        options: Vec::new(),
        rounding: Rounding::F32WeightF32,
    });
    let kernels: Vec<usize> = (0..3)
        .map(|_| {
            slots.use_kernels(hub, &config(&[("RMSNorm", NORM)])).unwrap();
            std::ptr::from_ref(slots.pin().rms_norm(&slot).unwrap()).addr()
        })
        .collect();
    assert!(kernels.iter().all(|kernel| *kernel == kernels[0]), "{kernels:?}");
}

const LAYERS: [&str; 9] = [
    "AddRMSNorm",
    "Embedding",
    "FlashAttention",
    "Linear",
    "QKVLinear",
    "RMSNorm",
    "RotaryEmbedding",
    "SiluAndMul",
    "SiluGatedLinear",
];

#[test]
fn a_layer_that_the_model_lacks_suggests_the_near_one() {
    let model = model(DType::F32);
    let error = model.use_kernels(&NoKernels, &config(&[("RmsNorm", "a/b@v1")])).unwrap_err();
    assert!(matches!(&error, SwapError::UnknownLayer { layer, available }
        if layer == "RmsNorm" && *available == LAYERS));
    assert_eq!(
        error.to_string(),
        "the model has no layer RmsNorm; its layers are AddRMSNorm, Embedding, FlashAttention, Linear, QKVLinear, \
         RMSNorm, RotaryEmbedding, SiluAndMul, SiluGatedLinear"
    );
    assert_eq!(error.hint().as_deref(), Some("did you mean RMSNorm?"));
}

#[test]
fn a_failing_configuration_leaves_plan_and_report_as_they_were() {
    let Some(hub) = embedded::hub() else { return };
    let model = model(DType::F32);
    let before = model.use_kernels(hub, &config(&[("RMSNorm", NORM)])).unwrap();
    assert_eq!(before.swapped(), 2 * Config::tiny().layers + 1);
    let on = logits(&model);
    let plan = model.slots().pin().clone();

    let absent = config(&[("SiluAndMul", SILU), ("RMSNorm", "kernelhub/absent@v1")]);
    let error = model.use_kernels(hub, &absent).unwrap_err();
    assert!(
        matches!(&error, SwapError::Kernel { layer, kernel, .. } if layer == "RMSNorm" && kernel == "kernelhub/absent@v1")
    );
    assert_eq!(error.to_string(), "RMSNorm: the kernel kernelhub/absent@v1 cannot be used");
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(cause, "kernelhub/absent@v1 is not known here; no version of it is");
    assert!(error.hint().is_some());

    let mismatch = config(&[("SiluAndMul", NORM)]);
    let error = model.use_kernels(hub, &mismatch).unwrap_err();
    assert!(matches!(&error, SwapError::ContractMismatch { expected, actual: Contract::RmsNorm, .. }
        if expected.as_str() == "gated_activation.silu"));

    let unknown = config(&[("SiluAndMul", SILU), ("Conv2d", SILU)]);
    assert!(matches!(model.use_kernels(hub, &unknown).unwrap_err(), SwapError::UnknownLayer { .. }));

    // A good configuration for another device: it asks for kernels, and none takes a layer.
    let elsewhere = KernelConfig::from_toml(&format!("inherit = false\n[SiluAndMul]\ncuda = '{SILU}'"), "x").unwrap();
    let error = model.use_kernels(hub, &elsewhere).unwrap_err();
    assert!(
        matches!(&error, SwapError::NothingSwapped { device: DeviceKey::Cpu, reasons } if reasons.len() == 6),
        "{error:?}"
    );
    assert!(error.to_string().contains("SiluAndMul: no kernel is mapped to it on cpu"), "{error}");
    assert!(error.hint().unwrap().contains("map at least one"));

    assert_eq!(model.slots().report(), before);
    assert!(std::ptr::eq(&raw const **model.slots().pin(), &raw const *plan), "the very plan that was there");
    assert_eq!(logits(&model), on);
    // Later changes of mode start from the kept kernels, too.
    model.train();
    assert_eq!(model.eval(), before);
}

#[test]
fn disabled_switches_one_layer_off_and_the_rest_stays() {
    let Some(hub) = embedded::hub() else { return };
    let model = model(DType::F32);
    let report = model.use_kernels(hub, &config(&[("RMSNorm", NORM), ("SiluAndMul", "Disabled")])).unwrap();
    assert!(outcomes(&report, "SiluAndMul").iter().all(|outcome| **outcome == Outcome::Reference(Reason::Disabled)));
    assert!(outcomes(&report, "RMSNorm").iter().all(|outcome| matches!(outcome, Outcome::Kernel(_))));
    // A configuration that only switches off is met by doing so.
    let report = model.use_kernels(hub, &config(&[("SiluAndMul", "Disabled")])).unwrap();
    assert_eq!(report.swapped(), 0);
    // An empty one asks for nothing.
    assert_eq!(model.use_kernels(hub, &KernelConfig::default()).unwrap().swapped(), 0);
    // Switching one layer off is no answer to a request for another.
    let wide = self::model(DType::F64);
    let error = wide.use_kernels(hub, &config(&[("RMSNorm", NORM), ("SiluAndMul", "Disabled")])).unwrap_err();
    assert!(matches!(&error, SwapError::NothingSwapped { .. }), "{error:?}");
    assert!(error.to_string().contains("computes f32, bf16, f16, the layer is f64"), "{error}");
}

#[test]
fn nothing_swapped_says_so_for_a_model_without_layers() {
    let slots = Slots::new(DeviceKey::Cpu);
    let error = slots.use_kernels(&NoKernels, &KernelConfig::standard().unwrap()).unwrap_err();
    assert!(error.to_string().ends_with("it has no layer that a kernel could take"), "{error}");
}

#[test]
fn a_layer_that_is_built_after_planning_is_reported_as_such() {
    let Some(hub) = embedded::hub() else { return };
    let slots = Slots::new(DeviceKey::Cpu);
    let ones = Tensor::ones(8, DType::F32, &Device::Cpu).unwrap();
    let _first = RmsNorm::new(ones.clone(), 1e-5, &slots, "first").unwrap();
    assert_eq!(slots.use_kernels(hub, &config(&[("RMSNorm", NORM)])).unwrap().total(), 1);
    let second = RmsNorm::new(ones.clone(), 1e-5, &slots, "second").unwrap();
    let report = slots.report();
    assert_eq!((report.swapped(), report.total()), (1, 2));
    assert_eq!(reasons(&report), [Reason::NotPlanned]);
    assert!(second.forward(&ones.unsqueeze(0).unwrap()).is_ok(), "it runs its reference code");
    assert_eq!(slots.set_mode(Mode::Inference).swapped(), 2);
}

#[test]
fn width_rules_and_trainable_weights_keep_the_reference_with_a_reason() {
    let limits = "limits = { last_dim_multiple_of = 8 }\n";
    let pack = NativePack::kit("planned", &(norm_layer("RMSNorm", "count_rms_norm") + limits));
    let hub = pack.hub();
    let slots = Slots::new(DeviceKey::Cpu);
    let ones = |width: usize| Tensor::ones(width, DType::F32, &Device::Cpu).unwrap();
    let trained = Var::from_tensor(&ones(8)).unwrap();
    let _layers = [
        RmsNorm::new(ones(8), 1e-5, &slots, "plain").unwrap(),
        RmsNorm::new(ones(12), 1e-5, &slots, "narrow").unwrap(),
        RmsNorm::new(trained.as_tensor().clone(), 1e-5, &slots, "trained").unwrap(),
        RmsNorm::new(ones(8).to_dtype(DType::BF16).unwrap(), 1e-5, &slots, "brain").unwrap(),
    ];
    let with_offset = slots.slot(SlotSpec {
        path: "offset".to_owned(),
        layer: "RMSNorm".to_owned(),
        contract: Contract::RmsNorm,
        dtype: kernelhub::dtype::DType::F32,
        last_dim: 8,
        trainable: false,
        options: vec!["offset"],
        rounding: Rounding::F32WeightF32,
    });
    let report = slots.use_kernels(&hub, &config(&[("RMSNorm", "kernelhub-tests/planned@v1")])).unwrap();
    let name = "kernelhub-tests/planned@v1:RMSNorm";
    let lines: Vec<_> = report.layers.iter().map(|line| (line.path.as_str(), &line.outcome)).collect();
    assert!(matches!(lines[0], ("plain", Outcome::Kernel(identity)) if identity.to_string() == name));
    assert!(matches!(lines[1], ("narrow", Outcome::Reference(Reason::Limit { kernel, limit }))
        if kernel == name && limit == "a width of 12 elements is no multiple of 8, as the kernel asks"));
    assert!(matches!(lines[2], ("trained", Outcome::Reference(reason @ Reason::NoBackward { trainable: true, .. }))
        if reason.to_string() == format!("{name} has no backward, and the layer's weight is a variable")));
    assert!(matches!(lines[3], ("brain", Outcome::Reference(reason @ Reason::Dtype { .. }))
        if reason.to_string() == format!("{name} computes f32, the layer is bf16")));
    assert!(
        matches!(lines[4], ("offset", Outcome::Reference(reason @ Reason::Option { option, in_backward: false, .. }))
        if option == "offset" && reason.to_string() == format!("{name} does not take offset, which the layer passes"))
    );
    assert!(slots.pin().rms_norm(&with_offset).is_none());
}

#[test]
fn a_forward_keeps_its_plan_while_others_are_published() {
    let Some(hub) = embedded::hub() else { return };
    let model = model(DType::F32);
    let standard = KernelConfig::standard().unwrap();
    let off = logits(&model);
    model.use_kernels(hub, &standard).unwrap();
    let on = logits(&model);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut last = false;
                while !last {
                    last = is_over.load(SeqCst);
                    let result = logits(&model);
                    assert!(result == on || result == off, "one plan or the other, never a mix");
                }
            });
        }
        for _ in 0..500 {
            model.disable_kernels();
            model.use_kernels(hub, &standard).unwrap();
        }
        is_over.store(true, SeqCst);
    });
    assert_eq!(logits(&model), on);
}

#[test]
fn a_name_that_stands_for_two_kinds_of_layer_takes_no_kernel_of_one_kind() {
    let pack = NativePack::kit("two-kinds", &norm_layer("RMSNorm", "count_rms_norm"));
    let config = KernelConfig::from_toml("RMSNorm = 'kernelhub-tests/two-kinds@v1:RMSNorm'", "x").unwrap();
    let attention = Contract::Attention;
    // Whichever comes last.
    for contracts in [[Contract::RmsNorm, attention], [attention, Contract::RmsNorm]] {
        let slots = Slots::new(DeviceKey::Cpu);
        let slot = |contract| {
            let (path, layer) = ("x".to_owned(), "RMSNorm".to_owned());
            slots.slot(SlotSpec {
                path,
                layer,
                contract,
                dtype: kernelhub::dtype::DType::F32,
                last_dim: 8,
                trainable: false,
                options: Vec::new(),
                rounding: Rounding::F32WeightF32,
            })
        };
        let _slots = contracts.map(slot);
        let error = slots.use_kernels(&pack.hub(), &config).unwrap_err();
        assert!(
            matches!(&error, SwapError::ContractMismatch { expected, actual: Contract::RmsNorm, .. } if *expected == attention),
            "{error:?}"
        );
        assert_eq!(slots.report().swapped(), 0);
    }
}

#[test]
fn the_report_tells_where_a_kernel_rounds_elsewhere_than_its_reference() {
    let layers = norm_layer("RMSNorm", "count_rms_norm").replace("\"f32\"", "\"f32\", \"bf16\"");
    let pack = NativePack::kit("rounds", &layers);
    let slots = Slots::new(DeviceKey::Cpu);
    let norm = |dtype, path: &str| {
        let weight = Tensor::ones(8, DType::F32, &Device::Cpu).unwrap().to_dtype(dtype).unwrap();
        RmsNorm::new(weight, 1e-5, &slots, path).unwrap()
    };
    let _layers = [norm(DType::F32, "wide"), norm(DType::BF16, "brain")];
    let report = slots.use_kernels(&pack.hub(), &config(&[("RMSNorm", "kernelhub-tests/rounds@v1")])).unwrap();
    assert_eq!(report.layers[0].rounding, None, "in f32 every order is the same");
    let expected = RoundingDifference { kernel: Rounding::F32WeightF32, reference: Rounding::Dtype };
    assert_eq!(report.layers[1].rounding, Some(expected));
    let text = report.to_string();
    assert_eq!(text.matches("  (rounds f32-weight-f32, its reference dtype)").count(), 1, "{text}");
    assert_eq!(serde_json::to_value(&report).unwrap()["layers"][1]["rounding"]["kernel"], "f32-weight-f32");
}

/// With `verify = "parity"` a kernel that does not compute its contract takes no layer, and the model keeps its plan.
#[test]
fn a_configuration_that_asks_for_parity_refuses_a_kernel_without_it() {
    let pack = NativePack::kit("unequal", &norm_layer("RMSNorm", "count_rms_norm"));
    let slots = Slots::new(DeviceKey::Cpu);
    let weight = Tensor::ones(8, DType::F32, &Device::Cpu).unwrap();
    let _layer = RmsNorm::new(weight, 1e-5, &slots, "norm").unwrap();
    let kernel = "RMSNorm = \"kernelhub-tests/unequal@v1\"";
    let checked = KernelConfig::from_toml(&format!("verify = \"parity\"\n{kernel}"), "kernels.toml").unwrap();
    let hub = pack.hub();
    let error = slots.use_kernels(&hub, &checked).unwrap_err();
    let SwapError::Kernel { layer, source, .. } = &error else { panic!("{error:?}") };
    assert_eq!(layer, "RMSNorm");
    assert!(source.to_string().contains("is not at parity with rms_norm"), "{source}");
    assert_eq!(slots.report().swapped(), 0);
    let unchecked = KernelConfig::from_toml(kernel, "kernels.toml").unwrap();
    assert_eq!(slots.use_kernels(&hub, &unchecked).unwrap().swapped(), 1);
}
