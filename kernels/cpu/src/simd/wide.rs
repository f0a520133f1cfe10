//! Arithmetic on one vector, or on several side by side.
//!
//! A long formula is a chain of operations that each wait for the one before. A CPU runs several chains at once only
//! as far as its scheduler reaches, which is less than two of the longer ones here: so the code takes several vectors
//! through each step together.

use super::Simd;

/// What formulas are made of; each operation as in [`Simd`].
pub(crate) trait Arithmetic: Copy {
    /// The lanes.
    type V: Copy;
    /// See [`Simd`].
    const TABLE: bool;

    /// See [`Simd`].
    fn splat(self, value: f32) -> Self::V;
    /// See [`Simd`].
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    /// See [`Simd`].
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    /// See [`Simd`].
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    /// See [`Simd`].
    fn reciprocal(self, a: Self::V) -> Self::V;
    /// See [`Simd`].
    fn divide(self, a: Self::V, b: Self::V) -> Self::V;
    /// See [`Simd`].
    fn fnma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// See [`Simd`].
    fn clamp(self, x: Self::V, low: Self::V, high: Self::V) -> Self::V;
    /// See [`Simd`].
    fn at_most(self, a: Self::V, bound: Self::V) -> Self::V;
    /// See [`Simd`].
    fn power(self, rounded: Self::V) -> Self::V;
    /// See [`Simd`].
    fn lookup(self, table: &'static [f32; 32], bits: Self::V) -> Self::V;
    /// See [`Simd`].
    fn abreast(self, v: Self::V) -> Self::V;
    /// See [`Simd`].
    fn any_below(self, x: Self::V, limit: f32) -> bool;
    /// See [`Simd`].
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// See [`Simd`].
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    /// See [`Simd`].
    fn min(self, a: Self::V, b: Self::V) -> Self::V;
    /// See [`Simd`].
    fn abs(self, a: Self::V) -> Self::V;
    /// See [`Simd`].
    fn round(self, a: Self::V) -> Self::V;
    /// See [`Simd`].
    fn scale2(self, a: Self::V, n: Self::V) -> Self::V;
    /// See [`Simd`].
    fn power32(self, bits: Self::V) -> Self::V;
    /// See [`Simd`].
    fn where_negative(self, x: Self::V, a: Self::V, b: Self::V) -> Self::V;
}

/// `N` vectors of a level side by side.
#[cfg(any(feature = "activation", feature = "cross-entropy", feature = "softmax"))]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wide<S, const N: usize>(pub(crate) S);

macro_rules! arithmetic {
    ($($name:ident($($arg:ident),+))*) => {
        impl<S: Simd> Arithmetic for S {
            type V = <S as Simd>::V;
            const TABLE: bool = <S as Simd>::TABLE;

            #[inline(always)]
            fn splat(self, value: f32) -> Self::V {
                Simd::splat(self, value)
            }
            #[inline(always)]
            fn lookup(self, table: &'static [f32; 32], bits: Self::V) -> Self::V {
                Simd::lookup(self, table, bits)
            }
            #[inline(always)]
            fn abreast(self, v: Self::V) -> Self::V {
                v
            }
            #[inline(always)]
            fn any_below(self, x: Self::V, limit: f32) -> bool {
                Simd::any_below(self, [x], limit)
            }
            $(
                #[inline(always)]
                fn $name(self, $($arg: Self::V),+) -> Self::V {
                    Simd::$name(self, $($arg),+)
                }
            )*
        }

        #[cfg(any(feature = "activation", feature = "cross-entropy", feature = "softmax"))]
        impl<S: Simd, const N: usize> Arithmetic for Wide<S, N> {
            type V = [<S as Simd>::V; N];
            const TABLE: bool = <S as Simd>::TABLE;

            #[inline(always)]
            fn splat(self, value: f32) -> Self::V {
                [Simd::splat(self.0, value); N]
            }
            #[inline(always)]
            fn lookup(self, table: &'static [f32; 32], bits: Self::V) -> Self::V {
                let mut all = bits;
                for one in &mut all {
                    *one = Simd::lookup(self.0, table, *one);
                }
                all
            }
            #[inline(always)]
            fn abreast(self, v: Self::V) -> Self::V {
                Simd::abreast(self.0, v)
            }
            #[inline(always)]
            fn any_below(self, x: Self::V, limit: f32) -> bool {
                Simd::any_below(self.0, x, limit)
            }
            $(
                #[inline(always)]
                fn $name(self, $($arg: Self::V),+) -> Self::V {
                    let mut all = [Simd::splat(self.0, 0.0); N];
                    for (i, one) in all.iter_mut().enumerate() {
                        *one = Simd::$name(self.0, $($arg[i]),+);
                    }
                    all
                }
            )*
        }
    };
}

arithmetic! {
    add(a, b)
    sub(a, b)
    mul(a, b)
    reciprocal(a)
    divide(a, b)
    fnma(a, b, c)
    clamp(x, low, high)
    at_most(a, bound)
    power(rounded)
    fma(a, b, c)
    max(a, b)
    min(a, b)
    abs(a)
    round(a)
    scale2(a, n)
    power32(bits)
    where_negative(x, a, b)
}
