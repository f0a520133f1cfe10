//! Many rows: register tiles over panels of the transposed weight.

#![expect(unsafe_code, reason = "tiles on the stack, rows by pointer")]
#![expect(clippy::inline_always, reason = "generic SIMD code must be inlined into the function compiled for its level")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "an access and the pointer arithmetic to it share a note")]
#![expect(clippy::cast_possible_wrap, reason = "extents and offsets fit isize: checked with the tensor")]

use core::mem::MaybeUninit;
use core::ops::Range;

use super::Linear;
use crate::call::Job;
use crate::ops::multiply::{Multiply, TILE_ROWS};
use crate::simd::{Element, Kernel, Simd, load, store};

/// Columns of a panel: the output columns of one item.
const COLUMNS: usize = 64;
/// Depth of a panel. With [`COLUMNS`] it takes 64 KiB, which the second cache keeps while all rows pass.
const DEPTH: usize = 256;
/// Rows of one item, a multiple of [`TILE_ROWS`]: enough to make up for the transposing of a panel.
const ROWS: usize = 144;
/// Longest vector of any level, in lanes.
const MAX_LANES: usize = 16;

/// Cache-line aligned, so that vectors of a row never straddle lines.
#[repr(align(64))]
struct Buffer<const N: usize>(MaybeUninit<[f32; N]>);

impl<const N: usize> Buffer<N> {
    fn new() -> Self {
        Self(MaybeUninit::uninit())
    }
    fn pointer(&mut self) -> *mut f32 {
        self.0.as_mut_ptr().cast()
    }
}

/// Item: [`ROWS`] rows of [`COLUMNS`] columns, columns first.
pub(super) struct Tiles<E> {
    pub(super) linear: Linear<E>,
}

impl<E> Tiles<E> {
    fn row_blocks(&self) -> usize {
        self.linear.rows.len().div_ceil(ROWS)
    }

    pub(super) fn items(&self) -> usize {
        self.row_blocks() * self.linear.columns.div_ceil(COLUMNS)
    }
}

// SAFETY: blocks are independent, outputs lie apart (`expect_writable`), inputs are only read.
unsafe impl<E: Element> Job for Tiles<E> {
    #[inline(always)]
    fn run<S: Simd>(&self, s: S, items: Range<usize>) {
        let linear = &self.linear;
        let (rows, blocks) = (linear.rows.len(), self.row_blocks());
        let (mut panel, mut left, mut sums) =
            (Buffer::<{ COLUMNS * DEPTH }>::new(), Buffer::<{ TILE_ROWS * DEPTH }>::new(), Buffer::new());
        let (panel, left, sums) = (panel.pointer(), left.pointer(), Buffer::<{ ROWS * COLUMNS }>::pointer(&mut sums));
        for item in items {
            let (first, column) = (item % blocks * ROWS, item / blocks * COLUMNS);
            let mut offsets = [[0; 2]; ROWS];
            let offsets = &mut offsets[..ROWS.min(rows - first)];
            let mut cursor = linear.rows.cursor(first);
            for offset in &mut *offsets {
                *offset = cursor.offsets;
                cursor.advance();
            }
            let count = COLUMNS.min(linear.columns - column);
            let vectors = count.div_ceil(S::LANES);
            let mut start = 0;
            loop {
                let depth = DEPTH.min(linear.depth - start);
                // SAFETY: columns and a part of the depth; the panel has room for a whole number of vectors of both.
                unsafe { self.transpose(s, column..column + count, start..start + depth, panel) };
                for (tile, offsets) in offsets.chunks(TILE_ROWS).enumerate() {
                    for (row, offset) in offsets.iter().enumerate() {
                        // SAFETY: the row's offset lies inside the checked tensor, as do `depth` elements of it.
                        let from = unsafe { linear.x.offset(offset[1]).add(start) };
                        // SAFETY: likewise; a row of the buffer, which has room for a whole number of vectors.
                        unsafe { unpack(s, from, depth, left.add(row * DEPTH)) };
                    }
                    let multiply = Multiply {
                        rows: offsets.len(),
                        depth,
                        vectors,
                        a: left,
                        a_stride: DEPTH,
                        b: panel,
                        b_stride: COLUMNS as isize,
                        // SAFETY: rows of the item have their place in the buffer.
                        c: unsafe { sums.add(tile * TILE_ROWS * COLUMNS) },
                        c_stride: COLUMNS,
                        add: start > 0,
                    };
                    multiply.run(s);
                }
                start += depth;
                if start == linear.depth {
                    break;
                }
            }
            for (row, offset) in offsets.iter().enumerate() {
                // SAFETY: the row's offset lies inside the checked tensor, and so does `column`.
                let to = unsafe { linear.out.offset(offset[0]).add(column) };
                // SAFETY: `count` elements were written there, rounded up to whole vectors.
                unsafe { self.finish(s, sums.add(row * COLUMNS), column, count, to) };
            }
        }
    }
}

impl<E: Element> Tiles<E> {
    /// Writes the rows `columns` of the weight, from `depth` on, as columns of the panel; columns that fill up the
    /// last vector are zero.
    ///
    /// # Safety
    /// Both are parts of the weight, and no longer than a panel.
    #[inline(always)]
    unsafe fn transpose<S: Simd>(&self, s: S, columns: Range<usize>, depth: Range<usize>, panel: *mut f32) {
        let (linear, lanes) = (&self.linear, S::LANES);
        let mut block = Buffer::<{ MAX_LANES * MAX_LANES }>::new();
        let block = block.pointer();
        let mut column = 0;
        while column < columns.len() {
            let mut d = 0;
            while d < depth.len() {
                let count = lanes.min(depth.len() - d);
                for lane in 0..lanes {
                    let value = if column + lane < columns.len() {
                        let row = (columns.start + column + lane) as isize;
                        let from = linear.weight.wrapping_offset(row * linear.weight_stride);
                        let from = from.wrapping_add(depth.start + d);
                        // SAFETY: `count` elements of a row of the weight.
                        unsafe { load(s, from, count) }
                    } else {
                        s.splat(0.0)
                    };
                    // SAFETY: `LANES` rows of `LANES` elements fit the block.
                    unsafe { s.store_f32(block.add(lane * lanes), value) };
                }
                // SAFETY: the block was written; the panel has whole vectors of depth and columns.
                unsafe { s.transpose(block, lanes, panel.add(d * COLUMNS + column), COLUMNS) };
                d += lanes;
            }
            column += lanes;
        }
    }

    /// Adds the bias and rounds.
    ///
    /// # Safety
    /// `count` elements, rounded up to whole vectors, are readable at `sums`; `count` are writable at `to`, and stand
    /// in the bias from `column` on.
    #[inline(always)]
    unsafe fn finish<S: Simd>(&self, s: S, sums: *const f32, column: usize, count: usize, to: *mut E) {
        let mut i = 0;
        while i < count {
            let part = S::LANES.min(count - i);
            // SAFETY: inside whole vectors.
            let mut value = unsafe { s.load_f32(sums.add(i)) };
            if let Some(bias) = self.linear.bias {
                // SAFETY: `part` elements stand there.
                value = s.add(value, unsafe { load(s, bias.add(column + i), part) });
            }
            // SAFETY: `part` elements stand there.
            unsafe { store(s, to.add(i), value, part) };
            i += S::LANES;
        }
    }
}

/// Writes a part of a row as f32, zero-padded to whole vectors.
///
/// # Safety
/// `count` elements are readable at `from`, and `count` rounded up to whole vectors writable at `to`.
#[inline(always)]
unsafe fn unpack<S: Simd, E: Element>(s: S, from: *const E, count: usize, to: *mut f32) {
    let mut i = 0;
    while i < count {
        let part = S::LANES.min(count - i);
        // SAFETY: `part` elements stand at `i`.
        let value = unsafe { load(s, from.add(i), part) };
        // SAFETY: inside whole vectors.
        unsafe { s.store_f32(to.add(i), value) };
        i += S::LANES;
    }
}
