//! The activation contracts' typed face.
#![expect(unsafe_code, reason = "calls a kernel with checked views")]

use super::kernel::Route;
use super::output::collect_output;
use super::rows::map_rows;
use super::{BindError, Element, LayerMeta, TensorMut, TensorRef};

/// A kernel for [`super::Contract::Activation`].
#[derive(Debug)]
pub struct ActivationKernel {
    pub(super) meta: LayerMeta,
    pub(super) route: Route,
}

impl ActivationKernel {
    /// What the kernel is and demands.
    #[must_use]
    pub fn meta(&self) -> &LayerMeta {
        &self.meta
    }

    /// `out = activation(x)`, element by element.
    ///
    /// # Shapes
    /// `out`, `x`: `[..., width]`, the rows of `x` at any distance, their elements adjacent. One dtype for both, one of
    /// the kernel's.
    ///
    /// # Errors
    /// [`BindError`] naming the argument that breaks the contract or the kernel's limits, or the kernel's own error.
    #[inline]
    pub fn forward(&self, out: &mut TensorMut<'_>, x: &TensorRef<'_>) -> Result<(), BindError> {
        // SAFETY: `out` is a unique borrow.
        unsafe { map_rows(&self.meta, &self.route, &out.view(), &x.view()) }
    }

    /// [`Self::forward`] into memory of its own, row-major with the shape `shape` of `x`.
    ///
    /// # Errors
    /// As [`Self::forward`].
    pub fn forward_to_vec<T: Element>(&self, x: &TensorRef<'_>, shape: &[usize]) -> Result<Vec<T>, BindError> {
        collect_output(shape, |data| self.forward(&mut TensorMut::uninit::<T>(data, shape)?, x))
    }
}
