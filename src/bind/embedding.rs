//! The `embedding` contract's typed face.
#![expect(unsafe_code, reason = "calls a kernel with checked views")]

use super::kernel::Route;
use super::output::collect_output;
use super::{BindError, Element, LayerMeta, TensorMut, TensorRef};

/// A kernel for [`super::Contract::Embedding`].
#[derive(Debug)]
pub struct EmbeddingKernel {
    pub(super) meta: LayerMeta,
    pub(super) route: Route,
}

impl EmbeddingKernel {
    /// What the kernel is and demands.
    #[must_use]
    pub fn meta(&self) -> &LayerMeta {
        &self.meta
    }

    /// `out = weight[ids]`: row `ids[i]` of the weight for every `i`.
    ///
    /// # Shapes
    /// `out`: `[..., hidden]`; `ids`: `[...]`, row-major, `u32` or `i64` (see [`TensorRef::indices`]); `weight`:
    /// `[vocab, hidden]`, its rows at any distance, their elements adjacent. `out` has the dtype of `weight`, one of
    /// the kernel's.
    ///
    /// # Errors
    /// [`BindError`] naming the argument that breaks the contract or the kernel's limits, [`BindError::Index`] for an
    /// id outside `0 .. vocab`, or the kernel's own error.
    pub fn forward(
        &self,
        out: &mut TensorMut<'_>,
        ids: &TensorRef<'_>,
        weight: &TensorRef<'_>,
    ) -> Result<(), BindError> {
        let meta = &self.meta;
        let native = self.route.native(meta)?;
        let (out, ids, weight) = (&out.view(), &ids.view(), &weight.view());
        let &[vocab, hidden] = weight.shape() else {
            return Err(meta.shape_fault("weight", weight, "[vocab, hidden]".to_owned()));
        };
        if out.shape().split_last() != Some((&hidden, ids.shape())) {
            let expected = format!("[..., hidden] = {:?} and {hidden}", ids.shape());
            return Err(meta.shape_fault("out", out, expected));
        }
        meta.check_supported("weight", weight)?;
        meta.check_dtype("out", out, weight.dtype())?;
        meta.check_view_width("weight", weight)?;
        meta.check_rows("out", out)?;
        meta.check_rows("weight", weight)?;
        meta.check_index_tensor("ids", ids)?;
        meta.check_indices("ids", ids, vocab, None)?;
        let (mut out, mut ids, mut weight) = (out.dl_tensor(), ids.dl_tensor(), weight.dl_tensor());
        let values = [out.value(), ids.value(), weight.value()];
        // SAFETY: the views borrow live memory of the described extent, `out` uniquely; shapes, dtypes, strides and ids
        // were checked against the contract and the kernel's limits just above.
        unsafe { native.call(meta, values) }
    }

    /// [`Self::forward`] into memory of its own, row-major with the shape `shape`: `[..., hidden]`.
    ///
    /// # Errors
    /// As [`Self::forward`].
    pub fn forward_to_vec<T: Element>(
        &self,
        ids: &TensorRef<'_>,
        weight: &TensorRef<'_>,
        shape: &[usize],
    ) -> Result<Vec<T>, BindError> {
        collect_output(shape, |data| self.forward(&mut TensorMut::uninit::<T>(data, shape)?, ids, weight))
    }
}
