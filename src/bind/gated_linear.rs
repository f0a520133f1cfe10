//! The gated linear contracts' typed face.
#![expect(unsafe_code, reason = "calls a kernel with checked views")]

use super::contract::{LINEAR, index_of};
use super::kernel::Route;
use super::linear::check_product;
use super::native::optional_tensor;
use super::output::collect_output;
use super::tensor::View;
use super::{BindError, Element, LayerMeta, TensorMut, TensorRef};

const BIAS: usize = index_of(LINEAR, "bias");

/// A kernel for [`super::Contract::GatedLinear`].
#[derive(Debug)]
pub struct GatedLinearKernel {
    pub(super) meta: LayerMeta,
    pub(super) route: Route,
}

impl GatedLinearKernel {
    /// What the kernel is and demands.
    #[must_use]
    pub fn meta(&self) -> &LayerMeta {
        &self.meta
    }

    /// `out = activation(x gate^T + gate_bias) * (x up^T + up_bias)`; see [`super::GatedLinear`].
    ///
    /// # Shapes
    /// `out`: `[..., d]`; `x`: `[..., in_features]`; `weight`: `[2 * d, in_features]`, the `d` rows of the gate before
    /// those of up; `bias`: `[2 * d]`, likewise; the rows of `x` and `weight` at any distance, their elements adjacent.
    /// One dtype for all, one of the kernel's.
    ///
    /// # Errors
    /// [`BindError`] naming the argument that breaks the contract or the kernel's limits, [`BindError::Option`] for a
    /// bias when the kernel takes none, or the kernel's own error.
    pub fn forward(
        &self,
        out: &mut TensorMut<'_>,
        x: &TensorRef<'_>,
        weight: &TensorRef<'_>,
        bias: Option<&TensorRef<'_>>,
    ) -> Result<(), BindError> {
        let meta = &self.meta;
        let native = self.route.native(meta)?;
        native.check_option(meta, BIAS, bias.is_none())?;
        let (out, x, weight, bias) = (&out.view(), &x.view(), &weight.view(), &bias.map(TensorRef::view));
        let bias = bias.as_ref();
        check_product(meta, 2, [out, x, weight], bias)?;
        let (mut out, mut x, mut weight) = (out.dl_tensor(), x.dl_tensor(), weight.dl_tensor());
        let mut bias = bias.map(View::dl_tensor);
        let values = [out.value(), x.value(), weight.value(), optional_tensor(&mut bias)];
        // SAFETY: the views borrow live memory of the described extent, `out` uniquely; shapes, dtypes and strides
        // were checked against the contract and the kernel's limits just above, and a bias is passed only to a function
        // that takes one.
        unsafe { native.call(meta, values) }
    }

    /// [`Self::forward`] into memory of its own, row-major with the shape `shape`: `[..., d]`.
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
