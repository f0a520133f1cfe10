//! Attention over sequences of different lengths, packed one behind the other.

use candle_core::{DType as CandleDType, Result, Tensor};

use super::AttentionConfig;
use super::reference::Reference;
use crate::bind::Contract;
use crate::host::candle::spec::check_plan;
use crate::host::candle::{CausalMasks, LayerError, kernels};
use crate::swap::{AttentionPath, Mode, Plan, Slot, Slots};

const LAYER: &str = "FlashAttentionVarlen";

/// Where packed sequences start: sequence `s` is the rows `starts[s] .. starts[s + 1]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SequenceStarts {
    /// At least one number; ascending from 0.
    starts: Vec<i32>,
}

impl SequenceStarts {
    /// Sequences of these lengths, in rows. A length may be 0.
    ///
    /// # Errors
    /// A [`LayerError`] when they are more than `i32::MAX` rows together, the most that a kernel counts.
    pub fn from_lengths(lengths: &[usize]) -> Result<Self> {
        let mut starts = Vec::with_capacity(lengths.len() + 1);
        let mut total = 0_i32;
        starts.push(total);
        for length in lengths {
            let next = i32::try_from(*length).ok().and_then(|length| total.checked_add(length));
            total = next.ok_or_else(|| LayerError::Sequences {
                layer: LAYER,
                reason: format!("the sequences are more than {} rows together", i32::MAX),
            })?;
            starts.push(total);
        }
        Ok(Self { starts })
    }

    /// Number of sequences.
    #[must_use]
    pub fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// Whether there is no sequence.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Rows of all sequences.
    #[must_use]
    pub fn total(&self) -> usize {
        self.starts.last().map_or(0, |start| start.unsigned_abs() as usize)
    }

    /// The starts and, last, the number of rows; ascending from 0.
    #[must_use]
    pub fn as_slice(&self) -> &[i32] {
        &self.starts
    }

    /// First row and length of each sequence.
    fn sequences(&self) -> impl Iterator<Item = (usize, usize)> {
        self.starts.windows(2).map(|pair| {
            let [start, end] = [pair[0], pair[1]].map(|at| at.unsigned_abs() as usize);
            (start, end - start)
        })
    }
}

/// `softmax(q · kᵀ * scale) · v` within each of the sequences that stand one behind the other.
///
/// # Shapes
/// Queries are `[total_q, heads, head_dim]`; keys and values `[total_k, kv_heads, head_dim]`, all of any strides. The
/// output is `[total_q, heads * head_dim]`, contiguous. Each sequence attends by itself, with the causal mask, the
/// window and the alignment of [`Attention`](super::Attention); no padding is computed.
#[derive(Debug, Clone)]
pub struct VarlenAttention {
    reference: Reference,
    slot: Slot,
}

impl VarlenAttention {
    /// Attention over activations of `dtype`, in the slot `path` of the model.
    ///
    /// # Errors
    /// As [`Attention::from_config`](super::Attention::from_config).
    pub fn new(config: AttentionConfig, dtype: CandleDType, slots: &Slots, path: impl Into<String>) -> Result<Self> {
        let slot = config.claim((LAYER, Contract::AttentionVarlen), dtype, slots, path)?;
        Ok(Self { reference: Reference::new(config), slot })
    }

    /// The same attention with masks from a store that other layers share.
    #[must_use]
    pub fn with_masks(mut self, masks: CausalMasks) -> Self {
        self.reference.masks = masks;
        self
    }

    /// Attends, under the plan of the scope that the thread is in, or else the current one. `starts` are those of the
    /// queries and of the keys; for self-attention they are the same.
    ///
    /// # Errors
    /// When a shape is not the layer's, the element types differ, or the sequences are not the tensors' rows.
    pub fn forward(
        &self,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        starts: [&SequenceStarts; 2],
        causal: bool,
    ) -> Result<Tensor> {
        self.slot.with_plan(|plan| self.forward_in(plan, q, k, v, starts, causal))
    }

    /// Attends, under the plan that the model pinned.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn forward_in(
        &self,
        plan: &Plan,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        starts: [&SequenceStarts; 2],
        causal: bool,
    ) -> Result<Tensor> {
        self.check(q, k, v, starts)?;
        check_plan(plan, &self.slot)?;
        match plan.attention_varlen(&self.slot) {
            Some(kernel) if ![q, k, v].iter().any(|x| x.track_op()) => {
                let options = self.reference.config.options(causal);
                kernels::attention_varlen(kernel, [q, k, v], starts.map(SequenceStarts::as_slice), options)
            }
            _ => self.by_sequence(plan.attention_path(), plan.mode(), [q, k, v], starts, causal),
        }
    }

    /// Attends by candle's own code, one sequence after the other.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn forward_reference(
        &self,
        mode: Mode,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        starts: [&SequenceStarts; 2],
        causal: bool,
    ) -> Result<Tensor> {
        self.check(q, k, v, starts)?;
        self.by_sequence(AttentionPath::Sdpa, mode, [q, k, v], starts, causal)
    }

    fn by_sequence(
        &self,
        path: AttentionPath,
        mode: Mode,
        [q, k, v]: [&Tensor; 3],
        [of_q, of_k]: [&SequenceStarts; 2],
        causal: bool,
    ) -> Result<Tensor> {
        let rows =
            |x: &Tensor, (start, length): (usize, usize)| x.narrow(0, start, length)?.transpose(0, 1)?.unsqueeze(0);
        let mut outputs = Vec::with_capacity(of_q.len());
        for (queries, keys) in of_q.sequences().zip(of_k.sequences()) {
            // An empty narrow at the end of a tensor is one that candle refuses.
            if queries.1 == 0 {
                continue;
            }
            let (k, v) = if keys.1 == 0 {
                let AttentionConfig { kv_heads, head_dim, .. } = self.reference.config;
                let nothing = Tensor::zeros((1, kv_heads, 0, head_dim), q.dtype(), q.device())?;
                (nothing.clone(), nothing)
            } else {
                (rows(k, keys)?, rows(v, keys)?)
            };
            outputs.push(self.reference.forward(path, mode, [&rows(q, queries)?, &k, &v], causal)?.squeeze(0)?);
        }
        if outputs.is_empty() {
            let AttentionConfig { heads, head_dim, .. } = self.reference.config;
            return Tensor::zeros((q.dim(0)?, heads * head_dim), q.dtype(), q.device());
        }
        Tensor::cat(&outputs, 0)
    }

    /// Refuses what the layer cannot take.
    fn check(&self, q: &Tensor, k: &Tensor, v: &Tensor, [of_q, of_k]: [&SequenceStarts; 2]) -> Result<()> {
        let AttentionConfig { heads, kv_heads, head_dim, .. } = self.reference.config;
        let check = |tensor, x, fits, expected: &dyn Fn() -> String| {
            AttentionConfig::check_shape(LAYER, tensor, x, fits, expected)
        };
        let total = of_q.total();
        check("q", q, *q.dims() == [total, heads, head_dim], &|| format!("[{total}, {heads}, {head_dim}]"))?;
        let fits = matches!(*k.dims(), [rows, h, d] if rows >= of_k.total() && (h, d) == (kv_heads, head_dim));
        check("k", k, fits, &|| format!("[at least {}, {kv_heads}, {head_dim}]", of_k.total()))?;
        check("v", v, v.dims() == k.dims(), &|| format!("{:?} like k", k.dims()))?;
        if of_q.len() != of_k.len() {
            let reason = format!("{} sequences of queries and {} of keys", of_q.len(), of_k.len());
            return Err(LayerError::Sequences { layer: LAYER, reason }.into());
        }
        AttentionConfig::check_dtypes(LAYER, q, [("k", k), ("v", v)])
    }
}
