//! Layers for candle models.
//!
//! Owns the layers that a candle model is built from so that their work can be swapped for kernels, and the reference
//! code that each of them runs when no kernel is bound. Refuses to load weights or to know a model's architecture: a
//! model is user code, such as `examples/llama`.
//!
//! Invariant: a layer computes the same function on every path, to the rounding of its element type, and in
//! [`Mode::Training`](crate::swap::Mode::Training) a gradient reaches every input and weight that asks for one.
//!
//! Reference code is candle's own best operation in inference, and candle's differentiable path in training. "Kernels
//! off" in every comparison means exactly that, so a layer does nothing in its reference that a plain candle model
//! would not do. The cost is that every layer carries both paths, which the tests compare.
//!
//! Each layer has `forward`, which finds the plan in the scope that the model's forward runs in
//! ([`Kernelized::run`]), or pins the current one outside of a scope, and `forward_in`, which is given it. So no
//! forward mixes two plans.
//!
//! The output of every call is new memory, as everywhere in candle. A program whose outputs are large calls
//! [`retain_freed_memory`](crate::system::retain_freed_memory) first in `main`, so that they need no fresh pages of the
//! operating system each time, and one that reads large weights moves them into huge pages ([`use_huge_pages`]); nothing
//! here does either for the program.
//!
//! [`nn`] has the layers under candle's own names and constructors; [`call`] is what a layer of your own is made with.
//! The guide is `docs/extensible-models.md`.

mod activation;
mod attention;
pub mod call;
mod cross_entropy;
mod embedding;
mod error;
mod gated_mlp;
mod kernelized;
mod kernels;
mod kv_cache;
mod layer_norm;
mod linear;
mod mask;
pub mod nn;
mod paged_kv_cache;
mod qkv_linear;
mod rms_norm;
mod rotary;
mod softmax;
mod spec;

pub use crate::bind::{Activation, GatedActivation, RotaryStyle, Window};
pub use activation::{ActivationLayer, GatedActivationLayer, activation_layer, gated_activation_layer};
pub use attention::{Attention, AttentionConfig, PagedAttention, SequenceStarts, VarlenAttention};
pub use cross_entropy::CrossEntropy;
pub use embedding::Embedding;
pub use error::LayerError;
pub use gated_mlp::GatedMlp;
pub use kernelized::Kernelized;
pub use kernels::use_huge_pages;
pub use kv_cache::KvCache;
pub use layer_norm::LayerNorm;
pub use linear::Linear;
pub use mask::CausalMasks;
pub use paged_kv_cache::{PagedBatch, PagedKvCache, SequenceId};
pub use qkv_linear::{Projection, QkvLinear};
pub use rms_norm::{RmsNorm, RmsNormConfig};
pub use rotary::RotaryEmbedding;
pub use softmax::Softmax;
pub use spec::{device_key_of, dtype_of};

/// The code of the guide, as tests.
#[cfg(doctest)]
#[doc = include_str!("../../docs/extensible-models.md")]
struct Guide;
