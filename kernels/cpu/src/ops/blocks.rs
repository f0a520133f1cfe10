//! Rows whose output needs something of the whole row, in blocks.
//!
//! What a row's output needs is the end of a long chain: a sum over lanes, a root, a division. So the rows of the next
//! block are read before this one is written, and the chain runs beside that. The rows of a block are written side by
//! side, so that a weight is loaded, and converted, once for all.

#![expect(clippy::inline_always, reason = "generic SIMD code must be inlined into the function compiled for its level")]
#![expect(unsafe_code, reason = "kernels read and write rows by pointer")]

use core::mem::MaybeUninit;
use core::ops::Range;

use crate::call::RowMap;
use crate::simd::{Element, Simd};

/// The most rows of a block.
const MOST: usize = 4;
/// Longest row, in bytes, of which a block has several, and of which f32 is read ahead.
const SHORT_ROW: usize = 4 << 10;
/// Longest row of 16-bit elements, in bytes, that is read ahead.
const LONG_ROW: usize = 8 << 10;

/// How rows are gone over; what is best was measured.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    /// The most rows of a block. Rows of 16-bit elements gain by it, whose weights must be converted.
    most: usize,
    /// Whether the next block is read before this one is written. Not where rows are so long that the nearest cache
    /// does not hold both.
    reads_ahead: bool,
    /// Whether to ask for rows before they are read: in memory, and where they come faster than they are computed with.
    pub(super) asks: bool,
}

impl Plan {
    /// For rows of `hidden` elements of `E`, in a call that streams or not.
    pub(super) fn new<E: Element>(hidden: usize, streams: bool) -> Self {
        let bytes = hidden * size_of::<E>();
        let (short, long) = (bytes <= SHORT_ROW, bytes <= LONG_ROW);
        if E::IS_F32 {
            Self { most: 1, reads_ahead: short, asks: streams || short }
        } else {
            Self { most: if short { MOST } else { 1 }, reads_ahead: long, asks: streams }
        }
    }

    /// Whether a row is read before the one in front of it is written.
    pub(super) fn reads_ahead(self) -> bool {
        self.reads_ahead
    }

    /// The same, one row at a time.
    pub(super) fn by_row(self) -> Self {
        Self { most: 1, ..self }
    }
}

/// A kernel of rows, of which each has a place in `K` tensors, and whose output needs `Q` sums over the row.
pub(super) trait Rows<const K: usize, const Q: usize> {
    /// What a row's output needs to know of the whole row.
    type Whole: Copy;

    /// Reads a row: vectors whose lanes together are its sums. `turn` is 0 or 1; what is read ahead has another one than
    /// what is written.
    ///
    /// # Safety
    /// `row` are the offsets of a row.
    unsafe fn read<S: Simd>(&self, s: S, row: [isize; K], turn: usize) -> [S::V; Q];

    /// What is known of a row by its sums.
    ///
    /// # Safety
    /// `row` are the offsets of a row that was read in this turn, with these sums.
    unsafe fn whole<S: Simd>(&self, s: S, row: [isize; K], sums: [f32; Q], turn: usize) -> Self::Whole;

    /// Writes `N` rows, each as it would be alone, to the bit. `later` are rows that come soon but were not
    /// read, or any others.
    ///
    /// # Safety
    /// `rows` are the offsets of rows that were read in this turn.
    unsafe fn write<S: Simd, const N: usize>(
        &self,
        s: S,
        rows: [[isize; K]; N],
        wholes: [Self::Whole; N],
        later: [[isize; K]; N],
        turn: usize,
    );
}

/// Runs the rows `items` of `map`.
///
/// # Safety
/// Outputs of rows lie apart from each other, and from the inputs of other rows.
#[inline(always)]
pub(super) unsafe fn run<S: Simd, R: Rows<K, Q>, const K: usize, const Q: usize>(
    s: S,
    kernel: &R,
    map: &RowMap<K>,
    items: Range<usize>,
    plan: Plan,
) {
    // Without as many registers as AVX-512 has, two rows are as many as fit.
    let most = if S::LANES == 16 { plan.most } else { plan.most.min(2) };
    let mut cursor = map.cursor(items.start);
    let (mut left, mut turn, mut written) = (items.len(), 0, 0);
    // By turns: the block that is read, and, where reading is ahead, the one before it, which is written.
    let mut rows = [[[0; K]; MOST]; 2];
    let mut wholes = [[const { MaybeUninit::uninit() }; MOST]; 2];
    loop {
        let count = most.min(left);
        let mut sums = [[s.splat(0.0); MOST]; Q];
        for r in 0..count {
            rows[turn][r] = cursor.offsets;
            // SAFETY: the cursor is at a row.
            let parts = unsafe { kernel.read(s, cursor.offsets, turn) };
            for (sums, part) in sums.iter_mut().zip(parts) {
                sums[r] = part;
            }
            cursor.advance();
        }
        // Of four rows even where there are fewer, so that a row's sum is the same bits in any block.
        let mut lanes = [[0.0; MOST]; Q];
        for (lanes, sums) in lanes.iter_mut().zip(sums) {
            *lanes = s.sum4(sums);
        }
        for r in 0..count {
            let mut sums = [0.0; Q];
            for (sum, lanes) in sums.iter_mut().zip(&lanes) {
                *sum = lanes[r];
            }
            // SAFETY: just read.
            wholes[turn][r].write(unsafe { kernel.whole(s, rows[turn][r], sums, turn) });
        }
        let next = cursor.offsets;
        if plan.reads_ahead {
            turn ^= 1;
        } else {
            written = count;
        }
        if written == 4 && S::LANES == 16 {
            // SAFETY: four rows were read in this turn.
            unsafe { write::<S, R, K, Q, 4>(s, kernel, &rows[turn], &wholes[turn], next, turn) };
        } else if written == 2 {
            // SAFETY: likewise two.
            unsafe { write::<S, R, K, Q, 2>(s, kernel, &rows[turn], &wholes[turn], next, turn) };
        } else {
            for r in 0..written {
                // SAFETY: likewise this one.
                unsafe { write::<S, R, K, Q, 1>(s, kernel, &rows[turn][r..], &wholes[turn][r..], next, turn) };
            }
        }
        if count == 0 {
            return;
        }
        (left, written) = (left - count, count);
    }
}

/// Writes the first `N` rows of a block; `next` are the offsets of the row behind the next block.
///
/// # Safety
/// They were read in this turn.
#[inline(always)]
unsafe fn write<S: Simd, R: Rows<K, Q>, const K: usize, const Q: usize, const N: usize>(
    s: S,
    kernel: &R,
    rows: &[[isize; K]],
    wholes: &[MaybeUninit<R::Whole>],
    next: [isize; K],
    turn: usize,
) {
    let (mut block, mut later) = ([[0; K]; N], [[0; K]; N]);
    for r in 0..N {
        block[r] = rows[r];
        for k in 0..K {
            later[r][k] = next[k] + rows[r][k] - rows[0][k];
        }
    }
    // SAFETY: by this function's contract.
    let wholes = core::array::from_fn(|r| unsafe { wholes[r].assume_init() });
    // SAFETY: likewise.
    unsafe { kernel.write::<S, N>(s, block, wholes, later, turn) };
}
