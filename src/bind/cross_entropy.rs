//! The `cross_entropy` contract's typed face.
#![expect(unsafe_code, reason = "calls a kernel with checked views")]

use kernelhub_abi::TVMFFIAny;

use super::kernel::Route;
use super::output::collect_output;
use super::tensor::View;
use super::{BindError, Element, LayerMeta, TensorMut, TensorRef};
use crate::dtype::DType;

/// A kernel for [`super::Contract::CrossEntropy`].
#[derive(Debug)]
pub struct CrossEntropyKernel {
    pub(super) meta: LayerMeta,
    pub(super) route: Route,
}

impl CrossEntropyKernel {
    /// What the kernel is and demands.
    #[must_use]
    pub fn meta(&self) -> &LayerMeta {
        &self.meta
    }

    /// The loss of every row: `log(sum(exp(logits))) - logits[target]`, and 0 where the target is `ignore_index`.
    ///
    /// # Shapes
    /// `loss`: `[rows]`, `f32`; `logits`: `[rows, vocab]`, its rows at any distance, their elements adjacent, of one of
    /// the kernel's dtypes; `targets`: `[rows]`, row-major, `u32` or `i64` (see [`TensorRef::indices`]).
    ///
    /// # Errors
    /// [`BindError`] naming the argument that breaks the contract or the kernel's limits, [`BindError::Index`] for a
    /// target that is neither in `0 .. vocab` nor `ignore_index`, or the kernel's own error.
    #[inline]
    pub fn forward(
        &self,
        loss: &mut TensorMut<'_>,
        logits: &TensorRef<'_>,
        targets: &TensorRef<'_>,
        ignore_index: i64,
    ) -> Result<(), BindError> {
        // SAFETY: `loss` is a unique borrow.
        unsafe { self.forward_views(&loss.view(), &logits.view(), &targets.view(), ignore_index) }
    }

    /// # Safety
    /// Nothing else reads or writes what `loss` is a view of.
    unsafe fn forward_views(
        &self,
        loss: &View<'_>,
        logits: &View<'_>,
        targets: &View<'_>,
        ignore_index: i64,
    ) -> Result<(), BindError> {
        let meta = &self.meta;
        let native = self.route.native(meta)?;
        self.check("loss", loss, logits, targets, ignore_index)?;
        let (mut loss, mut logits, mut targets) = (loss.dl_tensor(), logits.dl_tensor(), targets.dl_tensor());
        let values = [loss.value(), logits.value(), targets.value(), TVMFFIAny::int(ignore_index)];
        // SAFETY: the views borrow live memory of the described extent, `loss` uniquely, by this function's contract;
        // shapes, dtypes, strides and targets were checked against the contract and the kernel's limits just above.
        unsafe { native.call(meta, values) }
    }

    /// The loss of every row, `loss` being given for the forward and `dloss` for the backward.
    fn check(
        &self,
        name: &'static str,
        loss: &View,
        logits: &View,
        targets: &View,
        ignore_index: i64,
    ) -> Result<(), BindError> {
        let meta = &self.meta;
        let &[rows, vocab] = logits.shape() else {
            return Err(meta.shape_fault("logits", logits, "[rows, vocab]".to_owned()));
        };
        meta.check_supported("logits", logits)?;
        meta.check_view_width("logits", logits)?;
        meta.check_rows("logits", logits)?;
        meta.check_dtype(name, loss, DType::F32)?;
        meta.check_shape(name, loss, &[rows], "[rows]")?;
        meta.check_rows(name, loss)?;
        meta.check_shape("targets", targets, &[rows], "[rows]")?;
        meta.check_index_tensor("targets", targets)?;
        meta.check_indices("targets", targets, vocab, Some(ignore_index))
    }

    /// [`Self::forward`] into memory of its own: `rows` losses.
    ///
    /// # Errors
    /// As [`Self::forward`].
    pub fn forward_to_vec(
        &self,
        logits: &TensorRef<'_>,
        targets: &TensorRef<'_>,
        rows: usize,
        ignore_index: i64,
    ) -> Result<Vec<f32>, BindError> {
        collect_output(&[rows], |data| {
            self.forward(&mut TensorMut::uninit::<f32>(data, &[rows])?, logits, targets, ignore_index)
        })
    }

    /// The gradient of [`Self::forward`] for the logits, from the gradient `dloss` of each row's loss.
    ///
    /// # Shapes
    /// `dlogits`: like `logits`; `dloss`: `[rows]`, `f32`; the rest as in [`Self::forward`].
    ///
    /// # Errors
    /// As [`Self::forward`], and [`BindError::NoBackward`].
    pub fn backward(
        &self,
        dlogits: &mut TensorMut<'_>,
        dloss: &TensorRef<'_>,
        logits: &TensorRef<'_>,
        targets: &TensorRef<'_>,
        ignore_index: i64,
    ) -> Result<(), BindError> {
        let meta = &self.meta;
        let native = self.route.native_backward(meta)?;
        let (dlogits, dloss, logits, targets) = (&dlogits.view(), &dloss.view(), &logits.view(), &targets.view());
        self.check("dloss", dloss, logits, targets, ignore_index)?;
        meta.check_like("dlogits", dlogits, logits)?;
        let (mut dlogits, mut dloss) = (dlogits.dl_tensor(), dloss.dl_tensor());
        let (mut logits, mut targets) = (logits.dl_tensor(), targets.dl_tensor());
        let values = [dlogits.value(), dloss.value(), logits.value(), targets.value(), TVMFFIAny::int(ignore_index)];
        // SAFETY: as in `forward`, with `dlogits` the output.
        unsafe { native.call(meta, values) }
    }

    /// [`Self::backward`] into memory of its own, row-major with the shape `shape` of `logits`.
    ///
    /// # Errors
    /// As [`Self::backward`].
    pub fn backward_to_vec<T: Element>(
        &self,
        dloss: &TensorRef<'_>,
        logits: &TensorRef<'_>,
        shape: &[usize],
        targets: &TensorRef<'_>,
        ignore_index: i64,
    ) -> Result<Vec<T>, BindError> {
        collect_output(shape, |data| {
            self.backward(&mut TensorMut::uninit::<T>(data, shape)?, dloss, logits, targets, ignore_index)
        })
    }
}
