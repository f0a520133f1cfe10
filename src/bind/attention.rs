//! The `attention` contract's typed face.
#![expect(unsafe_code, reason = "calls a kernel with checked views")]

use kernelhub_abi::TVMFFIAny;

use super::kernel::Route;
use super::output::collect_output;
use super::{BindError, Element, LayerMeta, TensorMut, TensorRef};

/// A kernel for [`super::Contract::Attention`].
#[derive(Debug)]
pub struct AttentionKernel {
    pub(super) meta: LayerMeta,
    pub(super) route: Route,
}

impl AttentionKernel {
    /// What the kernel is and demands.
    #[must_use]
    pub fn meta(&self) -> &LayerMeta {
        &self.meta
    }

    /// `out = softmax(q k^T * softmax_scale) v`.
    ///
    /// # Shapes
    /// `q`: `[batch, heads, q_len, head_dim]`; `k`, `v`: `[batch, kv_heads, kv_len, head_dim]`, all with any strides
    /// on the first three axes and adjacent elements on the last; `out`: `[batch, q_len, heads, head_dim]`, row-major.
    /// `heads` is a multiple of `kv_heads`. One dtype for all, one of the kernel's. With `causal`, query `i` sees keys
    /// `0 ..= kv_len - q_len + i`.
    ///
    /// # Errors
    /// [`BindError`] naming the argument that breaks the contract or the kernel's limits, or the kernel's own error.
    pub fn forward(
        &self,
        out: &mut TensorMut<'_>,
        q: &TensorRef<'_>,
        k: &TensorRef<'_>,
        v: &TensorRef<'_>,
        softmax_scale: f64,
        causal: bool,
    ) -> Result<(), BindError> {
        let meta = &self.meta;
        let native = self.route.native(meta)?;
        let (out, q, k, v) = (out.view(), q.view(), k.view(), v.view());
        let &[batch, heads, q_len, head_dim] = q.shape() else {
            return Err(meta.shape_fault("q", q, "[batch, heads, q_len, head_dim]".to_owned()));
        };
        let &[_, kv_heads, kv_len, _] = k.shape() else {
            return Err(meta.shape_fault("k", k, "[batch, kv_heads, kv_len, head_dim]".to_owned()));
        };
        let grouped = if kv_heads == 0 { heads == 0 } else { heads % kv_heads == 0 };
        if !grouped {
            let expected = format!("[batch, kv_heads, kv_len, head_dim] with kv_heads a divisor of {heads} heads");
            return Err(meta.shape_fault("k", k, expected));
        }
        meta.check_supported("q", q)?;
        meta.check_shape("out", out, &[batch, q_len, heads, head_dim], "[batch, q_len, heads, head_dim]")?;
        meta.check_dtype("out", out, q.dtype())?;
        for (argument, view) in [("k", &k), ("v", &v)] {
            meta.check_dtype(argument, view, q.dtype())?;
            let expected = [batch, kv_heads, kv_len, head_dim];
            meta.check_shape(argument, view, &expected, "[batch, kv_heads, kv_len, head_dim]")?;
            meta.check_rows(argument, view)?;
        }
        meta.check_rows("q", q)?;
        meta.check_rows("out", out)?;
        meta.check_view_width("q", q)?;
        let (q, k, v) =
            (q.with_heads_and_seq_swapped(), k.with_heads_and_seq_swapped(), v.with_heads_and_seq_swapped());
        let (mut out, mut q, mut k, mut v) = (out.dl_tensor(), q.dl_tensor(), k.dl_tensor(), v.dl_tensor());
        let values = [
            TVMFFIAny::tensor(&raw mut out),
            TVMFFIAny::tensor(&raw mut q),
            TVMFFIAny::tensor(&raw mut k),
            TVMFFIAny::tensor(&raw mut v),
            TVMFFIAny::float(softmax_scale),
            TVMFFIAny::bool(causal),
        ];
        // SAFETY: the views borrow live memory of the described extent, `out` uniquely; shapes, dtypes and strides
        // were checked against the contract and the kernel's limits just above.
        unsafe { native.call(meta, values) }
    }

    /// [`Self::forward`] into memory of its own, row-major with the shape `shape`: `[batch, q_len, heads, head_dim]`.
    ///
    /// # Errors
    /// As [`Self::forward`].
    pub fn forward_to_vec<T: Element>(
        &self,
        q: &TensorRef<'_>,
        k: &TensorRef<'_>,
        v: &TensorRef<'_>,
        shape: &[usize],
        softmax_scale: f64,
        causal: bool,
    ) -> Result<Vec<T>, BindError> {
        collect_output(shape, |data| {
            self.forward(&mut TensorMut::uninit::<T>(data, shape)?, q, k, v, softmax_scale, causal)
        })
    }
}
