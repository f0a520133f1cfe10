//! What the softmax of rows and the cross entropy of rows share: maxima, and sums of exponentials.

#![expect(unsafe_code, reason = "reads rows by pointer")]
#![expect(clippy::inline_always, reason = "generic SIMD code must be inlined into the function compiled for its level")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "an access and the pointer arithmetic to it share a note")]

use super::rows::{TOGETHER, load_wide};
use crate::simd::{Element, Simd, Wide, exp_minus_scaled, load};

/// Longest part of a row that is summed in f32, and whose exponentials are kept, in elements: 16 KiB of stack.
/// A multiple of [`TOGETHER`] of every vector.
pub(super) const PART: usize = 4096;

/// The greatest element; those that are NaN may be passed over.
///
/// # Safety
/// `count` elements are readable at `x`.
#[inline(always)]
pub(super) unsafe fn greatest<S: Simd, E: Element>(s: S, x: *const E, count: usize) -> f32 {
    let lanes = S::LANES;
    let mut tops = [s.splat(f32::NEG_INFINITY); TOGETHER];
    let mut i = 0;
    while i + TOGETHER * lanes <= count {
        // SAFETY: `TOGETHER` vectors stand at `i`.
        let values = unsafe { load_wide(s, x.add(i)) };
        for (top, value) in tops.iter_mut().zip(values) {
            *top = s.max(value, *top);
        }
        i += TOGETHER * lanes;
    }
    while i < count {
        let part = lanes.min(count - i);
        // SAFETY: `part` elements stand at `i`.
        let value = unsafe { load(s, x.add(i), part) };
        tops[0] = s.max(s.keep_first(value, part, f32::NEG_INFINITY), tops[0]);
        i += lanes;
    }
    let [a, b, c, d] = tops;
    s.max_lane(s.max(s.max(a, b), s.max(c, d)))
}

/// The sum of `e^(x - max)`, times [`EXP_SCALE`](crate::simd::EXP_SCALE). The exponentials are kept so where there is a
/// place for them, in the order of [`load_wide`] where that has one. Where all are -infinity, and where one is infinite,
/// the differences are NaN, and so is the sum.
///
/// # Safety
/// `count` elements, at most [`PART`], are readable at `x`; [`PART`] numbers are writable at `kept`.
#[inline(always)]
pub(super) unsafe fn exponentials<S: Simd, E: Element>(
    s: S,
    x: *const E,
    count: usize,
    max: f32,
    kept: Option<*mut f32>,
) -> f32 {
    let lanes = S::LANES;
    let max = s.splat(max);
    let mut sums = [s.splat(0.0); TOGETHER];
    let mut i = 0;
    while i + TOGETHER * lanes <= count {
        // SAFETY: `TOGETHER` vectors stand at `i`.
        let mut values = unsafe { load_wide(s, x.add(i)) };
        for value in &mut values {
            *value = s.sub(max, *value);
        }
        let values = exp_minus_scaled(Wide::<S, TOGETHER>(s), values);
        for (j, (sum, value)) in sums.iter_mut().zip(values).enumerate() {
            *sum = s.add(*sum, value);
            if let Some(kept) = kept {
                // SAFETY: inside the part.
                unsafe { s.store_f32(kept.add(i + j * lanes), value) };
            }
        }
        i += TOGETHER * lanes;
    }
    while i < count {
        let part = lanes.min(count - i);
        // SAFETY: `part` elements stand at `i`.
        let value = s.sub(max, unsafe { load(s, x.add(i), part) });
        let value = s.keep_first(exp_minus_scaled(s, value), part, 0.0);
        sums[0] = s.add(sums[0], value);
        if let Some(kept) = kept {
            // SAFETY: a part is a whole number of vectors, so there is room behind its last element.
            unsafe { s.store_f32(kept.add(i), value) };
        }
        i += lanes;
    }
    let [a, b, c, d] = sums;
    s.sum(s.add(s.add(a, b), s.add(c, d)))
}
