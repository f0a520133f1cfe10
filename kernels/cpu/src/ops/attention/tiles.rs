//! Memory of a block: tiles on the stack, rows unpacked to f32.

#![expect(unsafe_code, reason = "tiles on the stack, rows by pointer")]
#![expect(clippy::inline_always, reason = "generic SIMD code must be inlined into the function compiled for its level")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "an access and the pointer arithmetic to it share a note")]
#![expect(clippy::cast_possible_wrap, reason = "extents and offsets fit isize: checked with the tensor")]

use core::mem::MaybeUninit;

use super::View;
use crate::simd::{Element, Simd};

/// Cache-line aligned, so that vectors of a row never straddle lines.
#[repr(align(64))]
pub(super) struct Tile<const N: usize>(MaybeUninit<[f32; N]>);

impl<const N: usize> Tile<N> {
    pub(super) fn new() -> Self {
        Self(MaybeUninit::uninit())
    }
    pub(super) fn pointer(&mut self) -> *mut f32 {
        self.0.as_mut_ptr().cast()
    }
}

/// The keys or values of a tile as rows of f32, or of the tensors' own type where `raw`.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    pub(super) data: *const f32,
    /// In elements of the rows' type.
    pub(super) stride: isize,
    pub(super) raw: bool,
}

impl Rows {
    /// The first element of a row of `B`, the rows' type; to be read only where the row is one of the tile's.
    #[inline(always)]
    pub(super) fn row<B>(self, index: usize) -> *const B {
        self.data.cast::<B>().wrapping_offset(index as isize * self.stride)
    }
}

/// Zeroes `count` elements rounded up to whole vectors.
///
/// # Safety
/// They are writable.
#[inline(always)]
pub(super) unsafe fn zero<S: Simd>(s: S, to: *mut f32, count: usize) {
    let mut i = 0;
    while i < count {
        // SAFETY: below `count` rounded up.
        unsafe { s.store_f32(to.add(i), s.splat(0.0)) };
        i += S::LANES;
    }
}

/// Writes `factor * from` as f32, zero-padded to whole vectors.
///
/// # Safety
/// `count` elements are readable at `from`, and `count` rounded up to whole vectors writable at `to`.
#[inline(always)]
pub(super) unsafe fn unpack<S: Simd, E: Element>(s: S, from: *const E, count: usize, to: *mut f32, factor: S::V) {
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

/// Writes `factor * from` as f32, in the order of pairs of vectors of its type.
///
/// # Safety
/// `count` elements, a whole number of pairs of vectors, are readable at `from` and writable at `to`.
#[inline(always)]
pub(super) unsafe fn unpack_pairs<S: Simd, E: Element>(s: S, from: *const E, count: usize, to: *mut f32, factor: S::V) {
    let mut i = 0;
    while i < count {
        // SAFETY: `i + 2 * LANES <= count`.
        let [first, second] = unsafe { E::load2(s, from.add(i)) };
        // SAFETY: likewise.
        unsafe { s.store_f32(to.add(i), s.mul(first, factor)) };
        // SAFETY: likewise.
        unsafe { s.store_f32(to.add(i + S::LANES), s.mul(second, factor)) };
        i += 2 * S::LANES;
    }
}

/// Whether no element is infinite or NaN.
///
/// # Safety
/// `count` rows of `depth` elements of `B`, a whole number of vectors, are readable.
#[inline(always)]
pub(super) unsafe fn all_finite<S: Simd, B: Element>(s: S, rows: Rows, count: usize, depth: usize) -> bool {
    // 0 * x is 0 for finite x, else NaN, and NaN stays in a sum.
    let mut sum = s.splat(0.0);
    let zero = s.splat(0.0);
    for row in 0..count {
        let from = rows.row::<B>(row);
        let mut d = 0;
        while d < depth {
            // SAFETY: inside the row.
            sum = s.fma(unsafe { B::load(s, from.add(d)) }, zero, sum);
            d += S::LANES;
        }
    }
    s.sum(sum) == 0.0
}

impl<E> View<E> {
    /// # Safety
    /// `index` is inside the first three axes.
    #[inline(always)]
    pub(super) unsafe fn row(&self, index: [usize; 3]) -> *mut E {
        let offset: isize = (0..3).map(|axis| index[axis] as isize * self.strides[axis]).sum();
        // SAFETY: inside the tensor's checked span by this function's contract.
        unsafe { self.data.offset(offset) }
    }
}
