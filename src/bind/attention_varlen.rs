//! The `attention.varlen` contract's typed face.
#![expect(unsafe_code, reason = "calls a kernel with checked views")]

use kernelhub_abi::TVMFFIAny;

use super::attention::{OptionPlaces, is_grouped};
use super::contract::ATTENTION_VARLEN;
use super::kernel::Route;
use super::output::collect_output;
use super::tensor::View;
use super::{AttentionOptions, BindError, Element, LayerMeta, TensorMut, TensorRef};

const OPTIONS: OptionPlaces = OptionPlaces::of(ATTENTION_VARLEN);

/// A kernel for [`super::Contract::AttentionVarlen`].
#[derive(Debug)]
pub struct AttentionVarlenKernel {
    pub(super) meta: LayerMeta,
    pub(super) route: Route,
}

impl AttentionVarlenKernel {
    /// What the kernel is and demands.
    #[must_use]
    pub fn meta(&self) -> &LayerMeta {
        &self.meta
    }

    /// `out = softmax(q k^T * softmax_scale) v` within each of the sequences that stand one after another.
    ///
    /// # Shapes
    /// `out`, `q`: `[total_q, heads, head_dim]`; `k`, `v`: `[total_k, kv_heads, head_dim]`, all but `out` with any
    /// strides on the first two axes and adjacent elements on the last, `heads` a multiple of `kv_heads`;
    /// `cu_seqlens`: for queries and keys, `i32` `[batch + 1]` each, row-major (see [`TensorRef::indices`]), ascending
    /// from 0, the queries' to `total_q`, the keys' to at most `total_k`. The lengths of the longest sequences, which
    /// the contract asks for, are taken from them.
    ///
    /// # Errors
    /// [`BindError`] naming the argument that breaks the contract or the kernel's limits, [`BindError::Index`] for
    /// bounds of sequences that fall or leave their tensors, [`BindError::Option`] for a window or a softcap when the
    /// kernel takes none, or the kernel's own error.
    #[inline]
    pub fn forward(
        &self,
        out: &mut TensorMut<'_>,
        q: &TensorRef<'_>,
        k: &TensorRef<'_>,
        v: &TensorRef<'_>,
        cu_seqlens: [&TensorRef<'_>; 2],
        options: &AttentionOptions,
    ) -> Result<(), BindError> {
        let (inputs, starts) = (&[q.view(), k.view(), v.view()], &cu_seqlens.map(TensorRef::view));
        // SAFETY: `out` is a unique borrow.
        unsafe { self.forward_views(&out.view(), inputs, starts, options) }
    }

    /// # Safety
    /// Nothing else reads or writes what `out` is a view of.
    unsafe fn forward_views(
        &self,
        out: &View<'_>,
        [q, k, v]: &[View<'_>; 3],
        [cu_seqlens_q, cu_seqlens_k]: &[View<'_>; 2],
        options: &AttentionOptions,
    ) -> Result<(), BindError> {
        let meta = &self.meta;
        let native = self.route.native(meta)?;
        let [scale, causal, left, right, softcap] = options.values(meta, native, OPTIONS)?;
        let &[total_q, heads, head_dim] = q.shape() else {
            return Err(meta.shape_fault("q", q, "[total_q, heads, head_dim]".to_owned()));
        };
        let &[total_k, kv_heads, _] = k.shape() else {
            return Err(meta.shape_fault("k", k, "[total_k, kv_heads, head_dim]".to_owned()));
        };
        if !is_grouped(heads, kv_heads) {
            let expected = format!("[total_k, kv_heads, head_dim] with kv_heads a divisor of {heads} heads");
            return Err(meta.shape_fault("k", k, expected));
        }
        meta.check_supported("q", q)?;
        meta.check_rows("q", q)?;
        meta.check_view_width("q", q)?;
        meta.check_like("out", out, q)?;
        meta.check_dtype("k", k, q.dtype())?;
        meta.check_shape("k", k, &[total_k, kv_heads, head_dim], "[total_k, kv_heads, head_dim]")?;
        meta.check_rows("k", k)?;
        meta.check_like("v", v, k)?;
        let max_seqlen_q = meta.check_starts("cu_seqlens_q", cu_seqlens_q, total_q, true)?;
        let max_seqlen_k = meta.check_starts("cu_seqlens_k", cu_seqlens_k, total_k, false)?;
        if cu_seqlens_k.shape() != cu_seqlens_q.shape() {
            let expected = format!("{:?} like cu_seqlens_q", cu_seqlens_q.shape());
            return Err(meta.shape_fault("cu_seqlens_k", cu_seqlens_k, expected));
        }
        let (mut out, mut q, mut k, mut v) = (out.dl_tensor(), q.dl_tensor(), k.dl_tensor(), v.dl_tensor());
        let (mut cu_seqlens_q, mut cu_seqlens_k) = (cu_seqlens_q.dl_tensor(), cu_seqlens_k.dl_tensor());
        let values = [
            out.value(),
            q.value(),
            k.value(),
            v.value(),
            cu_seqlens_q.value(),
            cu_seqlens_k.value(),
            TVMFFIAny::int(max_seqlen_q),
            TVMFFIAny::int(max_seqlen_k),
            scale,
            causal,
            left,
            right,
            softcap,
        ];
        // SAFETY: the views borrow live memory of the described extent, `out` uniquely, by this function's contract;
        // shapes, dtypes, strides and the bounds of the sequences were checked against the contract and the kernel's
        // limits just above.
        unsafe { native.call(meta, values) }
    }

    /// [`Self::forward`] into memory of its own, row-major with the shape of `q`, `shape`.
    ///
    /// # Errors
    /// As [`Self::forward`].
    pub fn forward_to_vec<T: Element>(
        &self,
        q: &TensorRef<'_>,
        k: &TensorRef<'_>,
        v: &TensorRef<'_>,
        cu_seqlens: [&TensorRef<'_>; 2],
        shape: &[usize],
        options: &AttentionOptions,
    ) -> Result<Vec<T>, BindError> {
        collect_output(shape, |data| {
            self.forward(&mut TensorMut::uninit::<T>(data, shape)?, q, k, v, cu_seqlens, options)
        })
    }
}
