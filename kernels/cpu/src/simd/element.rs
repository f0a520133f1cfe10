//! The element types of tensors, loaded as f32 vectors and stored with one rounding to nearest even.

#![expect(unsafe_code, reason = "pointer access by element type")]
#![expect(clippy::inline_always, reason = "generic SIMD code must be inlined into the function compiled for its level")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "an access and the pointer arithmetic to it share a note")]

use half::{bf16, f16};

use super::Simd;

/// How exact f32 arithmetic has to be for results that are rounded once more.
#[cfg(feature = "activation")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Precision {
    /// They are not: to the last bits.
    Single,
    /// To f16, which keeps 11 bits.
    F16,
    /// To bf16, which keeps 8 bits.
    Bf16,
}

/// An element type of tensors. The pointer contracts are those of [`Simd`].
pub(crate) trait Element: Copy + Send + Sync + 'static {
    /// Whether rows can be used as f32 without conversion.
    const IS_F32: bool;
    /// How far from zero values may stand, as the square of a mean in variances, for the variance to keep the type's
    /// digits when it is taken as the difference of two squares in f32.
    const FAR: f64;
    /// Whether [`Self::sum2`] and its kin multiply pairs as they lie: see [`Simd::dot_pairs`].
    const IN_PAIRS: bool = false;
    /// What results of this type ask for.
    #[cfg(feature = "activation")]
    const PRECISION: Precision;

    /// # Safety
    /// See [`Simd`].
    unsafe fn load<S: Simd>(simd: S, p: *const Self) -> S::V;
    /// # Safety
    /// See [`Simd`].
    unsafe fn load_part<S: Simd>(simd: S, p: *const Self, count: usize) -> S::V;
    /// # Safety
    /// See [`Simd`].
    unsafe fn store<S: Simd>(simd: S, p: *mut Self, v: S::V);
    /// # Safety
    /// See [`Simd`].
    unsafe fn store_part<S: Simd>(simd: S, p: *mut Self, v: S::V, count: usize);
    /// # Safety
    /// See [`Simd`].
    unsafe fn stream<S: Simd>(simd: S, p: *mut Self, v: S::V);
    /// `2 * LANES` elements in an order that depends on the type and the level alone.
    ///
    /// # Safety
    /// See [`Simd`].
    #[inline(always)]
    unsafe fn load2<S: Simd>(simd: S, p: *const Self) -> [S::V; 2] {
        // SAFETY: the caller's contract, for each half.
        unsafe { [Self::load(simd, p), Self::load(simd, p.add(S::LANES))] }
    }
    /// The inverse of [`Self::load2`].
    ///
    /// # Safety
    /// See [`Simd`].
    #[inline(always)]
    unsafe fn store2<S: Simd>(simd: S, p: *mut Self, v: [S::V; 2]) {
        // SAFETY: the caller's contract, for the first half.
        unsafe { Self::store(simd, p, v[0]) };
        // SAFETY: the caller's contract, for the second half.
        unsafe { Self::store(simd, p.add(S::LANES), v[1]) };
    }
    /// [`Self::store2`], which may take less time where no element rounds to 0 or to a subnormal number.
    ///
    /// # Safety
    /// See [`Simd`].
    #[inline(always)]
    unsafe fn store2_nonzero<S: Simd>(simd: S, p: *mut Self, v: [S::V; 2]) {
        // SAFETY: the caller's contract is the same.
        unsafe { Self::store2(simd, p, v) };
    }
    /// [`Self::store2`] past the caches.
    ///
    /// # Safety
    /// See [`Simd`]; the address is a multiple of `4 * LANES` bytes.
    #[inline(always)]
    unsafe fn stream2<S: Simd>(simd: S, p: *mut Self, v: [S::V; 2]) {
        // SAFETY: the caller's contract, for the first half.
        unsafe { Self::stream(simd, p, v[0]) };
        // SAFETY: the caller's contract, for the second half.
        unsafe { Self::stream(simd, p.add(S::LANES), v[1]) };
    }
    /// Adds `2 * LANES` elements to one of four sums of pairs of vectors, and their squares to one of four others; which
    /// ones, `step` says, which counts the pairs of a row.
    ///
    /// # Safety
    /// See [`Simd`].
    #[inline(always)]
    unsafe fn sum2<S: Simd>(simd: S, p: *const Self, sums: &mut [S::V; 4], squares: &mut [S::V; 4], step: usize) {
        // SAFETY: the caller's contract is the same.
        let values = unsafe { Self::load2(simd, p) };
        for (half, value) in values.into_iter().enumerate() {
            let at = (2 * step + half) % 4;
            sums[at] = simd.add(sums[at], value);
            squares[at] = simd.fma(value, value, squares[at]);
        }
    }
    /// The part of [`Self::sum2`] with the squares, to the bit.
    ///
    /// # Safety
    /// See [`Simd`].
    #[inline(always)]
    unsafe fn square2<S: Simd>(simd: S, p: *const Self, squares: &mut [S::V; 4], step: usize) {
        // SAFETY: the caller's contract is the same.
        let values = unsafe { Self::load2(simd, p) };
        square(simd, values, squares, step);
    }
    /// [`Self::store2`], and [`Self::square2`] of what it wrote, to the bit.
    ///
    /// # Safety
    /// See [`Simd`].
    unsafe fn store_square2<S: Simd>(simd: S, p: *mut Self, v: [S::V; 2], squares: &mut [S::V; 4], step: usize);
    /// The value, exactly.
    fn to_f32(self) -> f32;
    /// Rounds to nearest even.
    fn from_f32(value: f32) -> Self;
}

impl Element for f32 {
    const IS_F32: bool = true;
    const FAR: f64 = 1.0;
    #[cfg(feature = "activation")]
    const PRECISION: Precision = Precision::Single;

    #[inline(always)]
    unsafe fn load<S: Simd>(simd: S, p: *const Self) -> S::V {
        // SAFETY: the caller's contract is the same.
        unsafe { simd.load_f32(p) }
    }
    #[inline(always)]
    unsafe fn load_part<S: Simd>(simd: S, p: *const Self, count: usize) -> S::V {
        // SAFETY: the caller's contract is the same.
        unsafe { simd.load_f32_part(p, count) }
    }
    #[inline(always)]
    unsafe fn store<S: Simd>(simd: S, p: *mut Self, v: S::V) {
        // SAFETY: the caller's contract is the same.
        unsafe { simd.store_f32(p, v) }
    }
    #[inline(always)]
    unsafe fn store_part<S: Simd>(simd: S, p: *mut Self, v: S::V, count: usize) {
        // SAFETY: the caller's contract is the same.
        unsafe { simd.store_f32_part(p, v, count) }
    }
    #[inline(always)]
    unsafe fn stream<S: Simd>(simd: S, p: *mut Self, v: S::V) {
        // SAFETY: the caller's contract is the same.
        unsafe { simd.stream_f32(p, v) }
    }
    #[inline(always)]
    unsafe fn store_square2<S: Simd>(simd: S, p: *mut Self, v: [S::V; 2], squares: &mut [S::V; 4], step: usize) {
        // SAFETY: the caller's contract is the same.
        unsafe { Self::store2(simd, p, v) };
        square(simd, v, squares, step);
    }
    #[inline(always)]
    fn to_f32(self) -> f32 {
        self
    }
    #[inline(always)]
    fn from_f32(value: f32) -> Self {
        value
    }
}

/// The squares of a pair of vectors, each to a sum of its own.
#[inline(always)]
fn square<S: Simd>(simd: S, values: [S::V; 2], squares: &mut [S::V; 4], step: usize) {
    for (half, value) in values.into_iter().enumerate() {
        let at = (2 * step + half) % 4;
        squares[at] = simd.fma(value, value, squares[at]);
    }
}

/// The first `count` elements at `p`, the other lanes zero.
///
/// # Safety
/// See [`Simd`].
#[inline(always)]
pub(crate) unsafe fn load<S: Simd, E: Element>(simd: S, p: *const E, count: usize) -> S::V {
    if count == S::LANES {
        // SAFETY: the caller's contract is the same.
        unsafe { E::load(simd, p) }
    } else {
        // SAFETY: the caller's contract is the same.
        unsafe { E::load_part(simd, p, count) }
    }
}

/// Writes the first `count` lanes.
///
/// # Safety
/// See [`Simd`].
#[inline(always)]
pub(crate) unsafe fn store<S: Simd, E: Element>(simd: S, p: *mut E, v: S::V, count: usize) {
    if count == S::LANES {
        // SAFETY: the caller's contract is the same.
        unsafe { E::store(simd, p, v) };
    } else {
        // SAFETY: the caller's contract is the same.
        unsafe { E::store_part(simd, p, v, count) };
    }
}

/// `2 * LANES` elements in the order in which pairs of the type `L` are loaded, which is `E` or f32.
///
/// # Safety
/// See [`Simd`].
#[inline(always)]
pub(crate) unsafe fn load2_as<S: Simd, E: Element, L: Element>(simd: S, p: *const E) -> [S::V; 2] {
    if size_of::<E>() == size_of::<L>() {
        // SAFETY: the caller's contract is the same.
        return unsafe { E::load2(simd, p) };
    }
    // Elements of f32 stand in their places.
    // SAFETY: the caller's contract, for each half.
    unsafe { [E::load(simd, p), E::load(simd, p.add(S::LANES))] }
}

/// The inverse of [`load2_as`]; past the caches where `stream`.
///
/// # Safety
/// See [`Simd`]; where `stream`, the address is a multiple of `4 * LANES` bytes.
#[inline(always)]
pub(crate) unsafe fn store2_as<S: Simd, E: Element, L: Element>(simd: S, p: *mut E, v: [S::V; 2], stream: bool) {
    match (size_of::<E>() == size_of::<L>(), stream) {
        // SAFETY: the caller's contract is the same.
        (true, false) => unsafe { E::store2(simd, p, v) },
        // SAFETY: likewise, with the alignment.
        (true, true) => unsafe { E::stream2(simd, p, v) },
        // SAFETY: the caller's contract, for each half.
        (false, false) => unsafe {
            E::store(simd, p, v[0]);
            E::store(simd, p.add(S::LANES), v[1]);
        },
        // SAFETY: likewise; the alignment of pairs is that of each vector too.
        (false, true) => unsafe {
            E::stream(simd, p, v[0]);
            E::stream(simd, p.add(S::LANES), v[1]);
        },
    }
}

/// Longest vector of any level, in lanes.
const MAX_LANES: usize = 16;

macro_rules! half_element {
    ($type:ty, $precision:ident, $load:ident, $store:ident, $stream:ident, { $($pairs:tt)* }) => {
        impl Element for $type {
            const IS_F32: bool = false;
            // Errors of a mean in f32 grow with it beside the deviation, and show where a bias takes most of a result away.
            const FAR: f64 = 4.0;
            #[cfg(feature = "activation")]
            const PRECISION: Precision = Precision::$precision;

            #[inline(always)]
            unsafe fn load<S: Simd>(simd: S, p: *const Self) -> S::V {
                // SAFETY: the caller's contract is the same; the type is a transparent u16.
                unsafe { simd.$load(p.cast()) }
            }
            #[inline(always)]
            unsafe fn load_part<S: Simd>(simd: S, p: *const Self, count: usize) -> S::V {
                let mut whole = [0_u16; MAX_LANES];
                // SAFETY: `count` elements are readable by the caller's contract, and `count <= LANES <= MAX_LANES`.
                unsafe { core::ptr::copy_nonoverlapping(p.cast::<u16>(), whole.as_mut_ptr(), count) };
                // SAFETY: `whole` holds at least LANES elements.
                unsafe { simd.$load(whole.as_ptr()) }
            }
            #[inline(always)]
            unsafe fn store<S: Simd>(simd: S, p: *mut Self, v: S::V) {
                // SAFETY: the caller's contract is the same; the type is a transparent u16.
                unsafe { simd.$store(p.cast(), v) }
            }
            #[inline(always)]
            unsafe fn store_part<S: Simd>(simd: S, p: *mut Self, v: S::V, count: usize) {
                let mut whole = [0_u16; MAX_LANES];
                // SAFETY: `whole` holds at least LANES elements.
                unsafe { simd.$store(whole.as_mut_ptr(), v) };
                // SAFETY: `count` elements are writable by the caller's contract, and `count <= LANES <= MAX_LANES`.
                unsafe { core::ptr::copy_nonoverlapping(whole.as_ptr(), p.cast::<u16>(), count) };
            }
            #[inline(always)]
            unsafe fn stream<S: Simd>(simd: S, p: *mut Self, v: S::V) {
                // SAFETY: the caller's contract is the same; the type is a transparent u16.
                unsafe { simd.$stream(p.cast(), v) }
            }
            $($pairs)*
            #[inline(always)]
            fn to_f32(self) -> f32 {
                <$type>::to_f32(self)
            }
            #[inline(always)]
            fn from_f32(value: f32) -> Self {
                <$type>::from_f32(value)
            }
        }
    };
}

half_element!(bf16, Bf16, load_bf16, store_bf16, stream_bf16, {
    #[inline(always)]
    unsafe fn load2<S: Simd>(simd: S, p: *const Self) -> [S::V; 2] {
        // SAFETY: the caller's contract is the same; the type is a transparent u16.
        unsafe { simd.load2_bf16(p.cast()) }
    }
    #[inline(always)]
    unsafe fn store2<S: Simd>(simd: S, p: *mut Self, v: [S::V; 2]) {
        // SAFETY: the caller's contract is the same; the type is a transparent u16.
        unsafe { simd.store2_bf16(p.cast(), v) }
    }
    #[inline(always)]
    unsafe fn store2_nonzero<S: Simd>(simd: S, p: *mut Self, v: [S::V; 2]) {
        // SAFETY: the caller's contract is the same; the type is a transparent u16.
        unsafe { simd.store2_bf16_nonzero(p.cast(), v) }
    }
    #[inline(always)]
    unsafe fn stream2<S: Simd>(simd: S, p: *mut Self, v: [S::V; 2]) {
        // SAFETY: the caller's contract is the same; the type is a transparent u16.
        unsafe { simd.stream2_bf16(p.cast(), v) }
    }
    const IN_PAIRS: bool = true;

    #[inline(always)]
    unsafe fn sum2<S: Simd>(simd: S, p: *const Self, sums: &mut [S::V; 4], squares: &mut [S::V; 4], step: usize) {
        const ONE: u32 = 0x3f80;
        let at = step % 4;
        // SAFETY: the caller's contract is the same; the type is a transparent u16.
        let pairs = unsafe { simd.load_pairs(p.cast()) };
        sums[at] = simd.dot_pairs(pairs, simd.splat_pair(ONE << 16 | ONE), sums[at]);
        squares[at] = simd.dot_pairs(pairs, pairs, squares[at]);
    }
    #[inline(always)]
    unsafe fn square2<S: Simd>(simd: S, p: *const Self, squares: &mut [S::V; 4], step: usize) {
        let at = step % 4;
        // SAFETY: the caller's contract is the same; the type is a transparent u16.
        let pairs = unsafe { simd.load_pairs(p.cast()) };
        squares[at] = simd.dot_pairs(pairs, pairs, squares[at]);
    }
    #[inline(always)]
    unsafe fn store_square2<S: Simd>(simd: S, p: *mut Self, v: [S::V; 2], squares: &mut [S::V; 4], step: usize) {
        let at = step % 4;
        // SAFETY: the caller's contract is the same; the type is a transparent u16.
        let pairs = unsafe { simd.store2_bf16_pairs(p.cast(), v) };
        squares[at] = simd.dot_pairs(pairs, pairs, squares[at]);
    }
});
half_element!(f16, F16, load_f16, store_f16, stream_f16, {
    #[inline(always)]
    unsafe fn store_square2<S: Simd>(simd: S, p: *mut Self, v: [S::V; 2], squares: &mut [S::V; 4], step: usize) {
        // SAFETY: the caller's contract, for the first half; the type is a transparent u16.
        let first = unsafe { simd.store_f16_back(p.cast(), v[0]) };
        // SAFETY: likewise, for the second half.
        let second = unsafe { simd.store_f16_back(p.add(S::LANES).cast(), v[1]) };
        square(simd, [first, second], squares, step);
    }
});
