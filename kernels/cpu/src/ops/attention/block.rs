//! One block of query rows over all keys that it sees.

#![expect(unsafe_code, reason = "tiles on the stack, rows by pointer")]
#![expect(clippy::inline_always, reason = "generic SIMD code must be inlined into the function compiled for its level")]

use core::mem::MaybeUninit;
use core::ops::Range;

use super::multiply::{Dots, Multiply, TILE_ROWS};
use super::softmax::Running;
use super::{MAX_HEAD, View};
use crate::call::Job;
use crate::simd::{Element, Simd};

/// Most rows of a block.
const MAX_ROWS: usize = 96;
/// Most elements of a block's queries; wide heads get fewer rows.
const MAX_ELEMENTS: usize = MAX_ROWS * 128;
/// Keys of a tile. A multiple of every vector.
const KEYS: usize = 64;
/// Longest vector of any level.
const MAX_LANES: usize = 16;

/// Cache-line aligned, so that vectors of a row never straddle lines.
#[repr(align(64))]
struct Tile<const N: usize>(MaybeUninit<[f32; N]>);

impl<const N: usize> Tile<N> {
    fn new() -> Self {
        Self(MaybeUninit::uninit())
    }
    fn pointer(&mut self) -> *mut f32 {
        self.0.as_mut_ptr().cast()
    }
}

/// The job: everything a block needs to know.
#[derive(Debug)]
pub(super) struct Attention<E> {
    out: View<E>,
    q: View<E>,
    k: View<E>,
    v: View<E>,
    batch: usize,
    q_len: usize,
    head_dim: usize,
    kv_len: usize,
    kv_heads: usize,
    /// Query heads per key/value head.
    group: usize,
    /// softmax_scale / ln(2): the softmax works in powers of two.
    scale: f32,
    causal: bool,
    rows_per_block: usize,
    blocks: usize,
}

/// The keys and values of a tile as f32 rows.
#[derive(Clone, Copy)]
struct Rows {
    data: *const f32,
    stride: isize,
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
    /// The block is one of this job's.
    #[inline(always)]
    unsafe fn block<S: Simd>(&self, s: S, batch: usize, kv_head: usize, rows: Range<usize>) {
        let head_dim = self.head_dim;
        let depth = head_dim.next_multiple_of(S::LANES);
        let count = rows.len();
        let few = count <= TILE_ROWS;
        let direct = E::IS_F32 && depth == head_dim;

        let mut queries = Tile::<MAX_ELEMENTS>::new();
        let mut output = Tile::<MAX_ELEMENTS>::new();
        let mut scores = Tile::<{ MAX_ROWS * KEYS }>::new();
        let mut keys_tile = Tile::<{ KEYS * MAX_HEAD }>::new();
        let mut values_tile = Tile::<{ KEYS * MAX_HEAD }>::new();
        let mut stage = Tile::<{ MAX_LANES * MAX_HEAD }>::new();
        let mut running = [Running::EMPTY; MAX_ROWS];
        let (queries, output, scores) = (queries.pointer(), output.pointer(), scores.pointer());

        let scale = s.splat(self.scale);
        for (index, row) in rows.clone().enumerate() {
            let (position, head) = (row / self.group, kv_head * self.group + row % self.group);
            // SAFETY: inside the shape; the row has `head_dim` elements.
            let from = unsafe { self.q.row([batch, position, head]) };
            // SAFETY: `count * depth` fits the tile by the choice of `rows_per_block`.
            unsafe { unpack(s, from, head_dim, queries.add(index * depth), scale) };
            let mut d = 0;
            while d < depth {
                // SAFETY: likewise.
                unsafe { s.store_f32(output.add(index * depth + d), s.splat(0.0)) };
                d += S::LANES;
            }
        }

        let end = self.visible(rows.end - 1);
        let least = self.visible(rows.start);
        let mut start = 0;
        while start < end {
            let tile = KEYS.min(end - start);
            // Whether some row sees fewer keys of this tile than others.
            let ragged = least < start + tile;
            let keys = if few {
                if direct {
                    // SAFETY: inside the shape.
                    Rows { data: unsafe { self.k.row([batch, start, kv_head]) }.cast(), stride: self.k.strides[1] }
                } else {
                    // SAFETY: `tile <= KEYS` rows of `depth <= MAX_HEAD` fit.
                    unsafe { self.stage(s, self.k, [batch, start, kv_head], tile, keys_tile.pointer()) }
                }
            } else {
                let mut column = 0;
                while column < tile {
                    let lanes = S::LANES.min(tile - column);
                    // SAFETY: at most LANES rows of `depth` fit.
                    unsafe { self.stage(s, self.k, [batch, start + column, kv_head], lanes, stage.pointer()) };
                    for row in lanes..S::LANES {
                        let mut d = 0;
                        while d < depth {
                            // SAFETY: likewise.
                            unsafe { s.store_f32(stage.pointer().add(row * depth + d), s.splat(0.0)) };
                            d += S::LANES;
                        }
                    }
                    let mut d = 0;
                    while d < depth {
                        // SAFETY: a block of the stage, and `depth` rows of `KEYS` in the tile.
                        unsafe {
                            s.transpose(
                                stage.pointer().add(d),
                                depth,
                                keys_tile.pointer().add(d * KEYS + column),
                                KEYS,
                            );
                        }
                        d += S::LANES;
                    }
                    column += S::LANES;
                }
                Rows { data: keys_tile.pointer(), stride: KEYS as isize }
            };
            // Rows at a large stride fall on few cache sets: blocks that read them often copy them first.
            let values = if few && direct {
                // SAFETY: inside the shape.
                Rows { data: unsafe { self.v.row([batch, start, kv_head]) }.cast(), stride: self.v.strides[1] }
            } else {
                // SAFETY: `tile <= KEYS` rows of `depth <= MAX_HEAD` fit.
                unsafe { self.stage(s, self.v, [batch, start, kv_head], tile, values_tile.pointer()) }
            };
            // A weight of 0 does not hide a value that is not finite, so rows must then not touch keys they don't see.
            // SAFETY: `tile` rows of `depth` elements were just described.
            let exact = ragged && !unsafe { all_finite(s, values, tile, depth) };

            let mut first = 0;
            while first < count {
                let group = TILE_ROWS.min(count - first);
                // The last row of the group sees the most.
                let width = self.visible(rows.start + first + group - 1).saturating_sub(start).min(tile);
                if width == 0 {
                    first += group;
                    continue;
                }
                // SAFETY: `first < count`, so inside the tiles.
                let (a, c) = unsafe { (queries.add(first * depth), scores.add(first * KEYS)) };
                if few {
                    s.call(Dots {
                        rows: group,
                        columns: width,
                        depth,
                        a,
                        a_stride: depth,
                        b: keys.data,
                        b_stride: keys.stride,
                        c,
                        c_stride: KEYS,
                    });
                } else {
                    s.call(Multiply {
                        rows: group,
                        depth: head_dim,
                        vectors: width.div_ceil(S::LANES),
                        a,
                        a_stride: depth,
                        b: keys.data,
                        b_stride: keys.stride,
                        c,
                        c_stride: KEYS,
                        add: false,
                    });
                }
                for index in first..first + group {
                    let seen = self.visible(rows.start + index).saturating_sub(start).min(tile);
                    // SAFETY: inside the tiles.
                    let (row, sum) = unsafe { (scores.add(index * KEYS), output.add(index * depth)) };
                    if seen == 0 {
                        let mut i = 0;
                        while i < width {
                            // SAFETY: `width <= KEYS`, a multiple of LANES.
                            unsafe { s.store_f32(row.add(i), s.splat(0.0)) };
                            i += S::LANES;
                        }
                        continue;
                    }
                    // SAFETY: the product above wrote `seen <= width` scores; KEYS is a multiple of LANES.
                    unsafe { running[index].update(s, row, seen, width, sum, depth) };
                }
                let weighted = Multiply {
                    rows: group,
                    depth: width,
                    vectors: depth / S::LANES,
                    a: c,
                    a_stride: KEYS,
                    b: values.data,
                    b_stride: values.stride,
                    // SAFETY: `first < count`, so inside the tile.
                    c: unsafe { output.add(first * depth) },
                    c_stride: depth,
                    add: true,
                };
                if exact {
                    for index in 0..group {
                        let seen = self.visible(rows.start + first + index).saturating_sub(start).min(tile);
                        // SAFETY: inside the tiles.
                        let (a, c) = unsafe { (weighted.a.add(index * KEYS), weighted.c.add(index * depth)) };
                        s.call(Multiply { rows: 1, depth: seen, a, c, ..weighted });
                    }
                } else {
                    s.call(weighted);
                }
                first += group;
            }
            start += tile;
        }

        for (index, row) in rows.enumerate() {
            let (position, head) = (row / self.group, kv_head * self.group + row % self.group);
            // SAFETY: inside the shape; the row has `head_dim` elements.
            let to = unsafe { self.out.row([batch, position, head]) };
            // Rows that see no key are zeros; those whose weights are all 0 are NaN, as 0 / 0.
            let factor = s.splat(if self.visible(row) == 0 { 0.0 } else { 1.0 / running[index].sum });
            let mut d = 0;
            while d < head_dim {
                // SAFETY: inside the tile.
                let value = s.mul(unsafe { s.load_f32(output.add(index * depth + d)) }, factor);
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

    /// Copies `count` rows as f32 to `to`, each zero-padded to whole vectors.
    ///
    /// # Safety
    /// The rows are inside the shape, and `to` has room for them.
    #[inline(always)]
    unsafe fn stage<S: Simd>(&self, s: S, from: View<E>, first: [usize; 3], count: usize, to: *mut f32) -> Rows {
        let depth = self.head_dim.next_multiple_of(S::LANES);
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

/// Writes `factor * from` as f32, zero-padded to whole vectors.
///
/// # Safety
/// `count` elements are readable at `from`, and `count` rounded up to whole vectors writable at `to`.
#[inline(always)]
unsafe fn unpack<S: Simd, E: Element>(s: S, from: *const E, count: usize, to: *mut f32, factor: S::V) {
    let whole = count - count % S::LANES;
    let mut i = 0;
    while i < whole {
        // SAFETY: `i + LANES <= count`.
        let value = unsafe { E::load(s, from.add(i)) };
        // SAFETY: likewise.
        unsafe { s.store_f32(to.add(i), s.mul(value, factor)) };
        i += S::LANES;
    }
    if whole < count {
        // SAFETY: the rest of the row.
        let value = unsafe { E::load_part(s, from.add(whole), count - whole) };
        // SAFETY: below `count` rounded up.
        unsafe { s.store_f32(to.add(whole), s.mul(value, factor)) };
    }
}

/// Whether no element is infinite or NaN.
///
/// # Safety
/// `count` rows of `depth` elements, a whole number of vectors, are readable.
#[inline(always)]
unsafe fn all_finite<S: Simd>(s: S, rows: Rows, count: usize, depth: usize) -> bool {
    // 0 * x is 0 for finite x, else NaN, and NaN stays in a sum.
    let mut sum = s.splat(0.0);
    let zero = s.splat(0.0);
    for row in 0..count {
        let from = rows.data.wrapping_offset(row as isize * rows.stride);
        let mut d = 0;
        while d < depth {
            // SAFETY: inside the row.
            sum = s.fma(unsafe { s.load_f32(from.add(d)) }, zero, sum);
            d += S::LANES;
        }
    }
    s.sum(sum) == 0.0
}

impl<E> View<E> {
    /// # Safety
    /// `index` is inside the first three axes.
    #[inline(always)]
    unsafe fn row(&self, index: [usize; 3]) -> *mut E {
        let offset: isize = (0..3).map(|axis| index[axis] as isize * self.strides[axis]).sum();
        // SAFETY: inside the tensor's checked span by this function's contract.
        unsafe { self.data.offset(offset) }
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
            unsafe { self.block(s, pair / self.kv_heads, pair % self.kv_heads, start..end) };
        }
    }
}
