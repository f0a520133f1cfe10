//! The functions themselves, on vectors.

#![expect(clippy::inline_always, reason = "generic SIMD code must be inlined into the function compiled for its level")]

use crate::simd::{Arithmetic, Element, Precision, normal_weighted, sigmoid_weighted};

/// A function of one number.
pub(super) trait Unary: Copy + Send + Sync {
    /// The values, to be rounded to `E`.
    fn value<E: Element, A: Arithmetic>(self, s: A, x: A::V) -> A::V;

    /// The values, to be multiplied before they are rounded to `E`: what is nothing beside the least step of `E` may be
    /// more than the product.
    #[inline(always)]
    fn gate<E: Element, A: Arithmetic>(self, s: A, x: A::V) -> A::V {
        self.value::<E, A>(s, x)
    }
}

/// What makes an output row of an input row.
pub(super) trait RowFunction: Copy + Send + Sync {
    /// Whether an input row has two halves; else `second` is `first`.
    const GATED: bool;
    /// Whether results often are 0.
    const ZEROS: bool = false;

    /// The values, to be rounded to `E`.
    fn value<E: Element, A: Arithmetic>(self, s: A, first: A::V, second: A::V) -> A::V;
}

/// `x / (1 + e^-x)`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Silu;

impl Unary for Silu {
    #[inline(always)]
    fn value<E: Element, A: Arithmetic>(self, s: A, x: A::V) -> A::V {
        sigmoid_weighted(s, x, x)
    }
}

/// `x (1 + erf(x / sqrt(2))) / 2`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gelu;

impl Unary for Gelu {
    #[inline(always)]
    fn value<E: Element, A: Arithmetic>(self, s: A, x: A::V) -> A::V {
        normal_weighted::<E, A>(s, x)
    }

    #[inline(always)]
    fn gate<E: Element, A: Arithmetic>(self, s: A, x: A::V) -> A::V {
        // Of f16 alone, the error is not a part of the value.
        if E::PRECISION == Precision::F16 { normal_weighted::<f32, A>(s, x) } else { normal_weighted::<E, A>(s, x) }
    }
}

/// `x (1 + tanh(u)) / 2` with `u = sqrt(2 / pi) (x + 0.044715 x^3)`: what several names stand for, which differ in how
/// they write it down.
#[derive(Debug, Clone, Copy)]
pub(super) struct GeluTanh;

impl Unary for GeluTanh {
    /// As `x / (1 + e^-2u)`, which has no difference of numbers that are nearly equal.
    #[inline(always)]
    fn value<E: Element, A: Arithmetic>(self, s: A, x: A::V) -> A::V {
        // 2 * sqrt(2 / pi), and the same times 0.044715.
        let (linear, cubic) = (s.splat(1.595_769_2), s.splat(0.071_354_814));
        let z = s.mul(x, s.fma(s.mul(x, x), cubic, linear));
        sigmoid_weighted(s, x, z)
    }
}

/// `x / (1 + e^-1.702x)`.
#[derive(Debug, Clone, Copy)]
pub(super) struct GeluQuick;

impl Unary for GeluQuick {
    #[inline(always)]
    fn value<E: Element, A: Arithmetic>(self, s: A, x: A::V) -> A::V {
        sigmoid_weighted(s, x, s.mul(x, s.splat(1.702)))
    }
}

/// `f(x)` for every number.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plain<F>(pub(super) F);

impl<F: Unary> RowFunction for Plain<F> {
    const GATED: bool = false;

    #[inline(always)]
    fn value<E: Element, A: Arithmetic>(self, s: A, first: A::V, _second: A::V) -> A::V {
        self.0.value::<E, A>(s, first)
    }
}

/// `f(first) * second`.
#[derive(Debug, Clone, Copy)]
pub(super) struct GateFirst<F>(pub(super) F);

impl<F: Unary> RowFunction for GateFirst<F> {
    const GATED: bool = true;

    #[inline(always)]
    fn value<E: Element, A: Arithmetic>(self, s: A, first: A::V, second: A::V) -> A::V {
        s.mul(self.0.gate::<E, A>(s, first), second)
    }
}

/// `first * f(second)`.
#[derive(Debug, Clone, Copy)]
pub(super) struct GateSecond<F>(pub(super) F);

impl<F: Unary> RowFunction for GateSecond<F> {
    const GATED: bool = true;

    #[inline(always)]
    fn value<E: Element, A: Arithmetic>(self, s: A, first: A::V, second: A::V) -> A::V {
        s.mul(first, self.0.gate::<E, A>(s, second))
    }
}

/// `(first > threshold ? first : 0) * second`.
#[derive(Debug, Clone, Copy)]
pub(super) struct FatRelu {
    /// Finite.
    pub(super) threshold: f32,
}

impl RowFunction for FatRelu {
    const GATED: bool = true;
    const ZEROS: bool = true;

    #[inline(always)]
    fn value<E: Element, A: Arithmetic>(self, s: A, first: A::V, second: A::V) -> A::V {
        // The difference of unequal numbers is never 0, so that its sign decides as a comparison would.
        let below = s.sub(s.splat(self.threshold), first);
        s.mul(s.where_negative(below, first, s.splat(0.0)), second)
    }
}
