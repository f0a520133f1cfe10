//! Layers from a builder: candle's constructors, and those of layers that candle has none for.
#![expect(clippy::needless_pass_by_value, reason = "builders are passed as candle's are")]

use candle_core::{Result, Tensor};
use candle_nn::init::DEFAULT_KAIMING_NORMAL;
use candle_nn::{Init, LayerNormConfig};

use super::super::{self as host, ActivationLayer, CrossEntropy, GatedMlp, LayerError, QkvLinear, RmsNormConfig};
use super::{Embedding, LayerNorm, Linear, RmsNorm, VarBuilder};
use crate::bind::{Activation, GatedActivation, RotaryStyle};

/// `x · weightᵀ + bias` with `weight` and `bias` of the builder's path: a [`host::Linear`].
///
/// # Errors
/// When a tensor is absent or has another shape, or the builder's dtype is not floating-point.
pub fn linear(in_dim: usize, out_dim: usize, vb: VarBuilder) -> Result<Linear> {
    let weight = vb.get_with_hints((out_dim, in_dim), "weight", DEFAULT_KAIMING_NORMAL)?;
    let bound = 1.0 / (in_dim as f64).sqrt();
    let bias = vb.get_with_hints(out_dim, "bias", Init::Uniform { lo: -bound, up: bound })?;
    host::Linear::new(weight, Some(bias), vb.slots(), vb.prefix()).map(Into::into)
}

/// As [`linear`], without a bias.
///
/// # Errors
/// As [`linear`].
pub fn linear_no_bias(in_dim: usize, out_dim: usize, vb: VarBuilder) -> Result<Linear> {
    let weight = vb.get_with_hints((out_dim, in_dim), "weight", DEFAULT_KAIMING_NORMAL)?;
    host::Linear::new(weight, None, vb.slots(), vb.prefix()).map(Into::into)
}

/// [`linear`] or [`linear_no_bias`].
///
/// # Errors
/// As [`linear`].
pub fn linear_b(in_dim: usize, out_dim: usize, bias: bool, vb: VarBuilder) -> Result<Linear> {
    if bias { linear(in_dim, out_dim, vb) } else { linear_no_bias(in_dim, out_dim, vb) }
}

/// The rows of the builder's `weight`, `[in_size, out_size]`: a [`host::Embedding`].
///
/// # Errors
/// As [`linear`].
pub fn embedding(in_size: usize, out_size: usize, vb: VarBuilder) -> Result<Embedding> {
    let weight = vb.get_with_hints((in_size, out_size), "weight", Init::Randn { mean: 0.0, stdev: 1.0 })?;
    host::Embedding::new(weight, vb.slots(), vb.prefix()).map(Into::into)
}

/// Root-mean-square normalisation with the builder's `weight`, `[size]`: a [`host::RmsNorm`].
///
/// # Errors
/// As [`linear`].
pub fn rms_norm(size: usize, eps: f64, vb: VarBuilder) -> Result<RmsNorm> {
    host_rms_norm(size, eps, vb).map(Into::into)
}

/// As [`rms_norm`], with all that the host's layer can do: an offset of the weight, a residual added before. `config`
/// is an `eps` or a [`RmsNormConfig`].
///
/// # Errors
/// As [`linear`].
pub fn host_rms_norm(size: usize, config: impl Into<RmsNormConfig>, vb: VarBuilder) -> Result<host::RmsNorm> {
    let weight = vb.get_with_hints(size, norm_name(&vb, "weight", "gamma"), Init::Const(1.0))?;
    host::RmsNorm::new(weight, config, vb.slots(), vb.prefix())
}

/// Layer normalisation with the builder's `weight` and, if the configuration is affine, `bias`, `[size]`: a
/// [`host::LayerNorm`].
///
/// # Errors
/// As [`linear`].
pub fn layer_norm<C: Into<LayerNormConfig>>(size: usize, config: C, vb: VarBuilder) -> Result<LayerNorm> {
    let LayerNormConfig { eps, remove_mean, affine } = config.into();
    let weight = vb.get_with_hints(size, norm_name(&vb, "weight", "gamma"), Init::Const(1.0))?;
    let bias =
        if affine { Some(vb.get_with_hints(size, norm_name(&vb, "bias", "beta"), Init::Const(0.0))?) } else { None };
    match (remove_mean, bias) {
        (true, bias) => host::LayerNorm::new(weight, bias, eps, vb.slots(), vb.prefix()).map(Into::into),
        (false, None) => host::RmsNorm::new(weight, eps, vb.slots(), vb.prefix()).map(Into::into),
        (false, Some(_)) => {
            candle_nn::layer_norm(size, LayerNormConfig { eps, remove_mean, affine }, vb.candle()).map(LayerNorm::plain)
        }
    }
}

/// As [`layer_norm`], without a bias.
///
/// # Errors
/// As [`linear`].
pub fn layer_norm_no_bias(size: usize, eps: f64, vb: VarBuilder) -> Result<LayerNorm> {
    layer_norm(size, LayerNormConfig { eps, remove_mean: true, affine: false }, vb)
}

/// The name that the builder has a norm's tensor under; older files have the second.
fn norm_name(vb: &VarBuilder, name: &'static str, older: &'static str) -> &'static str {
    if !vb.contains_tensor(name) && vb.contains_tensor(older) { older } else { name }
}

/// The host's layer for one of candle's activations, over rows of `width` elements. candle's enum is a value without a
/// place in the model; this is a layer at the builder's path.
///
/// # Errors
/// [`LayerError::Activation`] for an activation that no contract describes: call candle's.
pub fn activation(activation: candle_nn::Activation, width: usize, vb: VarBuilder) -> Result<ActivationLayer> {
    use candle_nn::Activation as Candle;
    let activation = match activation {
        Candle::Silu | Candle::Swish => Activation::Silu,
        Candle::Gelu => Activation::Gelu,
        Candle::NewGelu => Activation::GeluNew,
        Candle::GeluPytorchTanh => Activation::GeluTanh,
        other => return Err(LayerError::Activation { activation: format!("{other:?}") }.into()),
    };
    ActivationLayer::new(activation, width, vb.dtype(), vb.slots(), vb.prefix())
}

/// The softmax over the last axis of rows of `width` elements: candle's `softmax_last_dim`, with a place in the model
/// and without cutting gradients.
///
/// # Errors
/// When the builder's dtype is not floating-point.
pub fn softmax(width: usize, vb: VarBuilder) -> Result<host::Softmax> {
    host::Softmax::new(width, vb.dtype(), vb.slots(), vb.prefix())
}

/// A gated feed-forward block with the weights `gate_proj`, `up_proj` and `down_proj` at the builder's path.
///
/// # Errors
/// As [`linear`].
pub fn gated_mlp(hidden: usize, intermediate: usize, kind: GatedActivation, vb: VarBuilder) -> Result<GatedMlp> {
    let weight = |name, shape: (usize, usize)| vb.pp(name).get_with_hints(shape, "weight", DEFAULT_KAIMING_NORMAL);
    let (gate, up) = (weight("gate_proj", (intermediate, hidden))?, weight("up_proj", (intermediate, hidden))?);
    let down = weight("down_proj", (hidden, intermediate))?;
    GatedMlp::of_projections(kind, [gate, up], down, vb.slots(), vb.prefix())
}

/// The projections `q_proj`, `k_proj` and `v_proj` at the builder's path, of `widths` elements.
///
/// # Errors
/// As [`linear`].
pub fn qkv_linear(in_dim: usize, widths: [usize; 3], bias: bool, vb: VarBuilder) -> Result<QkvLinear> {
    let projection = |name, width| {
        let vb = vb.pp(name);
        let weight = vb.get_with_hints((width, in_dim), "weight", DEFAULT_KAIMING_NORMAL)?;
        let bound = 1.0 / (in_dim as f64).sqrt();
        let init = Init::Uniform { lo: -bound, up: bound };
        let bias = if bias { Some(vb.get_with_hints(width, "bias", init)?) } else { None };
        Ok::<_, candle_core::Error>((weight, bias))
    };
    let [q, k, v] = widths;
    let projections = [projection("q_proj", q)?, projection("k_proj", k)?, projection("v_proj", v)?];
    QkvLinear::new(projections, vb.slots(), &vb.prefix())
}

/// A rotary embedding with these tables, `[positions, head_dim / 2]`, at the builder's path.
///
/// # Errors
/// As [`host::RotaryEmbedding::new`].
pub fn rotary(cos: Tensor, sin: Tensor, style: RotaryStyle, vb: VarBuilder) -> Result<host::RotaryEmbedding> {
    host::RotaryEmbedding::new(cos, sin, style, vb.slots(), vb.prefix())
}

/// A loss over logits of `vocabulary` classes at the builder's path.
///
/// # Errors
/// As [`CrossEntropy::new`].
pub fn cross_entropy(vocabulary: usize, vb: VarBuilder) -> Result<CrossEntropy> {
    CrossEntropy::new(vocabulary, vb.dtype(), vb.slots(), vb.prefix())
}
