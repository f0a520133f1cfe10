//! The gated linear contracts' typed face.
#![expect(unsafe_code, reason = "calls a kernel with checked views")]

use super::kernel::Route;
use super::linear::multiply;
use super::output::collect_output;
use super::{BindError, Element, LayerMeta, TensorMut, TensorRef};

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
        unsafe { multiply(&self.meta, &self.route, 2, [&out.view(), &x.view(), &weight.view()], bias.as_ref()) }
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
