//! The gated activation contracts' typed face.
#![expect(unsafe_code, reason = "calls a kernel with checked views")]

use kernelhub_abi::TVMFFIAny;

use super::kernel::Route;
use super::output::collect_output;
use super::tensor::View;
use super::{BindError, Element, LayerMeta, TensorMut, TensorRef};

/// A kernel for [`super::Contract::GatedActivation`].
#[derive(Debug)]
pub struct GatedActivationKernel {
    pub(super) meta: LayerMeta,
    pub(super) route: Route,
}

impl GatedActivationKernel {
    /// What the kernel is and demands.
    #[must_use]
    pub fn meta(&self) -> &LayerMeta {
        &self.meta
    }

    /// `out = activation(x[..., :d]) * x[..., d:]`.
    ///
    /// # Shapes
    /// `out`: `[..., d]`; `x`: `[..., 2 * d]`, its rows at any distance, their elements adjacent. One dtype for both,
    /// one of the kernel's.
    ///
    /// # Errors
    /// [`BindError`] naming the argument that breaks the contract or the kernel's limits, or the kernel's own error.
    pub fn forward(&self, out: &mut TensorMut<'_>, x: &TensorRef<'_>) -> Result<(), BindError> {
        let meta = &self.meta;
        let native = self.route.native(meta)?;
        let (out, x) = (out.view(), x.view());
        self.check(out, x)?;
        let (mut out, mut x) = (out.dl_tensor(), x.dl_tensor());
        let values = [TVMFFIAny::tensor(&raw mut out), TVMFFIAny::tensor(&raw mut x)];
        // SAFETY: the views borrow live memory of the described extent, `out` uniquely; shapes, dtypes and strides
        // were checked against the contract and the kernel's limits just above.
        unsafe { native.call(meta, values) }
    }

    fn check(&self, out: &View, x: &View) -> Result<(), BindError> {
        let meta = &self.meta;
        let fits = match (out.shape().split_last(), x.shape().split_last()) {
            (Some((width, out_rows)), Some((double, x_rows))) => {
                out_rows == x_rows && width.checked_mul(2) == Some(*double)
            }
            _ => false,
        };
        if !fits {
            return Err(meta.shape_fault("x", x, format!("[..., 2 * d] for out [..., d] = {:?}", out.shape())));
        }
        meta.check_supported("x", x)?;
        meta.check_dtype("out", out, x.dtype())?;
        meta.check_view_width("out", out)?;
        meta.check_rows("out", out)?;
        meta.check_rows("x", x)
    }

    /// [`Self::forward`] into memory of its own, row-major with the shape `shape`: `[..., d]`.
    ///
    /// # Errors
    /// As [`Self::forward`].
    pub fn forward_to_vec<T: Element>(&self, x: &TensorRef<'_>, shape: &[usize]) -> Result<Vec<T>, BindError> {
        collect_output(shape, |data| self.forward(&mut TensorMut::uninit::<T>(data, shape)?, x))
    }
}
