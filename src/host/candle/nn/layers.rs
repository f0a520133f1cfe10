//! candle's layers that kernels can take over, under candle's names.
//!
//! Each is the host's layer where a [`VarBuilder`](super::VarBuilder) made it. Where `new` made it from tensors, it
//! stands nowhere in a model and is candle's own, called so that no gradient is cut.

use candle_core::{Module, Result, Tensor};

use super::super as host;
use super::super::nn::ops;
use crate::swap::Mode;

#[derive(Debug, Clone)]
enum Kind<H, C> {
    Slotted(H),
    Plain(C),
}

/// `candle_nn::Linear`, extensible where [`linear`](fn@super::linear) and its kin made it.
#[derive(Debug, Clone)]
pub struct Linear(Kind<host::Linear, candle_nn::Linear>);

impl Linear {
    /// A product that stands nowhere in a model, such as an output projection tied to the embedding.
    #[must_use]
    pub fn new(weight: Tensor, bias: Option<Tensor>) -> Self {
        Self(Kind::Plain(candle_nn::Linear::new(weight, bias)))
    }

    /// The weight, `[out, in]`.
    #[must_use]
    pub fn weight(&self) -> &Tensor {
        match &self.0 {
            Kind::Slotted(layer) => layer.weight(),
            Kind::Plain(layer) => layer.weight(),
        }
    }

    /// The bias, `[out]`.
    #[must_use]
    pub fn bias(&self) -> Option<&Tensor> {
        match &self.0 {
            Kind::Slotted(layer) => layer.bias(),
            Kind::Plain(layer) => layer.bias(),
        }
    }
}

impl From<host::Linear> for Linear {
    fn from(layer: host::Linear) -> Self {
        Self(Kind::Slotted(layer))
    }
}

impl Module for Linear {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        match &self.0 {
            Kind::Slotted(layer) => layer.forward(x),
            // candle multiplies some transposed inputs wrongly.
            Kind::Plain(layer) => layer.forward(&x.contiguous()?),
        }
    }
}

/// `candle_nn::Embedding`, extensible where [`embedding`](fn@super::embedding) made it.
#[derive(Debug, Clone)]
pub struct Embedding(Kind<host::Embedding, candle_nn::Embedding>);

impl Embedding {
    /// A table that stands nowhere in a model.
    #[must_use]
    pub fn new(embeddings: Tensor, hidden_size: usize) -> Self {
        Self(Kind::Plain(candle_nn::Embedding::new(embeddings, hidden_size)))
    }

    /// The table, `[vocabulary, hidden]`.
    #[must_use]
    pub fn embeddings(&self) -> &Tensor {
        match &self.0 {
            Kind::Slotted(layer) => layer.weight(),
            Kind::Plain(layer) => layer.embeddings(),
        }
    }

    /// Elements of a row.
    #[must_use]
    pub fn hidden_size(&self) -> usize {
        match &self.0 {
            Kind::Slotted(layer) => layer.hidden(),
            Kind::Plain(layer) => layer.hidden_size(),
        }
    }
}

impl From<host::Embedding> for Embedding {
    fn from(layer: host::Embedding) -> Self {
        Self(Kind::Slotted(layer))
    }
}

impl Module for Embedding {
    fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        match &self.0 {
            Kind::Slotted(layer) => layer.forward(ids),
            Kind::Plain(layer) => layer.forward(ids),
        }
    }
}

/// `candle_nn::RmsNorm`, extensible where [`rms_norm`](super::rms_norm) made it.
#[derive(Debug, Clone)]
pub struct RmsNorm(Kind<host::RmsNorm, candle_nn::RmsNorm>);

impl RmsNorm {
    /// A norm that stands nowhere in a model.
    #[must_use]
    pub fn new(weight: Tensor, eps: f64) -> Self {
        Self(Kind::Plain(candle_nn::RmsNorm::new(weight, eps)))
    }

    /// The weight, `[hidden]`.
    #[must_use]
    pub fn weight(&self) -> &Tensor {
        match &self.0 {
            Kind::Slotted(layer) => layer.weight(),
            Kind::Plain(layer) => layer.weight(),
        }
    }

    /// The number added to the mean square.
    #[must_use]
    pub fn eps(&self) -> f64 {
        match &self.0 {
            Kind::Slotted(layer) => layer.eps(),
            Kind::Plain(layer) => layer.eps(),
        }
    }

    /// The norm by differentiable operations, in every mode.
    ///
    /// # Errors
    /// When the last axis of `x` is not the weight's, or its type differs.
    pub fn forward_diff(&self, x: &Tensor) -> Result<Tensor> {
        match &self.0 {
            Kind::Slotted(layer) => layer.forward_reference(Mode::Training, x),
            // candle's own function of this name uses the fused operation for contiguous input.
            #[expect(clippy::cast_possible_truncation, reason = "candle's operation takes it in f32")]
            Kind::Plain(layer) => ops::rms_norm_slow(x, layer.weight(), layer.eps() as f32),
        }
    }
}

impl From<host::RmsNorm> for RmsNorm {
    fn from(layer: host::RmsNorm) -> Self {
        Self(Kind::Slotted(layer))
    }
}

impl Module for RmsNorm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        match &self.0 {
            Kind::Slotted(layer) => layer.forward(x),
            Kind::Plain(layer) if !x.track_op() && !layer.weight().track_op() => layer.forward(x),
            Kind::Plain(_) => self.forward_diff(x),
        }
    }
}

/// `candle_nn::LayerNorm`, extensible where [`layer_norm`](fn@super::layer_norm) and its kin made it.
///
/// Without the mean's removal it is an RMSNorm, and has that layer's slot; with a bias besides, which no contract has,
/// it has none.
#[derive(Debug, Clone)]
pub struct LayerNorm(Kind<Norm, candle_nn::LayerNorm>);

/// The host's norms.
#[derive(Debug, Clone)]
enum Norm {
    Layer(host::LayerNorm),
    Rms(host::RmsNorm),
}

impl LayerNorm {
    /// A norm that stands nowhere in a model.
    #[must_use]
    pub fn new(weight: Tensor, bias: Tensor, eps: f64) -> Self {
        Self(Kind::Plain(candle_nn::LayerNorm::new(weight, bias, eps)))
    }

    /// A norm without a bias that stands nowhere in a model.
    #[must_use]
    pub fn new_no_bias(weight: Tensor, eps: f64) -> Self {
        Self(Kind::Plain(candle_nn::LayerNorm::new_no_bias(weight, eps)))
    }

    /// A norm that keeps the mean and stands nowhere in a model.
    #[must_use]
    pub fn rms_norm(weight: Tensor, eps: f64) -> Self {
        Self(Kind::Plain(candle_nn::LayerNorm::rms_norm(weight, eps)))
    }

    /// candle's, for a norm that no contract describes.
    pub(super) fn plain(layer: candle_nn::LayerNorm) -> Self {
        Self(Kind::Plain(layer))
    }

    /// The weight, `[hidden]`.
    #[must_use]
    pub fn weight(&self) -> &Tensor {
        match &self.0 {
            Kind::Slotted(Norm::Layer(layer)) => layer.weight(),
            Kind::Slotted(Norm::Rms(layer)) => layer.weight(),
            Kind::Plain(layer) => layer.weight(),
        }
    }

    /// The bias, `[hidden]`.
    #[must_use]
    pub fn bias(&self) -> Option<&Tensor> {
        match &self.0 {
            Kind::Slotted(Norm::Layer(layer)) => layer.bias(),
            Kind::Slotted(Norm::Rms(_)) => None,
            Kind::Plain(layer) => layer.bias(),
        }
    }

    /// The number added to the variance.
    #[must_use]
    pub fn eps(&self) -> f64 {
        match &self.0 {
            Kind::Slotted(Norm::Layer(layer)) => layer.eps(),
            Kind::Slotted(Norm::Rms(layer)) => layer.eps(),
            Kind::Plain(layer) => layer.eps(),
        }
    }

    /// Whether the mean is removed.
    #[must_use]
    pub fn remove_mean(&self) -> bool {
        match &self.0 {
            Kind::Slotted(norm) => matches!(norm, Norm::Layer(_)),
            Kind::Plain(layer) => layer.remove_mean(),
        }
    }
}

impl From<host::LayerNorm> for LayerNorm {
    fn from(layer: host::LayerNorm) -> Self {
        Self(Kind::Slotted(Norm::Layer(layer)))
    }
}

impl From<host::RmsNorm> for LayerNorm {
    fn from(layer: host::RmsNorm) -> Self {
        Self(Kind::Slotted(Norm::Rms(layer)))
    }
}

impl Module for LayerNorm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let layer = match &self.0 {
            Kind::Slotted(Norm::Layer(layer)) => return layer.forward(x),
            Kind::Slotted(Norm::Rms(layer)) => return layer.forward(x),
            Kind::Plain(layer) => layer,
        };
        let tracks = |tensor: &Tensor| tensor.track_op();
        match layer.bias() {
            // With a bias, candle's forward uses its fused operation, which cuts gradients.
            Some(bias) if layer.remove_mean() && (tracks(x) || tracks(layer.weight()) || tracks(bias)) => {
                let scaled = candle_nn::LayerNorm::new_no_bias(layer.weight().clone(), layer.eps()).forward(x)?;
                scaled.broadcast_add(bias)
            }
            _ => layer.forward(x),
        }
    }
}
