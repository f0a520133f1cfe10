//! The `rms_norm` contract's typed face.
#![expect(unsafe_code, reason = "calls a kernel with checked views")]

use kernelhub_abi::TVMFFIAny;

use super::contract::{RMS_NORM, RMS_NORM_BACKWARD, index_of};
use super::kernel::Route;
use super::output::{collect_output, collect_outputs};
use super::rows::check_row_inputs;
use super::tensor::View;
use super::{BindError, Element, LayerMeta, TensorMut, TensorRef};

const OFFSET: usize = index_of(RMS_NORM, "offset");
const BACKWARD_OFFSET: usize = index_of(RMS_NORM_BACKWARD, "offset");

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

    /// Normalises each row: `out = x / sqrt(mean(x^2) + eps) * (weight + offset)`.
    ///
    /// # Shapes
    /// `out`, `x`: `[..., hidden]`, the rows of `x` at any distance, their elements adjacent; `weight`: `[hidden]`.
    /// One dtype for all, one of the kernel's.
    ///
    /// # Errors
    /// [`BindError`] naming the argument that breaks the contract or the kernel's limits, [`BindError::Option`] for an
    /// `offset` other than 0 when the kernel takes none, or the kernel's own error.
    #[inline]
    pub fn forward(
        &self,
        out: &mut TensorMut<'_>,
        x: &TensorRef<'_>,
        weight: &TensorRef<'_>,
        eps: f64,
        offset: f64,
    ) -> Result<(), BindError> {
        // SAFETY: `out` is a unique borrow.
        unsafe { self.forward_views(&out.view(), &x.view(), &weight.view(), eps, offset) }
    }

    /// # Safety
    /// Nothing else reads or writes what `out` is a view of.
    unsafe fn forward_views(
        &self,
        out: &View<'_>,
        x: &View<'_>,
        weight: &View<'_>,
        eps: f64,
        offset: f64,
    ) -> Result<(), BindError> {
        let meta = &self.meta;
        let native = self.route.native(meta)?;
        native.check_option(meta, OFFSET, offset == 0.0)?;
        check_row_inputs(meta, x, weight)?;
        meta.check_like("out", out, x)?;
        let (mut out, mut x, mut weight) = (out.dl_tensor(), x.dl_tensor(), weight.dl_tensor());
        let values = [out.value(), x.value(), weight.value(), TVMFFIAny::float(eps), TVMFFIAny::float(offset)];
        // SAFETY: the views borrow live memory of the described extent, `out` uniquely, by this function's contract;
        // shapes, dtypes and strides were checked against the layer's contract and the kernel's limits just above, and
        // so was the offset.
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
        offset: f64,
    ) -> Result<Vec<T>, BindError> {
        collect_output(shape, |data| self.forward(&mut TensorMut::uninit::<T>(data, shape)?, x, weight, eps, offset))
    }

    /// The gradients of [`Self::forward`] for `x` and `weight`, from the gradient `dy` of its output.
    ///
    /// # Shapes
    /// `dx`, `dy`, `x`: `[..., hidden]`, the rows of `dy` and `x` at any distance, their elements adjacent; `dweight`,
    /// `weight`: `[hidden]`. One dtype for all, one of the kernel's.
    ///
    /// # Errors
    /// As [`Self::forward`], and [`BindError::NoBackward`].
    #[expect(clippy::too_many_arguments, reason = "the contract's parameters")]
    pub fn backward(
        &self,
        dx: &mut TensorMut<'_>,
        dweight: &mut TensorMut<'_>,
        dy: &TensorRef<'_>,
        x: &TensorRef<'_>,
        weight: &TensorRef<'_>,
        eps: f64,
        offset: f64,
    ) -> Result<(), BindError> {
        let meta = &self.meta;
        let native = self.route.native_backward(meta)?;
        native.check_option(meta, BACKWARD_OFFSET, offset == 0.0)?;
        let (dx, dweight, dy, x, weight) = (&dx.view(), &dweight.view(), &dy.view(), &x.view(), &weight.view());
        check_row_inputs(meta, x, weight)?;
        meta.check_like("dx", dx, x)?;
        meta.check_like("dy", dy, x)?;
        meta.check_like("dweight", dweight, weight)?;
        let (mut dx, mut dweight, mut dy) = (dx.dl_tensor(), dweight.dl_tensor(), dy.dl_tensor());
        let (mut x, mut weight) = (x.dl_tensor(), weight.dl_tensor());
        let values = [
            dx.value(),
            dweight.value(),
            dy.value(),
            x.value(),
            weight.value(),
            TVMFFIAny::float(eps),
            TVMFFIAny::float(offset),
        ];
        // SAFETY: as in `forward`; `dx` and `dweight` are unique borrows, so they share no element.
        unsafe { native.call(meta, values) }
    }

    /// [`Self::backward`] into memory of its own, row-major: `dx` with the shape `shape` of `x`, and `dweight`.
    ///
    /// # Errors
    /// As [`Self::backward`].
    pub fn backward_to_vec<T: Element>(
        &self,
        dy: &TensorRef<'_>,
        x: &TensorRef<'_>,
        shape: &[usize],
        weight: &TensorRef<'_>,
        eps: f64,
        offset: f64,
    ) -> Result<(Vec<T>, Vec<T>), BindError> {
        let hidden = &shape[shape.len().saturating_sub(1)..];
        collect_outputs(shape, hidden, |dx, dweight| {
            let mut dx = TensorMut::uninit::<T>(dx, shape)?;
            let mut dweight = TensorMut::uninit::<T>(dweight, hidden)?;
            self.backward(&mut dx, &mut dweight, dy, x, weight, eps, offset)
        })
    }
}
