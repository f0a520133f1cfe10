//! Panels: a part of the weight, transposed on the stack.

#![expect(unsafe_code, reason = "transposes rows by pointer")]
#![expect(clippy::inline_always, reason = "generic SIMD code must be inlined into the function compiled for its level")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "an access and the pointer arithmetic to it share a note")]
#![expect(clippy::cast_possible_wrap, reason = "extents and offsets fit isize: checked with the tensor")]

use core::marker::PhantomData;

use super::buffer::Buffer;
use super::product::Product;
use super::tiles::words;
use super::words::Words;
use crate::simd::{Kernel, Simd};

/// Columns of a panel, in words.
pub(super) const COLUMNS: usize = 64;
/// Most of a panel's depth, in words: whole vectors of any level. With [`COLUMNS`] it takes 72 KiB, which the second
/// cache keeps while all rows pass.
pub(super) const DEPTH: usize = 288;
/// Longest vector of any level, in lanes.
const MAX_LANES: usize = 16;

/// Writes a part of the weight's rows as columns of a panel: a function of its own, whatever the panel is for. Columns
/// that fill up the last vector are zero.
///
/// Whoever makes one promises: `count` rows at `weight` have `depth` readable elements, `stride` elements apart, no more
/// than a panel holds; so many columns, rounded up to whole vectors, are writable at `to`.
pub(super) struct Panel<E, W> {
    pub(super) weight: *const E,
    pub(super) stride: isize,
    pub(super) count: usize,
    pub(super) depth: usize,
    pub(super) to: *mut f32,
    pub(super) words: PhantomData<W>,
}

impl<E: Product, W: Words> Kernel for Panel<E, W> {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let width = S::LANES * W::ELEMENTS;
        let stride = self.stride;
        // Words can be read where they lie if their rows stand a whole number of words apart.
        let as_words = (E::IS_F32 || W::ELEMENTS == 2) && stride > 0 && stride % W::ELEMENTS as isize == 0;
        let mut block = Buffer::<{ MAX_LANES * MAX_LANES }>::new();
        let block = block.pointer();
        let mut column = 0;
        while column < self.count {
            let rows = S::LANES.min(self.count - column);
            let weight = self.weight.wrapping_offset(column as isize * stride);
            let mut d = 0;
            while d < self.depth {
                let count = width.min(self.depth - d);
                // SAFETY: the panel has whole vectors of depth and columns.
                let to = unsafe { self.to.add(d / W::ELEMENTS * COLUMNS + column) };
                if as_words && rows == S::LANES && count == width {
                    let stride = stride.unsigned_abs() / W::ELEMENTS;
                    // SAFETY: `LANES` rows of `LANES` words are inside the weight and the panel.
                    unsafe { s.transpose(weight.add(d).cast(), stride, to, COLUMNS) };
                } else {
                    for lane in 0..S::LANES {
                        let value = if lane < rows {
                            let from = weight.wrapping_offset(lane as isize * stride);
                            // SAFETY: `count` elements of a row of the weight.
                            unsafe { words::<S, E, W>(s, from.add(d), count) }
                        } else {
                            s.splat(0.0)
                        };
                        // SAFETY: `LANES` rows of `LANES` words fit the block.
                        unsafe { s.store_f32(block.add(lane * S::LANES), value) };
                    }
                    // SAFETY: the block was written; the panel has whole vectors of depth and columns.
                    unsafe { s.transpose(block, S::LANES, to, COLUMNS) };
                }
                d += width;
            }
            column += S::LANES;
        }
    }
}
