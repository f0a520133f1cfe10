//! Layers over plain slices: a host without a framework.
//!
//! Tensors are row-major slices with a shape. A layer owns its weights, reads its input and writes its output where the
//! caller says; no forward allocates, with kernels or without. It is what the core asks of a host and nothing more: a
//! slot for each layer, views for the kernel, and reference code in plain Rust, which accumulates in `f32` and rounds
//! to the element type once, at the end. There are no gradients here, so every layer is for inference; in training mode
//! the planner leaves layers whose kernels have no backward on their reference code, as anywhere.
//!
//! # Examples
//! ```
//! use kernelhub::host::slice::{Array, ArrayMut, RmsNorm};
//! use kernelhub::swap::Slots;
//! use kernelhub::variant::DeviceKey;
//!
//! let slots = Slots::new(DeviceKey::Cpu);
//! let norm = RmsNorm::new(vec![1.0_f32, 2.0], 0.0, &slots, "norm");
//! let mut out = [0.0; 4];
//! norm.forward(&mut ArrayMut::new(&mut out, &[2, 2])?, &Array::new(&[3.0, 3.0, 1.0, -1.0], &[2, 2])?)?;
//! assert_eq!(out, [1.0, 2.0, 1.0, -2.0]);
//! # Ok::<(), kernelhub::host::slice::SliceError>(())
//! ```

mod activation;
mod array;
mod attention;
mod error;
mod linear;
mod norm;
mod rotary;

pub use activation::{Activation, GatedActivation};
pub use array::{Array, ArrayMut, Number};
pub use attention::Attention;
pub use error::SliceError;
pub use linear::{Embedding, Linear};
pub use norm::{LayerNorm, RmsNorm};
pub use rotary::RotaryEmbedding;

pub use crate::bind::{AttentionOptions, RotaryStyle, Window};
