//! Conversions of 512-bit vectors to the 16-bit types.

#![expect(unsafe_code, reason = "vector intrinsics")]
#![expect(clippy::inline_always, reason = "must be inlined into the function compiled for its level")]
#![expect(
    clippy::multiple_unsafe_ops_per_block,
    reason = "intrinsics, all with the one contract that the token answers"
)]
#![allow(clippy::wildcard_imports, reason = "dozens of intrinsics; the lint is silent in test builds")]

use core::arch::x86_64::*;

/// To bf16, rounded to nearest even, NaN kept quiet. The instruction for it flushes subnormals.
#[inline(always)]
pub(super) fn to_bf16(v: __m512) -> __m256i {
    // SAFETY: called only with a token's methods, so the CPU has the level.
    unsafe {
        let bits = _mm512_castps_si512(v);
        let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
        let rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
        let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(v, v);
        let rounded = _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x0040_0000));
        _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(rounded))
    }
}

/// The bits of `v` with the upper half rounded to nearest even; not for NaN.
#[inline(always)]
fn round_upper(v: __m512) -> __m512i {
    // SAFETY: called only with a token's methods, so the CPU has the level.
    unsafe {
        let bits = _mm512_castps_si512(v);
        let odd = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x1_0000));
        let rounded = _mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff));
        _mm512_mask_add_epi32(rounded, odd, rounded, _mm512_set1_epi32(1))
    }
}

/// `rounded`, which are the bits of `v` rounded, with NaN made quiet.
#[inline(always)]
fn quiet(v: __m512, rounded: __m512i) -> __m512i {
    // SAFETY: called only with a token's methods, so the CPU has the level.
    unsafe {
        let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(v, v);
        _mm512_mask_or_epi32(rounded, nan, _mm512_castps_si512(v), _mm512_set1_epi32(0x0040_0000))
    }
}

/// To bf16 as [`to_bf16`] does, of which `v[0]` are the elements at even places and `v[1]` those between them.
#[inline(always)]
pub(super) fn to_bf16_alternating(v: [__m512; 2]) -> __m512i {
    let (mut even, mut odd) = (round_upper(v[0]), round_upper(v[1]));
    // SAFETY: called only with a token's methods, so the CPU has the level.
    unsafe {
        // Either is NaN: rare, so it may take longer.
        if _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(v[0], v[1]) != 0 {
            (even, odd) = (quiet(v[0], even), quiet(v[1], odd));
        }
        // The bits of `odd` under the mask, else those of `even`.
        let mask = _mm512_set1_epi32(0xffff_0000_u32.cast_signed());
        _mm512_ternarylogic_epi32::<0xca>(mask, odd, _mm512_srli_epi32::<16>(even))
    }
}

#[inline(always)]
pub(super) fn to_f16(v: __m512) -> __m256i {
    // SAFETY: called only with a token's methods, so the CPU has the level.
    unsafe { _mm512_cvtps_ph::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(v) }
}

/// To bf16 as [`to_bf16_alternating`] does, in less time where no element rounds to 0.
#[inline(always)]
pub(super) fn to_bf16_nonzero(v: [__m512; 2]) -> __m512i {
    // SAFETY: called only with the methods of a token of the level with BF16.
    unsafe {
        let alternating = by_instruction(v);
        if _mm512_testn_epi16_mask(alternating, _mm512_set1_epi16(0x7fff)) == 0 {
            return alternating;
        }
        to_bf16_alternating(v)
    }
}

/// To bf16 as [`to_bf16_alternating`] does, in a third of the time where no element is subnormal, zeros among them:
/// a longer look than that of [`to_bf16_nonzero`].
#[inline(always)]
pub(super) fn to_bf16_at_once(v: [__m512; 2]) -> __m512i {
    const SUBNORMAL: i32 = 0x20;
    // SAFETY: called only with the methods of a token of the level with BF16.
    unsafe {
        let subnormal = [_mm512_fpclass_ps_mask::<SUBNORMAL>(v[0]), _mm512_fpclass_ps_mask::<SUBNORMAL>(v[1])];
        if _kortestz_mask16_u8(subnormal[0], subnormal[1]) == 0 {
            return to_bf16_alternating(v);
        }
        by_instruction(v)
    }
}

/// To bf16 by the instruction for it, which takes subnormal numbers as 0 and gives 0 for them.
#[inline(always)]
fn by_instruction(v: [__m512; 2]) -> __m512i {
    // SAFETY: called only with the methods of a token of the level with BF16.
    unsafe {
        let halves = core::mem::transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(v[1], v[0]));
        _mm512_permutexvar_epi16(_mm512_loadu_si512(ALTERNATING.as_ptr().cast()), halves)
    }
}

/// The places in two halves of what is to alternate.
static ALTERNATING: [u16; 32] = [
    0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15,
    31,
];
