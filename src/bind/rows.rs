//! What the faces of contracts over rows share.
//!
//! A face's `forward` is inlined, and makes nothing but views of what the caller still has in registers; everything
//! else is called with them. To read a tensor back from the memory that it was written to a moment before, in wider
//! pieces, costs more than all the checks.
#![expect(unsafe_code, reason = "calls a kernel with checked views")]

use super::kernel::Route;
use super::tensor::View;
use super::{BindError, LayerMeta};

/// Calls a kernel of one input and one output of its shape.
///
/// # Safety
/// The contract's parameters are `out` and `x`. Nothing else reads or writes what `out` is a view of.
pub(super) unsafe fn map_rows(meta: &LayerMeta, route: &Route, out: &View, x: &View) -> Result<(), BindError> {
    let native = route.native(meta)?;
    if x.shape().is_empty() {
        return Err(meta.shape_fault("x", x, "[..., width]".to_owned()));
    }
    meta.check_supported("x", x)?;
    meta.check_view_width("x", x)?;
    meta.check_rows("x", x)?;
    meta.check_like("out", out, x)?;
    let (mut out, mut x) = (out.dl_tensor(), x.dl_tensor());
    let values = [out.value(), x.value()];
    // SAFETY: the views borrow live memory of the described extent, `out` uniquely, by this function's contract; shapes,
    // dtypes and strides were checked against the contract and the kernel's limits just above.
    unsafe { native.call(meta, values) }
}

/// `x` is `[..., hidden]` and `weight` `[hidden]`, of one of the kernel's dtypes and within its limits.
#[inline]
pub(super) fn check_row_inputs(meta: &LayerMeta, x: &View, weight: &View) -> Result<(), BindError> {
    let Some(hidden) = x.shape().last().copied() else {
        return Err(meta.shape_fault("x", x, "[..., hidden]".to_owned()));
    };
    meta.check_supported("x", x)?;
    meta.check_dtype("weight", weight, x.dtype())?;
    meta.check_shape("weight", weight, &[hidden], "[hidden]")?;
    meta.check_view_width("x", x)?;
    meta.check_rows("x", x)?;
    meta.check_rows("weight", weight)
}
