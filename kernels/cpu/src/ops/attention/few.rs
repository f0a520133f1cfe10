//! Products of few rows with keys and values of 16 bits as they lie.
//!
//! Decoding reads each key and value once, so that what it costs to bring them into another form is never earned back.
//! Where the head is a whole number of pairs of vectors, elements become f32 in registers, in the order of
//! [`Element::load2`]; the rows' queries and outputs stand in that order too.

#![expect(unsafe_code, reason = "register tiles over pointers")]
#![expect(clippy::inline_always, reason = "generic SIMD code must be inlined into the function compiled for its level")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "an access and the pointer arithmetic to it share a note")]
#![expect(clippy::cast_possible_wrap, reason = "extents and offsets fit isize: checked with the tensor")]

use super::block::KEYS;
use super::multiply::TILE_ROWS;
use crate::simd::{Element, Kernel, Simd, prefetch};

/// Keys whose products are summed side by side.
const TOGETHER: usize = 4;

/// `out[r, j] = queries[r] . keys[j]`.
///
/// Whoever makes one promises: `queries` has `rows` x `depth` readable elements without gaps, `keys` `columns` x
/// `depth` at `stride` elements between rows, `out` `rows` x [`KEYS`] writable ones, apart from both; `depth` is a
/// whole number of pairs of vectors, `1 <= rows <= TILE_ROWS`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scores<B> {
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) depth: usize,
    pub(super) queries: *const f32,
    pub(super) keys: *const B,
    pub(super) stride: isize,
    pub(super) out: *mut f32,
    /// Whether the next tile's keys follow at the same stride: they are asked for.
    pub(super) ahead: bool,
}

/// `outputs[r] += weights[r] . values`.
///
/// Whoever makes one promises: `weights` has `rows` x `keys` readable elements with [`KEYS`] between rows, `values`
/// `keys` x `depth` at `stride` elements between rows, `outputs` `rows` x `depth` readable and writable ones without
/// gaps, apart from both; `depth` is a whole number of pairs of vectors, `1 <= rows <= TILE_ROWS`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Weigh<B> {
    pub(super) rows: usize,
    pub(super) keys: usize,
    pub(super) depth: usize,
    pub(super) weights: *const f32,
    pub(super) values: *const B,
    pub(super) stride: isize,
    pub(super) outputs: *mut f32,
    /// As in [`Scores`].
    pub(super) ahead: bool,
}

/// Asks for the row that stands a tile behind `row`.
#[inline(always)]
fn prefetch_row<B>(row: *const B, stride: isize, depth: usize) {
    let row = row.wrapping_offset(KEYS as isize * stride);
    for line in 0..(depth * size_of::<B>()).div_ceil(64) {
        prefetch(row.wrapping_byte_add(64 * line));
    }
}

impl<B: Element> Kernel for Scores<B> {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut row = 0;
        while row < self.rows {
            let count = (self.rows - row).min(S::TILE);
            // SAFETY: the maker's promise, for a part of the rows; at most TILE of them.
            unsafe {
                match count {
                    4 => self.rows::<S, 4>(s, row),
                    3 => self.rows::<S, 3>(s, row),
                    2 => self.rows::<S, 2>(s, row),
                    _ => self.rows::<S, 1>(s, row),
                }
            }
            row += count;
        }
    }
}

impl<B: Element> Scores<B> {
    /// # Safety
    /// The maker's promise, with `row + R <= rows`.
    #[inline(always)]
    unsafe fn rows<S: Simd, const R: usize>(&self, s: S, row: usize) {
        // SAFETY: `row` is inside.
        let queries = unsafe { self.queries.add(row * self.depth) };
        // SAFETY: `row` is inside.
        let out = unsafe { self.out.add(row * KEYS) };
        let mut column = 0;
        while column < self.columns {
            // Beyond the last column the first of them is taken again, and its result dropped.
            let count = (self.columns - column).min(TOGETHER);
            let mut keys = [self.keys; TOGETHER];
            for (j, key) in keys.iter_mut().enumerate() {
                let index = if j < count { column + j } else { column };
                *key = self.keys.wrapping_offset(index as isize * self.stride);
                if self.ahead && row == 0 {
                    prefetch_row(*key, self.stride, self.depth);
                }
            }
            let mut sums = [[s.splat(0.0); TOGETHER]; R];
            let mut d = 0;
            while d < self.depth {
                let mut right = [[s.splat(0.0); 2]; TOGETHER];
                for (value, key) in right.iter_mut().zip(keys) {
                    // SAFETY: `d + 2 * LANES <= depth`.
                    *value = unsafe { B::load2(s, key.add(d)) };
                }
                for half in 0..2 {
                    for (r, sums) in sums.iter_mut().enumerate() {
                        // SAFETY: row `r < R`, `d + 2 * LANES <= depth`.
                        let left = unsafe { s.load_f32(queries.add(r * self.depth + d + half * S::LANES)) };
                        for (sum, right) in sums.iter_mut().zip(&right) {
                            *sum = s.fma(left, right[half], *sum);
                        }
                    }
                }
                d += 2 * S::LANES;
            }
            for (r, sums) in sums.into_iter().enumerate() {
                let dots = s.sum4(sums);
                for (j, &dot) in dots.iter().enumerate().take(count) {
                    // SAFETY: row `r < R`, column below `columns`.
                    unsafe { out.add(r * KEYS + column + j).write(dot) };
                }
            }
            column += count;
        }
    }
}

impl<B: Element> Kernel for Weigh<B> {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        match self.rows {
            1 => self.columns::<S, 1>(s),
            2 => self.columns::<S, 2>(s),
            3 => self.columns::<S, 3>(s),
            4 => self.columns::<S, 4>(s),
            5 => self.columns::<S, 5>(s),
            _ => self.columns::<S, TILE_ROWS>(s),
        }
    }
}

impl<B: Element> Weigh<B> {
    #[inline(always)]
    fn columns<S: Simd, const R: usize>(&self, s: S) {
        let mut column = 0;
        if S::TILE == 4 {
            while column + 4 * S::LANES <= self.depth {
                // SAFETY: the maker's promise, for a part of the columns.
                unsafe { self.tile::<S, R, 2>(s, column) };
                column += 4 * S::LANES;
            }
        }
        while column < self.depth {
            // SAFETY: likewise.
            unsafe { self.tile::<S, R, 1>(s, column) };
            column += 2 * S::LANES;
        }
    }

    /// `R` rows, `P` pairs of vectors from `column` on.
    ///
    /// # Safety
    /// The maker's promise, with `R <= rows` and `column + 2 * P * LANES <= depth`.
    #[inline(always)]
    unsafe fn tile<S: Simd, const R: usize, const P: usize>(&self, s: S, column: usize) {
        let mut sums = [[[s.splat(0.0); 2]; P]; R];
        let mut values = self.values;
        for key in 0..self.keys {
            if self.ahead && column == 0 {
                prefetch_row(values, self.stride, self.depth);
            }
            let mut right = [[s.splat(0.0); 2]; P];
            for (pair, value) in right.iter_mut().enumerate() {
                // SAFETY: a key's row, pairs below `column / (2 * LANES) + P`.
                *value = unsafe { B::load2(s, values.add(column + 2 * pair * S::LANES)) };
            }
            for (r, sums) in sums.iter_mut().enumerate() {
                // SAFETY: row `r < R`, a weight of it.
                let left = s.splat(unsafe { self.weights.add(r * KEYS + key).read() });
                for (sum, right) in sums.as_flattened_mut().iter_mut().zip(right.as_flattened()) {
                    *sum = s.fma(left, *right, *sum);
                }
            }
            values = values.wrapping_offset(self.stride);
        }
        for (r, sums) in sums.iter().enumerate() {
            for (n, sum) in sums.as_flattened().iter().enumerate() {
                // SAFETY: row `r < R`, vectors of the columns.
                let p = unsafe { self.outputs.add(r * self.depth + column + n * S::LANES) };
                // SAFETY: likewise.
                let value = s.add(unsafe { s.load_f32(p) }, *sum);
                // SAFETY: likewise.
                unsafe { s.store_f32(p, value) };
            }
        }
    }
}
