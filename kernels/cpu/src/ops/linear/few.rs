//! Few rows: dot products with the rows of the weight.

#![expect(unsafe_code, reason = "reads and writes rows by pointer")]
#![expect(clippy::inline_always, reason = "generic SIMD code must be inlined into the function compiled for its level")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "an access and the pointer arithmetic to it share a note")]
#![expect(clippy::cast_possible_wrap, reason = "extents and offsets fit isize: checked with the tensor")]

use core::ops::Range;

use super::Linear;
use crate::call::Job;
use crate::simd::{Element, Simd, load};

/// Most rows that are done this way.
pub(super) const MAX_ROWS: usize = 8;
/// Columns of one item: the weight's rows that are read together.
const COLUMNS: usize = 4;

/// Item: [`COLUMNS`] columns of all rows, which are at most [`MAX_ROWS`].
pub(super) struct Few<E> {
    pub(super) linear: Linear<E>,
}

impl<E> Few<E> {
    pub(super) fn items(&self) -> usize {
        self.linear.columns.div_ceil(COLUMNS)
    }
}

// SAFETY: columns are independent, outputs lie apart (`expect_writable`), inputs are only read.
unsafe impl<E: Element> Job for Few<E> {
    #[inline(always)]
    fn run<S: Simd>(&self, s: S, items: Range<usize>) {
        let linear = &self.linear;
        let rows = linear.rows.len();
        let mut offsets = [[0; 2]; MAX_ROWS];
        let mut cursor = linear.rows.cursor(0);
        for offset in &mut offsets[..rows] {
            *offset = cursor.offsets;
            cursor.advance();
        }
        for item in items {
            let column = item * COLUMNS;
            let mut row = 0;
            while row < rows {
                let count = (rows - row).min(S::TILE);
                let offsets = &offsets[row..row + count];
                // SAFETY: rows and a first column of the output, at most TILE rows.
                unsafe {
                    match count {
                        4 => self.dots::<S, 4>(s, offsets, column),
                        3 => self.dots::<S, 3>(s, offsets, column),
                        2 => self.dots::<S, 2>(s, offsets, column),
                        _ => self.dots::<S, 1>(s, offsets, column),
                    }
                }
                row += count;
            }
        }
    }
}

impl<E: Element> Few<E> {
    /// Writes `R` rows of up to [`COLUMNS`] columns, from `column` on.
    ///
    /// # Safety
    /// `offsets` are those of `R` rows, `column` is inside.
    #[inline(always)]
    unsafe fn dots<S: Simd, const R: usize>(&self, s: S, offsets: &[[isize; 2]], column: usize) {
        let linear = &self.linear;
        let depth = linear.depth;
        // Beyond the last column the first of them is taken again, and its result dropped.
        let count = (linear.columns - column).min(COLUMNS);
        // Loops, not `map`: what is not inlined is compiled without the level's instructions.
        let mut weights = [linear.weight; COLUMNS];
        for (j, weight) in weights.iter_mut().enumerate() {
            let row = if j < count { column + j } else { column };
            *weight = linear.weight.wrapping_offset(row as isize * linear.weight_stride);
        }
        let mut rows = [linear.x; R];
        for (row, offset) in rows.iter_mut().zip(offsets) {
            *row = linear.x.wrapping_offset(offset[1]);
        }
        let mut sums = [[s.splat(0.0); COLUMNS]; R];
        let mut d = 0;
        while d < depth {
            let part = S::LANES.min(depth - d);
            let mut right = [s.splat(0.0); COLUMNS];
            for (value, weight) in right.iter_mut().zip(weights) {
                // SAFETY: `part` elements stand at `d`.
                *value = unsafe { load(s, weight.add(d), part) };
            }
            for (sums, row) in sums.iter_mut().zip(rows) {
                // SAFETY: likewise.
                let left = unsafe { load(s, row.add(d), part) };
                for (sum, right) in sums.iter_mut().zip(right) {
                    *sum = s.fma(left, right, *sum);
                }
            }
            d += S::LANES;
        }
        for (sums, offset) in sums.into_iter().zip(offsets) {
            for (j, &dot) in s.sum4(sums).iter().enumerate().take(count) {
                let bias = match linear.bias {
                    // SAFETY: `column + j` is inside.
                    Some(bias) => unsafe { bias.add(column + j).read() }.to_f32(),
                    None => 0.0,
                };
                // SAFETY: an element of the row.
                unsafe { linear.out.offset(offset[0]).add(column + j).write(E::from_f32(dot + bias)) };
            }
        }
    }
}
