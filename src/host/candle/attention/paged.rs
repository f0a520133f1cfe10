//! Attention over a paged cache.

use candle_core::{DType as CandleDType, Result, Tensor};

use super::AttentionConfig;
use super::reference::Reference;
use crate::bind::Contract;
use crate::host::candle::spec::check_plan;
use crate::host::candle::{CausalMasks, LayerError, PagedBatch, PagedKvCache, kernels};
use crate::swap::{AttentionPath, Mode, Plan, Slot, Slots};

const LAYER: &str = "FlashAttentionPaged";

/// `softmax(q · kᵀ * scale) · v` over the keys and values of a [`PagedKvCache`], whose sequences have different
/// lengths.
///
/// # Shapes
/// Queries are `[batch, heads, q_len, head_dim]` of any strides, the last `q_len` positions of each sequence of the
/// batch. The output is `[batch, q_len, heads * head_dim]`, contiguous.
#[derive(Debug, Clone)]
pub struct PagedAttention {
    reference: Reference,
    slot: Slot,
}

impl PagedAttention {
    /// Attention over activations of `dtype`, in the slot `path` of the model.
    ///
    /// # Errors
    /// As [`Attention::from_config`](super::Attention::from_config).
    pub fn new(config: AttentionConfig, dtype: CandleDType, slots: &Slots, path: impl Into<String>) -> Result<Self> {
        let slot = config.claim((LAYER, Contract::AttentionPaged), dtype, slots, path)?;
        Ok(Self { reference: Reference::new(config), slot })
    }

    /// The same attention with masks from a store that other layers share.
    #[must_use]
    pub fn with_masks(mut self, masks: CausalMasks) -> Self {
        self.reference.masks = masks;
        self
    }

    /// Attends to what the cache's layer `layer` holds for the sequences of `batch`, under the plan of the scope that
    /// the thread is in, or else the current one. The keys and values of `batch` were written before, by
    /// [`PagedKvCache::write`].
    ///
    /// # Errors
    /// When a shape is not the layer's or the batch's, the element types differ, or the cache has no such layer.
    pub fn forward(
        &self,
        q: &Tensor,
        cache: &PagedKvCache,
        layer: usize,
        batch: &PagedBatch,
        causal: bool,
    ) -> Result<Tensor> {
        self.slot.with_plan(|plan| self.forward_in(plan, q, cache, layer, batch, causal))
    }

    /// Attends, under the plan that the model pinned.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn forward_in(
        &self,
        plan: &Plan,
        q: &Tensor,
        cache: &PagedKvCache,
        layer: usize,
        batch: &PagedBatch,
        causal: bool,
    ) -> Result<Tensor> {
        let [keys, values] = self.check(q, cache, layer, batch)?;
        check_plan(plan, &self.slot)?;
        match plan.attention_paged(&self.slot) {
            // The cache never tracks a gradient.
            Some(kernel) if !q.track_op() => {
                let options = self.reference.config.options(causal);
                kernels::attention_paged(kernel, [q, keys, values], (batch.table(), batch.lengths()), options)
            }
            _ => self.by_sequence(plan.attention_path(), plan.mode(), q, [keys, values], batch, causal),
        }
    }

    /// Attends by candle's own code, over copies of each sequence's keys and values.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn forward_reference(
        &self,
        mode: Mode,
        q: &Tensor,
        cache: &PagedKvCache,
        layer: usize,
        batch: &PagedBatch,
        causal: bool,
    ) -> Result<Tensor> {
        let caches = self.check(q, cache, layer, batch)?;
        self.by_sequence(AttentionPath::Sdpa, mode, q, caches, batch, causal)
    }

    fn by_sequence(
        &self,
        path: AttentionPath,
        mode: Mode,
        q: &Tensor,
        [keys, values]: [&Tensor; 2],
        batch: &PagedBatch,
        causal: bool,
    ) -> Result<Tensor> {
        let (count, heads, q_len, head_dim) = q.dims4()?;
        if q.elem_count() == 0 {
            return Tensor::zeros((count, q_len, heads * head_dim), q.dtype(), q.device());
        }
        let outputs: Vec<_> = (0..count)
            .map(|sequence| {
                let rows = Tensor::from_vec(batch.rows_of(sequence), batch.len_of(sequence), q.device())?;
                let gathered = |cache: &Tensor| {
                    cache.flatten(0, 1)?.index_select(&rows, 0)?.transpose(0, 1)?.unsqueeze(0)?.contiguous()
                };
                let q = q.narrow(0, sequence, 1)?;
                self.reference.forward(path, mode, [&q, &gathered(keys)?, &gathered(values)?], causal)
            })
            .collect::<Result<_>>()?;
        Tensor::cat(&outputs, 0)
    }

    /// Refuses what the layer cannot take; gives the layer's keys and values.
    fn check<'a>(
        &self,
        q: &Tensor,
        cache: &'a PagedKvCache,
        layer: usize,
        batch: &PagedBatch,
    ) -> Result<[&'a Tensor; 2]> {
        let AttentionConfig { heads, kv_heads, head_dim, .. } = self.reference.config;
        let [keys, values] = cache.layer(layer, batch)?;
        let expected = [batch.len(), heads, batch.q_len(), head_dim];
        AttentionConfig::check_shape(LAYER, "q", q, *q.dims() == expected, || format!("{expected:?} of the batch"))?;
        let (_, block_size, of_kv_heads, of_head_dim) = keys.dims4()?;
        if (of_kv_heads, of_head_dim) != (kv_heads, head_dim) {
            let expected = format!("[blocks, {block_size}, {kv_heads}, {head_dim}]");
            let actual = keys.dims().to_vec();
            return Err(LayerError::Shape { layer: LAYER, tensor: "the cache", expected, actual }.into());
        }
        AttentionConfig::check_dtypes(LAYER, q, [("the keys", keys), ("the values", values)])?;
        Ok([keys, values])
    }
}
