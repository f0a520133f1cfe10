//! What an attention layer computes.

use candle_core::{DType as CandleDType, Result, Tensor};

use crate::bind::{AttentionOptions, Contract, Rounding, Window};
use crate::host::candle::LayerError;
use crate::host::candle::spec::float_dtype;
use crate::swap::{Slot, SlotSpec, Slots};

/// Heads, scale and options of an attention layer.
///
/// Query `i` stands at position `p = kv_len - q_len + i`, so that the last query and the last key stand at the same
/// one. It sees the keys `j` with `p - window.left <= j <= p + window.right`, both bounds inclusive, and none after `p`
/// where the call is causal: a sliding window of `n` tokens is `left: Some(n - 1)`. A `softcap` above 0 turns the
/// scaled scores into `softcap * tanh(score / softcap)` before keys are hidden.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AttentionConfig {
    /// Query heads.
    pub heads: usize,
    /// Key-value heads, each for `heads / kv_heads` query heads.
    pub kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// What multiplies the scores.
    pub scale: f64,
    /// How far a query sees.
    pub window: Window,
    /// The cap of the scores; 0: none.
    pub softcap: f64,
}

impl AttentionConfig {
    /// Heads with the usual scale, `1 / sqrt(head_dim)`, no window and no cap.
    #[must_use]
    pub fn new(heads: usize, kv_heads: usize, head_dim: usize) -> Self {
        // Exact for any size that fits a machine.
        #[expect(clippy::cast_precision_loss, reason = "head sizes are small")]
        let scale = 1.0 / (head_dim as f64).sqrt();
        Self { heads, kv_heads, head_dim, scale, window: Window::default(), softcap: 0.0 }
    }

    /// Claims the slot of a layer that computes this.
    pub(super) fn claim(
        &self,
        (layer, contract): (&'static str, Contract),
        dtype: CandleDType,
        slots: &Slots,
        path: impl Into<String>,
    ) -> std::result::Result<Slot, LayerError> {
        let Self { heads, kv_heads, head_dim, scale, window, softcap } = *self;
        if kv_heads == 0 || heads == 0 || !heads.is_multiple_of(kv_heads) {
            return Err(LayerError::Heads { layer, heads, kv_heads });
        }
        if !scale.is_finite() {
            let expected = "a finite number".to_owned();
            return Err(LayerError::Number { layer, name: "scale", expected, actual: scale.to_string() });
        }
        if !(softcap >= 0.0 && softcap.is_finite()) {
            let expected = "0 or a number above it".to_owned();
            return Err(LayerError::Number { layer, name: "softcap", expected, actual: softcap.to_string() });
        }
        let options = [
            ("window_left", window.left.is_some()),
            ("window_right", window.right.is_some()),
            ("softcap", softcap > 0.0),
        ];
        Ok(slots.slot(SlotSpec {
            path: path.into(),
            layer: layer.to_owned(),
            contract,
            dtype: float_dtype(layer, "dtype", dtype)?,
            last_dim: head_dim,
            trainable: false,
            options: options.into_iter().filter(|(_, is_set)| *is_set).map(|(name, _)| name).collect(),
            rounding: Rounding::Dtype,
        }))
    }

    /// What a kernel is called with.
    pub(super) fn options(&self, causal: bool) -> AttentionOptions {
        AttentionOptions { softmax_scale: self.scale, causal, window: self.window, softcap: self.softcap }
    }

    /// Refuses a tensor that is not `[outer.., heads, inner.., head_dim]` as `expected` says.
    pub(super) fn check_shape(
        layer: &'static str,
        tensor: &'static str,
        x: &Tensor,
        fits: bool,
        expected: impl FnOnce() -> String,
    ) -> Result<()> {
        if fits {
            return Ok(());
        }
        let actual = x.dims().to_vec();
        Err(LayerError::Shape { layer, tensor, expected: expected(), actual }.into())
    }

    /// Refuses tensors that are not of the type of `like`.
    pub(super) fn check_dtypes(layer: &'static str, like: &Tensor, others: [(&'static str, &Tensor); 2]) -> Result<()> {
        for (tensor, x) in others {
            if x.dtype() != like.dtype() {
                let (expected, actual) = (format!("{:?} like q", like.dtype()), format!("{:?}", x.dtype()));
                return Err(LayerError::DType { layer, tensor, expected, actual }.into());
            }
        }
        Ok(())
    }
}
