//! From sums in f32 to outputs: the bias, the gate, the one rounding.

#![expect(unsafe_code, reason = "reads and writes rows by pointer")]
#![expect(clippy::inline_always, reason = "generic SIMD code must be inlined into the function compiled for its level")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "an access and the pointer arithmetic to it share a note")]

use super::Linear;
use crate::simd::{Element, Simd, load, sigmoid_weighted, store};

impl<E: Element, const GATED: bool> Linear<E, GATED> {
    /// Writes `count` outputs of a row, from `column` on.
    ///
    /// # Safety
    /// `count` elements, rounded up to whole vectors, are readable at `sums`, and at `up` where gated; `count` outputs
    /// are writable at `to`; `column + count` is within the columns.
    #[inline(always)]
    pub(super) unsafe fn finish<S: Simd>(
        &self,
        s: S,
        sums: *const f32,
        up: *const f32,
        column: usize,
        count: usize,
        to: *mut E,
    ) {
        let mut i = 0;
        while i < count {
            let part = S::LANES.min(count - i);
            // SAFETY: inside whole vectors; `part` elements of the bias stand at the column.
            let mut value = unsafe { self.with_bias(s, s.load_f32(sums.add(i)), column + i, part) };
            if GATED {
                // SAFETY: likewise, among the second half of the weight's rows.
                let up = unsafe { self.with_bias(s, s.load_f32(up.add(i)), self.columns + column + i, part) };
                value = s.mul(sigmoid_weighted(s, value, value), up);
            }
            // SAFETY: `part` elements stand there.
            unsafe { store(s, to.add(i), value, part) };
            i += S::LANES;
        }
    }

    /// # Safety
    /// `row + count` is within the weight's rows; `count` is at most `LANES`.
    #[inline(always)]
    unsafe fn with_bias<S: Simd>(&self, s: S, value: S::V, row: usize, count: usize) -> S::V {
        match self.bias {
            // SAFETY: the bias has an element for each of the weight's rows.
            Some(bias) => s.add(value, unsafe { load(s, bias.add(row), count) }),
            None => value,
        }
    }
}
