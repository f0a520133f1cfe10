//! Gradients with kernels configured: none is lost, each is the reference's, and a kernel's own backward is called
//! where it has one. Kernels are those of `fixtures/train.rs`, in f32.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail the test")]

mod cases;
mod pack;

use std::collections::BTreeSet;
use std::sync::LazyLock;

use candle_core::{DType, Device, Tensor, Var};
use kernelhub::hub::Hub;
use kernelhub::swap::{KernelConfig, KernelConfigBuilder, Mode, Outcome, Reason, Report, Slots, SwapError};
use kernelhub::variant::DeviceKey;

use crate::support::native::{NativePack, compile, layer};
use cases::{CASES, Case, Layer};

static LIBRARY: LazyLock<Vec<u8>> = LazyLock::new(|| compile("train", "", &[]));

/// The fixture's layers. `suffix` is that of the backward functions, `rotary` the rotary function.
fn layers(suffix: &str, rotary: &str) -> String {
    let backward = |name: &str, arguments: &[&str]| {
        format!("backward = {{ function = \"{name}_backward{suffix}\", args = [\"{}\"] }}\n", arguments.join("\", \""))
    };
    [
        layer("RMSNorm", "rms_norm", "rms_norm", &["out", "x", "weight", "eps", "offset"]),
        backward("rms_norm", &["dx", "dweight", "dy", "x", "weight", "eps", "offset"]),
        layer(
            "AddRMSNorm",
            "add_rms_norm",
            "add_rms_norm",
            &["out", "residual_out", "x", "residual", "weight", "eps", "offset"],
        ),
        layer("LayerNorm", "layer_norm", "layer_norm", &["out", "x", "weight", "bias", "eps"]),
        layer("RotaryEmbedding", "rotary", rotary, &["x1", "x2", "cos", "sin", "out1", "out2", "conj"]),
        layer("Silu", "activation.silu", "silu", &["out", "x"]),
        layer("Softmax", "softmax", "softmax", &["out", "x"]),
        layer("SiluAndMul", "gated_activation.silu", "silu_and_mul", &["out", "x"]),
        backward("silu_and_mul", &["dx", "dy", "x"]),
        layer("Linear", "linear", "linear", &["out", "x", "weight", "bias"]),
        layer("SiluGatedLinear", "gated_linear.silu", "silu_gated_linear", &["out", "x", "weight", "bias"]),
        layer("Embedding", "embedding", "embedding", &["out", "ids", "weight"]),
        layer("CrossEntropy", "cross_entropy", "cross_entropy", &["loss", "logits", "targets", "ignore_index"]),
        backward("cross_entropy", &["dlogits", "dloss", "logits", "targets", "ignore_index"]),
    ]
    .concat()
}

struct Fixture {
    name: String,
    hub: Hub,
}

impl Fixture {
    fn new(name: &str, suffix: &str, rotary: &str) -> Self {
        let pack = NativePack::new(name, &layers(suffix, rotary), &[("libtrain.so", &LIBRARY)]);
        let hub = pack.hub();
        // The pack's folders live as long as the hub may read them.
        std::mem::forget(pack);
        Self { name: name.to_owned(), hub }
    }

    /// The fixture's kernel for every layer of the model, and for its groups.
    fn config(&self, slots: &Slots) -> KernelConfig {
        let report = slots.report();
        let layers = report.layers.iter().map(|layer| &layer.layer);
        let layers: BTreeSet<_> = layers.chain(report.groups.iter().map(|group| &group.layer)).collect();
        let kernel = |layer: &str| match layer {
            "GatedMLP" => "SiluAndMul".to_owned(),
            "QKVLinear" => "Linear".to_owned(),
            other => other.to_owned(),
        };
        let add = |builder: KernelConfigBuilder, layer: &&String| {
            let kernel = format!("kernelhub-tests/{}@v1:{}", self.name, kernel(layer));
            builder.kernel(layer, DeviceKey::Cpu, &kernel).unwrap()
        };
        layers.iter().fold(KernelConfig::builder(), add).build()
    }

    fn kernelize(&self, slots: &Slots) -> Report {
        slots.use_kernels(&self.hub, &self.config(slots)).unwrap()
    }
}

static HONEST: LazyLock<Fixture> = LazyLock::new(|| Fixture::new("honest", "", "rotary"));

/// Numbers that differ from each other.
fn ramp(shape: &[usize]) -> Tensor {
    let count: usize = shape.iter().product();
    let values: Vec<f32> = (0..count).map(|i| ((i * 37 % 101) as f32 - 50.0) / 50.0).collect();
    Tensor::from_vec(values, shape, &Device::Cpu).unwrap()
}

fn flat(tensor: &Tensor) -> Vec<f64> {
    tensor.to_dtype(DType::F64).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

/// What a forward and a backward gave.
#[derive(Debug)]
struct Step {
    output: Vec<f64>,
    /// By name: `input` is the parameter behind the layer, the others are its weights.
    gradients: Vec<(&'static str, Vec<f64>)>,
}

/// One training step: a parameter, an operation, the layer, a loss that weighs every element differently.
fn step(layer: &Layer, case: &Case, dtype: DType, is_transposed: bool) -> Step {
    let [a, b, c, d] = case.shape;
    let stored = if is_transposed { [a, c, b, d] } else { case.shape };
    let parameter = Var::from_tensor(&ramp(&stored).to_dtype(dtype).unwrap()).unwrap();
    let input = parameter.affine(0.75, 0.125).unwrap();
    let input = if is_transposed { input.transpose(1, 2).unwrap() } else { input };
    assert_eq!(input.is_contiguous(), !is_transposed);
    let output = (layer.forward)(&input).unwrap();
    let loss = (&output * ramp(output.dims()).to_dtype(output.dtype()).unwrap()).unwrap().sum_all().unwrap();
    let store = loss.backward().unwrap();
    let variables = [("input", &parameter)].into_iter().chain(layer.weights.iter().map(|(name, var)| (*name, var)));
    let gradients = variables.filter(|(name, _)| *name != "input" || case.has_input).map(|(name, variable)| {
        let gradient = store.get(variable).unwrap_or_else(|| panic!("{}: {name} has no gradient", case.name));
        assert_eq!(gradient.dims(), variable.dims(), "{}: {name}", case.name);
        assert_eq!(gradient.dtype(), variable.dtype(), "{}: {name}", case.name);
        (name, flat(gradient))
    });
    Step { gradients: gradients.collect(), output: flat(&output) }
}

#[track_caller]
fn assert_close(actual: &[f64], expected: &[f64], tolerance: f64, what: &str) {
    assert_eq!(actual.len(), expected.len(), "{what}");
    for (at, (actual, expected)) in actual.iter().zip(expected).enumerate() {
        let error = (actual - expected).abs();
        assert!(error <= tolerance * expected.abs().max(1.0), "{what}, element {at}: {actual} is not {expected}");
    }
}

#[track_caller]
fn assert_same_step(actual: &Step, expected: &Step, tolerance: f64, what: &str) {
    assert_close(&actual.output, &expected.output, tolerance, &format!("{what}: output"));
    for ((name, actual), (_, expected)) in actual.gradients.iter().zip(&expected.gradients) {
        assert!(expected.iter().any(|value| value.abs() > 1e-4), "{what}: the gradient of {name} is all zeros");
        assert_close(actual, expected, tolerance, &format!("{what}: gradient of {name}"));
    }
}

/// Whether the slot of the case's layer has a kernel in the report; if not, the reason is that it has no backward.
fn is_swapped(report: &Report, case: &Case) -> bool {
    let of_case = report.layers.iter().filter(|layer| layer.layer == case.name);
    let outcomes: Vec<_> = of_case.map(|layer| &layer.outcome).collect();
    assert!(!outcomes.is_empty(), "{}: {report}", case.name);
    let swapped = outcomes.iter().filter(|outcome| outcome.kernel().is_some()).count();
    for outcome in &outcomes {
        if let Outcome::Reference(reason) = outcome {
            assert!(matches!(reason, Reason::NoBackward { .. }), "{}: {reason}", case.name);
        }
    }
    assert!(swapped == 0 || swapped == outcomes.len(), "{}: {report}", case.name);
    swapped > 0
}

#[test]
fn f40_training_gives_the_references_gradient_with_kernels_configured() {
    for case in CASES {
        for is_transposed in [false, true] {
            let slots = Slots::new(DeviceKey::Cpu);
            let layer = (case.build)(&slots, DType::F32);
            slots.train();
            let expected = step(&layer, case, DType::F32, is_transposed);
            HONEST.kernelize(&slots);
            let report = slots.report();
            assert_eq!(report.mode, Mode::Training);
            assert_eq!(is_swapped(&report, case), case.has_backward, "{}: {report}", case.name);
            let actual = step(&layer, case, DType::F32, is_transposed);
            let what = format!("{}, transposed: {is_transposed}", case.name);
            assert_same_step(&actual, &expected, 2e-5, &what);
        }
    }
}

#[test]
fn a_kernels_own_backward_is_called() {
    let tripled = Fixture::new("tripled", "_tripled", "rotary_tripled_back");
    for case in CASES.iter().filter(|case| case.has_backward) {
        let slots = Slots::new(DeviceKey::Cpu);
        let layer = (case.build)(&slots, DType::F32);
        slots.train();
        let expected = step(&layer, case, DType::F32, false);
        tripled.kernelize(&slots);
        let actual = step(&layer, case, DType::F32, false);
        assert_close(&actual.output, &expected.output, 2e-5, case.name);
        for ((name, actual), (_, expected)) in actual.gradients.iter().zip(&expected.gradients) {
            // What comes after the kernel, on the way of the forward, is not behind its backward.
            let times = if *name == "down" { 1.0 } else { 3.0 };
            let expected: Vec<_> = expected.iter().map(|value| times * value).collect();
            assert_close(actual, &expected, 1e-4, &format!("{}: gradient of {name}", case.name));
        }
    }
}

#[test]
fn f40_inference_mode_cuts_no_gradient_either() {
    for case in CASES {
        for is_transposed in [false, true] {
            let slots = Slots::new(DeviceKey::Cpu);
            let layer = (case.build)(&slots, DType::F32);
            let expected = step(&layer, case, DType::F32, is_transposed);
            // In inference mode, where a kernel without a backward may take a layer. Planned by way of training, since
            // a plan for inference in which nothing was swapped is refused.
            slots.train();
            HONEST.kernelize(&slots);
            slots.eval();
            let actual = step(&layer, case, DType::F32, is_transposed);
            let what = format!("{}, transposed: {is_transposed}", case.name);
            assert_same_step(&actual, &expected, 2e-5, &what);
            if !case.has_backward {
                assert_eq!(actual.output, expected.output, "{what}: the kernel ran");
            }
        }
    }
}

#[test]
fn without_a_gradient_to_lose_the_kernel_runs() {
    // So that the tests above are about kernels that would have run.
    for case in CASES {
        let slots = Slots::new(DeviceKey::Cpu);
        let layer = (case.frozen)(&slots, DType::F32);
        let input = ramp(&case.shape);
        let expected = (layer.forward)(&input).unwrap();
        let report = HONEST.kernelize(&slots);
        assert!(is_swapped(&report, case), "{}: {report}", case.name);
        let actual = (layer.forward)(&input).unwrap();
        assert_close(&flat(&actual), &flat(&expected), 2e-5, case.name);
        assert!(!actual.track_op(), "{}", case.name);
        let text = report.layers.iter().find(|layer| layer.layer == case.name).unwrap();
        let kernel = text.outcome.kernel().unwrap();
        assert_eq!(kernel.repo.to_string(), "kernelhub-tests/honest");
    }
}

#[test]
fn f39_three_flips_of_the_mode_bring_everything_back() {
    for case in CASES {
        let slots = Slots::new(DeviceKey::Cpu);
        let layer = (case.frozen)(&slots, DType::F32);
        let input = ramp(&case.shape);
        let inference = HONEST.kernelize(&slots);
        let output = flat(&(layer.forward)(&input).unwrap());
        let training = slots.train();
        let trained = flat(&(layer.forward)(&input).unwrap());
        for _ in 0..3 {
            assert_eq!(slots.eval(), inference, "{}", case.name);
            assert_eq!(flat(&(layer.forward)(&input).unwrap()), output, "{}", case.name);
            assert_eq!(slots.train(), training, "{}", case.name);
            assert_eq!(flat(&(layer.forward)(&input).unwrap()), trained, "{}", case.name);
        }
    }
}

#[test]
fn f64_keeps_its_reference_and_its_gradient_and_says_why() {
    for case in CASES {
        let slots = Slots::new(DeviceKey::Cpu);
        let layer = (case.build)(&slots, DType::F64);
        slots.train();
        let expected = step(&layer, case, DType::F64, false);
        let report = HONEST.kernelize(&slots);
        let outcomes = report.layers.iter().map(|layer| &layer.outcome);
        for outcome in outcomes {
            assert!(
                matches!(outcome, Outcome::Reference(Reason::Dtype { actual, .. }) if actual.as_str() == "f64"),
                "{}: {report}",
                case.name
            );
        }
        let actual = step(&layer, case, DType::F64, false);
        assert_eq!(format!("{actual:?}"), format!("{expected:?}"), "{}", case.name);
    }
}

#[test]
fn a_variable_in_the_layer_keeps_a_kernel_without_a_backward_away_in_inference() {
    for case in CASES.iter().filter(|case| !case.has_backward) {
        let slots = Slots::new(DeviceKey::Cpu);
        let layer = (case.build)(&slots, DType::F32);
        if layer.weights.is_empty() {
            continue;
        }
        match slots.use_kernels(&HONEST.hub, &HONEST.config(&slots)) {
            Ok(report) => assert!(!is_swapped(&report, case), "{}: {report}", case.name),
            // Nothing was swapped, which is an error that carries the reasons.
            Err(SwapError::NothingSwapped { reasons, .. }) => {
                assert!(reasons.iter().all(|reason| reason.ends_with("weight is a variable")), "{reasons:?}");
            }
            Err(error) => panic!("{}: {error}", case.name),
        }
    }
}

/// The operation of a training step holds its kernel, whatever the model's plan became meanwhile.
#[test]
fn a_backward_runs_under_the_plan_of_its_forward() {
    let slots = Slots::new(DeviceKey::Cpu);
    let weight = Var::from_tensor(&ramp(&[8])).unwrap();
    let norm = kernelhub::host::candle::RmsNorm::new(weight.as_tensor().clone(), 1e-5, &slots, "norm").unwrap();
    slots.train();
    let tripled = Fixture::new("outlived", "_tripled", "rotary");
    tripled.kernelize(&slots);
    let loss = norm.forward(&ramp(&[2, 8])).unwrap().sum_all().unwrap();
    slots.disable_kernels();
    let of_kernel = flat(loss.backward().unwrap().get(&weight).unwrap());
    let loss = norm.forward(&ramp(&[2, 8])).unwrap().sum_all().unwrap();
    let of_reference: Vec<_> =
        flat(loss.backward().unwrap().get(&weight).unwrap()).iter().map(|value| 3.0 * value).collect();
    assert_close(&of_kernel, &of_reference, 1e-4, "gradient");
}

#[test]
fn both_outputs_of_a_norm_after_an_add_carry_their_gradient() {
    let gradients = |with_kernels: bool, mode: Mode| {
        let slots = Slots::new(DeviceKey::Cpu);
        let config = kernelhub::host::candle::RmsNormConfig { after_add: true, ..1e-5_f64.into() };
        let norm = kernelhub::host::candle::RmsNorm::new(ramp(&[8]), config, &slots, "norm").unwrap();
        if with_kernels {
            HONEST.kernelize(&slots);
        }
        slots.set_mode(mode);
        let (x, residual) = (Var::from_tensor(&ramp(&[3, 8])).unwrap(), Var::from_tensor(&ramp(&[3, 8])).unwrap());
        let (normalised, sum) = norm.forward_add(&x, &residual).unwrap();
        let loss = ((normalised * ramp(&[3, 8])).unwrap() + (sum * 0.5).unwrap()).unwrap().sum_all().unwrap();
        let store = loss.backward().unwrap();
        [flat(store.get(&x).unwrap()), flat(store.get(&residual).unwrap())]
    };
    let expected = gradients(false, Mode::Training);
    for mode in Mode::ALL {
        for (actual, expected) in gradients(true, mode).iter().zip(&expected) {
            assert_close(actual, expected, 2e-5, mode.as_str());
        }
    }
}
