//! The `attention.paged` contract's typed face.
#![expect(unsafe_code, reason = "calls a kernel with checked views")]

use super::attention::{OptionPlaces, is_grouped};
use super::contract::ATTENTION_PAGED;
use super::kernel::Route;
use super::output::collect_output;
use super::tensor::View;
use super::{AttentionOptions, BindError, Element, LayerMeta, TensorMut, TensorRef};

const OPTIONS: OptionPlaces = OptionPlaces::of(ATTENTION_PAGED);

/// A kernel for [`super::Contract::AttentionPaged`].
#[derive(Debug)]
pub struct AttentionPagedKernel {
    pub(super) meta: LayerMeta,
    pub(super) route: Route,
}

/// Keys and values in blocks, and which block holds which keys of which sequence.
#[derive(Debug, Clone, Copy)]
pub struct PagedKeys<'a> {
    /// `[blocks, block_size, kv_heads, head_dim]`, any strides on the first three axes and adjacent elements on the
    /// last.
    pub keys: &'a TensorRef<'a>,
    /// Values, as the keys.
    pub values: &'a TensorRef<'a>,
    /// `i32` `[batch, max_blocks]`, row-major: the blocks of each sequence in order. What stands behind a sequence's
    /// last block is not looked at.
    pub block_table: &'a TensorRef<'a>,
    /// `i32` `[batch]`: keys of each sequence, those of its queries included.
    pub lengths: &'a TensorRef<'a>,
}

impl AttentionPagedKernel {
    /// What the kernel is and demands.
    #[must_use]
    pub fn meta(&self) -> &LayerMeta {
        &self.meta
    }

    /// `out = softmax(q k^T * softmax_scale) v` over keys and values in blocks.
    ///
    /// # Shapes
    /// `q`: `[batch, heads, q_len, head_dim]`, with any strides on the first three axes and adjacent elements on the
    /// last; `out`: `[batch, q_len, heads, head_dim]`, row-major; `paged`: see [`PagedKeys`]. `heads` is a multiple of
    /// `kv_heads`.
    ///
    /// # Errors
    /// [`BindError`] naming the argument that breaks the contract or the kernel's limits, [`BindError::Index`] for a
    /// length that its row of the table cannot hold and for an id that no block has, [`BindError::Option`] for a window
    /// or a softcap when the kernel takes none, or the kernel's own error.
    #[inline]
    pub fn forward(
        &self,
        out: &mut TensorMut<'_>,
        q: &TensorRef<'_>,
        paged: &PagedKeys<'_>,
        options: &AttentionOptions,
    ) -> Result<(), BindError> {
        let inputs = &[q, paged.keys, paged.values, paged.block_table, paged.lengths].map(TensorRef::view);
        // SAFETY: `out` is a unique borrow.
        unsafe { self.forward_views(&out.view(), inputs, options) }
    }

    /// # Safety
    /// Nothing else reads or writes what `out` is a view of.
    unsafe fn forward_views(
        &self,
        out: &View<'_>,
        [q, keys, values, table, lengths]: &[View<'_>; 5],
        options: &AttentionOptions,
    ) -> Result<(), BindError> {
        let meta = &self.meta;
        let native = self.route.native(meta)?;
        let [scale, causal, left, right, softcap] = options.values(meta, native, OPTIONS)?;
        let &[batch, heads, q_len, head_dim] = q.shape() else {
            return Err(meta.shape_fault("q", q, "[batch, heads, q_len, head_dim]".to_owned()));
        };
        let &[blocks, block_size, kv_heads, _] = keys.shape() else {
            let expected = "[blocks, block_size, kv_heads, head_dim]".to_owned();
            return Err(meta.shape_fault("k_cache", keys, expected));
        };
        if !is_grouped(heads, kv_heads) {
            let expected = format!("[blocks, block_size, kv_heads, head_dim] with kv_heads a divisor of {heads} heads");
            return Err(meta.shape_fault("k_cache", keys, expected));
        }
        meta.check_supported("q", q)?;
        meta.check_shape("out", out, &[batch, q_len, heads, head_dim], "[batch, q_len, heads, head_dim]")?;
        meta.check_dtype("out", out, q.dtype())?;
        meta.check_dtype("k_cache", keys, q.dtype())?;
        let expected = [blocks, block_size, kv_heads, head_dim];
        meta.check_shape("k_cache", keys, &expected, "[blocks, block_size, kv_heads, head_dim]")?;
        for (argument, view) in [("q", q), ("out", out), ("k_cache", keys)] {
            meta.check_rows(argument, view)?;
        }
        meta.check_like("v_cache", values, keys)?;
        meta.check_view_width("q", q)?;
        let (named_table, named_lengths) = (("block_table", table), ("seqlens_k", lengths));
        meta.check_block_table(named_table, named_lengths, batch, [blocks, block_size])?;
        let q = q.with_heads_and_seq_swapped();
        let (mut out, mut q, mut keys, mut values) =
            (out.dl_tensor(), q.dl_tensor(), keys.dl_tensor(), values.dl_tensor());
        let (mut table, mut lengths) = (table.dl_tensor(), lengths.dl_tensor());
        let values = [
            out.value(),
            q.value(),
            keys.value(),
            values.value(),
            table.value(),
            lengths.value(),
            scale,
            causal,
            left,
            right,
            softcap,
        ];
        // SAFETY: the views borrow live memory of the described extent, `out` uniquely, by this function's contract;
        // shapes, dtypes, strides, lengths and ids were checked against the contract and the kernel's limits just above.
        unsafe { native.call(meta, values) }
    }

    /// [`Self::forward`] into memory of its own, row-major with the shape `shape`: `[batch, q_len, heads, head_dim]`.
    ///
    /// # Errors
    /// As [`Self::forward`].
    pub fn forward_to_vec<T: Element>(
        &self,
        q: &TensorRef<'_>,
        paged: &PagedKeys<'_>,
        shape: &[usize],
        options: &AttentionOptions,
    ) -> Result<Vec<T>, BindError> {
        collect_output(shape, |data| self.forward(&mut TensorMut::uninit::<T>(data, shape)?, q, paged, options))
    }
}
