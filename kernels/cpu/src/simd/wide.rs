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
#[cfg(any(feature = "activation", feature = "softmax"))]
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
            $(
                #[inline(always)]
                fn $name(self, $($arg: Self::V),+) -> Self::V {
                    Simd::$name(self, $($arg),+)
                }
            )*
        }

        #[cfg(any(feature = "activation", feature = "softmax"))]
        impl<S: Simd, const N: usize> Arithmetic for Wide<S, N> {
            type V = [<S as Simd>::V; N];
            const TABLE: bool = <S as Simd>::TABLE;

            #[inline(always)]
            fn splat(self, value: f32) -> Self::V {
                [Simd::splat(self.0, value); N]
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
    fma(a, b, c)
    max(a, b)
    min(a, b)
    abs(a)
    round(a)
    scale2(a, n)
    power32(bits)
    where_negative(x, a, b)
}
