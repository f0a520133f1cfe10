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
/// Words of the inputs that are held at hand, 16 KiB of the first cache: as their products take them, and a line further
/// apart than they lie, since rows at a power of two would all want the same place of the cache.
const STAGED: usize = 4096;
const PAD: usize = 16;
/// Rows of the weight that are read together, for one row, for up to [`Simd::TILE`] and for more: as many sums as hide an
/// addition's latency, and no more than the registers hold. For one row, those of whole lines of cache and those of less:
/// the processor follows four streams better than eight, but half a line each of four keeps it less busy than they can.
const LINES: usize = 4;
const PARTS: usize = 8;
const TOGETHER: usize = 4;
const MANY: usize = 3;
/// Bytes of a line.
const LINE: usize = 64;
/// The column of a stream that has ended.
const ENDED: usize = usize::MAX;
/// Bytes that a stream is asked for ahead, with one row and with more: there the products between loads fill the
/// processor's queues, so that it has fewer in flight by itself.
const AHEAD_ALONE: usize = 256;
const AHEAD: usize = 2048;

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
        let mut staged = Buffer::<{ STAGED + MAX_ROWS * PAD }>::new();
        let staged = staged.pointer();
        // Parts of the same depth, as far as whole vectors allow.
        let width = E::width::<S>();
        let most = STAGED / rows / S::LANES * width;
        let parts = linear.depth.div_ceil(most).max(1);
        let part = linear.depth.div_ceil(parts).next_multiple_of(width);
        let stride = part / width * S::LANES + PAD;
        let end = linear.columns.min(items.end * COLUMNS);
        let mut column = items.start * COLUMNS;
        let mut is_staged = false;
        while column < end {
            let count = BLOCK.min(end - column);
            let mut start = 0;
            loop {
                let depth = part.min(linear.depth - start);
                if !is_staged {
                    for (row, input) in inputs.iter().enumerate() {
                        // SAFETY: `depth` elements of the row from `start` on; whole vectors of a row of the buffer.
                        unsafe { stage(s, input.add(start), depth, staged.add(row * stride)) };
                    }
                    is_staged = parts == 1;
                }
                for (half, &sums) in sums.iter().enumerate().take(1 + usize::from(GATED)) {
                    let first = (half * linear.columns + column) as isize;
                    s.call(Block {
                        inputs: staged,
                        stride,
                        rows,
                        weight: linear.weight.wrapping_offset(first * linear.weight_stride).wrapping_add(start),
                        weight_stride: linear.weight_stride,
                        depth,
                        count,
                        sums,
                        add: start > 0,
                    });
                }
                start += depth;
                if start == linear.depth {
                    break;
                }
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

/// Writes a part of a row as its products take it, zero-padded to whole vectors.
///
/// # Safety
/// `count` elements are readable at `from`; their vectors are writable at `to`.
#[inline(always)]
unsafe fn stage<S: Simd, E: Product>(s: S, from: *const E, count: usize, to: *mut f32) {
    let mut vector = 0;
    let mut i = 0;
    while i < count {
        let part = E::width::<S>().min(count - i);
        // SAFETY: `part` elements stand at `i`.
        let value = unsafe {
            if part == E::width::<S>() { E::read(s, from.add(i)) } else { E::read_part(s, from.add(i), part) }
        };
        // SAFETY: inside the vectors.
        unsafe { s.store_f32(to.add(vector), value) };
        vector += S::LANES;
        i += part;
    }
}

/// The sums of all rows of the inputs with `count` rows of the weight: a function of its own, whatever becomes of them.
///
/// Whoever makes one promises: the rows of the weight have `depth` readable elements, those of the inputs the vectors of
/// so many, `stride` apart; there are at most [`MAX_ROWS`]; `count` is at most [`BLOCK`]; `sums` is writable for
/// [`BLOCK`] columns of each row, and initialised where `add`.
struct Block<E> {
    inputs: *const f32,
    stride: usize,
    rows: usize,
    weight: *const E,
    weight_stride: isize,
    depth: usize,
    count: usize,
    sums: *mut f32,
    add: bool,
}

impl<E: Product> Kernel for Block<E> {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // SAFETY: the maker's promise.
        unsafe {
            if self.rows == 1 && E::width::<S>() * size_of::<E>() >= LINE {
                self.streams::<S, LINES>(s);
            } else if self.rows == 1 {
                self.streams::<S, PARTS>(s);
            } else if self.rows <= 4 || S::TILE < 4 {
                self.streams::<S, TOGETHER>(s);
            } else {
                self.streams::<S, MANY>(s);
            }
        }
        for row in 0..self.rows {
            // The rest of the last vector, which is read with it.
            for column in self.count..self.count.next_multiple_of(S::LANES) {
                // SAFETY: a whole number of vectors fits a block.
                unsafe { self.sums.add(row * BLOCK + column).write(0.0) };
            }
        }
    }
}

impl<E: Product> Block<E> {
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
                let next = stream * length + step;
                // A stream that has ended takes the first one's row again, and its sums are dropped.
                let row = if next < self.count { next } else { step };
                *column = if next < self.count { next } else { ENDED };
                *weight = self.weight.wrapping_offset(row as isize * self.weight_stride);
            }
            let tiles = if C == MANY { MAX_ROWS } else { S::TILE };
            let mut row = 0;
            while row < self.rows {
                let taken = (self.rows - row).min(tiles);
                // SAFETY: rows of the inputs, no more than a tile has where there are so many; columns of the block.
                unsafe {
                    match taken {
                        1 => self.tile::<S, 1, C>(s, row, weights, columns),
                        2 if C == TOGETHER => self.tile::<S, 2, C>(s, row, weights, columns),
                        3 if C == TOGETHER => self.tile::<S, 3, C>(s, row, weights, columns),
                        4 if C == TOGETHER => self.tile::<S, 4, C>(s, row, weights, columns),
                        5 if C == MANY => self.tile::<S, 5, C>(s, row, weights, columns),
                        6 if C == MANY => self.tile::<S, 6, C>(s, row, weights, columns),
                        7 if C == MANY => self.tile::<S, 7, C>(s, row, weights, columns),
                        8 if C == MANY => self.tile::<S, 8, C>(s, row, weights, columns),
                        _ => {}
                    }
                }
                row += taken;
            }
        }
    }

    /// The sums of `R` rows of the inputs, from `row` on, and `C` of the weight.
    ///
    /// # Safety
    /// The rows are inside; all weights are rows of `depth` readable elements; the columns are inside a block, or ended.
    #[inline(always)]
    unsafe fn tile<S: Simd, const R: usize, const C: usize>(
        &self,
        s: S,
        row: usize,
        weights: [*const E; C],
        columns: [usize; C],
    ) {
        // SAFETY: the caller's contract.
        let dots = unsafe { self.dots::<S, R, C>(s, self.inputs.add(row * self.stride), weights) };
        for (r, dots) in dots.iter().enumerate() {
            for (&dot, column) in dots.iter().zip(columns) {
                if column == ENDED {
                    continue;
                }
                // SAFETY: inside the block.
                let sum = unsafe { self.sums.add((row + r) * BLOCK + column) };
                // SAFETY: likewise; initialised where `add`.
                unsafe { sum.write(if self.add { sum.read() + dot } else { dot }) };
            }
        }
    }

    /// The products of `R` rows of the inputs and `C` of the weight.
    ///
    /// # Safety
    /// As [`Self::tile`].
    #[inline(always)]
    unsafe fn dots<S: Simd, const R: usize, const C: usize>(
        &self,
        s: S,
        inputs: *const f32,
        weights: [*const E; C],
    ) -> [[f32; C]; R] {
        let depth = self.depth;
        let mut sums = [[s.splat(0.0); C]; R];
        let (mut d, mut vector) = (0, inputs);
        while depth - d >= E::width::<S>() {
            let mut right = [s.splat(0.0); C];
            for (value, weight) in right.iter_mut().zip(weights) {
                // SAFETY: a whole vector stands at `d`.
                *value = unsafe { E::read(s, weight.add(d)) };
                let ahead = if R > 1 { AHEAD } else { AHEAD_ALONE };
                s.prefetch(weight.wrapping_add(d).wrapping_byte_add(ahead).cast());
            }
            for (r, sums) in sums.iter_mut().enumerate() {
                // SAFETY: a vector of the row.
                let left = unsafe { s.load_f32(vector.add(r * self.stride)) };
                for (sum, right) in sums.iter_mut().zip(right) {
                    *sum = E::multiply(s, left, right, *sum);
                }
            }
            vector = vector.wrapping_add(S::LANES);
            d += E::width::<S>();
        }
        let rest = depth - d;
        if rest > 0 {
            let mut right = [s.splat(0.0); C];
            for (value, weight) in right.iter_mut().zip(weights) {
                // SAFETY: `rest` elements stand at `d`.
                *value = unsafe { E::read_part(s, weight.add(d), rest) };
            }
            for (r, sums) in sums.iter_mut().enumerate() {
                // SAFETY: the row's last vector, zero beyond the depth.
                let left = unsafe { s.load_f32(vector.add(r * self.stride)) };
                for (sum, right) in sums.iter_mut().zip(right) {
                    *sum = E::multiply(s, left, right, *sum);
                }
            }
        }
        // Four lanes' sums cost little more than one's, whichever rows they belong to.
        let mut dots = [[0.0; C]; R];
        let mut first = 0;
        while first < R * C {
            let mut four = [s.splat(0.0); 4];
            for (at, sum) in four.iter_mut().enumerate().take(R * C - first) {
                *sum = sums[(first + at) / C][(first + at) % C];
            }
            for (at, &dot) in s.sum4(four).iter().enumerate().take(R * C - first) {
                dots[(first + at) / C][(first + at) % C] = dot;
            }
            first += 4;
        }
        dots
    }
}
