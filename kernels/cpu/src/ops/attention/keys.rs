//! Reads the keys and values of a tile.

#![expect(unsafe_code, reason = "rows by pointer")]
#![expect(clippy::inline_always, reason = "generic SIMD code must be inlined into the function compiled for its level")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "an access and the pointer arithmetic to it share a note")]
#![expect(clippy::cast_possible_wrap, reason = "extents and offsets fit isize: checked with the tensor")]

use core::ops::Range;

use super::View;
use super::block::{Attention, Held, KEYS};
use super::tiles::{Rows, unpack, unpack_pairs, zero};
use crate::simd::{Element, Simd};

impl<E: Element> Attention<E> {
    /// `count` keys of the block's sequence and head from `start` on, transposed: rows of `KEYS` elements, zero behind
    /// `count` up to whole vectors.
    ///
    /// # Safety
    /// The keys are the sequence's; `stage` has room for `LANES` rows of `depth`, `to` for `depth` rows of `KEYS`.
    #[inline(always)]
    pub(super) unsafe fn transposed<S: Simd>(
        &self,
        s: S,
        held: &Held<'_>,
        start: usize,
        count: usize,
        stage: *mut f32,
        to: *mut f32,
    ) -> Rows {
        let depth = held.depth;
        let mut column = 0;
        while column < count {
            let lanes = S::LANES.min(count - column);
            // SAFETY: keys of the sequence, and room by this function's contract.
            unsafe { self.rows_of(s, self.k, held, start + column, lanes, stage, false) };
            // SAFETY: room by this function's contract.
            unsafe { zero(s, stage.add(lanes * depth), (S::LANES - lanes) * depth) };
            let mut d = 0;
            while d < depth {
                // SAFETY: a block of the stage, and LANES rows of `to`.
                unsafe { s.transpose(stage.add(d), depth, to.add(d * KEYS + column), KEYS) };
                d += S::LANES;
            }
            column += S::LANES;
        }
        Rows { data: to, stride: KEYS as isize, raw: false }
    }

    /// `count` keys or values of the block's sequence and head from `start` on as f32, zero-padded to whole vectors:
    /// copied to `to`, or as they lie where they need no change and `in_place` allows it.
    ///
    /// # Safety
    /// The keys are the sequence's, and `to` has room for them.
    #[inline(always)]
    #[expect(clippy::too_many_arguments, reason = "inlined; a structure for one call would only rename them")]
    pub(super) unsafe fn rows_of<S: Simd>(
        &self,
        s: S,
        from: View<E>,
        held: &Held<'_>,
        start: usize,
        count: usize,
        to: *mut f32,
        in_place: bool,
    ) -> Rows {
        let depth = held.depth;
        // SAFETY: a key of the sequence, so inside the shape.
        let row = |key: usize| unsafe {
            let [outer, inner] = self.sequences.key(&held.sequence, key);
            from.row([outer, inner, held.kv_head])
        };
        if in_place && E::IS_F32 && depth == self.head_dim && self.sequences.even(start, count) {
            return Rows { data: row(start).cast(), stride: from.strides[1], raw: false };
        }
        for index in 0..count {
            // SAFETY: room by this function's contract.
            unsafe { unpack(s, row(start + index), self.head_dim, to.add(index * depth), s.splat(1.0)) };
        }
        Rows { data: to, stride: depth as isize, raw: false }
    }

    /// `count` keys or values from `start` on, for a block of few rows in pairs of vectors: as they lie where they stand
    /// at one stride, else as f32 in `to`, in the order of pairs.
    ///
    /// # Safety
    /// The keys are the sequence's, `to` has room for them, and the head is a whole number of pairs of vectors.
    #[inline(always)]
    pub(super) unsafe fn pairs_of<S: Simd>(
        &self,
        s: S,
        from: View<E>,
        held: &Held<'_>,
        keys: Range<usize>,
        to: *mut f32,
    ) -> Rows {
        // SAFETY: a key of the sequence, so inside the shape.
        let row = |key: usize| unsafe {
            let [outer, inner] = self.sequences.key(&held.sequence, key);
            from.row([outer, inner, held.kv_head])
        };
        if self.sequences.even(keys.start, keys.len()) {
            return Rows { data: row(keys.start).cast_const().cast(), stride: from.strides[1], raw: true };
        }
        for (index, key) in keys.enumerate() {
            // SAFETY: room by this function's contract.
            unsafe { unpack_pairs(s, row(key), self.head_dim, to.add(index * held.depth), s.splat(1.0)) };
        }
        Rows { data: to, stride: held.depth as isize, raw: false }
    }
}
