//! 8 lanes: AVX2, FMA, F16C.

#![expect(unsafe_code, reason = "vector intrinsics")]
#![expect(clippy::inline_always, reason = "generic SIMD code must be inlined into the function compiled for its level")]
#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "intrinsics, all with the one contract that the token answers"
)]
#![allow(clippy::wildcard_imports, reason = "dozens of intrinsics; the lint is silent in test builds")]
#![expect(clippy::cast_possible_wrap, reason = "lane counts")]
#![expect(clippy::cast_possible_truncation, reason = "lane counts and masks of at most 16")]

use core::arch::x86_64::*;

use super::{Kernel, Simd};

/// Proof that the CPU has this level.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Avx2(());

impl Avx2 {
    /// # Safety
    /// The CPU has AVX2, FMA and F16C.
    pub(super) unsafe fn assume() -> Self {
        Self(())
    }
}

#[target_feature(enable = "avx2,fma,f16c")]
#[inline(never)]
fn compiled<K: Kernel>(simd: Avx2, kernel: K) {
    kernel.run(simd);
}

/// To bf16, rounded to nearest even, NaN kept quiet.
#[inline(always)]
fn to_bf16(v: __m256) -> __m128i {
    // SAFETY: called only with a token's methods, so the CPU has the level.
    unsafe {
        let high = _mm256_srli_epi32::<16>(round_upper(v));
        let packed = _mm256_packus_epi32(high, high);
        _mm256_castsi256_si128(_mm256_permute4x64_epi64::<0b1000>(packed))
    }
}

/// The bits of `v` with the upper half rounded to nearest even, NaN kept quiet.
#[inline(always)]
fn round_upper(v: __m256) -> __m256i {
    // SAFETY: called only with a token's methods, so the CPU has the level.
    unsafe {
        let bits = _mm256_castps_si256(v);
        let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
        let rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
        let quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x0040_0000));
        let nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(v, v));
        _mm256_blendv_epi8(rounded, quiet, nan)
    }
}

/// To bf16 as [`to_bf16`] does, of which `v[0]` are the elements at even places and `v[1]` those between them.
#[inline(always)]
fn to_bf16_alternating(v: [__m256; 2]) -> __m256i {
    let (even, odd) = (round_upper(v[0]), round_upper(v[1]));
    // SAFETY: called only with a token's methods, so the CPU has the level.
    unsafe { _mm256_blend_epi16::<0b1010_1010>(_mm256_srli_epi32::<16>(even), odd) }
}

#[inline(always)]
fn to_f16(v: __m256) -> __m128i {
    // SAFETY: called only with a token's methods, so the CPU has the level.
    unsafe { _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v) }
}

/// Methods whose only contract is the CPU's level.
macro_rules! level {
    ($($name:ident($($arg:ident: $type:ty),*) -> $result:ty { $body:expr })*) => {$(
        #[inline(always)]
        fn $name(self, $($arg: $type),*) -> $result {
            // SAFETY: a token exists, so the CPU has the level.
            unsafe { $body }
        }
    )*};
}
/// Methods that access memory.
macro_rules! memory {
    ($($name:ident($($arg:ident: $type:ty),*) -> $result:ty { $body:expr })*) => {$(
        #[inline(always)]
        unsafe fn $name(self, $($arg: $type),*) -> $result {
            // SAFETY: a token exists, so the CPU has the level; the access is the caller's contract.
            unsafe { $body }
        }
    )*};
}

impl Simd for Avx2 {
    type V = __m256;
    const LANES: usize = 8;
    const TILE: usize = 2;
    const PAIRS: bool = false;

    #[inline(always)]
    fn call<K: Kernel>(self, kernel: K) {
        // SAFETY: a token exists, so the CPU has the level.
        unsafe { compiled(self, kernel) }
    }

    level! {
        splat(value: f32) -> __m256 { _mm256_set1_ps(value) }
        add(a: __m256, b: __m256) -> __m256 { _mm256_add_ps(a, b) }
        sub(a: __m256, b: __m256) -> __m256 { _mm256_sub_ps(a, b) }
        mul(a: __m256, b: __m256) -> __m256 { _mm256_mul_ps(a, b) }
        reciprocal(a: __m256) -> __m256 { _mm256_div_ps(_mm256_set1_ps(1.0), a) }
        fma(a: __m256, b: __m256, c: __m256) -> __m256 { _mm256_fmadd_ps(a, b, c) }
        divide(a: __m256, b: __m256) -> __m256 { _mm256_div_ps(a, b) }
        fnma(a: __m256, b: __m256, c: __m256) -> __m256 { _mm256_fnmadd_ps(a, b, c) }
        max(a: __m256, b: __m256) -> __m256 { _mm256_max_ps(a, b) }
        min(a: __m256, b: __m256) -> __m256 { _mm256_min_ps(a, b) }
        abs(a: __m256) -> __m256 { _mm256_andnot_ps(_mm256_set1_ps(-0.0), a) }
        round(a: __m256) -> __m256 { _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a) }
        // In two halves, so that neither power leaves the range of normal numbers; only the last product rounds.
        scale2(a: __m256, n: __m256) -> __m256 {{
            let n = _mm256_cvtps_epi32(n);
            let half = _mm256_srai_epi32::<1>(n);
            let bias = _mm256_set1_epi32(127);
            let first = _mm256_slli_epi32::<23>(_mm256_add_epi32(half, bias));
            let second = _mm256_slli_epi32::<23>(_mm256_add_epi32(_mm256_sub_epi32(n, half), bias));
            _mm256_mul_ps(_mm256_mul_ps(a, _mm256_castsi256_ps(first)), _mm256_castsi256_ps(second))
        }}
        where_negative(x: __m256, a: __m256, b: __m256) -> __m256 {
            _mm256_blendv_ps(b, a, _mm256_cmp_ps::<_CMP_LT_OQ>(x, _mm256_setzero_ps()))
        }
        keep_first(v: __m256, count: usize, fill: f32) -> __m256 {{
            let lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
            // `count` is at most 8.
            let keep = _mm256_cmpgt_epi32(_mm256_set1_epi32(count as i32), lane);
            _mm256_blendv_ps(_mm256_set1_ps(fill), v, _mm256_castsi256_ps(keep))
        }}
        sum(v: __m256) -> f32 {{
            let four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<1>(two, two)))
        }}
        max_lane(v: __m256) -> f32 {{
            let four = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
            let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps::<1>(two, two)))
        }}
        deinterleave(low: __m256, high: __m256) -> (__m256, __m256) {{
            let even = _mm256_castps_pd(_mm256_shuffle_ps::<0x88>(low, high));
            let odd = _mm256_castps_pd(_mm256_shuffle_ps::<0xdd>(low, high));
            (
                _mm256_castpd_ps(_mm256_permute4x64_pd::<0b1101_1000>(even)),
                _mm256_castpd_ps(_mm256_permute4x64_pd::<0b1101_1000>(odd)),
            )
        }}
        interleave(a: __m256, b: __m256) -> (__m256, __m256) {{
            let (low, high) = (_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
            (_mm256_permute2f128_ps::<0x20>(low, high), _mm256_permute2f128_ps::<0x31>(low, high))
        }}
        sum4(v: [__m256; 4]) -> [f32; 4] {{
            let pairs = _mm256_hadd_ps(_mm256_hadd_ps(v[0], v[1]), _mm256_hadd_ps(v[2], v[3]));
            let sums = _mm_add_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps::<1>(pairs));
            let mut out = [0.0; 4];
            _mm_storeu_ps(out.as_mut_ptr(), sums);
            out
        }}
        fence() -> () { _mm_sfence() }
        prefetch(p: *const u8) -> () { _mm_prefetch::<_MM_HINT_T1>(p.cast()) }
        splat_pair(pair: u32) -> __m256 { _mm256_castsi256_ps(_mm256_set1_epi32(pair.cast_signed())) }
        dot_pairs(a: __m256, b: __m256, c: __m256) -> __m256 {
            _mm256_fmadd_ps(low(a), low(b), _mm256_fmadd_ps(high(a), high(b), c))
        }
    }

    memory! {
        load_f32(p: *const f32) -> __m256 { _mm256_loadu_ps(p) }
        load_f32_part(p: *const f32, count: usize) -> __m256 {{
            let mut whole = [0.0_f32; 8];
            core::ptr::copy_nonoverlapping(p, whole.as_mut_ptr(), count);
            _mm256_loadu_ps(whole.as_ptr())
        }}
        store_f32(p: *mut f32, v: __m256) -> () { _mm256_storeu_ps(p, v) }
        store_f32_part(p: *mut f32, v: __m256, count: usize) -> () {{
            let mut whole = [0.0_f32; 8];
            _mm256_storeu_ps(whole.as_mut_ptr(), v);
            core::ptr::copy_nonoverlapping(whole.as_ptr(), p, count);
        }}
        stream_f32(p: *mut f32, v: __m256) -> () { _mm256_stream_ps(p, v) }
        load_bf16(p: *const u16) -> __m256 {
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(_mm_loadu_si128(p.cast()))))
        }
        load_f16(p: *const u16) -> __m256 { _mm256_cvtph_ps(_mm_loadu_si128(p.cast())) }
        store_bf16(p: *mut u16, v: __m256) -> () { _mm_storeu_si128(p.cast(), to_bf16(v)) }
        store_f16(p: *mut u16, v: __m256) -> () { _mm_storeu_si128(p.cast(), to_f16(v)) }
        stream_bf16(p: *mut u16, v: __m256) -> () { _mm_stream_si128(p.cast(), to_bf16(v)) }
        stream_f16(p: *mut u16, v: __m256) -> () { _mm_stream_si128(p.cast(), to_f16(v)) }
        // Even places, then odd ones: a shift and a mask.
        load2_bf16(p: *const u16) -> [__m256; 2] {{
            let both = _mm256_loadu_si256(p.cast());
            let odd = _mm256_and_si256(both, _mm256_set1_epi32(0xffff_0000_u32.cast_signed()));
            [_mm256_castsi256_ps(_mm256_slli_epi32::<16>(both)), _mm256_castsi256_ps(odd)]
        }}
        store2_bf16(p: *mut u16, v: [__m256; 2]) -> () { _mm256_storeu_si256(p.cast(), to_bf16_alternating(v)) }
        stream2_bf16(p: *mut u16, v: [__m256; 2]) -> () { _mm256_stream_si256(p.cast(), to_bf16_alternating(v)) }
        store2_bf16_pairs(p: *mut u16, v: [__m256; 2]) -> __m256 {{
            let packed = to_bf16_alternating(v);
            _mm256_storeu_si256(p.cast(), packed);
            _mm256_castsi256_ps(packed)
        }}
        store_f16_back(p: *mut u16, v: __m256) -> __m256 {{
            let rounded = to_f16(v);
            _mm_storeu_si128(p.cast(), rounded);
            _mm256_cvtph_ps(rounded)
        }}
        load_pairs(p: *const u16) -> __m256 { _mm256_loadu_ps(p.cast()) }
        load_pairs_part(p: *const u16, count: usize) -> __m256 {{
            let mut whole = [0_u16; 16];
            core::ptr::copy_nonoverlapping(p, whole.as_mut_ptr(), count);
            _mm256_loadu_ps(whole.as_ptr().cast())
        }}
        transpose(source: *const f32, source_stride: usize, target: *mut f32, target_stride: usize) -> () {{
            // `fours[4 * k + c]` holds, in its 128-bit lane `l`, rows 4k..4k+4 of column 4l + c.
            let mut fours = [_mm256_setzero_ps(); 8];
            for k in 0..2 {
                let row = source.add(4 * k * source_stride);
                let (a, b) = (_mm256_loadu_ps(row), _mm256_loadu_ps(row.add(source_stride)));
                let (c, d) =
                    (_mm256_loadu_ps(row.add(2 * source_stride)), _mm256_loadu_ps(row.add(3 * source_stride)));
                let (ab_low, ab_high) = (_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
                let (cd_low, cd_high) = (_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
                fours[4 * k] = _mm256_shuffle_ps::<0x44>(ab_low, cd_low);
                fours[4 * k + 1] = _mm256_shuffle_ps::<0xee>(ab_low, cd_low);
                fours[4 * k + 2] = _mm256_shuffle_ps::<0x44>(ab_high, cd_high);
                fours[4 * k + 3] = _mm256_shuffle_ps::<0xee>(ab_high, cd_high);
            }
            for c in 0..4 {
                let (top, bottom) = (fours[c], fours[4 + c]);
                _mm256_storeu_ps(target.add(c * target_stride), _mm256_permute2f128_ps::<0x20>(top, bottom));
                _mm256_storeu_ps(target.add((4 + c) * target_stride), _mm256_permute2f128_ps::<0x31>(top, bottom));
            }
        }}
    }
}

/// The second bf16 of each pair as f32.
#[inline(always)]
fn high(v: __m256) -> __m256 {
    // SAFETY: called only with a token's methods, so the CPU has the level.
    unsafe { _mm256_castsi256_ps(_mm256_and_si256(_mm256_castps_si256(v), _mm256_set1_epi32(!0xffff))) }
}

/// The first bf16 of each pair as f32.
#[inline(always)]
fn low(v: __m256) -> __m256 {
    // SAFETY: called only with a token's methods, so the CPU has the level.
    unsafe { _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_castps_si256(v))) }
}
