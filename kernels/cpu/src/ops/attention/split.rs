//! Decoding over many keys: the keys are split, so that few heads still occupy many threads.
//!
//! Each part of the keys gives a partial output with its maximum and sum in a slot on the caller's stack; then the
//! parts are merged. How often a call is split depends on its shape alone, so that results do not depend on threads.

#![expect(unsafe_code, reason = "slots and rows by pointer")]
#![expect(clippy::inline_always, reason = "generic SIMD code must be inlined into the function compiled for its level")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "an access and the pointer arithmetic to it share a note")]

use core::mem::MaybeUninit;
use core::ops::Range;
use core::ptr::NonNull;

use super::MAX_HEAD;
use super::block::{Attention, Held, KEYS, MAX_ROWS};
use super::multiply::TILE_ROWS;
use super::softmax::Running;
use crate::call::{Failed, Job, launch};
use crate::simd::{Element, Simd};

/// Fewest keys of a part.
const MIN_KEYS: usize = 1024;
/// Most parts of one head.
const MAX_PARTS: usize = 8;
/// Slots on the stack, for all heads and parts together: about 200 KiB.
const SLOTS: usize = 32;

/// What one part of the keys gives.
#[repr(align(64))]
pub(super) struct Slot {
    output: [f32; TILE_ROWS * MAX_HEAD],
    running: [Running; TILE_ROWS],
}

impl Slot {
    /// Keeps a block's rows before the division by their sums.
    ///
    /// # Safety
    /// `slot` is writable; the block has at most [`TILE_ROWS`] rows, all complete.
    #[inline(always)]
    pub(super) unsafe fn keep(slot: *mut Self, held: &Held<'_>) {
        let count = held.rows.len();
        // SAFETY: a field of a writable slot.
        let output = unsafe { (&raw mut (*slot).output).cast::<f32>() };
        // SAFETY: `count * depth` fits both, and the slot lies apart from the block's tiles.
        unsafe { core::ptr::copy_nonoverlapping(held.output, output, count * held.depth) };
        // SAFETY: a field of a writable slot.
        let running = unsafe { (&raw mut (*slot).running).cast::<Running>() };
        // SAFETY: likewise.
        unsafe { core::ptr::copy_nonoverlapping(held.running.as_ptr(), running, count) };
    }
}

/// The parts of all heads; item `pair * count + part`.
struct Parts<'a, E> {
    attention: &'a Attention<E>,
    count: usize,
    slots: NonNull<Slot>,
}

// SAFETY: every item has its own slot, inputs are only read.
unsafe impl<E: Element> Job for Parts<'_, E> {
    #[inline(always)]
    fn run<S: Simd>(&self, s: S, items: Range<usize>) {
        let attention = self.attention;
        for item in items {
            let (pair, part) = (item / self.count, item % self.count);
            let (sequence, kv_head) = attention.pair(pair);
            let rows = 0..sequence.q_len * attention.group;
            if rows.is_empty() {
                continue;
            }
            let visible = attention.visible_to_any(&sequence, &rows);
            let keys_per_part = visible.len().div_ceil(self.count).next_multiple_of(KEYS);
            let start = visible.start + part * keys_per_part;
            let keys = start..(start + keys_per_part).min(visible.end);
            // SAFETY: one slot per item.
            let slot = unsafe { self.slots.add(item) };
            // SAFETY: the only block of its head, of at most TILE_ROWS rows.
            unsafe { attention.block(s, (sequence, kv_head), rows, keys, Some(slot)) };
        }
    }
}

/// Merges the parts of each head.
struct Merge<'a, E>(Parts<'a, E>);

// SAFETY: heads are independent, slots are only read.
unsafe impl<E: Element> Job for Merge<'_, E> {
    #[inline(always)]
    fn run<S: Simd>(&self, s: S, items: Range<usize>) {
        let (attention, parts) = (self.0.attention, self.0.count);
        let depth = attention.head_dim.next_multiple_of(S::LANES);
        for pair in items {
            let (sequence, kv_head) = attention.pair(pair);
            let rows = 0..sequence.q_len * attention.group;
            if rows.is_empty() {
                continue;
            }
            // SAFETY: the parts' slots, written before.
            let slots = unsafe { core::slice::from_raw_parts(self.0.slots.add(pair * parts).as_ptr(), parts) };
            let mut output = MaybeUninit::<[f32; TILE_ROWS * MAX_HEAD]>::uninit();
            let output = output.as_mut_ptr().cast::<f32>();
            let mut running = [Running::EMPTY; MAX_ROWS];
            for (row, total) in running.iter_mut().enumerate().take(rows.len()) {
                for slot in slots {
                    total.max = if slot.running[row].max > total.max { slot.running[row].max } else { total.max };
                }
                let shift = total.shift();
                let weights: [f32; MAX_PARTS] = core::array::from_fn(|part| {
                    slots.get(part).map_or(0.0, |slot| (slot.running[row].max - shift).exp2())
                });
                for (slot, weight) in slots.iter().zip(weights) {
                    total.sum += slot.running[row].sum * weight;
                }
                let mut d = 0;
                while d < depth {
                    let mut sum = s.splat(0.0);
                    for (slot, weight) in slots.iter().zip(weights) {
                        // SAFETY: `TILE_ROWS` rows of `depth` fit the slot, whose first rows were written.
                        let value = unsafe { s.load_f32(slot.output.as_ptr().add(row * depth + d)) };
                        sum = s.fma(value, s.splat(weight), sum);
                    }
                    // SAFETY: the same place in a tile of the same size.
                    unsafe { s.store_f32(output.add(row * depth + d), sum) };
                    d += S::LANES;
                }
            }
            let (queries, scores) = (output, output);
            let paired = attention.paired::<S>(rows.len());
            let held = Held { sequence, kv_head, rows, depth, paired, queries, output, scores, running: &mut running };
            // SAFETY: the only block of its head; `finish` reads rows and sums alone.
            unsafe { attention.finish(s, &held) };
        }
    }
}

/// How many parts a call is split into whose longest sequence has `keys` that some query sees; 1: it is not.
pub(super) fn parts<E>(attention: &Attention<E>, keys: usize) -> usize {
    if attention.max_rows > TILE_ROWS {
        return 1;
    }
    (keys / MIN_KEYS).min(MAX_PARTS).min(SLOTS / (attention.batch * attention.kv_heads)).max(1)
}

/// Runs a call in `parts` of at least 2, as [`parts`] said.
#[inline(never)]
pub(super) fn run<E: Element>(
    function: &'static str,
    attention: &Attention<E>,
    parts: usize,
    cost_ns: u64,
) -> Result<(), Failed> {
    #[expect(clippy::large_stack_arrays, reason = "a call does not allocate; the bound is documented")]
    let mut slots = [const { MaybeUninit::<Slot>::uninit() }; SLOTS];
    let heads = attention.batch * attention.kv_heads;
    let parts = Parts { attention, count: parts, slots: NonNull::from(&mut slots).cast() };
    launch(function, &parts, heads * parts.count, cost_ns)?;
    // Too little work to share.
    launch(function, &Merge(parts), heads, 0)
}
