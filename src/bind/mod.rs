//! Unsafe island 2: layer contracts, and the checks in front of every call.
//!
//! Owns: what each kind of layer promises and demands ([`Contract`]), the argument order of each kernel's function,
//! tensor views over host memory, and the calls themselves. Refuses: model types; a host hands in views and gets
//! results.
//!
//! All tensors of a call are on one device. A native pack is for host memory alone: its tensors are slices of this
//! process, so that there is no device to mix up. A shader's tensors must be of the device that it was compiled for,
//! whichever device comes first on the machine; others are refused by name.
//!
//! A [`LayerKernel`] is made by [`bind`] from verified, loaded code, and calling it is safe: dtype, shape, strides and
//! limits are checked before the call, on every call, without an allocation. What cannot be checked is that the
//! kernel's machine code does what its contract says; that is the trust that [`crate::verify`] stands for.

mod activation;
mod add_rms_norm;
mod attention;
mod attention_indices;
mod attention_paged;
mod attention_varlen;
mod checks;
mod contract;
mod cross_entropy;
mod embedding;
mod error;
mod gated_activation;
mod gated_linear;
mod kernel;
mod layer_norm;
mod linear;
mod native;
mod output;
mod parity;
mod rms_norm;
mod rotary;
mod rounding;
mod rows;
#[cfg(feature = "wgpu")]
mod shader;
#[cfg(feature = "wgpu")]
mod shader_faces;
mod softmax;
mod tensor;

pub use activation::ActivationKernel;
pub use add_rms_norm::AddRmsNormKernel;
pub use attention::{AttentionKernel, AttentionOptions, Window};
pub use attention_paged::{AttentionPagedKernel, PagedKeys};
pub use attention_varlen::AttentionVarlenKernel;
pub use contract::{Activation, Contract, GatedActivation, GatedLinear, Parameter, ParameterKind};
pub use cross_entropy::CrossEntropyKernel;
pub use embedding::EmbeddingKernel;
pub use error::BindError;
pub use gated_activation::GatedActivationKernel;
pub use gated_linear::GatedLinearKernel;
pub use kernel::{Code, KernelIdentity, LayerKernel, LayerMeta, bind};
pub use layer_norm::LayerNormKernel;
pub use linear::LinearKernel;
pub use parity::{ParityError, ParityReport};
pub use rms_norm::RmsNormKernel;
pub use rotary::{RotaryKernel, RotaryStyle};
pub use rounding::{Rounding, Tolerance};
pub use softmax::SoftmaxKernel;
pub use tensor::{Element, IndexElement, MAX_RANK, TensorMut, TensorRef};
