//! Few rows: dot products with the rows of the weight.

#![expect(unsafe_code, reason = "reads and writes rows by pointer")]
#![expect(clippy::inline_always, reason = "generic SIMD code must be inlined into the function compiled for its level")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "an access and the pointer arithmetic to it share a note")]
#![expect(clippy::cast_possible_wrap, reason = "extents and offsets fit isize: checked with the tensor")]

use core::ops::Range;

use super::Linear;
use super::buffer::Buffer;
use super::product::Product;
use crate::call::Job;
use crate::simd::{Kernel, Simd};

/// Most rows that are done this way.
pub(super) const MAX_ROWS: usize = 8;
/// Columns of one item: a whole number of vectors of any level.
const COLUMNS: usize = 16;
/// Most columns whose sums are held: a whole number of items.
const BLOCK: usize = 256;
/// Rows of the weight that are read together for one row, and for several: as many sums as hide an addition's latency.
const ALONE: usize = 8;
const TOGETHER: usize = 4;

/// Item: [`COLUMNS`] columns of all rows, which are at most [`MAX_ROWS`].
pub(super) struct Few<E, const GATED: bool> {
    pub(super) linear: Linear<E, GATED>,
}

impl<E, const GATED: bool> Few<E, GATED> {
    pub(super) fn items(&self) -> usize {
        self.linear.columns.div_ceil(COLUMNS)
    }
}

// SAFETY: columns are independent, outputs lie apart (`expect_writable`), inputs are only read.
unsafe impl<E: Product, const GATED: bool> Job for Few<E, GATED> {
    #[inline(always)]
    fn run<S: Simd>(&self, s: S, items: Range<usize>) {
        let linear = &self.linear;
        let rows = linear.rows.len();
        let (mut inputs, mut outputs) = ([linear.x; MAX_ROWS], [linear.out; MAX_ROWS]);
        let mut cursor = linear.rows.cursor(0);
        for (input, output) in inputs[..rows].iter_mut().zip(&mut outputs) {
            *output = linear.out.wrapping_offset(cursor.offsets[0]);
            *input = linear.x.wrapping_offset(cursor.offsets[1]);
            cursor.advance();
        }
        let (inputs, outputs) = (&inputs[..rows], &outputs[..rows]);
        // Of the columns, and of those that they gate.
        let mut sums = [Buffer::<{ MAX_ROWS * BLOCK }>::new(), Buffer::new()];
        let sums = sums.each_mut().map(Buffer::pointer);
        let end = linear.columns.min(items.end * COLUMNS);
        let mut column = items.start * COLUMNS;
        while column < end {
            let count = BLOCK.min(end - column);
            for (half, &sums) in sums.iter().enumerate().take(1 + usize::from(GATED)) {
                let first = (half * linear.columns + column) as isize;
                s.call(Block {
                    inputs,
                    weight: linear.weight.wrapping_offset(first * linear.weight_stride),
                    weight_stride: linear.weight_stride,
                    depth: linear.depth,
                    count,
                    sums,
                });
            }
            for (row, output) in outputs.iter().enumerate() {
                let [gate, up] = sums.map(|sums| sums.wrapping_add(row * BLOCK).cast_const());
                // SAFETY: sums of so many columns, in whole vectors of memory; columns of a row of the outputs.
                unsafe { linear.finish(s, gate, up, column, count, output.add(column)) };
            }
            column += count;
        }
    }
}

/// The sums of all rows of the inputs with `count` rows of the weight: a function of its own, whatever becomes of them.
///
/// Whoever makes one promises: the inputs and the rows of the weight have `depth` readable elements; `count` is at most
/// [`BLOCK`]; `sums` is writable for [`BLOCK`] columns of each row.
struct Block<'a, E> {
    inputs: &'a [*const E],
    weight: *const E,
    weight_stride: isize,
    depth: usize,
    count: usize,
    sums: *mut f32,
}

impl<E: Product> Kernel for Block<'_, E> {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // SAFETY: the maker's promise.
        unsafe {
            if self.inputs.len() == 1 {
                self.streams::<S, ALONE>(s);
            } else {
                self.streams::<S, TOGETHER>(s);
            }
        }
        for row in 0..self.inputs.len() {
            // The rest of the last vector, which is read with it.
            for column in self.count..self.count.next_multiple_of(S::LANES) {
                // SAFETY: a whole number of vectors fits a block.
                unsafe { self.sums.add(row * BLOCK + column).write(0.0) };
            }
        }
    }
}

impl<E: Product> Block<'_, E> {
    /// Reads the weight in `C` streams, each of which goes through rows that follow each other: short rows that are
    /// read side by side end before the processor has seen that they are read in order.
    ///
    /// # Safety
    /// The maker's promise.
    #[inline(always)]
    unsafe fn streams<S: Simd, const C: usize>(&self, s: S) {
        let length = self.count.div_ceil(C);
        for step in 0..length {
            // Loops, not `map`: what is not inlined is compiled without the level's instructions.
            let (mut weights, mut columns) = ([self.weight; C], [step; C]);
            for (stream, (weight, column)) in weights.iter_mut().zip(&mut columns).enumerate() {
                // A stream that has ended takes the first one's row again, and gives the same sum.
                let next = stream * length + step;
                *column = if next < self.count { next } else { step };
                *weight = self.weight.wrapping_offset(*column as isize * self.weight_stride);
            }
            let mut row = 0;
            while row < self.inputs.len() {
                let taken = (self.inputs.len() - row).min(S::TILE);
                // SAFETY: rows of the sums.
                let sums = unsafe { self.sums.add(row * BLOCK) };
                // SAFETY: rows of `depth` elements, at most TILE of them, and one where alone; columns of the block.
                unsafe {
                    match self.inputs[row..row + taken] {
                        [a] => self.tile::<S, 1, C>(s, [a], weights, sums, columns),
                        [a, b] if C == TOGETHER => self.tile::<S, 2, C>(s, [a, b], weights, sums, columns),
                        [a, b, c] if C == TOGETHER => self.tile::<S, 3, C>(s, [a, b, c], weights, sums, columns),
                        [a, b, c, d] if C == TOGETHER => self.tile::<S, 4, C>(s, [a, b, c, d], weights, sums, columns),
                        _ => {}
                    }
                }
                row += taken;
            }
        }
    }

    /// The sums of `R` rows of the inputs and `C` of the weight, at `columns` of the rows of `sums`.
    ///
    /// # Safety
    /// All are rows of `depth` readable elements; the columns are inside a block.
    #[inline(always)]
    unsafe fn tile<S: Simd, const R: usize, const C: usize>(
        &self,
        s: S,
        inputs: [*const E; R],
        weights: [*const E; C],
        sums: *mut f32,
        columns: [usize; C],
    ) {
        // SAFETY: the caller's contract.
        let dots = unsafe { self.dots(s, inputs, weights) };
        for (row, dots) in dots.iter().enumerate() {
            for (&dot, column) in dots.iter().zip(columns) {
                // SAFETY: inside the block.
                unsafe { sums.add(row * BLOCK + column).write(dot) };
            }
        }
    }

    /// The products of `R` rows of the inputs and `C` of the weight, `C` a multiple of 4.
    ///
    /// # Safety
    /// All are rows of `depth` readable elements.
    #[inline(always)]
    unsafe fn dots<S: Simd, const R: usize, const C: usize>(
        &self,
        s: S,
        inputs: [*const E; R],
        weights: [*const E; C],
    ) -> [[f32; C]; R] {
        let depth = self.depth;
        let mut sums = [[s.splat(0.0); C]; R];
        let mut d = 0;
        while depth - d >= E::width::<S>() {
            let mut right = [s.splat(0.0); C];
            for (value, weight) in right.iter_mut().zip(weights) {
                // SAFETY: a whole vector stands at `d`.
                *value = unsafe { E::read(s, weight.add(d)) };
            }
            for (sums, input) in sums.iter_mut().zip(inputs) {
                // SAFETY: likewise.
                let left = unsafe { E::read(s, input.add(d)) };
                for (sum, right) in sums.iter_mut().zip(right) {
                    *sum = E::multiply(s, left, right, *sum);
                }
            }
            d += E::width::<S>();
        }
        let rest = depth - d;
        if rest > 0 {
            for (sums, input) in sums.iter_mut().zip(inputs) {
                // SAFETY: `rest` elements stand at `d`.
                let left = unsafe { E::read_part(s, input.add(d), rest) };
                for (sum, weight) in sums.iter_mut().zip(weights) {
                    // SAFETY: likewise.
                    let right = unsafe { E::read_part(s, weight.add(d), rest) };
                    *sum = E::multiply(s, left, right, *sum);
                }
            }
        }
        let mut dots = [[0.0; C]; R];
        for (dots, sums) in dots.iter_mut().zip(sums) {
            let mut j = 0;
            while j < C {
                dots[j..j + 4].copy_from_slice(&s.sum4([sums[j], sums[j + 1], sums[j + 2], sums[j + 3]]));
                j += 4;
            }
        }
        dots
    }
}
