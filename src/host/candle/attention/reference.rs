//! The reference code of every attention layer: candle's own operations over one batch of equal lengths.

use candle_core::{D, DType as CandleDType, Result, Tensor};
use candle_nn::ops;

use super::AttentionConfig;
use crate::host::candle::CausalMasks;
use crate::host::candle::mask::Visible;
use crate::host::candle::spec::mode_for;
use crate::swap::{AttentionPath, Mode};

/// A layer's options with the masks that it shares.
#[derive(Debug, Clone)]
pub(super) struct Reference {
    pub(super) config: AttentionConfig,
    pub(super) masks: CausalMasks,
}

impl Reference {
    pub(super) fn new(config: AttentionConfig) -> Self {
        Self { config, masks: CausalMasks::default() }
    }

    /// `q` `[batch, heads, q_len, head_dim]`, `k` and `v` `[batch, kv_heads, kv_len, head_dim]`, all checked; the
    /// output is `[batch, q_len, heads * head_dim]`. Differentiable in training, and wherever an input tracks a
    /// gradient.
    pub(super) fn forward(
        &self,
        path: AttentionPath,
        mode: Mode,
        [q, k, v]: [&Tensor; 3],
        causal: bool,
    ) -> Result<Tensor> {
        let (batch, heads, q_len, head_dim) = q.dims4()?;
        let kv_len = k.dim(2)?;
        let mode = mode_for(mode, &[q, k, v]);
        let zeros = |rows| Tensor::zeros((batch, rows, heads * head_dim), q.dtype(), q.device());
        let visible = Visible::new(self.config.window, causal, q_len, kv_len);
        let blind = visible.blind();
        if kv_len == 0 || q.elem_count() == 0 || blind == q_len {
            return zeros(q_len);
        }
        if blind == 0 {
            return self.seeing(path, mode, [q, k, v], visible);
        }
        let seeing = q.narrow(2, blind, q_len - blind)?;
        let visible = Visible::new(self.config.window, causal, q_len - blind, kv_len);
        Tensor::cat(&[&zeros(blind)?, &self.seeing(path, mode, [&seeing, k, v], visible)?], 1)
    }

    /// Every query sees a key here.
    fn seeing(&self, path: AttentionPath, mode: Mode, [q, k, v]: [&Tensor; 3], visible: Visible) -> Result<Tensor> {
        // Keys before the first query's window are seen by none.
        let hidden = visible.first();
        if hidden == 0 {
            return self.scores_in_memory(path, mode, [q, k, v], visible);
        }
        let (k, v) = (k.narrow(2, hidden, visible.kv_len() - hidden)?, v.narrow(2, hidden, visible.kv_len() - hidden)?);
        self.scores_in_memory(path, mode, [q, &k, &v], visible.without(hidden))
    }

    fn scores_in_memory(
        &self,
        path: AttentionPath,
        mode: Mode,
        inputs: [&Tensor; 3],
        visible: Visible,
    ) -> Result<Tensor> {
        match path {
            AttentionPath::Sdpa => self.grouped(mode, inputs, visible),
            AttentionPath::Eager => self.eager(mode, inputs, visible),
        }
    }

    /// The query heads of a group are rows of one product, so that keys and values are read as they lie and are not
    /// repeated. On two cores of an AVX-512 server, in f32, that took 20.8 ms for 512 queries of 512 keys (9 heads on
    /// 3, of 64 elements) where repeated keys and values took 23.1 and `candle_nn::attention::flash_attn` 22.6, and 172
    /// µs for one query of 512 keys where they took 255 and 375. For one query of 128 keys `flash_attn` was ahead, 68
    /// µs to 97; with 32 heads on 8 of 128 elements, and in bf16 and f16, it was behind throughout.
    ///
    /// bf16 and f16 are computed in f32: candle's softmax adds up in the type of its input, which they are too coarse
    /// for, and its bf16 product widens a whole memory, which of a cache is its capacity, for every view of it.
    fn grouped(&self, mode: Mode, [q, k, v]: [&Tensor; 3], visible: Visible) -> Result<Tensor> {
        let AttentionConfig { heads, kv_heads, head_dim, scale, .. } = self.config;
        let (batch, _, q_len, _) = q.dims4()?;
        let kv_len = k.dim(2)?;
        let group = heads / kv_heads;
        let dtype = q.dtype();
        let wide = if dtype == CandleDType::F64 { dtype } else { CandleDType::F32 };
        let (q, k, v) = (q.to_dtype(wide)?, k.to_dtype(wide)?, v.to_dtype(wide)?);

        // Scaling the queries is less work than scaling the scores.
        let q = (q.contiguous()? * scale)?.reshape((batch, kv_heads, group * q_len, head_dim))?;
        let mut scores = self.capped(q.matmul(&foldable(&k)?.t()?)?)?;
        if let Some(mask) = self.masks.visible(visible, scores.dtype(), scores.device())? {
            let by_head = scores.reshape((batch, heads, q_len, kv_len))?;
            scores = by_head.broadcast_add(&mask)?.reshape((batch, kv_heads, group * q_len, kv_len))?;
        }
        let mixed = softmax(mode, &scores)?.matmul(&foldable(&v)?)?.reshape((batch, heads, q_len, head_dim))?;
        mixed.to_dtype(dtype)?.transpose(1, 2)?.reshape((batch, q_len, heads * head_dim))
    }

    /// As Transformers' `eager`: keys and values repeated for each head, products and the mask in the model's own type,
    /// the softmax in f32 and rounded to that type.
    fn eager(&self, mode: Mode, [q, k, v]: [&Tensor; 3], visible: Visible) -> Result<Tensor> {
        let AttentionConfig { heads, head_dim, scale, .. } = self.config;
        let (batch, _, q_len, _) = q.dims4()?;
        let dtype = q.dtype();
        let (k, v) = (self.repeated(k)?, self.repeated(v)?);
        let mut scores = self.capped((q.contiguous()?.matmul(&k.t()?)? * scale)?)?;
        if let Some(mask) = self.masks.visible(visible, dtype, scores.device())? {
            scores = scores.broadcast_add(&mask)?;
        }
        let wide = if dtype == CandleDType::F64 { dtype } else { CandleDType::F32 };
        let weights = softmax(mode, &scores.to_dtype(wide)?)?.to_dtype(dtype)?;
        weights.matmul(&v)?.transpose(1, 2)?.reshape((batch, q_len, heads * head_dim))
    }

    /// Each key-value head as often as it has query heads, one copy behind the other.
    fn repeated(&self, x: &Tensor) -> Result<Tensor> {
        let AttentionConfig { heads, kv_heads, head_dim, .. } = self.config;
        let (batch, _, kv_len, _) = x.dims4()?;
        let group = heads / kv_heads;
        let wide = x.unsqueeze(2)?.broadcast_as((batch, kv_heads, group, kv_len, head_dim))?;
        wide.contiguous()?.reshape((batch, heads, kv_len, head_dim))
    }

    fn capped(&self, scores: Tensor) -> Result<Tensor> {
        let cap = self.config.softcap;
        if cap == 0.0 { Ok(scores) } else { (scores / cap)?.tanh()? * cap }
    }
}

/// Over the last axis: candle's fused operation in inference, a differentiable one in training.
fn softmax(mode: Mode, scores: &Tensor) -> Result<Tensor> {
    if mode.is_training() { ops::softmax(scores, D::Minus1) } else { ops::softmax_last_dim(scores) }
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
