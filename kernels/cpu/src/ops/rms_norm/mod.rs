//! Root mean square normalisation of rows: alone, behind the addition of a residual, and its gradient.

mod add;
mod backward;
mod factor;
mod forward;

use crate::call::{DType, Failed, MAX_RANK, Tensor};

pub(crate) use self::add::call as add_rms_norm;
pub(crate) use self::backward::call as rms_norm_backward;
pub(crate) use self::forward::{call as rms_norm, call_with_offset as rms_norm_with_offset};

/// Checks the rank of an input of rows.
fn expect_row(x: &Tensor) -> Result<(), Failed> {
    x.expect_rank(1..=MAX_RANK, "[.., hidden]")
}

/// Checks the shape and dtype of the weight of `x`.
fn expect_weight(weight: &Tensor, x: &Tensor) -> Result<(), Failed> {
    weight.expect_shape(&[x.last()], "[hidden], hidden as in `x`")?;
    if weight.dtype == DType::F32 { Ok(()) } else { weight.expect_dtype(x.dtype, "as `x`, or f32") }
}
