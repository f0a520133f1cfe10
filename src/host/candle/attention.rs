//! Scaled dot-product attention with grouped heads.

use candle_core::{D, DType as CandleDType, Result, Tensor};
use candle_nn::ops;

use super::spec::{float_dtype, mode_for};
use super::{CausalMasks, LayerError, kernels};
use crate::bind::{Contract, Rounding};
use crate::swap::{Mode, Plan, Slot, SlotSpec, Slots};

const LAYER: &str = "FlashAttention";

/// `softmax(q · kᵀ * scale) · v`, each key-value head serving `heads / kv_heads` query heads.
///
/// # Shapes
/// Queries are `[batch, heads, q_len, head_dim]`; keys and values `[batch, kv_heads, kv_len, head_dim]`, all of any
/// strides, such as transposed views of a projection or a [`KvCache`](super::KvCache)'s views. The output is
/// `[batch, q_len, heads * head_dim]`, contiguous: ready for the output projection.
///
/// A causal mask is aligned to the bottom right: the last query sees every key. A query that sees no key at all, which
/// there is when `q_len > kv_len`, gives zeros.
#[derive(Debug, Clone)]
pub struct Attention {
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    scale: f64,
    masks: CausalMasks,
    slot: Slot,
}

impl Attention {
    /// Attention over activations of `dtype`, in the slot `path` of the model. `scale` multiplies the scores, as a rule
    /// `1 / sqrt(head_dim)`.
    ///
    /// # Errors
    /// A [`LayerError`] when the heads cannot be grouped evenly or `dtype` is not floating-point.
    pub fn new(
        heads: usize,
        kv_heads: usize,
        head_dim: usize,
        scale: f64,
        dtype: CandleDType,
        slots: &Slots,
        path: impl Into<String>,
    ) -> Result<Self> {
        if kv_heads == 0 || heads == 0 || !heads.is_multiple_of(kv_heads) {
            return Err(LayerError::Heads { layer: LAYER, heads, kv_heads }.into());
        }
        let (dtype, trainable) = (float_dtype(LAYER, "dtype", dtype)?, false);
        let slot = slots.slot(SlotSpec {
            path: path.into(),
            layer: LAYER.to_owned(),
            contract: Contract::Attention,
            dtype,
            last_dim: head_dim,
            trainable,
            options: Vec::new(),
            rounding: Rounding::Dtype,
        });
        Ok(Self { heads, kv_heads, head_dim, scale, masks: CausalMasks::default(), slot })
    }

    /// The same attention with masks from a store that other layers share.
    #[must_use]
    pub fn with_masks(mut self, masks: CausalMasks) -> Self {
        self.masks = masks;
        self
    }

    /// What multiplies the scores.
    #[must_use]
    pub fn scale(&self) -> f64 {
        self.scale
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
        match plan.attention(&self.slot) {
            Some(kernel) if ![q, k, v].iter().any(|x| x.track_op()) => {
                self.check(q, k, v)?;
                kernels::attention(kernel, [q, k, v], self.scale, causal)
            }
            _ => self.forward_reference(plan.mode(), q, k, v, causal),
        }
    }

    /// Attends by candle's own code: with its fused softmax in inference, with a differentiable one in training.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn forward_reference(&self, mode: Mode, q: &Tensor, k: &Tensor, v: &Tensor, causal: bool) -> Result<Tensor> {
        let (batch, q_len, kv_len) = self.check(q, k, v)?;
        let mode = mode_for(mode, &[q, k, v]);
        let zeros = |rows| Tensor::zeros((batch, rows, self.heads * self.head_dim), q.dtype(), q.device());
        if kv_len == 0 || q.elem_count() == 0 {
            return zeros(q_len);
        }
        // Queries that lie before the first key.
        let blind = if causal { q_len.saturating_sub(kv_len) } else { 0 };
        if blind == 0 {
            return self.scores_in_memory(mode, q, k, v, causal);
        }
        let seeing = q.narrow(2, blind, q_len - blind)?;
        Tensor::cat(&[&zeros(blind)?, &self.scores_in_memory(mode, &seeing, k, v, causal)?], 1)
    }

    /// Every query sees a key here.
    ///
    /// The query heads of a group are rows of one product, so that keys and values are read as they lie and are not
    /// repeated. On two cores of an AVX-512 server, in f32, that took 20.8 ms for 512 queries of 512 keys (9 heads on 3,
    /// of 64 elements) where repeated keys and values took 23.1 and `candle_nn::attention::flash_attn` 22.6, and 172 µs
    /// for one query of 512 keys where they took 255 and 375. For one query of 128 keys `flash_attn` was ahead, 68 µs
    /// to 97; with 32 heads on 8 of 128 elements, and in bf16 and f16, it was behind throughout.
    ///
    /// bf16 and f16 are computed in f32: candle's softmax adds up in the type of its input, which they are too coarse
    /// for, and its bf16 product widens a whole memory, which of a cache is its capacity, for every view of it.
    fn scores_in_memory(&self, mode: Mode, q: &Tensor, k: &Tensor, v: &Tensor, causal: bool) -> Result<Tensor> {
        let (batch, _, q_len, _) = q.dims4()?;
        let kv_len = k.dim(2)?;
        let group = self.heads / self.kv_heads;
        let dtype = q.dtype();
        let wide = if dtype == CandleDType::F64 { dtype } else { CandleDType::F32 };
        let (q, k, v) = (q.to_dtype(wide)?, k.to_dtype(wide)?, v.to_dtype(wide)?);

        // Scaling the queries is less work than scaling the scores.
        let q = (q.contiguous()? * self.scale)?.reshape((batch, self.kv_heads, group * q_len, self.head_dim))?;
        let mut scores = q.matmul(&foldable(&k)?.t()?)?;
        if causal && q_len > 1 {
            let mask = self.masks.get(q_len, kv_len, scores.dtype(), scores.device())?;
            let by_head = scores.reshape((batch, self.heads, q_len, kv_len))?;
            scores = by_head.broadcast_add(&mask)?.reshape((batch, self.kv_heads, group * q_len, kv_len))?;
        }
        let weights =
            if mode.is_training() { ops::softmax(&scores, D::Minus1)? } else { ops::softmax_last_dim(&scores)? };
        let mixed = weights.matmul(&foldable(&v)?)?.reshape((batch, self.heads, q_len, self.head_dim))?;
        mixed.to_dtype(dtype)?.transpose(1, 2)?.reshape((batch, q_len, self.heads * self.head_dim))
    }

    /// Refuses what the layer cannot take; returns batch, `q_len` and `kv_len`.
    fn check(&self, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<(usize, usize, usize)> {
        let shape = |tensor, expected, x: &Tensor| LayerError::Shape {
            layer: LAYER,
            tensor,
            expected,
            actual: x.dims().to_vec(),
        };
        let (heads, kv_heads, head_dim) = (self.heads, self.kv_heads, self.head_dim);
        let (batch, q_len) = match *q.dims() {
            [batch, _, q_len, _] if *q.dims() == [batch, heads, q_len, head_dim] => (batch, q_len),
            _ => return Err(shape("q", format!("[batch, {heads}, q_len, {head_dim}]"), q).into()),
        };
        let kv_len = match *k.dims() {
            [_, _, kv_len, _] if *k.dims() == [batch, kv_heads, kv_len, head_dim] => kv_len,
            _ => return Err(shape("k", format!("[{batch}, {kv_heads}, kv_len, {head_dim}]"), k).into()),
        };
        if v.dims() != k.dims() {
            return Err(shape("v", format!("{:?} like k", k.dims()), v).into());
        }
        for (tensor, x) in [("k", k), ("v", v)] {
            if x.dtype() != q.dtype() {
                let (expected, actual) = (format!("{:?} like q", q.dtype()), format!("{:?}", x.dtype()));
                return Err(LayerError::DType { layer: LAYER, tensor, expected, actual }.into());
            }
        }
        Ok((batch, q_len, kv_len))
    }
}

/// `x`, copied only where candle's matrix product could not read it: it wants the rows dense, and batch and heads to
/// fold into one axis.
fn foldable(x: &Tensor) -> Result<Tensor> {
    let (&[batch, heads, ..], &[over_batch, over_heads, _, within]) = (x.dims(), x.stride()) else {
        return x.contiguous();
    };
    let folds = batch == 1 || heads == 1 || over_batch == heads * over_heads;
    if within == 1 && folds { Ok(x.clone()) } else { x.contiguous() }
}
