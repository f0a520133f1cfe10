//! Scaled dot-product attention with grouped heads.

mod config;
mod paged;
mod reference;
mod varlen;

use candle_core::{DType as CandleDType, Result, Tensor};

use self::reference::Reference;
use super::spec::check_plan;
use super::{CausalMasks, kernels};
use crate::bind::Contract;
use crate::swap::{AttentionPath, Mode, Plan, Slot, Slots};

pub use config::AttentionConfig;
pub use paged::PagedAttention;
pub use varlen::{SequenceStarts, VarlenAttention};

const LAYER: &str = "FlashAttention";

/// `softmax(q · kᵀ * scale) · v`, each key-value head serving `heads / kv_heads` query heads.
///
/// # Shapes
/// Queries are `[batch, heads, q_len, head_dim]`; keys and values `[batch, kv_heads, kv_len, head_dim]`, all of any
/// strides, such as transposed views of a projection or a [`KvCache`](super::KvCache)'s views. The output is
/// `[batch, q_len, heads * head_dim]`, contiguous: ready for the output projection.
///
/// A causal mask is aligned to the bottom right: the last query sees every key. A query that sees no key at all, which
/// there is when `q_len > kv_len`, gives zeros. Windows and caps are told at [`AttentionConfig`].
#[derive(Debug, Clone)]
pub struct Attention {
    reference: Reference,
    slot: Slot,
}

impl Attention {
    /// Attention over activations of `dtype`, in the slot `path` of the model, without a window and a cap. `scale`
    /// multiplies the scores, as a rule `1 / sqrt(head_dim)`.
    ///
    /// # Errors
    /// As [`from_config`](Self::from_config).
    pub fn new(
        heads: usize,
        kv_heads: usize,
        head_dim: usize,
        scale: f64,
        dtype: CandleDType,
        slots: &Slots,
        path: impl Into<String>,
    ) -> Result<Self> {
        let config = AttentionConfig { scale, ..AttentionConfig::new(heads, kv_heads, head_dim) };
        Self::from_config(config, dtype, slots, path)
    }

    /// Attention over activations of `dtype`, in the slot `path` of the model. A kernel takes it only where it takes
    /// the window and the cap that are set.
    ///
    /// # Errors
    /// A [`LayerError`](super::LayerError) when the heads cannot be grouped evenly, a number is out of its range, or
    /// `dtype` is not floating-point.
    pub fn from_config(
        config: AttentionConfig,
        dtype: CandleDType,
        slots: &Slots,
        path: impl Into<String>,
    ) -> Result<Self> {
        let slot = config.claim((LAYER, Contract::Attention), dtype, slots, path)?;
        Ok(Self { reference: Reference::new(config), slot })
    }

    /// The same attention with masks from a store that other layers share.
    #[must_use]
    pub fn with_masks(mut self, masks: CausalMasks) -> Self {
        self.reference.masks = masks;
        self
    }

    /// What multiplies the scores.
    #[must_use]
    pub fn scale(&self) -> f64 {
        self.reference.config.scale
    }

    /// Heads, scale and options.
    #[must_use]
    pub fn config(&self) -> &AttentionConfig {
        &self.reference.config
    }

    /// Attends, under the plan of the scope that the thread is in, or else the current one.
    ///
    /// # Errors
    /// When a shape is not the layer's, or the element types differ.
    pub fn forward(&self, q: &Tensor, k: &Tensor, v: &Tensor, causal: bool) -> Result<Tensor> {
        self.slot.with_plan(|plan| self.forward_in(plan, q, k, v, causal))
    }

    /// Attends, under the plan that the model pinned.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn forward_in(&self, plan: &Plan, q: &Tensor, k: &Tensor, v: &Tensor, causal: bool) -> Result<Tensor> {
        check_plan(plan, &self.slot)?;
        match plan.attention(&self.slot) {
            Some(kernel) if ![q, k, v].iter().any(|x| x.track_op()) => {
                self.check(q, k, v)?;
                kernels::attention(kernel, [q, k, v], self.reference.config.options(causal))
            }
            _ => {
                self.check(q, k, v)?;
                self.reference.forward(plan.attention_path(), plan.mode(), [q, k, v], causal)
            }
        }
    }

    /// Attends by candle's own code, with grouped heads: with its fused softmax in inference, with a differentiable one
    /// in training.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn forward_reference(&self, mode: Mode, q: &Tensor, k: &Tensor, v: &Tensor, causal: bool) -> Result<Tensor> {
        self.check(q, k, v)?;
        self.reference.forward(AttentionPath::Sdpa, mode, [q, k, v], causal)
    }

    /// Attends by the plain formula, as Transformers' `eager`: keys and values repeated for each head, products in the
    /// tensors' own type. For comparisons.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn forward_eager(&self, mode: Mode, q: &Tensor, k: &Tensor, v: &Tensor, causal: bool) -> Result<Tensor> {
        self.check(q, k, v)?;
        self.reference.forward(AttentionPath::Eager, mode, [q, k, v], causal)
    }

    /// Refuses what the layer cannot take.
    fn check(&self, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<()> {
        let AttentionConfig { heads, kv_heads, head_dim, .. } = self.reference.config;
        let check = |tensor, x, fits, expected: &dyn Fn() -> String| {
            AttentionConfig::check_shape(LAYER, tensor, x, fits, expected)
        };
        let fits = matches!(*q.dims(), [_, h, _, d] if (h, d) == (heads, head_dim));
        check("q", q, fits, &|| format!("[batch, {heads}, q_len, {head_dim}]"))?;
        let batch = q.dim(0)?;
        let fits = matches!(*k.dims(), [b, h, _, d] if (b, h, d) == (batch, kv_heads, head_dim));
        check("k", k, fits, &|| format!("[{batch}, {kv_heads}, kv_len, {head_dim}]"))?;
        check("v", v, v.dims() == k.dims(), &|| format!("{:?} like k", k.dims()))?;
        AttentionConfig::check_dtypes(LAYER, q, [("k", k), ("v", v)])
    }
}
