//! The `rms_norm` contract's typed face.
#![expect(unsafe_code, reason = "calls a kernel with checked views")]

use kernelhub_abi::TVMFFIAny;

use super::kernel::Route;
use super::output::collect_output;
use super::{BindError, Element, LayerMeta, TensorMut, TensorRef};

/// A kernel for [`super::Contract::RmsNorm`].
#[derive(Debug)]
pub struct RmsNormKernel {
    pub(super) meta: LayerMeta,
    pub(super) route: Route,
}

impl RmsNormKernel {
    /// What the kernel is and demands.
    #[must_use]
    pub fn meta(&self) -> &LayerMeta {
        &self.meta
    }

    /// Normalises each row: `out = x / sqrt(mean(x^2) + eps) * weight`.
    ///
    /// # Shapes
    /// `out`, `x`: `[..., hidden]`, the rows of `x` at any distance, their elements adjacent; `weight`: `[hidden]`.
    /// One dtype for all, one of the kernel's.
    ///
    /// # Errors
    /// [`BindError`] naming the argument that breaks the contract or the kernel's limits, or the kernel's own error.
    pub fn forward(
        &self,
        out: &mut TensorMut<'_>,
        x: &TensorRef<'_>,
        weight: &TensorRef<'_>,
        eps: f64,
    ) -> Result<(), BindError> {
        let meta = &self.meta;
        let native = self.route.native(meta)?;
        let (out, x, weight) = (out.view(), x.view(), weight.view());
        let Some(hidden) = x.shape().last().copied() else {
            return Err(meta.shape_fault("x", x, "[..., hidden]".to_owned()));
        };
        meta.check_supported("x", x)?;
        meta.check_dtype("out", out, x.dtype())?;
        meta.check_dtype("weight", weight, x.dtype())?;
        meta.check_shape("out", out, x.shape(), "the shape of x")?;
        meta.check_shape("weight", weight, &[hidden], "[hidden]")?;
        meta.check_view_width("x", x)?;
        meta.check_rows("out", out)?;
        meta.check_rows("x", x)?;
        meta.check_rows("weight", weight)?;
        let (mut out, mut x, mut weight) = (out.dl_tensor(), x.dl_tensor(), weight.dl_tensor());
        let values = [
            TVMFFIAny::tensor(&raw mut out),
            TVMFFIAny::tensor(&raw mut x),
            TVMFFIAny::tensor(&raw mut weight),
            TVMFFIAny::float(eps),
        ];
        // SAFETY: the views borrow live memory of the described extent, `out` uniquely; shapes, dtypes and strides
        // were checked against the contract and the kernel's limits just above.
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
        eps: f64,
    ) -> Result<Vec<T>, BindError> {
        collect_output(shape, |data| self.forward(&mut TensorMut::uninit::<T>(data, shape)?, x, weight, eps))
    }
}
