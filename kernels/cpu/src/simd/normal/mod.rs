//! Numbers times the normal distribution's probability of what is below them.

#![expect(clippy::inline_always, reason = "generic SIMD code must be inlined into the function compiled for its level")]
#![expect(clippy::many_single_char_names, reason = "the names of the formulas")]

use super::math::{LN2, exp_reduced};
use super::{Arithmetic, Element, Precision, ROUND32};

mod tables;

use self::tables::{HALF, SINGLE, Tables};

/// `Q(a) e^(a^2 / 2) = t * p(2.54 t - 1.54)` with `t = 1 / (1 + a / 4)`, where `Q` is the upper tail of the normal
/// distribution, `erfc(a / sqrt(2)) / 2`: the coefficients of `p`, interpolated at Chebyshev nodes of 0 <= a <= 14.875.
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

/// `2^-r = 1 + r * (p[0] + r * p[1])` for |r| <= 1/64, least in error with the 1 fixed.
const EXP2_32: [f32; 2] = [-0.693_157_3, 0.240_226_5];

/// `2^-r`, for |r| <= 1/64, times the power in the low five bits of `rounded`.
#[inline(always)]
fn exp2_table<A: Arithmetic>(s: A, rounded: A::V, r: A::V) -> A::V {
    let p = s.fma(s.fma(r, s.splat(EXP2_32[1]), s.splat(EXP2_32[0])), r, s.splat(1.0));
    s.mul(s.power32(rounded), p)
}

/// What is added to a number below 2^22 so that its sum rounds it to an integer, which the low bits of the sum are.
const ROUND: f32 = 12_582_912.0;

/// `x (1 + erf(x / sqrt(2))) / 2`. Within 4 parts in 2^23 everywhere, or, where `E` has a 16-bit precision, within 5e-5
/// of itself, of bf16, and within 1e-5 of itself and 1e-9, of f16.
#[inline(always)]
pub(crate) fn normal_weighted<E: Element, A: Arithmetic>(s: A, x: A::V) -> A::V {
    if !A::TABLE {
        return normal_weighted_everywhere(s, x);
    }
    // Where the tables end; below, the lower tail asks for more, except of f16, to which it is 0.
    let (step, end, limit) = match E::PRECISION {
        Precision::Single => (25.0 / 128.0, 6.14, -6.14),
        Precision::Bf16 => (13.0 / 64.0, 6.38, -6.38),
        // -infinity alone, which is to give NaN.
        Precision::F16 => (13.0 / 64.0, 6.38, f32::MIN),
    };
    if s.any_below(x, limit) {
        return normal_weighted_everywhere(s, x);
    }
    let a = s.at_most(s.abs(x), s.splat(end));
    let rounded = s.fma(a, s.splat(1.0 / step), s.splat(ROUND));
    let h = s.fnma(s.sub(rounded, s.splat(ROUND)), s.splat(step), a);
    let tail = match E::PRECISION {
        Precision::Single => piece(s, &SINGLE, rounded, h),
        Precision::Bf16 | Precision::F16 => piece(s, &HALF, rounded, h),
    };
    // `max` gives its second operand where that is NaN, or 0 with a sign.
    s.fnma(a, tail, s.max(s.splat(0.0), x))
}

/// The polynomial in `h` whose coefficients stand in the tables at the place of `rounded`.
#[inline(always)]
fn piece<A: Arithmetic, const N: usize>(s: A, tables: &'static Tables<N>, rounded: A::V, h: A::V) -> A::V {
    let mut p = s.lookup(&tables.0[N - 1], rounded);
    for table in tables.0[..N - 1].iter().rev() {
        p = s.abreast(s.fma(p, h, s.lookup(table, rounded)));
    }
    p
}

/// `x (1 + erf(x / sqrt(2))) / 2`: `x Q(-x)` for negative `x`, and `x - x Q(x)` else, where `1 + erf` would lose all
/// digits of the lower tail. Within 4 parts in 2^23 everywhere.
#[inline(always)]
fn normal_weighted_everywhere<A: Arithmetic>(s: A, x: A::V) -> A::V {
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
    // `0 * x` leaves finite numbers as they are, with their sign, and makes -infinity NaN, as the formula does.
    let negative = s.sub(s.mul(x, s.splat(0.0)), weighted);
    s.where_negative(x, negative, s.sub(x, weighted))
}

/// `e^(-a^2 / 2)` as a number that is not small and the power of two that it is to be scaled with.
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
