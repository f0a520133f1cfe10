//! Exponentials on vectors, and what is made of them.

#![expect(clippy::inline_always, reason = "generic SIMD code must be inlined into the function compiled for its level")]
#![expect(clippy::many_single_char_names, reason = "the names of the formulas")]

use super::Arithmetic;
#[cfg(any(feature = "activation", feature = "linear", feature = "cross-entropy", feature = "softmax"))]
use super::ROUND32;

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
pub(super) const LN2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];

/// `e^r` for |r| <= ln(2) / 2.
#[cfg(any(feature = "activation", feature = "linear", feature = "cross-entropy", feature = "softmax"))]
#[inline(always)]
pub(super) fn exp_reduced<S: Arithmetic>(s: S, r: S::V) -> S::V {
    let mut p = s.splat(EXP[4]);
    p = s.fma(p, r, s.splat(EXP[3]));
    p = s.fma(p, r, s.splat(EXP[2]));
    p = s.fma(p, r, s.splat(EXP[1]));
    p = s.fma(p, r, s.splat(EXP[0]));
    p = s.fma(p, s.mul(r, r), r);
    s.add(p, s.splat(1.0))
}

/// What [`exp_minus_scaled`] gives more: enough that its least number, divided by what the exponentials of a row sum to,
/// is 0.
#[cfg(any(feature = "activation", feature = "cross-entropy", feature = "softmax"))]
pub(crate) const EXP_SCALE: f32 = 4_294_967_296.0;
/// The logarithm of [`EXP_SCALE`].
#[cfg(any(feature = "activation", feature = "cross-entropy", feature = "softmax"))]
const EXP_SHIFT: f32 = 32.0;
/// `e^-r = 1 - r * (p + r / 2)`: the `p` that is least in error for |r| <= ln(2) / 64.
#[cfg(any(feature = "activation", feature = "linear", feature = "cross-entropy", feature = "softmax"))]
const EXP_LINEAR: f32 = 1.000_014_5;

/// `plus + e^-x 2^shift` by a table, for `shift - x / ln(2)` within -126..127: within 3 ulp for |x| up to 60 and within 4
/// beyond, for results of 16 bits, too. Two terms would do for most of their digits, but not for the right one of two
/// neighbours.
#[cfg(any(feature = "activation", feature = "linear", feature = "cross-entropy", feature = "softmax"))]
#[inline(always)]
fn exp_minus_table<A: Arithmetic>(s: A, x: A::V, shift: f32, plus: Option<f32>) -> A::V {
    let zero = s.splat(ROUND32 + shift);
    let rounded = s.fma(x, s.splat(-core::f32::consts::LOG2_E), zero);
    let n = s.sub(rounded, zero);
    // What the constant lacks, times `n`, is at most 3e-7.
    let r = s.fma(n, s.splat(core::f32::consts::LN_2), x);
    let power = s.power(rounded);
    // Added here, where nothing waits for it.
    let base = plus.map_or(power, |plus| s.add(power, s.splat(plus)));
    let p = s.fma(r, s.splat(0.5), s.splat(-EXP_LINEAR));
    s.fma(power, s.mul(r, p), base)
}

/// `e^-a` as a number for |r| <= ln(2) / 2, and the power of two that it is to be scaled with.
#[cfg(any(feature = "activation", feature = "linear", feature = "cross-entropy", feature = "softmax"))]
#[inline(always)]
fn exp_minus_parts<A: Arithmetic>(s: A, a: A::V) -> (A::V, A::V) {
    let n = s.round(s.mul(a, s.splat(-core::f32::consts::LOG2_E)));
    let r = s.fnma(n, s.splat(LN2[0]), s.sub(s.splat(0.0), a));
    let r = s.fnma(n, s.splat(LN2[1]), r);
    (exp_reduced(s, r), n)
}

/// `e^-a` times [`EXP_SCALE`] for `a >= 0`, within 4 ulp; what belongs to 109 for all above, NaN for NaN.
#[cfg(any(feature = "activation", feature = "cross-entropy", feature = "softmax"))]
#[inline(always)]
pub(crate) fn exp_minus_scaled<A: Arithmetic>(s: A, a: A::V) -> A::V {
    // NaN comes through: `min` answers its second operand then.
    let a = s.min(s.splat(109.0), a);
    if A::TABLE {
        return exp_minus_table(s, a, EXP_SHIFT, None);
    }
    let (value, n) = exp_minus_parts(s, a);
    s.scale2(value, s.add(n, s.splat(EXP_SHIFT)))
}

/// `e^-a` for `a >= 0`, as exact as [`exp_minus_scaled`]; 0 above 104, NaN for NaN.
#[cfg(any(feature = "activation", feature = "cross-entropy"))]
#[inline(always)]
pub(crate) fn exp_minus<A: Arithmetic>(s: A, a: A::V) -> A::V {
    if A::TABLE {
        return s.mul(exp_minus_scaled(s, a), s.splat(1.0 / EXP_SCALE));
    }
    let (value, n) = exp_minus_parts(s, s.min(s.splat(104.0), a));
    s.scale2(value, n)
}

/// `x / (1 + e^-z)`, also where the quotient is small; within 6 ulp.
#[cfg(any(feature = "activation", feature = "linear"))]
#[inline(always)]
pub(crate) fn sigmoid_weighted<A: Arithmetic>(s: A, x: A::V, z: A::V) -> A::V {
    /// Keeps the divisor finite where the quotient is not 0.
    const SCALE: f32 = 1.0 / 16_777_216.0;
    if A::TABLE {
        // From the lower bound on the quotient is 0, as an infinite `x` needs it; a `z` that is NaN makes `x` so, too.
        let z = s.clamp(z, s.splat(-104.0), s.splat(70.0));
        let divisor = s.abreast(exp_minus_table(s, z, -24.0, Some(SCALE)));
        return s.mul(x, s.divide(s.splat(SCALE), divisor));
    }
    // By `e^-|z|`, which cannot overflow: for large negative `z` the other form gives 0 where the result is still a
    // normal number.
    let (value, n) = exp_minus_parts(s, s.min(s.splat(104.0), s.abs(z)));
    let decay = s.scale2(value, n);
    let numerator = s.where_negative(z, s.mul(x, decay), x);
    s.divide(numerator, s.add(s.splat(1.0), decay))
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
