//! The online softmax of one row of a tile.

#![expect(unsafe_code, reason = "rows by pointer")]
#![expect(clippy::inline_always, reason = "generic SIMD code must be inlined into the function compiled for its level")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "an access and the pointer arithmetic to it share a note")]

use crate::simd::{Simd, exp2, tanh};

/// What a row has seen so far. Scores are in units of log2.
#[derive(Debug, Clone, Copy)]
pub(super) struct Running {
    /// The greatest score.
    pub(super) max: f32,
    /// The sum of `2^(score - max)`.
    pub(super) sum: f32,
}

impl Running {
    /// Nothing seen.
    pub(super) const EMPTY: Self = Self { max: f32::NEG_INFINITY, sum: 0.0 };

    /// What is taken from scores before they become powers of two. Where all scores are -inf that is 0, so that their
    /// weights are 0 and not NaN: another tile may have a finite score.
    #[inline(always)]
    pub(super) fn shift(self) -> f32 {
        if self.max == f32::NEG_INFINITY { 0.0 } else { self.max }
    }

    /// Turns the first `seen` scores of a tile's row into weights, zeroes those up to `width`, and scales the row of
    /// the output where the maximum has grown.
    ///
    /// # Safety
    /// `width` rounded up to whole vectors is readable and writable at `scores`, of which `seen <= width` are
    /// initialised, `seen > 0`; `depth`, a whole number of vectors, is readable and writable at `output`.
    #[inline(always)]
    pub(super) unsafe fn update<S: Simd>(
        &mut self,
        s: S,
        scores: *mut f32,
        seen: usize,
        width: usize,
        output: *mut f32,
        depth: usize,
    ) {
        let lanes = S::LANES;
        let (whole, rest) = (seen - seen % lanes, seen % lanes);
        let mut top = s.splat(f32::NEG_INFINITY);
        let mut i = 0;
        while i < whole {
            // SAFETY: whole vectors below `seen`.
            top = s.max(unsafe { s.load_f32(scores.add(i)) }, top);
            i += lanes;
        }
        if rest > 0 {
            // SAFETY: `rest` scores stand at `whole`.
            let tail = unsafe { s.load_f32_part(scores.add(whole), rest) };
            top = s.max(s.keep_first(tail, rest, f32::NEG_INFINITY), top);
        }
        let tile_max = s.max_lane(top);
        let max = if tile_max > self.max { tile_max } else { self.max };
        let shift = Self { max, ..*self }.shift();
        let shift_lanes = s.splat(shift);
        let mut sums = s.splat(0.0);
        let mut i = 0;
        while i < whole {
            // SAFETY: whole vectors below `seen`.
            let weight = exp2(s, s.sub(unsafe { s.load_f32(scores.add(i)) }, shift_lanes));
            sums = s.add(sums, weight);
            // SAFETY: likewise.
            unsafe { s.store_f32(scores.add(i), weight) };
            i += lanes;
        }
        if rest > 0 {
            // SAFETY: `rest` scores stand at `whole`.
            let tail = unsafe { s.load_f32_part(scores.add(whole), rest) };
            let weight = s.keep_first(exp2(s, s.sub(tail, shift_lanes)), rest, 0.0);
            sums = s.add(sums, weight);
            // SAFETY: below `width` rounded up.
            unsafe { s.store_f32(scores.add(whole), weight) };
            i += lanes;
        }
        while i < width {
            // SAFETY: below `width` rounded up.
            unsafe { s.store_f32(scores.add(i), s.splat(0.0)) };
            i += lanes;
        }
        let sum = s.sum(sums);
        // Exact on purpose: unless the maximum has grown (or is NaN), there is nothing to scale.
        if max.total_cmp(&self.max).is_eq() {
            self.sum += sum;
            return;
        }
        let shrink = (self.max - shift).exp2();
        self.sum = self.sum * shrink + sum;
        self.max = max;
        let shrink = s.splat(shrink);
        let mut d = 0;
        while d < depth {
            // SAFETY: `d + LANES <= depth`.
            let value = unsafe { s.load_f32(output.add(d)) };
            // SAFETY: likewise.
            unsafe { s.store_f32(output.add(d), s.mul(value, shrink)) };
            d += lanes;
        }
    }
}

/// Turns the first `count` scores of a row, which are in units of `cap`, into capped ones in units of log2.
///
/// # Safety
/// They are initialised, and `count` rounded up to whole vectors is writable.
#[inline(always)]
pub(super) unsafe fn cap_scores<S: Simd>(s: S, scores: *mut f32, count: usize, cap: f32) {
    let cap = s.splat(cap);
    let mut i = 0;
    while i < count {
        let lanes = S::LANES.min(count - i);
        // SAFETY: `lanes` initialised scores.
        let score = unsafe { s.load_f32_part(scores.add(i), lanes) };
        // SAFETY: below `count` rounded up.
        unsafe { s.store_f32(scores.add(i), s.mul(tanh(s, score), cap)) };
        i += S::LANES;
    }
}

/// Hides the first `count` scores of a row: their weights become 0.
///
/// # Safety
/// They are writable.
#[inline(always)]
pub(super) unsafe fn hide(scores: *mut f32, count: usize) {
    for index in 0..count {
        // SAFETY: below `count`.
        unsafe { scores.add(index).write(f32::NEG_INFINITY) };
    }
}
