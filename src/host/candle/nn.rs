//! Drop-in layers: the names of `candle_nn`, with kernels.
//!
//! A model file that is written on `candle_nn` adopts kernelhub by its imports alone: `use candle_nn::…` becomes
//! `use kernelhub::host::candle::nn::…`. Everything of `candle_nn` is here under its name; what kernels can take over
//! is kernelhub's own: [`VarBuilder`], which carries the model's slots, and the layers that are built from one, each
//! with a slot at its path.
//!
//! | constructor | layer in kernel mappings |
//! |---|---|
//! | [`rms_norm`], [`host_rms_norm`] | `RMSNorm`, `AddRMSNorm` |
//! | [`layer_norm()`], [`layer_norm_no_bias`] | `LayerNorm` |
//! | [`linear`](fn@linear), [`linear_no_bias`], [`linear_b`] | `Linear` |
//! | [`embedding`](fn@embedding) | `Embedding` |
//! | [`activation`](fn@activation) | `Silu`, `Gelu`, ... |
//! | [`gated_mlp`] | `SiluAndMul`, ... |
//! | [`qkv_linear`] | `Linear`, `QKVLinear` |
//! | [`rotary`] | `RotaryEmbedding` |
//! | [`softmax`] | `Softmax` |
//! | [`cross_entropy`] | `CrossEntropy` |
//!
//! The last six are no functions of candle's; the next step for a model that has changed its imports.
//!
//! # What has no slot
//! Free functions ([`ops`], [`rotary_emb`], [`loss`](mod@loss)) and [`Activation`] are candle's own: they stand nowhere
//! in the model, so no plan can decide for them, and no report speaks of them. A layer made by `new` from tensors, such
//! as an output projection that is tied to the embedding, stands nowhere either and runs reference code. A
//! configuration that names such a layer, when the model has no other of it, is refused as one that the model lacks.
//!
//! # Kernels off
//! Each layer then gives what candle's own gives, bit for bit for contiguous input: the same operations on the same
//! tensors. Other than candle's, no layer cuts a gradient: see [`call`](super::call).

mod builder;
mod constructors;
mod layers;
mod others;

// What is defined here stands in front of candle's of the same name.
pub use candle_nn::*;

pub use builder::VarBuilder;
pub use constructors::{
    activation, cross_entropy, embedding, gated_mlp, host_rms_norm, layer_norm, layer_norm_no_bias, linear, linear_b,
    linear_no_bias, qkv_linear, rms_norm, rotary, softmax,
};
pub use layers::{Embedding, LayerNorm, Linear, RmsNorm};
pub use others::{
    batch_norm, conv_transpose1d, conv_transpose1d_no_bias, conv_transpose2d, conv_transpose2d_no_bias, conv1d,
    conv1d_no_bias, conv2d, conv2d_no_bias, group_norm, gru, lstm, prelu,
};
