//! The `add_rms_norm` contract's typed face.
#![expect(unsafe_code, reason = "calls a kernel with checked views")]

use kernelhub_abi::TVMFFIAny;

use super::contract::{ADD_RMS_NORM, index_of};
use super::kernel::Route;
use super::output::collect_outputs;
use super::rows::check_row_inputs;
use super::tensor::View;
use super::{BindError, Element, LayerMeta, TensorMut, TensorRef};

const OFFSET: usize = index_of(ADD_RMS_NORM, "offset");

/// A kernel for [`super::Contract::AddRmsNorm`].
#[derive(Debug)]
pub struct AddRmsNormKernel {
    pub(super) meta: LayerMeta,
    pub(super) route: Route,
}

impl AddRmsNormKernel {
    /// What the kernel is and demands.
    #[must_use]
    pub fn meta(&self) -> &LayerMeta {
        &self.meta
    }

    /// Adds a residual and normalises the sum: `residual_out = x + residual`, rounded to the dtype, and
    /// `out = residual_out / sqrt(mean(residual_out^2) + eps) * (weight + offset)`.
    ///
    /// # Shapes
    /// `out`, `residual_out`, `x`, `residual`: `[..., hidden]`, the rows of `x` and `residual` at any distance, their
    /// elements adjacent; `weight`: `[hidden]`. One dtype for all, one of the kernel's.
    ///
    /// # Errors
    /// [`BindError`] naming the argument that breaks the contract or the kernel's limits, [`BindError::Option`] for an
    /// `offset` other than 0 when the kernel takes none, or the kernel's own error.
    #[expect(clippy::too_many_arguments, reason = "the contract's parameters")]
    #[inline]
    pub fn forward(
        &self,
        out: &mut TensorMut<'_>,
        residual_out: &mut TensorMut<'_>,
        x: &TensorRef<'_>,
        residual: &TensorRef<'_>,
        weight: &TensorRef<'_>,
        eps: f64,
        offset: f64,
    ) -> Result<(), BindError> {
        let (outputs, inputs) = (&[out.view(), residual_out.view()], &[x.view(), residual.view(), weight.view()]);
        // SAFETY: the outputs are unique borrows.
        unsafe { self.forward_views(outputs, inputs, [eps, offset]) }
    }

    /// # Safety
    /// Nothing else reads or writes what `out` and `residual_out` are views of.
    unsafe fn forward_views(
        &self,
        [out, residual_out]: &[View<'_>; 2],
        [x, residual, weight]: &[View<'_>; 3],
        [eps, offset]: [f64; 2],
    ) -> Result<(), BindError> {
        let meta = &self.meta;
        let native = self.route.native(meta)?;
        native.check_option(meta, OFFSET, offset == 0.0)?;
        check_row_inputs(meta, x, weight)?;
        for (argument, view) in [("out", out), ("residual_out", residual_out), ("residual", residual)] {
            meta.check_like(argument, view, x)?;
        }
        let (mut out, mut residual_out) = (out.dl_tensor(), residual_out.dl_tensor());
        let (mut x, mut residual, mut weight) = (x.dl_tensor(), residual.dl_tensor(), weight.dl_tensor());
        let values = [
            out.value(),
            residual_out.value(),
            x.value(),
            residual.value(),
            weight.value(),
            TVMFFIAny::float(eps),
            TVMFFIAny::float(offset),
        ];
        // SAFETY: the views borrow live memory of the described extent, the outputs uniquely, by this
        // function's contract, so they share no element; shapes, dtypes and strides were checked against the contract
        // and the kernel's limits just above, and so was the offset.
        unsafe { native.call(meta, values) }
    }

    /// [`Self::forward`] into memory of its own: `out` and `residual_out`, row-major with the shape `shape`.
    ///
    /// # Errors
    /// As [`Self::forward`].
    pub fn forward_to_vec<T: Element>(
        &self,
        x: &TensorRef<'_>,
        residual: &TensorRef<'_>,
        shape: &[usize],
        weight: &TensorRef<'_>,
        eps: f64,
        offset: f64,
    ) -> Result<(Vec<T>, Vec<T>), BindError> {
        collect_outputs(shape, shape, |out, residual_out| {
            let mut out = TensorMut::uninit::<T>(out, shape)?;
            let mut residual_out = TensorMut::uninit::<T>(residual_out, shape)?;
            self.forward(&mut out, &mut residual_out, x, residual, weight, eps, offset)
        })
    }
}
