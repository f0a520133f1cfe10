//! The factor of a row: `1 / sqrt(mean(x^2) + eps)`.

#![expect(unsafe_code, reason = "reads rows by pointer")]
#![expect(clippy::inline_always, reason = "generic SIMD code must be inlined into the function compiled for its level")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "an access and the pointer arithmetic to it share a note")]
#![expect(clippy::cast_possible_truncation, reason = "the factor rounds to f32, in which rows are scaled")]

use crate::simd::{Element, Simd, load};

/// Sums of squares below this may have lost terms to underflow; they are taken again in f64.
const TINY: f32 = 1e-30;

/// `1 / sqrt(mean(x^2) + eps)`.
///
/// # Safety
/// `hidden` elements are readable at `x`, and at least one.
#[inline(always)]
pub(super) unsafe fn factor<S: Simd, E: Element>(s: S, x: *const E, hidden: usize, eps: f64) -> f32 {
    let lanes = S::LANES;
    let mut sums = [s.splat(0.0); 4];
    let mut i = 0;
    while i + 4 * lanes <= hidden {
        // SAFETY: `i + 4 * LANES <= hidden`.
        square(s, &mut sums, unsafe { [E::load2(s, x.add(i)), E::load2(s, x.add(i + 2 * lanes))] });
        i += 4 * lanes;
    }
    while i < hidden {
        let count = lanes.min(hidden - i);
        // SAFETY: `count` elements stand at `i`.
        let value = unsafe { load(s, x.add(i), count) };
        sums[0] = s.fma(value, value, sums[0]);
        i += lanes;
    }
    // SAFETY: by this function's contract.
    unsafe { finish(s, sums, x, hidden, eps) }
}

/// Adds the squares of four vectors to four sums.
#[inline(always)]
pub(super) fn square<S: Simd>(s: S, sums: &mut [S::V; 4], values: [[S::V; 2]; 2]) {
    for (sum, value) in sums.iter_mut().zip(values.as_flattened()) {
        *sum = s.fma(*value, *value, *sum);
    }
}

/// The factor of a row whose squares were summed.
///
/// # Safety
/// `hidden` elements are readable at `x`, and at least one.
#[inline(always)]
pub(super) unsafe fn finish<S: Simd, E: Element>(s: S, sums: [S::V; 4], x: *const E, hidden: usize, eps: f64) -> f32 {
    let sum = s.sum(s.add(s.add(sums[0], sums[1]), s.add(sums[2], sums[3])));
    let mut sum_of_squares = f64::from(sum);
    if leaves_f32(sum) {
        // SAFETY: by this function's contract.
        sum_of_squares = unsafe { wide_sum(x, hidden) };
    }
    (1.0 / (sum_of_squares / hidden as f64 + eps).sqrt()) as f32
}

/// Whether terms of a sum of squares may have been lost.
#[inline(always)]
pub(super) fn leaves_f32(sum: f32) -> bool {
    !sum.is_finite() || sum < TINY
}

/// The sum of squares in f64, for rows whose squares leave the range of f32.
///
/// # Safety
/// `hidden` elements are readable at `x`.
#[cold]
#[inline(never)]
unsafe fn wide_sum<E: Element>(x: *const E, hidden: usize) -> f64 {
    // SAFETY: by this function's contract; the row is initialised.
    let row = unsafe { core::slice::from_raw_parts(x, hidden) };
    row.iter().map(|value| f64::from(value.to_f32()).powi(2)).sum()
}
