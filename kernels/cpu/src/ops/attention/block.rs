//! One block of query rows over all keys that it sees.

#![expect(unsafe_code, reason = "tiles on the stack, rows by pointer")]
#![expect(clippy::inline_always, reason = "generic SIMD code must be inlined into the function compiled for its level")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "an access and the pointer arithmetic to it share a note")]
#![expect(clippy::cast_possible_wrap, reason = "extents and offsets fit isize: checked with the tensor")]
#![expect(clippy::cast_possible_truncation, reason = "the scale rounds to f32, in which products are taken")]

use core::ops::Range;
use core::ptr::NonNull;

use super::multiply::{Dots, Multiply, TILE_ROWS};
use super::softmax::Running;
use super::split::Slot;
use super::tiles::{Rows, Tile, all_finite, unpack, zero};
use super::{MAX_HEAD, View};
use crate::call::Job;
use crate::simd::{Element, Simd};

/// Most rows of a block.
pub(super) const MAX_ROWS: usize = 96;
/// Most elements of a block's queries; wide heads get fewer rows.
const MAX_ELEMENTS: usize = MAX_ROWS * 128;
/// Keys of a tile. A multiple of every vector.
pub(super) const KEYS: usize = 64;
/// Longest vector of any level.
const MAX_LANES: usize = 16;

/// The job: everything a block needs to know.
#[derive(Debug)]
pub(super) struct Attention<E> {
    out: View<E>,
    q: View<E>,
    k: View<E>,
    v: View<E>,
    pub(super) batch: usize,
    pub(super) q_len: usize,
    pub(super) head_dim: usize,
    pub(super) kv_len: usize,
    pub(super) kv_heads: usize,
    /// Query heads per key/value head.
    pub(super) group: usize,
    /// `softmax_scale / ln(2)`: the softmax works in powers of two.
    scale: f32,
    causal: bool,
    rows_per_block: usize,
    blocks: usize,
}

/// What a block holds while it walks over the keys.
pub(super) struct Held<'a> {
    /// Rows `query * group + head`.
    pub(super) rows: Range<usize>,
    /// The head size rounded up to whole vectors.
    pub(super) depth: usize,
    pub(super) queries: *mut f32,
    pub(super) output: *mut f32,
    pub(super) scores: *mut f32,
    pub(super) running: &'a mut [Running; MAX_ROWS],
}

/// One tile of keys and values.
#[derive(Clone, Copy)]
struct Step {
    start: usize,
    count: usize,
    keys: Rows,
    values: Rows,
    /// Keys are rows, not transposed.
    few: bool,
    /// Each row must stop at its last visible key.
    exact: bool,
}

impl<E: Element> Attention<E> {
    /// `tensors` are out, q, k, v of checked shapes; `shape` is that of `q`, without an empty axis.
    pub(super) fn new(
        tensors: [View<E>; 4],
        shape: &[usize],
        kv_len: usize,
        kv_heads: usize,
        scale: f64,
        causal: bool,
    ) -> Self {
        let [out, q, k, v] = tensors;
        let (q_len, group, head_dim) = (shape[1], shape[2] / kv_heads, shape[3]);
        let most = (MAX_ELEMENTS / head_dim.next_multiple_of(MAX_LANES)).min(MAX_ROWS) / TILE_ROWS * TILE_ROWS;
        let rows = q_len * group;
        Self {
            out,
            q,
            k,
            v,
            batch: shape[0],
            q_len,
            head_dim,
            kv_len,
            kv_heads,
            group,
            scale: (scale * core::f64::consts::LOG2_E) as f32,
            causal,
            rows_per_block: most.min(rows),
            blocks: rows.div_ceil(most),
        }
    }

    /// Batch and key/value head of a number below `batch * kv_heads`.
    #[inline(always)]
    pub(super) fn pair(&self, index: usize) -> [usize; 2] {
        [index / self.kv_heads, index % self.kv_heads]
    }

    /// The number of items of work.
    pub(super) fn items(&self) -> usize {
        self.batch * self.kv_heads * self.blocks
    }

    /// How many keys the rows of query `row / group` see.
    #[inline(always)]
    fn visible(&self, row: usize) -> usize {
        if self.causal {
            (self.kv_len + row / self.group + 1).saturating_sub(self.q_len).min(self.kv_len)
        } else {
            self.kv_len
        }
    }

    /// # Safety
    /// The block is one of this job's, and a slot comes with at most [`TILE_ROWS`] rows.
    #[inline(always)]
    pub(super) unsafe fn block<S: Simd>(
        &self,
        s: S,
        [batch, kv_head]: [usize; 2],
        rows: Range<usize>,
        keys_range: Range<usize>,
        slot: Option<NonNull<Slot>>,
    ) {
        let few = rows.len() <= TILE_ROWS;
        let mut queries = Tile::<MAX_ELEMENTS>::new();
        let mut output = Tile::<MAX_ELEMENTS>::new();
        let mut scores = Tile::<{ MAX_ROWS * KEYS }>::new();
        let mut keys = Tile::<{ KEYS * MAX_HEAD }>::new();
        let mut values = Tile::<{ KEYS * MAX_HEAD }>::new();
        let mut stage = Tile::<{ MAX_LANES * MAX_HEAD }>::new();
        let mut running = [Running::EMPTY; MAX_ROWS];
        let mut held = Held {
            rows,
            depth: self.head_dim.next_multiple_of(S::LANES),
            queries: queries.pointer(),
            output: output.pointer(),
            scores: scores.pointer(),
            running: &mut running,
        };
        // SAFETY: the block is one of this job's, and the held's tiles have room for it.
        unsafe { self.begin(s, &held, batch, kv_head) };

        let end = self.visible(held.rows.end - 1).min(keys_range.end);
        let least = self.visible(held.rows.start);
        let mut start = keys_range.start;
        while start < end {
            let count = KEYS.min(end - start);
            let first = [batch, start, kv_head];
            // SAFETY: `count` keys from `first` on are inside the shape, and the tiles have room for them.
            let keys = unsafe {
                if few {
                    self.rows_of(s, self.k, first, count, keys.pointer(), true)
                } else {
                    self.transposed(s, first, count, stage.pointer(), keys.pointer())
                }
            };
            // Rows at a large stride fall on few cache sets: blocks that read them often copy them first.
            // SAFETY: likewise.
            let values = unsafe { self.rows_of(s, self.v, first, count, values.pointer(), few) };
            // A weight of 0 does not hide a value that is not finite, so where rows see different numbers of keys, they
            // must then not touch those that they don't see.
            // SAFETY: `count` rows of `depth` elements were just described.
            let exact = least < start + count && !unsafe { all_finite(s, values, count, held.depth) };
            let step = Step { start, count, keys, values, few, exact };
            let mut first = 0;
            while first < held.rows.len() {
                let rows = first..(first + TILE_ROWS).min(held.rows.len());
                first = rows.end;
                // SAFETY: rows of this block, over a tile of it.
                unsafe { self.advance(s, &mut held, step, rows) };
            }
            start += count;
        }
        match slot {
            // SAFETY: the block is one of this job's, and its rows are complete.
            None => unsafe { self.finish(s, &held, batch, kv_head) },
            // SAFETY: a slot of this item's own; blocks that are split have at most TILE_ROWS rows.
            Some(slot) => unsafe { Slot::keep(slot.as_ptr(), &held) },
        }
    }

    /// Unpacks and scales the block's queries and zeroes its output.
    ///
    /// # Safety
    /// The block is one of this job's; the held's tiles have room for it.
    #[inline(always)]
    unsafe fn begin<S: Simd>(&self, s: S, held: &Held<'_>, batch: usize, kv_head: usize) {
        let (depth, scale) = (held.depth, s.splat(self.scale));
        for (index, row) in held.rows.clone().enumerate() {
            // SAFETY: inside the shape; the row has `head_dim` elements.
            let from = unsafe { self.q.row(self.place(batch, kv_head, row)) };
            // SAFETY: room by this function's contract.
            unsafe { unpack(s, from, self.head_dim, held.queries.add(index * depth), scale) };
            // SAFETY: likewise.
            unsafe { zero(s, held.output.add(index * depth), depth) };
        }
    }

    /// Takes a few rows of the block over one tile of keys.
    ///
    /// # Safety
    /// `rows`, at most [`TILE_ROWS`], count from the block's first; `step` describes a tile of this block.
    #[inline(always)]
    unsafe fn advance<S: Simd>(&self, s: S, held: &mut Held<'_>, step: Step, rows: Range<usize>) {
        let depth = held.depth;
        let seen = |index: usize| self.visible(index).saturating_sub(step.start).min(step.count);
        // The last row sees the most.
        let width = seen(held.rows.start + rows.end - 1);
        if width == 0 {
            return;
        }
        // SAFETY: a row of the block, so inside the tiles.
        let (a, c) = unsafe { (held.queries.add(rows.start * depth), held.scores.add(rows.start * KEYS)) };
        let (b, b_stride) = (step.keys.data, step.keys.stride);
        let count = rows.len();
        if step.few {
            s.call(Dots { rows: count, columns: width, depth, a, a_stride: depth, b, b_stride, c, c_stride: KEYS });
        } else {
            s.call(Multiply {
                rows: count,
                depth: self.head_dim,
                vectors: width.div_ceil(S::LANES),
                a,
                a_stride: depth,
                b,
                b_stride,
                c,
                c_stride: KEYS,
                add: false,
            });
        }
        for (running, index) in held.running[rows.clone()].iter_mut().zip(rows.clone()) {
            let seen = seen(held.rows.start + index);
            // SAFETY: a row of the block, so inside the tiles.
            let (weights, sum) = unsafe { (held.scores.add(index * KEYS), held.output.add(index * depth)) };
            if seen == 0 {
                // SAFETY: `width <= KEYS`, a multiple of LANES.
                unsafe { zero(s, weights, width) };
            } else {
                // SAFETY: the product above wrote `seen <= width` scores; KEYS is a multiple of LANES.
                unsafe { running.update(s, weights, seen, width, sum, depth) };
            }
        }
        let weighted = Multiply {
            rows: count,
            depth: width,
            vectors: depth / S::LANES,
            a: c,
            a_stride: KEYS,
            b: step.values.data,
            b_stride: step.values.stride,
            // SAFETY: a row of the block, so inside the tile.
            c: unsafe { held.output.add(rows.start * depth) },
            c_stride: depth,
            add: true,
        };
        if step.exact {
            for index in 0..count {
                // SAFETY: a row of the block, so inside the tiles.
                let (a, c) = unsafe { (weighted.a.add(index * KEYS), weighted.c.add(index * depth)) };
                s.call(Multiply { rows: 1, depth: seen(held.rows.start + rows.start + index), a, c, ..weighted });
            }
        } else {
            s.call(weighted);
        }
    }

    /// Divides by the sums and writes the rows out.
    ///
    /// # Safety
    /// The block is one of this job's.
    #[inline(always)]
    pub(super) unsafe fn finish<S: Simd>(&self, s: S, held: &Held<'_>, batch: usize, kv_head: usize) {
        let head_dim = self.head_dim;
        for (index, row) in held.rows.clone().enumerate() {
            // SAFETY: inside the shape; the row has `head_dim` elements.
            let to = unsafe { self.out.row(self.place(batch, kv_head, row)) };
            // Rows that see no key are zeros; those whose weights are all 0 are NaN, as 0 / 0.
            let factor = s.splat(if self.visible(row) == 0 { 0.0 } else { 1.0 / held.running[index].sum });
            let mut d = 0;
            while d < head_dim {
                // SAFETY: inside the tile.
                let value = s.mul(unsafe { s.load_f32(held.output.add(index * held.depth + d)) }, factor);
                if d + S::LANES <= head_dim {
                    // SAFETY: inside the row.
                    unsafe { E::store(s, to.add(d), value) };
                } else {
                    // SAFETY: inside the row.
                    unsafe { E::store_part(s, to.add(d), value, head_dim - d) };
                }
                d += S::LANES;
            }
        }
    }

    /// Batch, position and head of a row.
    #[inline(always)]
    fn place(&self, batch: usize, kv_head: usize, row: usize) -> [usize; 3] {
        [batch, row / self.group, kv_head * self.group + row % self.group]
    }

    /// `count` keys from `first` on, transposed: rows of `KEYS` elements, zero behind `count` up to whole vectors.
    ///
    /// # Safety
    /// The keys are inside the shape; `stage` has room for `LANES` rows of `depth`, `to` for `depth` rows of `KEYS`.
    #[inline(always)]
    unsafe fn transposed<S: Simd>(&self, s: S, first: [usize; 3], count: usize, stage: *mut f32, to: *mut f32) -> Rows {
        let depth = self.head_dim.next_multiple_of(S::LANES);
        let [batch, start, head] = first;
        let mut column = 0;
        while column < count {
            let lanes = S::LANES.min(count - column);
            // SAFETY: inside the shape, and room by this function's contract.
            unsafe { self.rows_of(s, self.k, [batch, start + column, head], lanes, stage, false) };
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
        Rows { data: to, stride: KEYS as isize }
    }

    /// `count` rows from `first` on as f32, zero-padded to whole vectors: copied to `to`, or as they lie where they need
    /// no change and `in_place` allows it.
    ///
    /// # Safety
    /// The rows are inside the shape, and `to` has room for them.
    #[inline(always)]
    unsafe fn rows_of<S: Simd>(
        &self,
        s: S,
        from: View<E>,
        first: [usize; 3],
        count: usize,
        to: *mut f32,
        in_place: bool,
    ) -> Rows {
        let depth = self.head_dim.next_multiple_of(S::LANES);
        if in_place && E::IS_F32 && depth == self.head_dim {
            // SAFETY: inside the shape.
            return Rows { data: unsafe { from.row(first) }.cast(), stride: from.strides[1] };
        }
        let [batch, start, head] = first;
        for row in 0..count {
            // SAFETY: inside the shape.
            let source = unsafe { from.row([batch, start + row, head]) };
            // SAFETY: room by this function's contract.
            unsafe { unpack(s, source, self.head_dim, to.add(row * depth), s.splat(1.0)) };
        }
        Rows { data: to, stride: depth as isize }
    }
}

// SAFETY: blocks are independent, outputs lie apart (`expect_writable`), inputs are only read.
unsafe impl<E: Element> Job for Attention<E> {
    #[inline(always)]
    fn run<S: Simd>(&self, s: S, items: Range<usize>) {
        for item in items {
            // Later blocks see more keys: they come first, so that the short ones even out the threads.
            let block = self.blocks - 1 - item / (self.batch * self.kv_heads);
            let pair = item % (self.batch * self.kv_heads);
            let start = block * self.rows_per_block;
            let end = (start + self.rows_per_block).min(self.q_len * self.group);
            // SAFETY: the item is one of this job's.
            unsafe { self.block(s, self.pair(pair), start..end, 0..self.kv_len, None) };
        }
    }
}
