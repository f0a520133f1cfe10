//! Vectors of f32 at four instruction levels, behind one trait.
//!
//! Owns: the vector operations that the kernels use, the conversions from and to bf16 and f16, and the choice of a
//! level at run time. Refuses: to know any kernel.
//!
//! Invariant: a value of a level's type (`Avx512<BF16>`, `Avx2`) exists only where the CPU has that level, so that its
//! arithmetic is safe to call; only memory access stays `unsafe`. Main choice: kernels are written once, generic over
//! [`Simd`], and compiled once per level by [`Simd::call`]. The cost is that every generic piece must be
//! `#[inline(always)]`, since code left outside that function would be compiled without the level's instructions.

#![expect(unsafe_code, reason = "declares the methods that access memory")]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod element;
mod level;
#[cfg(any(
    feature = "activation",
    feature = "flash-attn2",
    feature = "linear",
    feature = "cross-entropy",
    feature = "softmax"
))]
mod math;
#[cfg(feature = "activation")]
mod normal;
#[cfg(target_arch = "x86_64")]
mod packed;
mod portable;
#[cfg(target_arch = "x86_64")]
mod powers;
mod wide;

pub(crate) use element::Element;
#[cfg(feature = "activation")]
pub(crate) use element::Precision;
#[cfg(any(
    feature = "rmsnorm",
    feature = "layer-norm",
    feature = "activation",
    feature = "linear",
    feature = "cross-entropy",
    feature = "softmax"
))]
pub(crate) use element::{load, store};
#[cfg(any(feature = "rmsnorm", feature = "layer-norm", feature = "rotary"))]
pub(crate) use element::{load2_as, store2_as};
pub use level::{Level, available, force_level};
pub(crate) use level::{current, dispatch};
#[cfg(any(feature = "activation", feature = "cross-entropy"))]
pub(crate) use math::exp_minus;
#[cfg(any(feature = "activation", feature = "linear"))]
pub(crate) use math::sigmoid_weighted;
#[cfg(any(feature = "cross-entropy", feature = "softmax"))]
pub(crate) use math::{EXP_SCALE, exp_minus_scaled};
#[cfg(feature = "flash-attn2")]
pub(crate) use math::{exp2, tanh};
#[cfg(feature = "activation")]
pub(crate) use normal::normal_weighted;
pub(crate) use wide::Arithmetic;
#[cfg(any(feature = "activation", feature = "cross-entropy", feature = "softmax"))]
pub(crate) use wide::Wide;

/// What is added to a number below 2^17 so that its sum rounds it to a multiple of 1/32, of which the low five bits of
/// the sum are the fraction.
pub(crate) const ROUND32: f32 = 393_216.0;

/// Code that [`Simd::call`] compiles for one level.
pub(crate) trait Kernel {
    /// Runs the code. Implementations are `#[inline(always)]`.
    fn run<S: Simd>(self, simd: S);
}

/// The vector operations of one instruction level.
///
/// All pointer methods ask of the caller: the elements that the name says (`LANES`, or the first `count` for the
/// `_part` forms, `count <= LANES`) are valid for the access. No alignment beyond the element's is needed, except by
/// the `stream` forms, whose address must be a multiple of the vector's bytes.
pub(crate) trait Simd: Copy + Send + Sync + 'static {
    /// A vector of f32.
    type V: Copy;
    /// Lanes of [`Self::V`].
    const LANES: usize;
    /// Vectors per row in a register tile of six rows: all accumulators stay in registers.
    const TILE: usize;
    /// Whether there are the tables that [`Self::power32`], [`Self::power`] and [`Self::lookup`]
    /// read, and with them [`Self::any_below`].
    const TABLE: bool = false;
    /// Whether [`Self::dot_pairs`] is one instruction; else it takes as long as converting to f32 and multiplying.
    const PAIRS: bool;

    /// Runs `kernel` in a function compiled for this level.
    fn call<K: Kernel>(self, kernel: K);

    /// All lanes `value`.
    fn splat(self, value: f32) -> Self::V;
    /// `a + b`.
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a - b`.
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b`.
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    /// `1 / a` within 1 ulp, for `a` within 1..=2^60; NaN for NaN.
    fn reciprocal(self, a: Self::V) -> Self::V;
    /// `a / b`, rounded once.
    fn divide(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b + c`, rounded once where the level has such an instruction.
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// `c - a * b`, rounded once where the level has such an instruction.
    fn fnma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// The greater one; `b` where either is NaN.
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    /// The lesser one; `b` where either is NaN.
    fn min(self, a: Self::V, b: Self::V) -> Self::V;
    /// `x` within `low..=high`, which are below and above 0; NaN may become one of them.
    #[expect(clippy::inline_always, reason = "must be inlined into the function compiled for its level")]
    #[inline(always)]
    fn clamp(self, x: Self::V, low: Self::V, high: Self::V) -> Self::V {
        self.min(high, self.max(low, x))
    }
    /// The lesser of two numbers without a sign; `bound` for NaN.
    #[expect(clippy::inline_always, reason = "must be inlined into the function compiled for its level")]
    #[inline(always)]
    fn at_most(self, a: Self::V, bound: Self::V) -> Self::V {
        self.min(a, bound)
    }
    /// Without the sign.
    fn abs(self, a: Self::V) -> Self::V;
    /// To the nearest integer, ties to even.
    fn round(self, a: Self::V) -> Self::V;
    /// `a * 2^n` for integral `n` within -160..=160, rounded once. Where there is a table of powers, `n` may lie
    /// between integers, and the power is that of the lesser one.
    fn scale2(self, a: Self::V, n: Self::V) -> Self::V;
    /// `2^(k/32)`, where `k` is the number in the low five bits of each lane. Only where [`Self::TABLE`].
    #[expect(clippy::inline_always, reason = "must be inlined into the function compiled for its level")]
    #[inline(always)]
    fn power32(self, bits: Self::V) -> Self::V {
        debug_assert!(Self::TABLE, "this level has no table");
        bits
    }
    /// `2^x` of the `x` that `rounded` is [`ROUND32`] plus, a multiple of 1/32 within -126..127.
    #[expect(clippy::inline_always, reason = "must be inlined into the function compiled for its level")]
    #[inline(always)]
    fn power(self, rounded: Self::V) -> Self::V {
        debug_assert!(Self::TABLE, "this level has no table");
        rounded
    }
    /// `table[k]`, where `k` is the number in the low five bits of each lane.
    #[expect(clippy::inline_always, reason = "must be inlined into the function compiled for its level")]
    #[inline(always)]
    fn lookup(self, table: &'static [f32; 32], bits: Self::V) -> Self::V {
        debug_assert!(Self::TABLE, "this level has no table");
        let _ = table;
        bits
    }
    /// `v` as it is, of which the compiler knows no vector before it has all: it would else take one after another
    /// through a long formula, which fits fewer registers, but waits for every step of it.
    #[expect(clippy::inline_always, reason = "must be inlined into the function compiled for its level")]
    #[inline(always)]
    fn abreast<const N: usize>(self, v: [Self::V; N]) -> [Self::V; N] {
        v
    }
    /// Whether any lane is below `limit`, which is below 0; for NaN either.
    #[expect(clippy::inline_always, reason = "must be inlined into the function compiled for its level")]
    #[inline(always)]
    fn any_below<const N: usize>(self, x: [Self::V; N], limit: f32) -> bool {
        debug_assert!(Self::TABLE, "this level has no table");
        let _ = (x, limit);
        true
    }
    /// `a` where `x < 0`, else `b`.
    fn where_negative(self, x: Self::V, a: Self::V, b: Self::V) -> Self::V;
    /// The first `count` lanes of `v`, the others `fill`.
    fn keep_first(self, v: Self::V, count: usize, fill: f32) -> Self::V;
    /// The sum of the lanes.
    fn sum(self, v: Self::V) -> f32;
    /// The sums of the lanes of four vectors.
    fn sum4(self, v: [Self::V; 4]) -> [f32; 4];
    /// The greatest lane. NaN lanes may be ignored.
    fn max_lane(self, v: Self::V) -> f32;
    /// `(a0, b0, a1, b1, ..)` split into its `a` and `b`.
    fn deinterleave(self, low: Self::V, high: Self::V) -> (Self::V, Self::V);
    /// The inverse of [`Self::deinterleave`].
    fn interleave(self, a: Self::V, b: Self::V) -> (Self::V, Self::V);
    /// Transposes a block of `LANES` x `LANES` f32; the strides are in elements between rows.
    ///
    /// # Safety
    /// `LANES` rows of `LANES` elements are readable from `source` and writable at `target`, without overlap.
    unsafe fn transpose(self, source: *const f32, source_stride: usize, target: *mut f32, target_stride: usize);
    /// Orders streamed stores before whatever follows.
    fn fence(self);
    /// Asks for the cache line of an address, which need not be valid, ahead of its use.
    fn prefetch(self, p: *const u8);
    /// All lanes the pair of bf16 whose bits these are, the first one in the low half.
    fn splat_pair(self, pair: u32) -> Self::V;
    /// `a0 b0 + a1 b1 + c` in each lane, for `a` and `b` whose lanes hold pairs of bf16: products in f32, two additions,
    /// `c` with the second of the pair first.
    ///
    /// Where [`Self::PAIRS`], subnormal numbers count as zero, on the way in and on the way out: in `a`, `b`, `c`, the
    /// products and the sums, whatever the thread's rounding mode says. That is an error of less than 2^-126 for each
    /// term. Sums round to nearest even; NaN and infinity come through as in f32.
    fn dot_pairs(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;

    /// # Safety
    /// See the trait.
    unsafe fn load_f32(self, p: *const f32) -> Self::V;
    /// Lanes from `count` on are zero.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn load_f32_part(self, p: *const f32, count: usize) -> Self::V;
    /// # Safety
    /// See the trait.
    unsafe fn store_f32(self, p: *mut f32, v: Self::V);
    /// # Safety
    /// See the trait.
    unsafe fn store_f32_part(self, p: *mut f32, v: Self::V, count: usize);
    /// # Safety
    /// See the trait.
    unsafe fn stream_f32(self, p: *mut f32, v: Self::V);

    /// `LANES` pairs of bf16, as they lie.
    ///
    /// # Safety
    /// See the trait; `2 * LANES` elements.
    unsafe fn load_pairs(self, p: *const u16) -> Self::V;
    /// Pairs of the first `count` bf16, of at most `2 * LANES`; what is beyond them is zero.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn load_pairs_part(self, p: *const u16, count: usize) -> Self::V;
    /// # Safety
    /// See the trait.
    unsafe fn load_bf16(self, p: *const u16) -> Self::V;
    /// # Safety
    /// See the trait.
    unsafe fn load_f16(self, p: *const u16) -> Self::V;
    /// # Safety
    /// See the trait.
    unsafe fn store_bf16(self, p: *mut u16, v: Self::V);
    /// # Safety
    /// See the trait.
    unsafe fn store_f16(self, p: *mut u16, v: Self::V);
    /// # Safety
    /// See the trait.
    unsafe fn stream_bf16(self, p: *mut u16, v: Self::V);
    /// # Safety
    /// See the trait.
    unsafe fn stream_f16(self, p: *mut u16, v: Self::V);

    /// `2 * LANES` elements in an order of the level's own, the same at every call: whatever does not care which
    /// element stands in which lane takes and gives them so, which costs less than their right order.
    ///
    /// # Safety
    /// See the trait; `2 * LANES` elements.
    #[expect(clippy::inline_always, reason = "must be inlined into the function compiled for its level")]
    #[inline(always)]
    unsafe fn load2_bf16(self, p: *const u16) -> [Self::V; 2] {
        // SAFETY: the first half of what the caller's contract covers.
        let first = unsafe { self.load_bf16(p) };
        // SAFETY: the second half.
        #[expect(clippy::multiple_unsafe_ops_per_block, reason = "an access and the pointer arithmetic to it")]
        [first, unsafe { self.load_bf16(p.add(Self::LANES)) }]
    }
    /// The inverse of [`Self::load2_bf16`].
    ///
    /// # Safety
    /// See the trait; `2 * LANES` elements.
    #[expect(clippy::inline_always, reason = "must be inlined into the function compiled for its level")]
    #[inline(always)]
    unsafe fn store2_bf16(self, p: *mut u16, v: [Self::V; 2]) {
        // SAFETY: the first half of what the caller's contract covers.
        unsafe { self.store_bf16(p, v[0]) };
        // SAFETY: the second half.
        #[expect(clippy::multiple_unsafe_ops_per_block, reason = "an access and the pointer arithmetic to it")]
        unsafe {
            self.store_bf16(p.add(Self::LANES), v[1]);
        }
    }
    /// [`Self::store2_bf16`], which takes less time where none of the elements rounds to 0 or to a subnormal number.
    ///
    /// # Safety
    /// See the trait; `2 * LANES` elements.
    #[expect(clippy::inline_always, reason = "must be inlined into the function compiled for its level")]
    #[inline(always)]
    unsafe fn store2_bf16_nonzero(self, p: *mut u16, v: [Self::V; 2]) {
        // SAFETY: the caller's contract is the same.
        unsafe { self.store2_bf16(p, v) }
    }
    /// [`Self::store2_bf16`], which gives what it wrote, as [`Self::load_pairs`] would.
    ///
    /// # Safety
    /// See the trait; `2 * LANES` elements.
    #[expect(clippy::inline_always, reason = "must be inlined into the function compiled for its level")]
    #[inline(always)]
    unsafe fn store2_bf16_pairs(self, p: *mut u16, v: [Self::V; 2]) -> Self::V {
        // SAFETY: the caller's contract is the same.
        unsafe { self.store2_bf16(p, v) };
        // SAFETY: just written.
        unsafe { self.load_pairs(p) }
    }
    /// [`Self::store_f16`], which gives what it wrote.
    ///
    /// # Safety
    /// See the trait.
    #[expect(clippy::inline_always, reason = "must be inlined into the function compiled for its level")]
    #[inline(always)]
    unsafe fn store_f16_back(self, p: *mut u16, v: Self::V) -> Self::V {
        // SAFETY: the caller's contract is the same.
        unsafe { self.store_f16(p, v) };
        // SAFETY: just written.
        unsafe { self.load_f16(p) }
    }
    /// [`Self::store2_bf16`] past the caches.
    ///
    /// # Safety
    /// See the trait; `2 * LANES` elements, and the address is a multiple of `4 * LANES` bytes.
    #[expect(clippy::inline_always, reason = "must be inlined into the function compiled for its level")]
    #[inline(always)]
    unsafe fn stream2_bf16(self, p: *mut u16, v: [Self::V; 2]) {
        // SAFETY: the first half of what the caller's contract covers.
        unsafe { self.stream_bf16(p, v[0]) };
        // SAFETY: the second half.
        #[expect(clippy::multiple_unsafe_ops_per_block, reason = "an access and the pointer arithmetic to it")]
        unsafe {
            self.stream_bf16(p.add(Self::LANES), v[1]);
        }
    }
}

/// Asks for the line at `p`, which need not be an address of anything.
#[cfg(any(feature = "rmsnorm", feature = "layer-norm", feature = "flash-attn2", feature = "cross-entropy"))]
#[expect(clippy::inline_always, reason = "one instruction")]
#[inline(always)]
pub(crate) fn prefetch<T>(p: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, which faults at no address.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(p.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = p;
}
