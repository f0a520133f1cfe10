//! Each kernel, through the hub and a real `dlopen`, against its formula in f64 over the same rounded inputs.

mod activation;
mod attention;
#[cfg(feature = "cli")]
mod attention_host;
mod attention_options;
mod contracts;
#[cfg(feature = "cli")]
mod host;
mod norm;
mod rotary;

use half::{bf16, f16};
use kernelhub::bind::{Element, TensorRef};
use kernelhub::dtype::DType;

/// Largest difference from the formula: dtype, absolute, relative. The kernels accumulate in f32 and round once, so
/// that what is allowed is one unit in the last place of the dtype, and the f32 work before it.
const TOLERANCES: [(DType, f64, f64); 3] =
    [(DType::F32, 4e-6, 4e-6), (DType::F16, 1e-5, 1e-3), (DType::Bf16, 1e-5, 8e-3)];

trait Number: Element {
    fn rounded(value: f64) -> Self;
    fn wide(self) -> f64;
}

impl Number for f32 {
    #[expect(clippy::cast_possible_truncation, reason = "rounding is what is asked for")]
    fn rounded(value: f64) -> Self {
        value as Self
    }
    fn wide(self) -> f64 {
        self.into()
    }
}

impl Number for f16 {
    fn rounded(value: f64) -> Self {
        Self::from_f64(value)
    }
    fn wide(self) -> f64 {
        self.to_f64()
    }
}

impl Number for bf16 {
    fn rounded(value: f64) -> Self {
        Self::from_f64(value)
    }
    fn wide(self) -> f64 {
        self.to_f64()
    }
}

/// Calls a generic check for each dtype.
macro_rules! for_each_dtype {
    ($check:ident($($argument:expr),*)) => {{
        $check::<f32>($($argument),*);
        $check::<half::bf16>($($argument),*);
        $check::<half::f16>($($argument),*);
    }};
}
use for_each_dtype;

/// Numbers in `[-2, 2)`, the same for the same seed (splitmix64).
fn noise(seed: u64, count: usize) -> Vec<f64> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 51) as f64 - 2.0
    };
    (0..count).map(|_| next()).collect()
}

/// A strided view with its memory.
struct View<T> {
    data: Vec<T>,
    shape: Vec<usize>,
    strides: Vec<usize>,
}

impl<T: Number> View<T> {
    /// Noise behind a view of these strides.
    fn strided(seed: u64, shape: &[usize], strides: &[usize]) -> Self {
        let reach: usize = shape.iter().zip(strides).map(|(extent, stride)| extent.saturating_sub(1) * stride).sum();
        let data = noise(seed, reach + 1).into_iter().map(T::rounded).collect();
        Self { data, shape: shape.to_vec(), strides: strides.to_vec() }
    }

    fn contiguous(seed: u64, shape: &[usize]) -> Self {
        let mut strides = vec![1; shape.len()];
        for axis in (1..shape.len()).rev() {
            strides[axis - 1] = strides[axis] * shape[axis].max(1);
        }
        Self::strided(seed, shape, &strides)
    }

    fn tensor(&self) -> TensorRef<'_> {
        TensorRef::new(&self.data, &self.shape, &self.strides).unwrap()
    }

    fn position(&self, index: &[usize]) -> usize {
        assert_eq!(index.len(), self.strides.len());
        index.iter().zip(&self.strides).map(|(at, stride)| at * stride).sum()
    }

    fn at(&self, index: &[usize]) -> f64 {
        self.data[self.position(index)].wide()
    }

    fn set(&mut self, index: &[usize], value: f64) {
        let position = self.position(index);
        self.data[position] = T::rounded(value);
    }
}

/// Every index of a shape, in row order.
fn indices(shape: &[usize]) -> Vec<Vec<usize>> {
    shape.iter().fold(vec![Vec::new()], |prefixes, extent| {
        prefixes.iter().flat_map(|prefix| (0..*extent).map(move |at| [&prefix[..], &[at]].concat())).collect()
    })
}

#[track_caller]
fn assert_close<T: Number>(actual: &[T], expected: &[f64], what: &str) {
    let (_, absolute, relative) = TOLERANCES.into_iter().find(|(dtype, ..)| *dtype == T::DTYPE).unwrap();
    assert_eq!(actual.len(), expected.len(), "{what}: number of elements");
    for (at, (actual, expected)) in actual.iter().zip(expected).enumerate() {
        let (actual, expected) = (actual.wide(), *expected);
        let is_close = if expected.is_nan() {
            actual.is_nan()
        } else if expected.is_infinite() {
            actual.total_cmp(&expected).is_eq()
        } else {
            (actual - expected).abs() <= absolute + relative * expected.abs()
        };
        assert!(is_close, "{what} in {}, element {at}: {actual} is not {expected}", T::DTYPE);
    }
}
