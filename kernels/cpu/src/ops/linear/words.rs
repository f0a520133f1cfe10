//! Register tiles over a panel of words: an f32, or a pair of bf16.

#![expect(unsafe_code, reason = "register tiles over pointers")]
#![expect(clippy::inline_always, reason = "generic SIMD code must be inlined into the function compiled for its level")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "an access and the pointer arithmetic to it share a note")]

use super::panel::COLUMNS;
use core::marker::PhantomData;

use crate::simd::{Kernel, Simd};

/// Rows of a register tile: with the vectors of [`Simd::TILE`] as many sums as the registers hold.
pub(super) const TILE_ROWS: usize = 6;

/// What the words of a panel hold.
pub(super) trait Words {
    /// Elements of a word.
    const ELEMENTS: usize;

    /// All lanes the word at `p`.
    ///
    /// # Safety
    /// The word is readable; `p` needs the alignment of its elements alone.
    unsafe fn splat<S: Simd>(s: S, p: *const f32) -> S::V;
    /// The products of the words' elements, added up in `sum`.
    fn multiply<S: Simd>(s: S, left: S::V, right: S::V, sum: S::V) -> S::V;
}

/// An f32.
pub(super) struct Single;

impl Words for Single {
    const ELEMENTS: usize = 1;

    #[inline(always)]
    unsafe fn splat<S: Simd>(s: S, p: *const f32) -> S::V {
        // SAFETY: the caller's contract.
        s.splat(unsafe { p.read() })
    }
    #[inline(always)]
    fn multiply<S: Simd>(s: S, left: S::V, right: S::V, sum: S::V) -> S::V {
        s.fma(left, right, sum)
    }
}

/// Two bf16 that follow each other along the depth.
pub(super) struct Paired;

impl Words for Paired {
    const ELEMENTS: usize = 2;

    #[inline(always)]
    unsafe fn splat<S: Simd>(s: S, p: *const f32) -> S::V {
        // SAFETY: the caller's contract.
        s.splat_pair(unsafe { p.cast::<u32>().read_unaligned() })
    }
    #[inline(always)]
    fn multiply<S: Simd>(s: S, left: S::V, right: S::V, sum: S::V) -> S::V {
        s.dot_pairs(left, right, sum)
    }
}

/// Memory to ask for while a tile is multiplied, a line with each of its steps: what the next panel is made of. Its rows
/// are too short and too far apart for the processor to see what comes next.
#[derive(Clone, Copy)]
pub(super) struct Ahead {
    pub(super) start: *const u8,
    /// Bytes of a row; 0 asks for the first line again and again.
    pub(super) row: usize,
    /// Bytes between rows.
    pub(super) stride: isize,
}

/// Bytes of a cache line.
const LINE: usize = 64;

/// `sums = rows panel`, or `sums += rows panel`, for the vectors of a panel: a function of its own, whatever the rows
/// are made of.
///
/// Whoever makes one promises: the rows, at most [`TILE_ROWS`], have `steps` readable words each; the panel has `steps`
/// rows of `vectors` vectors; so many sums are writable for each row, and initialised where `add`.
pub(super) struct Tile<'a, W> {
    pub(super) rows: &'a [*const f32],
    /// Words of a row, rows of the panel.
    pub(super) steps: usize,
    pub(super) vectors: usize,
    /// With a distance of [`COLUMNS`] between rows, as the sums.
    pub(super) panel: *const f32,
    pub(super) sums: *mut f32,
    pub(super) add: bool,
    pub(super) ahead: Ahead,
    pub(super) words: PhantomData<W>,
}

impl<W: Words> Kernel for Tile<'_, W> {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // SAFETY: the maker's promise.
        unsafe {
            match *self.rows {
                [a] => self.columns::<S, 1>(s, [a]),
                [a, b] => self.columns::<S, 2>(s, [a, b]),
                [a, b, c] => self.columns::<S, 3>(s, [a, b, c]),
                [a, b, c, d] => self.columns::<S, 4>(s, [a, b, c, d]),
                [a, b, c, d, e] => self.columns::<S, 5>(s, [a, b, c, d, e]),
                [a, b, c, d, e, f] => self.columns::<S, 6>(s, [a, b, c, d, e, f]),
                _ => {}
            }
        }
    }
}

impl<W: Words> Tile<'_, W> {
    /// # Safety
    /// The maker's promise.
    #[inline(always)]
    unsafe fn columns<S: Simd, const R: usize>(&self, s: S, rows: [*const f32; R]) {
        let mut start = 0;
        // SAFETY: the caller's contract, for a part of the columns.
        unsafe {
            if S::TILE == 4 {
                while self.vectors - start >= 4 {
                    self.tile::<S, R, 4>(s, rows, start);
                    start += 4;
                }
                if self.vectors - start == 3 {
                    self.tile::<S, R, 3>(s, rows, start);
                    start += 3;
                }
            }
            while self.vectors - start >= 2 {
                self.tile::<S, R, 2>(s, rows, start);
                start += 2;
            }
            if self.vectors > start {
                self.tile::<S, R, 1>(s, rows, start);
            }
        }
    }

    /// One register tile: `R` rows, `N` vectors from vector `start` on.
    ///
    /// # Safety
    /// The maker's promise, with `start + N <= vectors`.
    #[inline(always)]
    unsafe fn tile<S: Simd, const R: usize, const N: usize>(&self, s: S, rows: [*const f32; R], start: usize) {
        let column = start * S::LANES;
        let mut sums = [[s.splat(0.0); N]; R];
        let mut panel = self.panel.wrapping_add(column);
        let (mut ahead, mut within) = (self.ahead.start, 0);
        for k in 0..self.steps {
            s.prefetch(ahead.wrapping_add(within));
            within += LINE;
            if within >= self.ahead.row {
                within = 0;
                ahead = ahead.wrapping_offset(self.ahead.stride);
            }
            let mut right = [s.splat(0.0); N];
            for (n, value) in right.iter_mut().enumerate() {
                // SAFETY: row `k`, vectors below `start + N`.
                *value = unsafe { s.load_f32(panel.add(n * S::LANES)) };
            }
            for (sums, row) in sums.iter_mut().zip(rows) {
                // SAFETY: a word of the row.
                let left = unsafe { W::splat(s, row.add(k)) };
                for (sum, right) in sums.iter_mut().zip(right) {
                    *sum = W::multiply(s, left, right, *sum);
                }
            }
            panel = panel.wrapping_add(COLUMNS);
        }
        for (r, sums) in sums.into_iter().enumerate() {
            for (n, sum) in sums.into_iter().enumerate() {
                // SAFETY: row `r < R`, vectors below `start + N`.
                let p = unsafe { self.sums.add(r * COLUMNS + column + n * S::LANES) };
                // SAFETY: likewise; initialised where `add`.
                let value = if self.add { s.add(unsafe { s.load_f32(p) }, sum) } else { sum };
                // SAFETY: likewise.
                unsafe { s.store_f32(p, value) };
            }
        }
    }
}
