//! Exponentials on vectors, and what is made of them.

#![expect(clippy::inline_always, reason = "generic SIMD code must be inlined into the function compiled for its level")]
#![expect(clippy::many_single_char_names, reason = "the names of the formulas")]

use super::Arithmetic;

/// `e^r = 1 + r + r^2 * p(r)`: the coefficients of `p`, interpolated at Chebyshev nodes of |r| <= ln(2) / 2.
#[cfg(any(feature = "activation", feature = "linear", feature = "cross-entropy", feature = "softmax"))]
const EXP: [f32; 5] = [0.5, 0.166_665_77, 0.041_666_554, 0.008_363_233, 0.001_392_625];
/// `2^r = 1 + r * p(r)`: the coefficients of `p`, interpolated at Chebyshev nodes of |r| <= 1 / 2.
#[cfg(feature = "flash-attn2")]
const EXP2: [f32; 6] =
    [core::f32::consts::LN_2, 0.240_226_5, 0.055_503_57, 0.009_618_082, 0.001_339_097_9, 0.000_154_532_63];
/// `tanh(x) = x + x^3 * p(x^2)`: the coefficients of `p`, interpolated at Chebyshev nodes of |x| <= 5 / 8.
#[cfg(feature = "flash-attn2")]
const TANH: [f32; 5] = [-0.333_333_28, 0.133_327_7, -0.053_850_908, 0.020_997_18, -0.006_096_714];
/// ln(2) in two parts; the first has few enough bits that its product with an exponent is exact.
#[cfg(any(feature = "activation", feature = "linear", feature = "cross-entropy", feature = "softmax"))]
const LN2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];

/// `Q(a) e^(a^2 / 2) = t * p(2.54 t - 1.54)` with `t = 1 / (1 + a / 4)`, where `Q` is the upper tail of the normal
/// distribution, `erfc(a / sqrt(2)) / 2`: the coefficients of `p`, interpolated at Chebyshev nodes of 0 <= a <= 14.875.
#[cfg(feature = "activation")]
const TAIL: [f32; 10] = [
    0.225_849_31,
    0.157_512_86,
    0.081_141_83,
    0.029_407_855,
    0.006_318_187,
    0.000_129_417_69,
    -0.000_329_850_77,
    -4.921_265e-5,
    1.594_518_4e-5,
    3.662_282_6e-6,
];

/// `e^x`, within 2 ulp; 0 below -104, infinity above 89, NaN for NaN.
#[cfg(feature = "cross-entropy")]
#[inline(always)]
pub(crate) fn exp<S: Arithmetic>(s: S, x: S::V) -> S::V {
    // NaN comes through: `max` and `min` answer their second operand then.
    let x = s.min(s.splat(89.0), s.max(s.splat(-104.0), x));
    let n = s.round(s.mul(x, s.splat(core::f32::consts::LOG2_E)));
    let r = s.fma(n, s.splat(-LN2[0]), x);
    let r = s.fma(n, s.splat(-LN2[1]), r);
    s.scale2(exp_reduced(s, r), n)
}

/// `e^r` for |r| <= ln(2) / 2.
#[cfg(any(feature = "activation", feature = "linear", feature = "cross-entropy", feature = "softmax"))]
#[inline(always)]
fn exp_reduced<S: Arithmetic>(s: S, r: S::V) -> S::V {
    let mut p = s.splat(EXP[4]);
    p = s.fma(p, r, s.splat(EXP[3]));
    p = s.fma(p, r, s.splat(EXP[2]));
    p = s.fma(p, r, s.splat(EXP[1]));
    p = s.fma(p, r, s.splat(EXP[0]));
    p = s.fma(p, s.mul(r, r), r);
    s.add(p, s.splat(1.0))
}

/// What is added to a number below 2^17 so that its sum rounds it to a multiple of 1/32, of which the low five bits of
/// the sum are the fraction.
#[cfg(any(feature = "activation", feature = "linear", feature = "softmax"))]
const ROUND32: f32 = 393_216.0;
/// What `LOG2_E` lacks.
#[cfg(any(feature = "activation", feature = "linear", feature = "softmax"))]
const LOG2_E_LOW: f32 = 1.925_963e-8;
/// `2^-r = 1 + r * (p[0] + r * p[1])` for |r| <= 1/64, least in error with the 1 fixed.
#[cfg(any(feature = "activation", feature = "linear", feature = "softmax"))]
const EXP2_32: [f32; 2] = [-0.693_157_3, 0.240_226_5];

/// `2^-r`, for |r| <= 1/64, times the power in the low five bits of `rounded`.
#[cfg(any(feature = "activation", feature = "linear", feature = "softmax"))]
#[inline(always)]
fn exp2_table<A: Arithmetic>(s: A, rounded: A::V, r: A::V) -> A::V {
    let p = s.fma(s.fma(r, s.splat(EXP2_32[1]), s.splat(EXP2_32[0])), r, s.splat(1.0));
    s.mul(s.power32(rounded), p)
}

/// `e^-a` for `a >= 0`, within 3 ulp; 0 above 104, NaN for NaN.
#[cfg(any(feature = "activation", feature = "linear", feature = "softmax"))]
#[inline(always)]
pub(crate) fn exp_minus<A: Arithmetic>(s: A, a: A::V) -> A::V {
    // NaN comes through: `min` answers its second operand then.
    let a = s.min(s.splat(104.0), a);
    if !A::TABLE {
        let x = s.sub(s.splat(0.0), a);
        let n = s.round(s.mul(x, s.splat(core::f32::consts::LOG2_E)));
        let r = s.fma(n, s.splat(-LN2[0]), x);
        let r = s.fma(n, s.splat(-LN2[1]), r);
        return s.scale2(exp_reduced(s, r), n);
    }
    let rounded = s.fma(a, s.splat(-core::f32::consts::LOG2_E), s.splat(ROUND32));
    let n = s.sub(rounded, s.splat(ROUND32));
    let r = s.fma(a, s.splat(core::f32::consts::LOG2_E), n);
    let r = s.fma(a, s.splat(LOG2_E_LOW), r);
    s.scale2(exp2_table(s, rounded, r), n)
}

/// `x / (1 + e^-z)`, computed with `e^-|z|`, which cannot overflow: for large negative `z` the other form gives 0
/// where the result is still a normal number.
#[cfg(any(feature = "activation", feature = "linear"))]
#[inline(always)]
pub(crate) fn sigmoid_weighted<A: Arithmetic>(s: A, x: A::V, z: A::V) -> A::V {
    let decay = exp_minus(s, s.abs(z));
    let numerator = s.where_negative(z, s.mul(x, decay), x);
    s.mul(numerator, s.reciprocal(s.add(s.splat(1.0), decay)))
}

/// `x (1 + erf(x / sqrt(2))) / 2`: `x Q(-x)` for negative `x`, and `x - x Q(x)` else, where `1 + erf` would lose all
/// digits of the lower tail. Within 4 parts in 2^23 everywhere.
#[cfg(feature = "activation")]
#[inline(always)]
pub(crate) fn normal_weighted<A: Arithmetic>(s: A, x: A::V) -> A::V {
    // Beyond the bound the tail is below the least number. NaN comes through.
    let a = s.min(s.splat(14.875), s.abs(x));
    let (decay, n) = if A::TABLE { normal_decay_table(s, a) } else { normal_decay(s, a) };
    let t = s.reciprocal(s.fma(a, s.splat(0.25), s.splat(1.0)));
    // 2.54 t - 1.54, in a form that keeps its digits.
    let place = s.mul(t, s.fma(a, s.splat(-0.384_453_78), s.splat(1.0)));
    let mut p = s.splat(TAIL[9]);
    for coefficient in TAIL[..9].iter().rev() {
        p = s.fma(p, place, s.splat(*coefficient));
    }
    let tail = s.mul(s.mul(decay, t), p);
    let weighted = s.scale2(s.mul(a, tail), n);
    // `0 * x` leaves finite numbers as they are and makes -infinity NaN, as the formula does.
    let negative = s.fma(x, s.splat(0.0), s.sub(s.splat(0.0), weighted));
    s.where_negative(x, negative, s.sub(x, weighted))
}

/// `e^(-a^2 / 2)` as a number that is not small and the power of two that it is to be scaled with.
#[cfg(feature = "activation")]
#[inline(always)]
fn normal_decay<A: Arithmetic>(s: A, a: A::V) -> (A::V, A::V) {
    // The square in two parts, the first of them exact: its error would be that of the result, times the square.
    let high = s.mul(s.round(s.mul(a, s.splat(256.0))), s.splat(1.0 / 256.0));
    let low = s.sub(a, high);
    let half_square = s.mul(s.mul(high, high), s.splat(0.5));
    let n = s.round(s.mul(s.mul(a, a), s.splat(-0.5 * core::f32::consts::LOG2_E)));
    let r = s.sub(s.sub(s.splat(0.0), half_square), s.mul(n, s.splat(LN2[0])));
    let r = s.sub(r, s.mul(s.mul(s.add(a, high), low), s.splat(0.5)));
    let r = s.fma(n, s.splat(-LN2[1]), r);
    (exp_reduced(s, r), n)
}

/// [`normal_decay`] where products are exact before they are added, and where there is a table.
#[cfg(feature = "activation")]
#[inline(always)]
fn normal_decay_table<A: Arithmetic>(s: A, a: A::V) -> (A::V, A::V) {
    const HALF: f32 = 0.5 * core::f32::consts::LOG2_E;
    /// What [`HALF`] lacks.
    const HALF_LOW: f32 = 9.629_815e-9;
    let minus_square = s.mul(s.sub(s.splat(0.0), a), a);
    let rounded = s.fma(minus_square, s.splat(HALF), s.splat(ROUND32));
    let n = s.sub(rounded, s.splat(ROUND32));
    let r = s.fma(minus_square, s.splat(-HALF), n);
    // What the constant lost when it was rounded, and what the square did.
    let r = s.fma(minus_square, s.splat(-HALF_LOW), r);
    let lost = s.fma(a, a, minus_square);
    let r = s.fma(lost, s.splat(HALF), r);
    (exp2_table(s, rounded, r), n)
}

/// `2^x`, within 2 ulp; 0 below -150, infinity above 129, NaN for NaN.
#[cfg(feature = "flash-attn2")]
#[inline(always)]
pub(crate) fn exp2<S: Arithmetic>(s: S, x: S::V) -> S::V {
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
pub(crate) fn tanh<S: Arithmetic>(s: S, x: S::V) -> S::V {
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
