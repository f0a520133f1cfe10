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
//! Each layer has `forward`, which pins the plan for itself, and `forward_in`, which takes the plan that the model
//! pinned for the whole forward. A model calls the second, so that no forward mixes two plans.

mod attention;
mod error;
mod gated_mlp;
mod kernels;
mod kv_cache;
mod mask;
mod paged_kv_cache;
mod rms_norm;
mod rotary;
mod spec;

pub use crate::bind::{RotaryStyle, Window};
pub use attention::{Attention, AttentionConfig, PagedAttention, SequenceStarts, VarlenAttention};
pub use error::LayerError;
pub use gated_mlp::GatedMlp;
pub use kv_cache::KvCache;
pub use mask::CausalMasks;
pub use paged_kv_cache::{PagedBatch, PagedKvCache, SequenceId};
pub use rms_norm::RmsNorm;
pub use rotary::RotaryEmbedding;
pub use spec::{device_key_of, dtype_of};
