//! The `layer_norm` contract's typed face.
#![expect(unsafe_code, reason = "calls a kernel with checked views")]

use kernelhub_abi::TVMFFIAny;

use super::contract::{LAYER_NORM, index_of};
use super::kernel::Route;
use super::native::optional_tensor;
use super::output::collect_output;
use super::rows::check_row_inputs;
use super::tensor::View;
use super::{BindError, Element, LayerMeta, TensorMut, TensorRef};

const BIAS: usize = index_of(LAYER_NORM, "bias");

/// A kernel for [`super::Contract::LayerNorm`].
#[derive(Debug)]
pub struct LayerNormKernel {
    pub(super) meta: LayerMeta,
    pub(super) route: Route,
}

impl LayerNormKernel {
    /// What the kernel is and demands.
    #[must_use]
    pub fn meta(&self) -> &LayerMeta {
        &self.meta
    }

    /// Normalises each row: `out = (x - mean(x)) / sqrt(var(x) + eps) * weight + bias`.
    ///
    /// # Shapes
    /// `out`, `x`: `[..., hidden]`, the rows of `x` at any distance, their elements adjacent; `weight`, `bias`:
    /// `[hidden]`. One dtype for all, one of the kernel's.
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
        eps: f64,
    ) -> Result<(), BindError> {
        let bias = &bias.map(TensorRef::view);
        // SAFETY: `out` is a unique borrow.
        unsafe { self.forward_views(&out.view(), &x.view(), &weight.view(), bias.as_ref(), eps) }
    }

    /// # Safety
    /// Nothing else reads or writes what `out` is a view of.
    unsafe fn forward_views(
        &self,
        out: &View<'_>,
        x: &View<'_>,
        weight: &View<'_>,
        bias: Option<&View<'_>>,
        eps: f64,
    ) -> Result<(), BindError> {
        let meta = &self.meta;
        let native = self.route.native(meta)?;
        native.check_option(meta, BIAS, bias.is_none())?;
        check_row_inputs(meta, x, weight)?;
        meta.check_like("out", out, x)?;
        if let Some(bias) = bias {
            meta.check_like("bias", bias, weight)?;
        }
        let (mut out, mut x, mut weight) = (out.dl_tensor(), x.dl_tensor(), weight.dl_tensor());
        let mut bias = bias.map(View::dl_tensor);
        let values = [out.value(), x.value(), weight.value(), optional_tensor(&mut bias), TVMFFIAny::float(eps)];
        // SAFETY: the views borrow live memory of the described extent, `out` uniquely, by this function's contract;
        // shapes, dtypes and strides were checked against the contract and the kernel's limits just above, and a bias is
        // passed only to a function that takes one.
        unsafe { native.call(meta, values) }
    }

    /// [`Self::forward`] into memory of its own, row-major.
    ///
    /// # Errors
    /// As [`Self::forward`].
    pub fn forward_to_vec<T: Element>(
        &self,
        x: &TensorRef<'_>,
        shape: &[usize],
        weight: &TensorRef<'_>,
        bias: Option<&TensorRef<'_>>,
        eps: f64,
    ) -> Result<Vec<T>, BindError> {
        collect_output(shape, |data| self.forward(&mut TensorMut::uninit::<T>(data, shape)?, x, weight, bias, eps))
    }
}
