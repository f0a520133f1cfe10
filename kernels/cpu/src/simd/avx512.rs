//! 16 lanes: AVX-512 F, BW, DQ, VL, with and without the dot products of BF16.

#![expect(unsafe_code, reason = "vector intrinsics")]
#![expect(clippy::inline_always, reason = "generic SIMD code must be inlined into the function compiled for its level")]
#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "intrinsics, all with the one contract that the token answers"
)]
#![allow(clippy::wildcard_imports, reason = "dozens of intrinsics; the lint is silent in test builds")]
#![expect(clippy::cast_possible_truncation, reason = "lane counts and masks of at most 16")]

use core::arch::x86_64::*;

use super::packed::{to_bf16, to_bf16_alternating, to_bf16_at_once, to_bf16_nonzero, to_f16};
use super::powers::{POWERS, SHIFTED};
use super::{Kernel, Simd};

/// Proof that the CPU has this level; with `BF16` also its extension of that name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Avx512<const BF16: bool>(());

impl<const BF16: bool> Avx512<BF16> {
    /// # Safety
    /// The CPU has AVX-512 F, BW, DQ, VL, AVX2, FMA and F16C, and AVX-512 BF16 where `BF16`.
    pub(super) unsafe fn assume() -> Self {
        Self(())
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
#[inline(never)]
fn compiled<K: Kernel, S: Simd>(simd: S, kernel: K) {
    kernel.run(simd);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma,f16c")]
#[inline(never)]
fn compiled_bf16<K: Kernel, S: Simd>(simd: S, kernel: K) {
    kernel.run(simd);
}

/// The mask of the first `count` of 16 lanes.
#[inline(always)]
fn first(count: usize) -> u16 {
    // `count` is at most 16, so the low half holds the mask.
    ((1_u32 << count) - 1) as u16
}

#[inline(always)]
fn fold(v: __m512) -> __m256 {
    // SAFETY: called only with a token's methods, so the CPU has the level.
    unsafe { _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps::<1>(v)) }
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

impl<const BF16: bool> Simd for Avx512<BF16> {
    type V = __m512;
    const LANES: usize = 16;
    const TILE: usize = 4;
    const TABLE: bool = true;
    const PAIRS: bool = BF16;

    #[inline(always)]
    fn call<K: Kernel>(self, kernel: K) {
        if BF16 {
            // SAFETY: a token exists, so the CPU has the level with its extension.
            unsafe { compiled_bf16(self, kernel) }
        } else {
            // SAFETY: a token exists, so the CPU has the level.
            unsafe { compiled(self, kernel) }
        }
    }

    #[inline(always)]
    fn power32(self, bits: __m512) -> __m512 {
        read(&POWERS.0, bits)
    }
    #[inline(always)]
    fn power(self, rounded: __m512) -> __m512 {
        shifted(read(&SHIFTED.0, rounded), rounded)
    }
    #[inline(always)]
    fn lookup(self, table: &'static [f32; 32], bits: __m512) -> __m512 {
        read(table, bits)
    }
    #[inline(always)]
    fn abreast<const N: usize>(self, mut v: [__m512; N]) -> [__m512; N] {
        if let [a, b, c, d] = v.as_mut_slice() {
            // SAFETY: a token exists, so the CPU has the level.
            [*a, *b, *c, *d] = unsafe { four([*a, *b, *c, *d]) };
        }
        v
    }
    #[inline(always)]
    fn any_below<const N: usize>(self, x: [__m512; N], limit: f32) -> bool {
        // As in `clamp`: the highest unsigned number is the least one, where any is negative.
        // SAFETY: a token exists, so the CPU has the level.
        unsafe {
            let lowest = x.into_iter().fold(_mm512_setzero_si512(), |a, b| _mm512_max_epu32(a, _mm512_castps_si512(b)));
            _mm512_cmpgt_epu32_mask(lowest, _mm512_castps_si512(_mm512_set1_ps(limit))) != 0
        }
    }

    level! {
        splat(value: f32) -> __m512 { _mm512_set1_ps(value) }
        add(a: __m512, b: __m512) -> __m512 { _mm512_add_ps(a, b) }
        sub(a: __m512, b: __m512) -> __m512 { _mm512_sub_ps(a, b) }
        mul(a: __m512, b: __m512) -> __m512 { _mm512_mul_ps(a, b) }
        // Division takes more cycles than all else in a gated activation.
        reciprocal(a: __m512) -> __m512 {{
            let estimate = _mm512_rcp14_ps(a);
            let error = _mm512_fnmadd_ps(a, estimate, _mm512_set1_ps(1.0));
            _mm512_fmadd_ps(estimate, error, estimate)
        }}
        divide(a: __m512, b: __m512) -> __m512 { _mm512_div_ps(a, b) }
        fnma(a: __m512, b: __m512, c: __m512) -> __m512 { _mm512_fnmadd_ps(a, b, c) }
        fma(a: __m512, b: __m512, c: __m512) -> __m512 { _mm512_fmadd_ps(a, b, c) }
        max(a: __m512, b: __m512) -> __m512 { _mm512_max_ps(a, b) }
        min(a: __m512, b: __m512) -> __m512 { _mm512_min_ps(a, b) }
        // As integers, which more of the CPU's units compare: among negative numbers, the unsigned one that is lower is
        // the lesser in size, and all others are lower still.
        clamp(x: __m512, low: __m512, high: __m512) -> __m512 {{
            let above = _mm512_min_epu32(_mm512_castps_si512(x), _mm512_castps_si512(low));
            _mm512_castsi512_ps(_mm512_min_epi32(above, _mm512_castps_si512(high)))
        }}
        at_most(a: __m512, bound: __m512) -> __m512 {
            _mm512_castsi512_ps(_mm512_min_epi32(_mm512_castps_si512(a), _mm512_castps_si512(bound)))
        }
        abs(a: __m512) -> __m512 { _mm512_abs_ps(a) }
        round(a: __m512) -> __m512 { _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a) }
        scale2(a: __m512, n: __m512) -> __m512 { _mm512_scalef_ps(a, n) }
        where_negative(x: __m512, a: __m512, b: __m512) -> __m512 {
            _mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(x, _mm512_setzero_ps()), b, a)
        }
        keep_first(v: __m512, count: usize, fill: f32) -> __m512 {
            _mm512_mask_blend_ps(first(count), _mm512_set1_ps(fill), v)
        }
        sum(v: __m512) -> f32 { _mm512_reduce_add_ps(v) }
        max_lane(v: __m512) -> f32 { _mm512_reduce_max_ps(v) }
        deinterleave(low: __m512, high: __m512) -> (__m512, __m512) {{
            let even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
            let odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
            (_mm512_permutex2var_ps(low, even, high), _mm512_permutex2var_ps(low, odd, high))
        }}
        interleave(a: __m512, b: __m512) -> (__m512, __m512) {{
            let low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
            let high = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
            (_mm512_permutex2var_ps(a, low, b), _mm512_permutex2var_ps(a, high, b))
        }}
        sum4(v: [__m512; 4]) -> [f32; 4] {{
            let pairs = _mm256_hadd_ps(
                _mm256_hadd_ps(fold(v[0]), fold(v[1])),
                _mm256_hadd_ps(fold(v[2]), fold(v[3])),
            );
            let sums = _mm_add_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps::<1>(pairs));
            let mut out = [0.0; 4];
            _mm_storeu_ps(out.as_mut_ptr(), sums);
            out
        }}
        fence() -> () { _mm_sfence() }
        prefetch(p: *const u8) -> () { _mm_prefetch::<_MM_HINT_T1>(p.cast()) }
        splat_pair(pair: u32) -> __m512 { _mm512_castsi512_ps(_mm512_set1_epi32(pair.cast_signed())) }
        dot_pairs(a: __m512, b: __m512, c: __m512) -> __m512 {
            if BF16 {
                _mm512_dpbf16_ps(c, bh(a), bh(b))
            } else {
                let (a_high, b_high) = (high(a), high(b));
                let sum = _mm512_fmadd_ps(a_high, b_high, c);
                _mm512_fmadd_ps(low(a), low(b), sum)
            }
        }
    }

    memory! {
        load_f32(p: *const f32) -> __m512 { _mm512_loadu_ps(p) }
        load_f32_part(p: *const f32, count: usize) -> __m512 { _mm512_maskz_loadu_ps(first(count), p) }
        store_f32(p: *mut f32, v: __m512) -> () { _mm512_storeu_ps(p, v) }
        store_f32_part(p: *mut f32, v: __m512, count: usize) -> () { _mm512_mask_storeu_ps(p, first(count), v) }
        stream_f32(p: *mut f32, v: __m512) -> () { _mm512_stream_ps(p, v) }
        load_bf16(p: *const u16) -> __m512 {
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(_mm256_loadu_si256(p.cast()))))
        }
        load_f16(p: *const u16) -> __m512 { _mm512_cvtph_ps(_mm256_loadu_si256(p.cast())) }
        store_bf16(p: *mut u16, v: __m512) -> () { _mm256_storeu_si256(p.cast(), to_bf16(v)) }
        store_f16(p: *mut u16, v: __m512) -> () { _mm256_storeu_si256(p.cast(), to_f16(v)) }
        stream_bf16(p: *mut u16, v: __m512) -> () { _mm256_stream_si256(p.cast(), to_bf16(v)) }
        stream_f16(p: *mut u16, v: __m512) -> () { _mm256_stream_si256(p.cast(), to_f16(v)) }
        // Even places, then odd ones: a shift and a mask.
        load2_bf16(p: *const u16) -> [__m512; 2] {{
            let both = _mm512_loadu_si512(p.cast());
            let odd = _mm512_and_si512(both, _mm512_set1_epi32(0xffff_0000_u32.cast_signed()));
            [_mm512_castsi512_ps(_mm512_slli_epi32::<16>(both)), _mm512_castsi512_ps(odd)]
        }}
        store2_bf16(p: *mut u16, v: [__m512; 2]) -> () { _mm512_storeu_si512(p.cast(), pack::<BF16>(v)) }
        stream2_bf16(p: *mut u16, v: [__m512; 2]) -> () { _mm512_stream_si512(p.cast(), pack::<BF16>(v)) }
        store2_bf16_pairs(p: *mut u16, v: [__m512; 2]) -> __m512 {{
            let packed = pack::<BF16>(v);
            _mm512_storeu_si512(p.cast(), packed);
            _mm512_castsi512_ps(packed)
        }}
        store_f16_back(p: *mut u16, v: __m512) -> __m512 {{
            let rounded = to_f16(v);
            _mm256_storeu_si256(p.cast(), rounded);
            _mm512_cvtph_ps(rounded)
        }}
        store2_bf16_nonzero(p: *mut u16, v: [__m512; 2]) -> () {
            _mm512_storeu_si512(p.cast(), if BF16 { to_bf16_nonzero(v) } else { to_bf16_alternating(v) })
        }
        load_pairs(p: *const u16) -> __m512 { _mm512_loadu_ps(p.cast()) }
        load_pairs_part(p: *const u16, count: usize) -> __m512 {
            // `count` is at most 32, so that the low half holds the mask.
            _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(((1_u64 << count) - 1) as u32, p.cast()))
        }
        transpose(source: *const f32, source_stride: usize, target: *mut f32, target_stride: usize) -> () {{
            // Pairs of rows, then groups of four: `fours[4 * k + c]` holds, in its 128-bit lane `l`, rows 4k..4k+4
            // of column 4l + c.
            let mut fours = [_mm512_setzero_ps(); 16];
            for k in 0..4 {
                let row = source.add(4 * k * source_stride);
                let (a, b) = (_mm512_loadu_ps(row), _mm512_loadu_ps(row.add(source_stride)));
                let (c, d) =
                    (_mm512_loadu_ps(row.add(2 * source_stride)), _mm512_loadu_ps(row.add(3 * source_stride)));
                let (ab_low, ab_high) = (pd(_mm512_unpacklo_ps(a, b)), pd(_mm512_unpackhi_ps(a, b)));
                let (cd_low, cd_high) = (pd(_mm512_unpacklo_ps(c, d)), pd(_mm512_unpackhi_ps(c, d)));
                fours[4 * k] = ps(_mm512_unpacklo_pd(ab_low, cd_low));
                fours[4 * k + 1] = ps(_mm512_unpackhi_pd(ab_low, cd_low));
                fours[4 * k + 2] = ps(_mm512_unpacklo_pd(ab_high, cd_high));
                fours[4 * k + 3] = ps(_mm512_unpackhi_pd(ab_high, cd_high));
            }
            for c in 0..4 {
                let even_top = _mm512_shuffle_f32x4::<0x88>(fours[c], fours[4 + c]);
                let odd_top = _mm512_shuffle_f32x4::<0xdd>(fours[c], fours[4 + c]);
                let even_bottom = _mm512_shuffle_f32x4::<0x88>(fours[8 + c], fours[12 + c]);
                let odd_bottom = _mm512_shuffle_f32x4::<0xdd>(fours[8 + c], fours[12 + c]);
                let column = |l: usize| target.add((4 * l + c) * target_stride);
                _mm512_storeu_ps(column(0), _mm512_shuffle_f32x4::<0x88>(even_top, even_bottom));
                _mm512_storeu_ps(column(1), _mm512_shuffle_f32x4::<0x88>(odd_top, odd_bottom));
                _mm512_storeu_ps(column(2), _mm512_shuffle_f32x4::<0xdd>(even_top, even_bottom));
                _mm512_storeu_ps(column(3), _mm512_shuffle_f32x4::<0xdd>(odd_top, odd_bottom));
            }
        }}
    }
}

/// Four vectors as they are, tied to one another by no instruction.
#[target_feature(enable = "avx512f")]
#[inline]
fn four([mut a, mut b, mut c, mut d]: [__m512; 4]) -> [__m512; 4] {
    // SAFETY: a comment, which changes nothing.
    unsafe {
        core::arch::asm!(
            "/* {0} {1} {2} {3} */",
            inout(zmm_reg) a,
            inout(zmm_reg) b,
            inout(zmm_reg) c,
            inout(zmm_reg) d,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    [a, b, c, d]
}

/// `table[k]` for the numbers `k` in the low five bits.
#[inline(always)]
fn read(table: &[f32; 32], bits: __m512) -> __m512 {
    // SAFETY: called only with a token's methods, so the CPU has the level; 16 numbers stand at each address.
    unsafe {
        let (low, high) = (_mm512_loadu_ps(table.as_ptr()), _mm512_loadu_ps(table.as_ptr().add(16)));
        _mm512_permutex2var_ps(low, _mm512_castps_si512(bits), high)
    }
}

/// `power` with what stands above the low five bits of `rounded` added to its exponent; see [`SHIFTED`].
#[inline(always)]
fn shifted(power: __m512, rounded: __m512) -> __m512 {
    // SAFETY: called only with a token's methods, so the CPU has the level.
    unsafe {
        let exponent = _mm512_slli_epi32::<18>(_mm512_castps_si512(rounded));
        _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(power), exponent))
    }
}

#[inline(always)]
fn pd(v: __m512) -> __m512d {
    // SAFETY: called only with a token's methods, so the CPU has the level.
    unsafe { _mm512_castps_pd(v) }
}

#[inline(always)]
fn ps(v: __m512d) -> __m512 {
    // SAFETY: called only with a token's methods, so the CPU has the level.
    unsafe { _mm512_castpd_ps(v) }
}

#[inline(always)]
fn bh(v: __m512) -> __m512bh {
    // SAFETY: vectors of 512 bits, each of which may be anything.
    unsafe { core::mem::transmute::<__m512, __m512bh>(v) }
}

/// The second bf16 of each pair as f32.
#[inline(always)]
fn high(v: __m512) -> __m512 {
    // SAFETY: called only with a token's methods, so the CPU has the level.
    unsafe { _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(v), _mm512_set1_epi32(!0xffff))) }
}

/// The first bf16 of each pair as f32.
#[inline(always)]
fn low(v: __m512) -> __m512 {
    // SAFETY: called only with a token's methods, so the CPU has the level.
    unsafe { _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_castps_si512(v))) }
}

/// A pair of vectors to bf16, in the order of [`load2_bf16`](Simd::load2_bf16).
#[inline(always)]
fn pack<const BF16: bool>(v: [__m512; 2]) -> __m512i {
    if BF16 { to_bf16_at_once(v) } else { to_bf16_alternating(v) }
}
