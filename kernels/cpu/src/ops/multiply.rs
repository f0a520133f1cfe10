//! Matrix products of small blocks in f32.

#![expect(unsafe_code, reason = "register tiles over pointers")]
#![expect(clippy::inline_always, reason = "generic SIMD code must be inlined into the function compiled for its level")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "an access and the pointer arithmetic to it share a note")]
#![expect(clippy::cast_possible_wrap, reason = "extents and offsets fit isize: checked with the tensor")]

use crate::simd::{Kernel, Simd};

/// Rows of a register tile.
pub(crate) const TILE_ROWS: usize = 6;

/// `c = a b`, or `c += a b`, for up to [`TILE_ROWS`] rows.
///
/// Whoever makes one promises: `a` has `rows` x `depth` readable elements, `b` `depth` x `vectors * LANES`, `c` `rows`
/// x `vectors * LANES` writable (and initialised where `add`), each with its stride in elements between rows; `c` lies
/// apart from both; `1 <= rows <= TILE_ROWS`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Multiply {
    pub(crate) rows: usize,
    pub(crate) depth: usize,
    pub(crate) vectors: usize,
    pub(crate) a: *const f32,
    pub(crate) a_stride: usize,
    pub(crate) b: *const f32,
    pub(crate) b_stride: isize,
    pub(crate) c: *mut f32,
    pub(crate) c_stride: usize,
    pub(crate) add: bool,
}

impl Kernel for Multiply {
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

impl Multiply {
    #[inline(always)]
    fn columns<S: Simd, const R: usize>(&self, s: S) {
        let mut start = 0;
        if S::TILE == 4 {
            while self.vectors - start >= 4 {
                // SAFETY: the maker's promise, for a part of the columns.
                unsafe { self.tile::<S, R, 4>(s, start) };
                start += 4;
            }
            if self.vectors - start == 3 {
                // SAFETY: likewise.
                unsafe { self.tile::<S, R, 3>(s, start) };
                start += 3;
            }
        }
        while self.vectors - start >= 2 {
            // SAFETY: likewise.
            unsafe { self.tile::<S, R, 2>(s, start) };
            start += 2;
        }
        if self.vectors > start {
            // SAFETY: likewise.
            unsafe { self.tile::<S, R, 1>(s, start) };
        }
    }

    /// One register tile: `R` rows, `N` vectors from vector `start` on.
    ///
    /// # Safety
    /// The maker's promise, with `R <= rows` and `start + N <= vectors`.
    #[inline(always)]
    unsafe fn tile<S: Simd, const R: usize, const N: usize>(&self, s: S, start: usize) {
        let column = start * S::LANES;
        let mut sums = [[s.splat(0.0); N]; R];
        // SAFETY: `column` is inside a row.
        let mut b = unsafe { self.b.add(column) };
        // SAFETY: likewise.
        let c = unsafe { self.c.add(column) };
        for k in 0..self.depth {
            let mut right = [s.splat(0.0); N];
            for (n, value) in right.iter_mut().enumerate() {
                // SAFETY: row `k`, vectors below `start + N`.
                *value = unsafe { s.load_f32(b.add(n * S::LANES)) };
            }
            for (r, sums) in sums.iter_mut().enumerate() {
                // SAFETY: row `r < R`, column `k < depth`.
                let left = s.splat(unsafe { self.a.add(r * self.a_stride + k).read() });
                for (sum, right) in sums.iter_mut().zip(right) {
                    *sum = s.fma(left, right, *sum);
                }
            }
            b = b.wrapping_offset(self.b_stride);
        }
        for (r, sums) in sums.into_iter().enumerate() {
            for (n, sum) in sums.into_iter().enumerate() {
                // SAFETY: row `r < R`, vectors below `start + N`.
                let p = unsafe { c.add(r * self.c_stride + n * S::LANES) };
                // SAFETY: likewise; initialised where `add`.
                let value = if self.add { s.add(unsafe { s.load_f32(p) }, sum) } else { sum };
                // SAFETY: likewise.
                unsafe { s.store_f32(p, value) };
            }
        }
    }
}

/// `c[r, j] = a[r] . b[j]` for few rows: both factors dense along the depth, which is a whole number of vectors.
///
/// Whoever makes one promises: `a` has `rows` x `depth` readable elements, `b` `columns` x `depth`, `c` `rows` x
/// `columns` writable, each with its stride in elements between rows; `c` lies apart from both.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Dots {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) depth: usize,
    pub(crate) a: *const f32,
    pub(crate) a_stride: usize,
    pub(crate) b: *const f32,
    pub(crate) b_stride: isize,
    pub(crate) c: *mut f32,
    pub(crate) c_stride: usize,
}

impl Kernel for Dots {
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

impl Dots {
    /// # Safety
    /// The maker's promise, with `row + R <= rows`.
    #[inline(always)]
    unsafe fn rows<S: Simd, const R: usize>(&self, s: S, row: usize) {
        // SAFETY: `row` is inside.
        let a = unsafe { self.a.add(row * self.a_stride) };
        // SAFETY: `row` is inside.
        let c = unsafe { self.c.add(row * self.c_stride) };
        let mut column = 0;
        while column < self.columns {
            // Beyond the last column the first of the four is taken again, and its result dropped.
            let count = (self.columns - column).min(4);
            let mut keys = [self.b; 4];
            for (j, key) in keys.iter_mut().enumerate() {
                let index = if j < count { column + j } else { column };
                *key = self.b.wrapping_offset(index as isize * self.b_stride);
            }
            let mut sums = [[s.splat(0.0); 4]; R];
            let mut d = 0;
            while d < self.depth {
                let mut right = [s.splat(0.0); 4];
                for (value, key) in right.iter_mut().zip(keys) {
                    // SAFETY: `d + LANES <= depth`.
                    *value = unsafe { s.load_f32(key.add(d)) };
                }
                for (r, sums) in sums.iter_mut().enumerate() {
                    // SAFETY: row `r < R`, `d + LANES <= depth`.
                    let left = unsafe { s.load_f32(a.add(r * self.a_stride + d)) };
                    for (sum, right) in sums.iter_mut().zip(right) {
                        *sum = s.fma(left, right, *sum);
                    }
                }
                d += S::LANES;
            }
            for (r, sums) in sums.into_iter().enumerate() {
                let dots = s.sum4(sums);
                for (j, &dot) in dots.iter().enumerate().take(count) {
                    // SAFETY: row `r < R`, column below `columns`.
                    unsafe { c.add(r * self.c_stride + column + j).write(dot) };
                }
            }
            column += count;
        }
    }
}
