//! The project's own kernels in training: their gradients against the reference's in f64.

use candle_core::DType;
use kernelhub::swap::{KernelConfig, Slots};
use kernelhub::variant::DeviceKey;

use super::cases::CASES;
use super::{Step, step};
use crate::support::embedded;

/// What rounding may add up to, relative to the largest number of a tensor.
fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F32 => 2e-5,
        DType::F16 => 6e-3,
        _ => 4e-2,
    }
}

fn tensors(step: &Step) -> impl Iterator<Item = (&'static str, &[f64])> {
    let gradients = step.gradients.iter().map(|(name, values)| (*name, values.as_slice()));
    [("output", step.output.as_slice())].into_iter().chain(gradients)
}

#[test]
fn f40_the_packs_backward_gives_the_references_gradient() {
    let (Some(registry), Some(hub)) = (embedded::registry(), embedded::hub()) else { return };
    // An older build's kernels have no backward.
    if embedded::newer(&registry).len() < embedded::NEWER.len() {
        return;
    }
    for case in CASES {
        for (dtype, is_transposed) in
            [DType::F32, DType::BF16, DType::F16].into_iter().flat_map(|dtype| [(dtype, false), (dtype, true)])
        {
            let reference = Slots::new(DeviceKey::Cpu);
            let expected = step(&(case.build)(&reference, DType::F64), case, DType::F64, is_transposed);
            let slots = Slots::new(DeviceKey::Cpu);
            let layer = (case.build)(&slots, dtype);
            slots.train();
            let report = slots.use_kernels(hub, &KernelConfig::standard().unwrap()).unwrap();
            let swapped =
                report.layers.iter().any(|layer| layer.layer == case.name && layer.outcome.kernel().is_some());
            assert_eq!(swapped, case.has_backward, "{}: {report}", case.name);
            let actual = step(&layer, case, dtype, is_transposed);
            for ((name, actual), (_, expected)) in tensors(&actual).zip(tensors(&expected)) {
                let largest = expected.iter().fold(1.0_f64, |largest, value| largest.max(value.abs()));
                for (at, (actual, expected)) in actual.iter().zip(expected).enumerate() {
                    assert!(
                        (actual - expected).abs() <= tolerance(dtype) * largest,
                        "{} in {dtype:?}, transposed: {is_transposed}, {name}, element {at}: {actual} is not {expected}",
                        case.name
                    );
                }
            }
        }
    }
}
