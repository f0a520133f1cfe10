//! What dot products over the elements as they lie take, by element type.

#![expect(unsafe_code, reason = "pointer access by element type")]
#![expect(clippy::inline_always, reason = "generic SIMD code must be inlined into the function compiled for its level")]

use half::{bf16, f16};

use crate::simd::{Element, Simd};

/// An element type whose products a level sums up.
pub(super) trait Product: Element {
    /// Whether two elements are a lane of [`Simd::dot_pairs`].
    const IS_BF16: bool = false;

    /// Elements of a vector, as [`Self::read`] loads it.
    #[inline(always)]
    fn width<S: Simd>() -> usize {
        S::LANES
    }
    /// # Safety
    /// [`Self::width`] elements are readable at `p`.
    #[inline(always)]
    unsafe fn read<S: Simd>(s: S, p: *const Self) -> S::V {
        // SAFETY: the caller's contract is the same.
        unsafe { Self::load(s, p) }
    }
    /// The elements beyond `count` are zero.
    ///
    /// # Safety
    /// `count` elements are readable at `p`, at most [`Self::width`].
    #[inline(always)]
    unsafe fn read_part<S: Simd>(s: S, p: *const Self, count: usize) -> S::V {
        // SAFETY: the caller's contract is the same.
        unsafe { Self::load_part(s, p, count) }
    }
    /// The products of the elements of `a` and `b`, added up in `sum`.
    #[inline(always)]
    fn multiply<S: Simd>(s: S, a: S::V, b: S::V, sum: S::V) -> S::V {
        s.fma(a, b, sum)
    }
}

impl Product for f32 {}

impl Product for f16 {}

impl Product for bf16 {
    const IS_BF16: bool = true;

    #[inline(always)]
    fn width<S: Simd>() -> usize {
        2 * S::LANES
    }
    #[inline(always)]
    unsafe fn read<S: Simd>(s: S, p: *const Self) -> S::V {
        // SAFETY: the caller's contract is the same; the type is a transparent u16.
        unsafe { s.load_pairs(p.cast()) }
    }
    #[inline(always)]
    unsafe fn read_part<S: Simd>(s: S, p: *const Self, count: usize) -> S::V {
        // SAFETY: the caller's contract is the same; the type is a transparent u16.
        unsafe { s.load_pairs_part(p.cast(), count) }
    }
    #[inline(always)]
    fn multiply<S: Simd>(s: S, a: S::V, b: S::V, sum: S::V) -> S::V {
        s.dot_pairs(a, b, sum)
    }
}
