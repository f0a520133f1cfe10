//! Many rows: register tiles over panels of the transposed weight.

#![expect(unsafe_code, reason = "tiles on the stack, rows by pointer")]
#![expect(clippy::inline_always, reason = "generic SIMD code must be inlined into the function compiled for its level")]
#![expect(clippy::cast_possible_wrap, reason = "extents and offsets fit isize: checked with the tensor")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "an access and the pointer arithmetic to it share a note")]

use core::marker::PhantomData;
use core::ops::Range;

use super::Linear;
use super::buffer::Buffer;
use super::panel::{COLUMNS, DEPTH, Panel};
use super::product::Product;
use super::words::{Ahead, Paired, Single, TILE_ROWS, Tile, Words};
use crate::call::Job;
use crate::simd::{Simd, load};

/// Most rows of one item, a multiple of [`TILE_ROWS`]: enough to make up for the transposing of a panel.
const MAX_ROWS: usize = 258;
/// As many items as even out the threads, while an item has at least [`MIN_ROWS`].
const MIN_ITEMS: usize = 32;
const MIN_ROWS: usize = 96;

/// Columns of the next panel that are asked for with each of the first tiles.
const AHEAD: usize = 16;

/// Item: some rows of as many columns as a panel has, columns first.
pub(super) struct Tiles<E, const GATED: bool> {
    linear: Linear<E, GATED>,
    /// Of an item.
    rows: usize,
    row_blocks: usize,
}

impl<E, const GATED: bool> Tiles<E, GATED> {
    /// Columns of an item; where they are gated, a panel holds both halves.
    const COLUMNS: usize = if GATED { COLUMNS / 2 } else { COLUMNS };

    pub(super) fn new(linear: Linear<E, GATED>) -> Self {
        let rows = linear.rows.len();
        let column_blocks = linear.columns.div_ceil(Self::COLUMNS);
        let wanted = MIN_ITEMS.div_ceil(column_blocks).min(rows / MIN_ROWS).max(rows.div_ceil(MAX_ROWS));
        let rows_of_item = rows.div_ceil(wanted.max(1)).next_multiple_of(TILE_ROWS).min(MAX_ROWS);
        Self { linear, rows: rows_of_item, row_blocks: rows.div_ceil(rows_of_item) }
    }

    /// The first row and the first column of an item.
    fn place(&self, item: usize) -> (usize, usize) {
        (item % self.row_blocks * self.rows, item / self.row_blocks * Self::COLUMNS)
    }

    /// What the panel of an item and a depth is made of: of its columns the part that is asked for with one tile.
    #[inline(always)]
    fn ahead(&self, (item, start): (usize, usize), depth: usize, tile: usize) -> Ahead {
        let linear = &self.linear;
        let at = tile * AHEAD;
        let (half, within) = (at / Self::COLUMNS, at % Self::COLUMNS);
        let column = self.place(item).1 + within;
        if column >= linear.columns || half > usize::from(GATED) {
            return Ahead { start: linear.weight.cast(), row: 0, stride: 0 };
        }
        let row = (half * linear.columns + column) as isize;
        Ahead {
            start: linear.weight.wrapping_offset(row * linear.weight_stride).wrapping_add(start).cast(),
            row: depth.min(linear.depth - start) * size_of::<E>(),
            stride: linear.weight_stride * size_of::<E>() as isize,
        }
    }

    pub(super) fn items(&self) -> usize {
        self.row_blocks * self.linear.columns.div_ceil(Self::COLUMNS)
    }
}

// SAFETY: blocks are independent, outputs lie apart (`expect_writable`), inputs are only read.
unsafe impl<E: Product, const GATED: bool> Job for Tiles<E, GATED> {
    #[inline(always)]
    fn run<S: Simd>(&self, s: S, items: Range<usize>) {
        if E::IS_BF16 && S::PAIRS {
            self.run_words::<S, Paired>(s, items);
        } else {
            self.run_words::<S, Single>(s, items);
        }
    }
}

impl<E: Product, const GATED: bool> Tiles<E, GATED> {
    #[inline(always)]
    fn run_words<S: Simd, W: Words>(&self, s: S, items: Range<usize>) {
        let linear = &self.linear;
        let (mut panel, mut left, mut sums) = (
            Buffer::<{ COLUMNS * DEPTH }>::new(),
            Buffer::<{ TILE_ROWS * DEPTH }>::new(),
            Buffer::<{ MAX_ROWS * COLUMNS }>::new(),
        );
        let (panel, left, sums) = (panel.pointer(), left.pointer(), sums.pointer());
        // Blocks of the same depth, as far as whole vectors allow.
        let blocks = linear.depth.div_ceil(DEPTH * W::ELEMENTS).max(1);
        let block = linear.depth.div_ceil(blocks).next_multiple_of(S::LANES * W::ELEMENTS);
        for item in items {
            let (first, column) = self.place(item);
            let mut offsets = [[0; 2]; MAX_ROWS];
            let offsets = &mut offsets[..self.rows.min(linear.rows.len() - first)];
            let mut cursor = linear.rows.cursor(first);
            for offset in &mut *offsets {
                *offset = cursor.offsets;
                cursor.advance();
            }
            let count = Self::COLUMNS.min(linear.columns - column);
            let half = count.next_multiple_of(S::LANES);
            let mut start = 0;
            loop {
                let depth = block.min(linear.depth - start);
                let next = if start + depth < linear.depth { (item, start + depth) } else { (item + 1, 0) };
                let halves = 1 + usize::from(GATED);
                for h in 0..halves {
                    let row = (h * linear.columns + column) as isize;
                    let weight = linear.weight.wrapping_offset(row * linear.weight_stride).wrapping_add(start);
                    // SAFETY: `half` columns of the panel from there on.
                    let to = unsafe { panel.add(h * half) };
                    s.call(Panel::<E, W> {
                        weight,
                        stride: linear.weight_stride,
                        count,
                        depth,
                        to,
                        words: PhantomData,
                    });
                }
                for (tile, offsets) in offsets.chunks(TILE_ROWS).enumerate() {
                    let mut rows = [left.cast_const(); TILE_ROWS];
                    for (r, (row, offset)) in rows.iter_mut().zip(offsets).enumerate() {
                        let from = linear.x.wrapping_offset(offset[1]).wrapping_add(start);
                        *row = if (E::IS_F32 || W::ELEMENTS == 2) && depth.is_multiple_of(W::ELEMENTS) {
                            from.cast()
                        } else {
                            // SAFETY: a row of the buffer, which has room for a whole number of vectors.
                            let to = unsafe { left.add(r * DEPTH) };
                            // SAFETY: `depth` elements of the row from `start` on, inside the checked tensor.
                            unsafe { unpack::<S, E, W>(s, from, depth, to) };
                            to
                        };
                    }
                    s.call(Tile::<W> {
                        ahead: self.ahead(next, block, tile),
                        rows: &rows[..offsets.len()],
                        steps: depth.div_ceil(W::ELEMENTS),
                        vectors: halves * half / S::LANES,
                        panel,
                        // SAFETY: rows of the item have their place in the buffer.
                        sums: unsafe { sums.add(tile * TILE_ROWS * COLUMNS) },
                        add: start > 0,
                        words: PhantomData,
                    });
                }
                start += depth;
                if start == linear.depth {
                    break;
                }
            }
            for (row, offset) in offsets.iter().enumerate() {
                // SAFETY: the row's offset lies inside the checked tensor, and so does `column`.
                let to = unsafe { linear.out.offset(offset[0]).add(column) };
                // SAFETY: a row of the sums.
                let sums = unsafe { sums.add(row * COLUMNS) };
                // SAFETY: `half` elements were written there, and where gated as many behind them.
                unsafe { linear.finish(s, sums, sums.wrapping_add(half), column, count, to) };
            }
        }
    }
}

/// Writes a part of a row as words of the panel, zero-padded to whole vectors.
///
/// # Safety
/// `count` elements are readable at `from`, and their words, rounded up to whole vectors, writable at `to`.
#[inline(always)]
unsafe fn unpack<S: Simd, E: Product, W: Words>(s: S, from: *const E, count: usize, to: *mut f32) {
    let width = S::LANES * W::ELEMENTS;
    let mut i = 0;
    while i < count {
        // SAFETY: elements inside the row.
        let value = unsafe { words::<S, E, W>(s, from.add(i), width.min(count - i)) };
        // SAFETY: inside whole vectors.
        unsafe { s.store_f32(to.add(i / W::ELEMENTS), value) };
        i += width;
    }
}

/// A vector of words, of which the first `count` elements are read and the others zero.
///
/// # Safety
/// `count` elements are readable at `from`, at most a vector's.
#[inline(always)]
pub(super) unsafe fn words<S: Simd, E: Product, W: Words>(s: S, from: *const E, count: usize) -> S::V {
    if W::ELEMENTS == 1 {
        // SAFETY: the caller's contract.
        unsafe { load(s, from, count) }
    } else if count == E::width::<S>() {
        // SAFETY: the caller's contract; words of two elements are those of `Product`.
        unsafe { E::read(s, from) }
    } else {
        // SAFETY: likewise.
        unsafe { E::read_part(s, from, count) }
    }
}
