//! One block of query rows over all keys that it sees.

#![expect(unsafe_code, reason = "tiles on the stack, rows by pointer")]
#![expect(clippy::inline_always, reason = "generic SIMD code must be inlined into the function compiled for its level")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "an access and the pointer arithmetic to it share a note")]

use core::ops::Range;
use core::ptr::NonNull;

use super::few::{Scores, Weigh};
use super::multiply::{Dots, Multiply, TILE_ROWS};
use super::options::Options;
use super::sequences::{Sequence, Sequences};
use super::softmax::{Running, cap_scores, hide};
use super::split::Slot;
use super::tiles::{Rows, Tile, all_finite, unpack, unpack_pairs, zero};
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
pub(super) const MAX_LANES: usize = 16;

/// The job: everything a block needs to know.
#[derive(Debug)]
pub(super) struct Attention<E> {
    out: View<E>,
    q: View<E>,
    pub(super) k: View<E>,
    v: View<E>,
    pub(super) sequences: Sequences,
    pub(super) batch: usize,
    pub(super) head_dim: usize,
    pub(super) kv_heads: usize,
    /// Query heads per key/value head.
    pub(super) group: usize,
    options: Options,
    /// Rows of the longest sequence.
    pub(super) max_rows: usize,
    /// Blocks of the longest sequence.
    blocks: usize,
    rows_per_block: usize,
}

/// What a block holds while it walks over the keys.
pub(super) struct Held<'a> {
    pub(super) sequence: Sequence,
    pub(super) kv_head: usize,
    /// Rows `query * group + head`.
    pub(super) rows: Range<usize>,
    /// The head size rounded up to whole vectors.
    pub(super) depth: usize,
    /// Few rows in pairs of vectors: queries and output stand in the order of pairs.
    pub(super) paired: bool,
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
    /// Each row must keep to its visible keys.
    exact: bool,
}

impl<E: Element> Attention<E> {
    /// `tensors` are out, q, k, v of checked shapes; `heads` and `head_dim` are those of `q`. None of them, nor
    /// `max_q_len`, the length of the longest of the `batch` sequences, is 0.
    pub(super) fn new(
        tensors: [View<E>; 4],
        (sequences, batch, max_q_len): (Sequences, usize, usize),
        [heads, kv_heads, head_dim]: [usize; 3],
        options: Options,
    ) -> Self {
        let [out, q, k, v] = tensors;
        let group = heads / kv_heads;
        let most = (MAX_ELEMENTS / head_dim.next_multiple_of(MAX_LANES)).min(MAX_ROWS) / TILE_ROWS * TILE_ROWS;
        let max_rows = max_q_len * group;
        Self {
            out,
            q,
            k,
            v,
            sequences,
            batch,
            head_dim,
            kv_heads,
            group,
            options,
            max_rows,
            blocks: max_rows.div_ceil(most),
            rows_per_block: most.min(max_rows),
        }
    }

    /// Whether a block of so many rows goes by pairs of vectors.
    #[inline(always)]
    pub(super) fn paired<S: Simd>(&self, rows: usize) -> bool {
        // Keys in f32 need no change, and go through the products of `multiply`, which take fewer instructions.
        !E::IS_F32 && rows <= TILE_ROWS && self.head_dim.is_multiple_of(2 * S::LANES)
    }

    /// Sequence and key/value head of a number below `batch * kv_heads`.
    #[inline(always)]
    pub(super) fn pair(&self, index: usize) -> (Sequence, usize) {
        // SAFETY: below `batch`.
        (unsafe { self.sequences.get(index / self.kv_heads) }, index % self.kv_heads)
    }

    /// The number of items of work.
    pub(super) fn items(&self) -> usize {
        self.batch * self.kv_heads * self.blocks
    }

    /// The keys that a row sees.
    #[inline(always)]
    fn visible(&self, sequence: &Sequence, row: usize) -> Range<usize> {
        sequence.visible(row / self.group, self.options.window)
    }

    /// The keys that any of the rows sees; there is at least one row.
    #[inline(always)]
    pub(super) fn visible_to_any(&self, sequence: &Sequence, rows: &Range<usize>) -> Range<usize> {
        // Later rows see later keys.
        self.visible(sequence, rows.start).start..self.visible(sequence, rows.end - 1).end
    }

    /// # Safety
    /// The block is one of this job's, and a slot comes with at most [`TILE_ROWS`] rows.
    #[inline(always)]
    pub(super) unsafe fn block<S: Simd>(
        &self,
        s: S,
        (sequence, kv_head): (Sequence, usize),
        rows: Range<usize>,
        keys_range: Range<usize>,
        slot: Option<NonNull<Slot>>,
    ) {
        let (few, paired) = (rows.len() <= TILE_ROWS, self.paired::<S>(rows.len()));
        let mut queries = Tile::<MAX_ELEMENTS>::new();
        let mut output = Tile::<MAX_ELEMENTS>::new();
        let mut scores = Tile::<{ MAX_ROWS * KEYS }>::new();
        let mut keys = Tile::<{ KEYS * MAX_HEAD }>::new();
        let mut values = Tile::<{ KEYS * MAX_HEAD }>::new();
        let mut stage = Tile::<{ MAX_LANES * MAX_HEAD }>::new();
        let mut running = [Running::EMPTY; MAX_ROWS];
        let mut held = Held {
            sequence,
            kv_head,
            rows,
            depth: self.head_dim.next_multiple_of(S::LANES),
            paired,
            queries: queries.pointer(),
            output: output.pointer(),
            scores: scores.pointer(),
            running: &mut running,
        };
        // SAFETY: the block is one of this job's, and the held's tiles have room for it.
        unsafe { self.begin(s, &held) };

        // The keys that all rows see lie between the last row's first one and the first row's last one.
        let (first, last) = (self.visible(&sequence, held.rows.start), self.visible(&sequence, held.rows.end - 1));
        let end = last.end.min(keys_range.end);
        let mut start = first.start.max(keys_range.start);
        while start < end {
            let count = KEYS.min(end - start);
            // SAFETY: `count` keys from `start` on are inside the shape, and the tiles have room for them.
            let keys = unsafe {
                if paired {
                    self.pairs_of(s, self.k, &held, start..start + count, keys.pointer())
                } else if few {
                    self.rows_of(s, self.k, &held, start, count, keys.pointer(), true)
                } else {
                    self.transposed(s, &held, start, count, stage.pointer(), keys.pointer())
                }
            };
            // Rows at a large stride fall on few cache sets: blocks that read them often copy them first.
            // SAFETY: likewise.
            let values = unsafe {
                if paired {
                    self.pairs_of(s, self.v, &held, start..start + count, values.pointer())
                } else {
                    self.rows_of(s, self.v, &held, start, count, values.pointer(), few)
                }
            };
            let partly = first.end < start + count || start < last.start;
            // A weight of 0 does not hide a value that is not finite, so where rows see different keys, they must then
            // not touch those that they don't see.
            // SAFETY: `count` rows of `depth` elements were just described.
            let exact = partly
                && !unsafe {
                    if values.raw {
                        all_finite::<S, E>(s, values, count, held.depth)
                    } else {
                        all_finite::<S, f32>(s, values, count, held.depth)
                    }
                };
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
            None => unsafe { self.finish(s, &held) },
            // SAFETY: a slot of this item's own; blocks that are split have at most TILE_ROWS rows.
            Some(slot) => unsafe { Slot::keep(slot.as_ptr(), &held) },
        }
    }

    /// Unpacks and scales the block's queries and zeroes its output.
    ///
    /// # Safety
    /// The block is one of this job's; the held's tiles have room for it.
    #[inline(always)]
    unsafe fn begin<S: Simd>(&self, s: S, held: &Held<'_>) {
        let (depth, scale) = (held.depth, s.splat(self.options.factor));
        for (index, row) in held.rows.clone().enumerate() {
            // SAFETY: inside the shape; the row has `head_dim` elements.
            let from = unsafe { self.q.row(self.place(held, row)) };
            // SAFETY: room by this function's contract.
            let to = unsafe { held.queries.add(index * depth) };
            if held.paired {
                // SAFETY: likewise, a whole number of pairs.
                unsafe { unpack_pairs(s, from, depth, to, scale) };
            } else {
                // SAFETY: likewise.
                unsafe { unpack(s, from, self.head_dim, to, scale) };
            }
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
        let (depth, sequence) = (held.depth, held.sequence);
        let first_row = held.rows.start;
        // What a row of the block sees of the tile.
        let seen = |index: usize| {
            let visible = self.visible(&sequence, first_row + index);
            let inside = |key: usize| key.saturating_sub(step.start).min(step.count);
            inside(visible.start)..inside(visible.end)
        };
        // Later rows see later keys.
        let (hidden, width) = (seen(rows.start).start, seen(rows.end - 1).end);
        if hidden >= width {
            return;
        }
        let count = rows.len();
        // SAFETY: rows of the block over the tile's first `width` keys.
        unsafe { self.score(s, held, step, &rows, width) };
        for (running, index) in held.running[rows.clone()].iter_mut().zip(rows.clone()) {
            let seen = seen(index);
            // SAFETY: a row of the block, so inside the tiles.
            let (weights, sum) = unsafe { (held.scores.add(index * KEYS), held.output.add(index * depth)) };
            if seen.is_empty() {
                // SAFETY: `width <= KEYS`, a multiple of LANES.
                unsafe { zero(s, weights, width) };
                continue;
            }
            if let Some(cap) = self.options.cap {
                // SAFETY: the product above wrote `seen.end <= width` scores.
                unsafe { cap_scores(s, weights, seen.end, cap) };
            }
            // SAFETY: likewise.
            unsafe { hide(weights, seen.start) };
            // SAFETY: likewise; KEYS is a multiple of LANES.
            unsafe { running.update(s, weights, seen.end, width, sum, depth) };
        }
        // The values of `keys`, weighted and added to the outputs of `count` rows from the block's row `index` on.
        let weigh = |index: usize, count: usize, keys: Range<usize>| {
            let stride = step.values.stride;
            if held.paired {
                // SAFETY: a row of the block and a key of the tile.
                let weights = unsafe { held.scores.add(index * KEYS + keys.start) };
                // SAFETY: a row of the block, so inside the tile.
                let outputs = unsafe { held.output.add(index * depth) };
                let (rows, count) = (count, keys.len());
                if step.values.raw {
                    let values = step.values.row::<E>(keys.start);
                    let ahead = step.count == KEYS;
                    s.call(Weigh { rows, keys: count, depth, weights, values, stride, outputs, ahead });
                } else {
                    let values = step.values.row::<f32>(keys.start);
                    s.call(Weigh { rows, keys: count, depth, weights, values, stride, outputs, ahead: false });
                }
                return;
            }
            s.call(Multiply {
                rows: count,
                depth: keys.len(),
                vectors: depth / S::LANES,
                // SAFETY: a row of the block and a key of the tile.
                a: unsafe { held.scores.add(index * KEYS + keys.start) },
                a_stride: KEYS,
                b: step.values.row::<f32>(keys.start),
                b_stride: stride,
                // SAFETY: a row of the block, so inside the tile.
                c: unsafe { held.output.add(index * depth) },
                c_stride: depth,
                add: true,
            });
        };
        if step.exact {
            rows.for_each(|index| weigh(index, 1, seen(index)));
        } else {
            weigh(rows.start, count, hidden..width);
        }
    }

    /// The scores of a few rows of the block with the first `width` keys of a tile.
    ///
    /// # Safety
    /// As for [`Self::advance`]; `width` is at most the tile's number of keys.
    #[inline(always)]
    unsafe fn score<S: Simd>(&self, s: S, held: &Held<'_>, step: Step, rows: &Range<usize>, width: usize) {
        let depth = held.depth;
        // SAFETY: a row of the block, so inside the tiles.
        let (a, c) = unsafe { (held.queries.add(rows.start * depth), held.scores.add(rows.start * KEYS)) };
        let (b, b_stride) = (step.keys.data, step.keys.stride);
        let count = rows.len();
        if held.paired {
            let ahead = step.count == KEYS;
            if step.keys.raw {
                let keys = step.keys.row::<E>(0);
                s.call(Scores {
                    rows: count,
                    columns: width,
                    depth,
                    queries: a,
                    keys,
                    stride: b_stride,
                    out: c,
                    ahead,
                });
            } else {
                let (keys, ahead) = (b, false);
                s.call(Scores {
                    rows: count,
                    columns: width,
                    depth,
                    queries: a,
                    keys,
                    stride: b_stride,
                    out: c,
                    ahead,
                });
            }
        } else if step.few {
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
    }

    /// Divides by the sums and writes the rows out.
    ///
    /// # Safety
    /// The block is one of this job's.
    #[inline(always)]
    pub(super) unsafe fn finish<S: Simd>(&self, s: S, held: &Held<'_>) {
        let head_dim = self.head_dim;
        for (index, row) in held.rows.clone().enumerate() {
            // SAFETY: inside the shape; the row has `head_dim` elements.
            let to = unsafe { self.out.row(self.place(held, row)) };
            // Rows that see no key are zeros; those whose weights are all 0 are NaN, as 0 / 0.
            let blind = self.visible(&held.sequence, row).is_empty();
            let factor = s.splat(if blind { 0.0 } else { 1.0 / held.running[index].sum });
            let mut d = 0;
            while held.paired && d < head_dim {
                // SAFETY: inside the tile, a pair of vectors.
                let at = unsafe { held.output.add(index * held.depth + d) };
                // SAFETY: likewise.
                let first = s.mul(unsafe { s.load_f32(at) }, factor);
                // SAFETY: likewise.
                let second = s.mul(unsafe { s.load_f32(at.add(S::LANES)) }, factor);
                // SAFETY: inside the row.
                unsafe { E::store2(s, to.add(d), [first, second]) };
                d += 2 * S::LANES;
            }
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

    /// Where a row's query and output lie.
    #[inline(always)]
    fn place(&self, held: &Held<'_>, row: usize) -> [usize; 3] {
        let query = held.sequence.q_start + row / self.group;
        [held.sequence.index, query, held.kv_head * self.group + row % self.group]
    }
}

// SAFETY: blocks are independent, outputs lie apart (`expect_writable`), inputs are only read.
unsafe impl<E: Element> Job for Attention<E> {
    #[inline(always)]
    fn run<S: Simd>(&self, s: S, items: Range<usize>) {
        for item in items {
            // Later blocks see more keys: they come first, so that the short ones even out the threads.
            let block = self.blocks - 1 - item / (self.batch * self.kv_heads);
            let (sequence, kv_head) = self.pair(item % (self.batch * self.kv_heads));
            let start = block * self.rows_per_block;
            let end = (start + self.rows_per_block).min(sequence.q_len * self.group);
            // Of a shorter sequence there are fewer blocks.
            if start < end {
                // SAFETY: the item is one of this job's.
                unsafe { self.block(s, (sequence, kv_head), start..end, 0..sequence.kv_len, None) };
            }
        }
    }
}
