//! The factor of a row: `1 / sqrt(mean(x^2) + eps)`.

#![expect(unsafe_code, reason = "reads rows by pointer")]
#![expect(clippy::inline_always, reason = "generic SIMD code must be inlined into the function compiled for its level")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "an access and the pointer arithmetic to it share a note")]
#![expect(clippy::cast_possible_truncation, reason = "the factor rounds to f32, in which rows are scaled")]

use crate::simd::{Element, Simd, load};

/// Sums of squares below this may have lost terms to underflow; they are taken again in f64.
const TINY: f32 = 1e-30;
/// Likewise where pairs of bf16 are multiplied, which takes subnormal products as zero: of 10^6 terms, as many are lost
/// as f32 has no digits for.
const TINY_PAIRS: f32 = 1e-25;

/// A row whose squares are summed.
pub(super) trait Row {
    /// Adds the squares of the pair of vectors at `i` to the sums, see [`Element::square2`].
    ///
    /// # Safety
    /// The pair is inside the row.
    unsafe fn pair<S: Simd>(&self, s: S, i: usize, sums: &mut [S::V; 4], step: usize);
    /// The `count` elements at `i`, of at most a vector.
    ///
    /// # Safety
    /// They are inside the row.
    unsafe fn rest<S: Simd>(&self, s: S, i: usize, count: usize) -> S::V;
}

/// A row that is there.
pub(super) struct Read<E>(pub(super) *const E);

impl<E: Element> Row for Read<E> {
    #[inline(always)]
    unsafe fn pair<S: Simd>(&self, s: S, i: usize, sums: &mut [S::V; 4], step: usize) {
        // SAFETY: by this function's contract.
        unsafe { E::square2(s, self.0.add(i), sums, step) };
    }
    #[inline(always)]
    unsafe fn rest<S: Simd>(&self, s: S, i: usize, count: usize) -> S::V {
        // SAFETY: by this function's contract.
        unsafe { load(s, self.0.add(i), count) }
    }
}

/// A vector whose lanes together are the sum of a row's squares, in an order that its length and the level alone decide.
///
/// # Safety
/// The row has `hidden` elements.
#[inline(always)]
pub(super) unsafe fn squares<S: Simd>(s: S, row: &impl Row, hidden: usize) -> S::V {
    let (mut sums, width, mut i) = ([s.splat(0.0); 4], 2 * S::LANES, 0);
    while i + 4 * width <= hidden {
        for step in 0..4 {
            // SAFETY: `i + 8 * LANES <= hidden`.
            unsafe { row.pair(s, i + step * width, &mut sums, step) };
        }
        i += 4 * width;
    }
    for step in 0..3 {
        if i + width <= hidden {
            // SAFETY: `i + 2 * LANES <= hidden`.
            unsafe { row.pair(s, i, &mut sums, step) };
            i += width;
        }
    }
    while i < hidden {
        let count = S::LANES.min(hidden - i);
        // SAFETY: `count` elements stand at `i`.
        let value = unsafe { row.rest(s, i, count) };
        sums[0] = s.fma(value, value, sums[0]);
        i += count;
    }
    s.add(s.add(sums[0], sums[1]), s.add(sums[2], sums[3]))
}

/// The factor of a row whose squares were summed.
///
/// # Safety
/// `hidden` elements are readable at `x`, whose squares they are, and at least one.
#[inline(always)]
pub(super) unsafe fn factor<S: Simd, E: Element>(sum: f32, x: *const E, hidden: usize, eps: f64) -> f32 {
    let mut sum_of_squares = f64::from(sum);
    if leaves_f32(sum) || (E::IN_PAIRS && S::PAIRS && sum < TINY_PAIRS) {
        // SAFETY: by this function's contract.
        sum_of_squares = unsafe { wide_sum(x, hidden) };
    }
    (1.0 / (sum_of_squares * (1.0 / hidden as f64) + eps).sqrt()) as f32
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
