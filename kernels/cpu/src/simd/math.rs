//! Exponentials on vectors.

#![expect(clippy::inline_always, reason = "generic SIMD code must be inlined into the function compiled for its level")]
#![expect(clippy::many_single_char_names, reason = "the names of the formulas")]

use super::Simd;

/// `e^r = 1 + r + r^2 * p(r)`: the coefficients of `p`, interpolated at Chebyshev nodes of |r| <= ln(2) / 2.
#[cfg(feature = "activation")]
const EXP: [f32; 5] = [0.5, 0.166_665_77, 0.041_666_554, 0.008_363_233, 0.001_392_625];
/// `2^r = 1 + r * p(r)`: the coefficients of `p`, interpolated at Chebyshev nodes of |r| <= 1 / 2.
#[cfg(feature = "flash-attn2")]
const EXP2: [f32; 6] =
    [core::f32::consts::LN_2, 0.240_226_5, 0.055_503_57, 0.009_618_082, 0.001_339_097_9, 0.000_154_532_63];
/// `tanh(x) = x + x^3 * p(x^2)`: the coefficients of `p`, interpolated at Chebyshev nodes of |x| <= 5 / 8.
#[cfg(feature = "flash-attn2")]
const TANH: [f32; 5] = [-0.333_333_28, 0.133_327_7, -0.053_850_908, 0.020_997_18, -0.006_096_714];
/// ln(2) in two parts; the first has few enough bits that its product with an exponent is exact.
#[cfg(feature = "activation")]
const LN2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];

/// `e^x`, within 2 ulp; 0 below -104, infinity above 89, NaN for NaN.
#[cfg(feature = "activation")]
#[inline(always)]
pub(crate) fn exp<S: Simd>(s: S, x: S::V) -> S::V {
    // NaN comes through: `max` and `min` answer their second operand then.
    let x = s.min(s.splat(89.0), s.max(s.splat(-104.0), x));
    let n = s.round(s.mul(x, s.splat(core::f32::consts::LOG2_E)));
    let r = s.fma(n, s.splat(-LN2[0]), x);
    let r = s.fma(n, s.splat(-LN2[1]), r);
    let mut p = s.splat(EXP[4]);
    p = s.fma(p, r, s.splat(EXP[3]));
    p = s.fma(p, r, s.splat(EXP[2]));
    p = s.fma(p, r, s.splat(EXP[1]));
    p = s.fma(p, r, s.splat(EXP[0]));
    p = s.fma(p, s.mul(r, r), r);
    s.scale2(s.add(p, s.splat(1.0)), n)
}

/// `2^x`, within 2 ulp; 0 below -150, infinity above 129, NaN for NaN.
#[cfg(feature = "flash-attn2")]
#[inline(always)]
pub(crate) fn exp2<S: Simd>(s: S, x: S::V) -> S::V {
    let x = s.min(s.splat(129.0), s.max(s.splat(-151.0), x));
    let n = s.round(x);
    let r = s.sub(x, n);
    let mut p = s.splat(EXP2[5]);
    p = s.fma(p, r, s.splat(EXP2[4]));
    p = s.fma(p, r, s.splat(EXP2[3]));
    p = s.fma(p, r, s.splat(EXP2[2]));
    p = s.fma(p, r, s.splat(EXP2[1]));
    p = s.fma(p, r, s.splat(EXP2[0]));
    p = s.fma(p, r, s.splat(1.0));
    s.scale2(p, n)
}

/// `tanh(x)`, within 4 ulp also where `x` is small; NaN for NaN.
#[cfg(feature = "flash-attn2")]
#[inline(always)]
pub(crate) fn tanh<S: Simd>(s: S, x: S::V) -> S::V {
    let magnitude = s.abs(x);
    // With e = 2^(-2 |x| / ln 2), which is at most 1, so that the divisor lies within 1..=2.
    let e = exp2(s, s.mul(magnitude, s.splat(-2.0 * core::f32::consts::LOG2_E)));
    let large = s.mul(s.sub(s.splat(1.0), e), s.reciprocal(s.add(s.splat(1.0), e)));
    let large = s.where_negative(x, s.sub(s.splat(0.0), large), large);
    // The difference above cancels where `x` is small.
    let square = s.mul(x, x);
    let mut p = s.splat(TANH[4]);
    p = s.fma(p, square, s.splat(TANH[3]));
    p = s.fma(p, square, s.splat(TANH[2]));
    p = s.fma(p, square, s.splat(TANH[1]));
    p = s.fma(p, square, s.splat(TANH[0]));
    let small = s.fma(s.mul(p, square), x, x);
    s.where_negative(s.sub(magnitude, s.splat(0.625)), small, large)
}
