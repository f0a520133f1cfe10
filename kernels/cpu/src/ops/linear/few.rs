//! Few rows: dot products with the rows of the weight.

#![expect(unsafe_code, reason = "reads and writes rows by pointer")]
#![expect(clippy::inline_always, reason = "generic SIMD code must be inlined into the function compiled for its level")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "an access and the pointer arithmetic to it share a note")]
#![expect(clippy::cast_possible_wrap, reason = "extents and offsets fit isize: checked with the tensor")]

use core::ops::Range;

use super::Linear;
use crate::call::Job;
use crate::simd::{Element, Simd};

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
        let weights: [*const E; COLUMNS] = core::array::from_fn(|j| {
            let row = if j < count { column + j } else { column };
            linear.weight.wrapping_offset(row as isize * linear.weight_stride)
        });
        let rows: [*const E; R] = core::array::from_fn(|r| linear.x.wrapping_offset(offsets[r][1]));
        let mut sums = [[s.splat(0.0); COLUMNS]; R];
        let whole = depth - depth % S::LANES;
        let mut d = 0;
        while d < whole {
            // SAFETY: `d + LANES <= depth`.
            let right = weights.map(|weight| unsafe { E::load(s, weight.add(d)) });
            for (sums, row) in sums.iter_mut().zip(rows) {
                // SAFETY: likewise.
                let left = unsafe { E::load(s, row.add(d)) };
                for (sum, right) in sums.iter_mut().zip(right) {
                    *sum = s.fma(left, right, *sum);
                }
            }
            d += S::LANES;
        }
        let rest = depth - whole;
        if rest > 0 {
            // SAFETY: `rest` elements stand at `whole`.
            let right = weights.map(|weight| unsafe { E::load_part(s, weight.add(whole), rest) });
            for (sums, row) in sums.iter_mut().zip(rows) {
                // SAFETY: likewise.
                let left = unsafe { E::load_part(s, row.add(whole), rest) };
                for (sum, right) in sums.iter_mut().zip(right) {
                    *sum = s.fma(left, right, *sum);
                }
            }
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
