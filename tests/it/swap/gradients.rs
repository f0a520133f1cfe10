//! A gradient is never cut: with kernels on and in inference mode, an input that is a variable still gets its own.

use candle_core::{DType, Device, Result, Tensor, Var};
use kernelhub::host::candle::{Attention, GatedMlp, RmsNorm, RotaryEmbedding, RotaryStyle};
use kernelhub::swap::{KernelConfig, Slots};
use kernelhub::variant::DeviceKey;

use crate::support::embedded;

/// Numbers that differ from each other.
fn ramp(shape: &[usize]) -> Tensor {
    let count: usize = shape.iter().product();
    let values: Vec<f32> = (0..count).map(|i| ((i * 37 % 101) as f32 - 50.0) / 50.0).collect();
    Tensor::from_vec(values, shape, &Device::Cpu).unwrap()
}

/// The gradient that `forward` gives the variable, for an input that is contiguous or a transposed view.
fn gradient(shape: [usize; 4], is_transposed: bool, forward: &dyn Fn(&Tensor) -> Result<Tensor>) -> Vec<f32> {
    let [a, b, c, d] = shape;
    let variable = Var::from_tensor(&ramp(&if is_transposed { [a, c, b, d] } else { shape })).unwrap();
    let input = if is_transposed { variable.transpose(1, 2).unwrap() } else { variable.as_tensor().clone() };
    // Weighed unevenly, so that no gradient is zero by symmetry.
    let output = forward(&input).unwrap();
    let loss = (&output * ramp(output.dims())).unwrap().sum_all().unwrap();
    let gradients = loss.backward().unwrap();
    let gradient = gradients.get(&variable).expect("the variable gets a gradient");
    gradient.flatten_all().unwrap().to_vec1().unwrap()
}

/// With kernels on, the layer gives the gradient that it gives without kernels: the same where the kernel has no
/// backward, since the reference runs then, and the same to rounding where it has one.
fn check(slots: &Slots, name: &str, shape: [usize; 4], forward: &dyn Fn(&Tensor) -> Result<Tensor>) {
    let Some(hub) = embedded::hub() else { return };
    for is_transposed in [false, true] {
        slots.disable_kernels();
        let expected = gradient(shape, is_transposed, forward);
        let report = slots.use_kernels(hub, &KernelConfig::standard().unwrap()).unwrap();
        assert_eq!(report.swapped(), report.total(), "{name}: {report}");
        let actual = gradient(shape, is_transposed, forward);
        assert!(actual.iter().any(|value| value.abs() > 1e-4), "{name}: a gradient that is all zeros");
        let has_backward = slots.train().swapped() > 0;
        slots.eval();
        if !has_backward {
            assert_eq!(actual, expected, "{name}, transposed: {is_transposed}");
        }
        for (actual, expected) in actual.iter().zip(&expected) {
            let error = (actual - expected).abs();
            assert!(
                error <= 2e-6 * expected.abs().max(1.0),
                "{name}, transposed: {is_transposed}: {actual}, {expected}"
            );
        }
    }
}

#[test]
fn rms_norm() {
    let slots = Slots::new(DeviceKey::Cpu);
    let layer = RmsNorm::new(ramp(&[8]), 1e-5, &slots, "norm").unwrap();
    check(&slots, "RMSNorm", [1, 2, 3, 8], &|x| layer.forward(x));
}

#[test]
fn gated_mlp() {
    let slots = Slots::new(DeviceKey::Cpu);
    let layer = GatedMlp::new(ramp(&[12, 8]), ramp(&[8, 6]), &slots, "mlp").unwrap();
    check(&slots, "SiluAndMul", [1, 2, 3, 8], &|x| layer.forward(x));
}

#[test]
fn rotary() {
    for style in [RotaryStyle::HalfSplit, RotaryStyle::Interleaved] {
        let slots = Slots::new(DeviceKey::Cpu);
        let layer = RotaryEmbedding::new(ramp(&[5, 4]), ramp(&[5, 4]), style, &slots, "rotary").unwrap();
        // Queries, then keys.
        check(&slots, "rotary of queries", [1, 2, 3, 8], &|q| Ok(layer.forward(q, &ramp(&[1, 1, 3, 8]), 1)?.0));
        check(&slots, "rotary of keys", [1, 2, 3, 8], &|k| Ok(layer.forward(&ramp(&[1, 1, 3, 8]), k, 1)?.1));
    }
}

#[test]
fn attention() {
    let slots = Slots::new(DeviceKey::Cpu);
    let layer = Attention::new(2, 2, 8, 0.35, DType::F32, &slots, "attention").unwrap();
    let other = ramp(&[1, 2, 3, 8]);
    for (name, at) in [("q", 0), ("k", 1), ("v", 2)] {
        let forward = |x: &Tensor| {
            let inputs: [&Tensor; 3] = std::array::from_fn(|i| if i == at { x } else { &other });
            layer.forward(inputs[0], inputs[1], inputs[2], true)
        };
        check(&slots, name, [1, 2, 3, 8], &forward);
    }
}
