//! The `linear` contract's typed face.
#![expect(unsafe_code, reason = "calls a kernel with checked views")]

use super::contract::{LINEAR, index_of};
use super::kernel::Route;
use super::native::optional_tensor;
use super::output::collect_output;
use super::tensor::View;
use super::{BindError, Element, LayerMeta, TensorMut, TensorRef};

const BIAS: usize = index_of(LINEAR, "bias");

/// A kernel for [`super::Contract::Linear`].
#[derive(Debug)]
pub struct LinearKernel {
    pub(super) meta: LayerMeta,
    pub(super) route: Route,
}

impl LinearKernel {
    /// What the kernel is and demands.
    #[must_use]
    pub fn meta(&self) -> &LayerMeta {
        &self.meta
    }

    /// `out = x weight^T + bias`.
    ///
    /// # Shapes
    /// `out`: `[..., out_features]`; `x`: `[..., in_features]`; `weight`: `[out_features, in_features]`; `bias`:
    /// `[out_features]`; the rows of `x` and `weight` at any distance, their elements adjacent. One dtype for all, one
    /// of the kernel's.
    ///
    /// # Errors
    /// [`BindError`] naming the argument that breaks the contract or the kernel's limits, [`BindError::Option`] for a
    /// bias when the kernel takes none, or the kernel's own error.
    #[inline]
    pub fn forward(
        &self,
        out: &mut TensorMut<'_>,
        x: &TensorRef<'_>,
        weight: &TensorRef<'_>,
        bias: Option<&TensorRef<'_>>,
    ) -> Result<(), BindError> {
        let bias = &bias.map(TensorRef::view);
        // SAFETY: `out` is a unique borrow.
        unsafe { multiply(&self.meta, &self.route, 1, [&out.view(), &x.view(), &weight.view()], bias.as_ref()) }
    }

    /// [`Self::forward`] into memory of its own, row-major with the shape `shape`: `[..., out_features]`.
    ///
    /// # Errors
    /// As [`Self::forward`].
    pub fn forward_to_vec<T: Element>(
        &self,
        x: &TensorRef<'_>,
        weight: &TensorRef<'_>,
        bias: Option<&TensorRef<'_>>,
        shape: &[usize],
    ) -> Result<Vec<T>, BindError> {
        collect_output(shape, |data| self.forward(&mut TensorMut::uninit::<T>(data, shape)?, x, weight, bias))
    }
}

/// Calls a kernel of `x weight^T + bias`, whose result has `1 / halves` of the weight's rows as its width.
///
/// # Safety
/// The contract's parameters are those of [`LINEAR`]. Nothing else reads or writes what `out` is a view of.
pub(super) unsafe fn multiply(
    meta: &LayerMeta,
    route: &Route,
    halves: i64,
    [out, x, weight]: [&View; 3],
    bias: Option<&View>,
) -> Result<(), BindError> {
    let native = route.native(meta)?;
    native.check_option(meta, BIAS, bias.is_none())?;
    check_product(meta, halves, [out, x, weight], bias)?;
    let (mut out, mut x, mut weight) = (out.dl_tensor(), x.dl_tensor(), weight.dl_tensor());
    let mut bias = bias.map(View::dl_tensor);
    let values = [out.value(), x.value(), weight.value(), optional_tensor(&mut bias)];
    // SAFETY: the views borrow live memory of the described extent, `out` uniquely, by this function's contract; shapes,
    // dtypes and strides were checked against the layer's contract and the kernel's limits just above, and a bias is
    // passed only to a function that takes one.
    unsafe { native.call(meta, values) }
}

/// Checks the tensors of `x weight^T + bias`, whose result has `1 / halves` of the weight's rows as its width.
fn check_product(
    meta: &LayerMeta,
    halves: i64,
    [out, x, weight]: [&View; 3],
    bias: Option<&View>,
) -> Result<(), BindError> {
    let (rows_name, width_name) = if halves == 1 { ("out_features", "out_features") } else { ("2 * d", "d") };
    let Some((&in_features, rows)) = x.shape().split_last() else {
        return Err(meta.shape_fault("x", x, "[..., in_features]".to_owned()));
    };
    let &[weight_rows, weight_in] = weight.shape() else {
        return Err(meta.shape_fault("weight", weight, format!("[{rows_name}, in_features]")));
    };
    if weight_in != in_features {
        let expected = format!("[{rows_name}, in_features] with in_features = {in_features}, as x has");
        return Err(meta.shape_fault("weight", weight, expected));
    }
    if weight_rows % halves != 0 {
        return Err(meta.shape_fault("weight", weight, format!("[{rows_name}, in_features], an even number of rows")));
    }
    let width = weight_rows / halves;
    if out.shape().split_last() != Some((&width, rows)) {
        let expected = format!("[..., {width_name}] = {rows:?} and {width}");
        return Err(meta.shape_fault("out", out, expected));
    }
    meta.check_supported("x", x)?;
    for (argument, view) in [("out", out), ("weight", weight)] {
        meta.check_dtype(argument, view, x.dtype())?;
        meta.check_rows(argument, view)?;
    }
    if let Some(bias) = bias {
        meta.check_dtype("bias", bias, x.dtype())?;
        let shape = if halves == 1 { "[out_features]" } else { "[2 * d]" };
        meta.check_shape("bias", bias, &[weight_rows], shape)?;
        meta.check_rows("bias", bias)?;
    }
    meta.check_view_width("x", x)?;
    meta.check_rows("x", x)
}
