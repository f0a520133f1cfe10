//! Activations: functions of single numbers, and gated ones, of the two halves of a row.

mod backward;
mod forward;
mod function;

use self::forward::call;
use self::function::{FatRelu, GateFirst, GateSecond, Gelu, GeluQuick, GeluTanh, Plain, Silu};
use crate::call::{Args, Failed, MAX_RANK, Tensor};

pub(crate) use self::backward::silu_and_mul as silu_and_mul_backward;

/// Longest part of a row that is one item of work, in elements. A multiple of every vector.
const SEGMENT: usize = 8192;

/// The checked calls of functions that need nothing but tensors.
macro_rules! calls {
    ($($name:ident: $function:expr, $about:literal;)*) => {$(
        #[doc = $about]
        pub(crate) fn $name(function: &'static str, args: &Args<'_>) -> Result<(), Failed> {
            call(function, args, $function)
        }
    )*};
}

calls! {
    silu_and_mul: GateFirst(Silu), "`silu(first) * second`.";
    mul_and_silu: GateSecond(Silu), "`first * silu(second)`.";
    gelu_and_mul: GateFirst(Gelu), "`gelu(first) * second`.";
    gelu_tanh_and_mul: GateFirst(GeluTanh), "`gelu_tanh(first) * second`.";
    silu: Plain(Silu), "`silu(x)`.";
    gelu: Plain(Gelu), "`gelu(x)`.";
    gelu_tanh: Plain(GeluTanh), "`gelu_tanh(x)`, also known as `gelu_new` and `gelu_fast`.";
    gelu_quick: Plain(GeluQuick), "`gelu_quick(x)`.";
}

/// `(first > threshold ? first : 0) * second`.
pub(crate) fn fatrelu_and_mul(function: &'static str, args: &Args<'_>) -> Result<(), Failed> {
    let threshold = args.finite_f32(2)?;
    call(function, args, FatRelu { threshold })
}

/// Checks that `half` has the shape of `whole`, whose last axis is two halves, with one half of it.
fn expect_half(half: &Tensor, whole: &Tensor, why: &str) -> Result<(), Failed> {
    whole.expect_rank(1..=MAX_RANK, "[.., 2 * d]")?;
    let double = whole.last();
    if !double.is_multiple_of(2) {
        return Err(whole.invalid(format_args!("expected an even extent in the last axis, 2 * d, got {double}")));
    }
    let mut expected = [0; MAX_RANK];
    let expected = &mut expected[..whole.shape().len()];
    expected.copy_from_slice(whole.shape());
    if let Some(last) = expected.last_mut() {
        *last = double / 2;
    }
    half.expect_shape(expected, why)
}
