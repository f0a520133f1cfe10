//! The candle layers' reference code, and the example model that is built from it.
//!
//! Values are compared with plain loops in f64 over the same (rounded) inputs; gradients with finite differences in
//! f64; the model with itself, run another way.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail the test")]

mod attention;
mod files;
mod gradients;
mod model;
mod perplexity;
mod refusals;
mod values;

use candle_core::{DType, Device, Tensor};
use kernelhub::swap::{Mode, Slots};
use kernelhub::variant::DeviceKey;

use crate::llama::sampler::Random;

const MODES: [Mode; 2] = [Mode::Inference, Mode::Training];
const DTYPES: [DType; 4] = [DType::F64, DType::F32, DType::BF16, DType::F16];

fn slots() -> Slots {
    Slots::new(DeviceKey::Cpu)
}

/// Numbers in `[-1, 1)`, the same for the same seed.
fn noise(seed: u64, shape: &[usize], dtype: DType) -> Tensor {
    let mut random = Random::new(seed);
    let values: Vec<f64> = (0..shape.iter().product()).map(|_| 2.0 * random.next_unit() - 1.0).collect();
    Tensor::from_vec(values, shape, &Device::Cpu).unwrap().to_dtype(dtype).unwrap()
}

/// As [`noise`], with axes 1 and 2 lying the other way round in memory.
fn strided_noise(seed: u64, [a, b, c, d]: [usize; 4], dtype: DType) -> Tensor {
    let view = noise(seed, &[a, c, b, d], dtype).transpose(1, 2).unwrap();
    assert!(!view.is_contiguous() || b == 1 || c == 1);
    view
}

/// All elements in row order, exactly.
fn flat(tensor: &Tensor) -> Vec<f64> {
    tensor.to_dtype(DType::F64).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

/// What rounding may add up to in a short computation, relative to values of about 1.
fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1e-6,
        DType::F32 => 1e-5,
        DType::F16 => 4e-3,
        _ => 3e-2,
    }
}

#[track_caller]
fn assert_close(actual: &Tensor, expected: &[f64], tolerance: f64, what: &str) {
    let actual = flat(actual);
    assert_eq!(actual.len(), expected.len(), "{what}: number of elements");
    for (at, (actual, expected)) in actual.iter().zip(expected).enumerate() {
        let error = (actual - expected).abs();
        assert!(error <= tolerance * expected.abs().max(1.0), "{what}, element {at}: {actual} is not {expected}");
    }
}
