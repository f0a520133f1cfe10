//! The gated activation contracts' typed face.
#![expect(unsafe_code, reason = "calls a kernel with checked views")]

use kernelhub_abi::TVMFFIAny;

use super::kernel::Route;
use super::output::collect_output;
use super::tensor::View;
use super::{BindError, Contract, Element, GatedActivation, LayerMeta, TensorMut, TensorRef};

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

    /// `out = activation(x[..., :d]) * x[..., d:]`, by every activation that has no threshold; see
    /// [`super::GatedActivation`].
    ///
    /// # Shapes
    /// `out`: `[..., d]`; `x`: `[..., 2 * d]`, its rows at any distance, their elements adjacent. One dtype for both,
    /// one of the kernel's.
    ///
    /// # Errors
    /// [`BindError`] naming the argument that breaks the contract or the kernel's limits, [`BindError::Scalar`] when
    /// the activation needs a threshold, or the kernel's own error.
    #[inline]
    pub fn forward(&self, out: &mut TensorMut<'_>, x: &TensorRef<'_>) -> Result<(), BindError> {
        // SAFETY: `out` is a unique borrow.
        unsafe { self.forward_views(&out.view(), &x.view(), None) }
    }

    /// `out = (a if a > threshold, else 0) * b` for the halves `a` and `b` of `x`, by
    /// [`super::GatedActivation::Fatrelu`].
    ///
    /// # Shapes
    /// As [`Self::forward`].
    ///
    /// # Errors
    /// As [`Self::forward`]; [`BindError::Scalar`] when the activation has no threshold.
    #[inline]
    pub fn forward_with_threshold(
        &self,
        out: &mut TensorMut<'_>,
        x: &TensorRef<'_>,
        threshold: f64,
    ) -> Result<(), BindError> {
        // SAFETY: `out` is a unique borrow.
        unsafe { self.forward_views(&out.view(), &x.view(), Some(threshold)) }
    }

    /// # Safety
    /// Nothing else reads or writes what `out` is a view of.
    unsafe fn forward_views(&self, out: &View<'_>, x: &View<'_>, threshold: Option<f64>) -> Result<(), BindError> {
        let meta = &self.meta;
        let native = self.route.native(meta)?;
        self.check_threshold(threshold.is_some())?;
        self.check("out", out, x)?;
        let (mut out, mut x) = (out.dl_tensor(), x.dl_tensor());
        // Where the contract has no threshold, no function takes the third.
        let values = [out.value(), x.value(), threshold.map_or_else(TVMFFIAny::none, TVMFFIAny::float)];
        // SAFETY: the views borrow live memory of the described extent, `out` uniquely, by this function's contract;
        // shapes, dtypes and strides were checked against the contract and the kernel's limits just above, and a
        // threshold is given exactly where the contract has one.
        unsafe { native.call(meta, values) }
    }

    /// The gradient of [`Self::forward`] for `x`, from the gradient `dy` of its output.
    ///
    /// # Shapes
    /// `dx`, `x`: `[..., 2 * d]`; `dy`: `[..., d]`; the rows of `dy` and `x` at any distance, their elements adjacent.
    /// One dtype for all, one of the kernel's.
    ///
    /// # Errors
    /// As [`Self::forward`], and [`BindError::NoBackward`].
    pub fn backward(&self, dx: &mut TensorMut<'_>, dy: &TensorRef<'_>, x: &TensorRef<'_>) -> Result<(), BindError> {
        let meta = &self.meta;
        let native = self.route.native_backward(meta)?;
        let (dx, dy, x) = (&dx.view(), &dy.view(), &x.view());
        self.check("dy", dy, x)?;
        meta.check_like("dx", dx, x)?;
        let (mut dx, mut dy, mut x) = (dx.dl_tensor(), dy.dl_tensor(), x.dl_tensor());
        let values = [dx.value(), dy.value(), x.value()];
        // SAFETY: as in `forward`, with `dx` the output.
        unsafe { native.call(meta, values) }
    }

    /// The activation has a threshold exactly when one was given.
    pub(super) fn check_threshold(&self, is_given: bool) -> Result<(), BindError> {
        let is_taken = self.meta.contract == Contract::GatedActivation(GatedActivation::Fatrelu);
        match (is_taken, is_given) {
            (true, false) => {
                Err(self.meta.scalar_fault("threshold", "is missing; the activation needs one".to_owned()))
            }
            (false, true) => {
                let contract = self.meta.contract;
                Err(self.meta.scalar_fault("threshold", format!("was given; {contract} has none")))
            }
            _ => Ok(()),
        }
    }

    /// `half` is `[..., d]` for an `x` of `[..., 2 * d]`.
    fn check(&self, name: &'static str, half: &View, x: &View) -> Result<(), BindError> {
        let meta = &self.meta;
        let fits = match (half.shape().split_last(), x.shape().split_last()) {
            (Some((width, rows)), Some((double, x_rows))) => rows == x_rows && width.checked_mul(2) == Some(*double),
            _ => false,
        };
        if !fits {
            return Err(meta.shape_fault("x", x, format!("[..., 2 * d] for {name} [..., d] = {:?}", half.shape())));
        }
        meta.check_supported("x", x)?;
        meta.check_dtype(name, half, x.dtype())?;
        meta.check_view_width(name, half)?;
        meta.check_rows(name, half)?;
        meta.check_rows("x", x)
    }

    /// [`Self::forward`] into memory of its own, row-major with the shape `shape`: `[..., d]`.
    ///
    /// # Errors
    /// As [`Self::forward`].
    pub fn forward_to_vec<T: Element>(&self, x: &TensorRef<'_>, shape: &[usize]) -> Result<Vec<T>, BindError> {
        collect_output(shape, |data| self.forward(&mut TensorMut::uninit::<T>(data, shape)?, x))
    }

    /// [`Self::forward_with_threshold`] into memory of its own, row-major with the shape `shape`: `[..., d]`.
    ///
    /// # Errors
    /// As [`Self::forward_with_threshold`].
    pub fn forward_with_threshold_to_vec<T: Element>(
        &self,
        x: &TensorRef<'_>,
        shape: &[usize],
        threshold: f64,
    ) -> Result<Vec<T>, BindError> {
        collect_output(shape, |data| {
            self.forward_with_threshold(&mut TensorMut::uninit::<T>(data, shape)?, x, threshold)
        })
    }

    /// [`Self::backward`] into memory of its own, row-major with the shape `shape` of `x`: `[..., 2 * d]`.
    ///
    /// # Errors
    /// As [`Self::backward`].
    pub fn backward_to_vec<T: Element>(
        &self,
        dy: &TensorRef<'_>,
        x: &TensorRef<'_>,
        shape: &[usize],
    ) -> Result<Vec<T>, BindError> {
        collect_output(shape, |data| self.backward(&mut TensorMut::uninit::<T>(data, shape)?, dy, x))
    }
}
