//! Unsafe island 2: layer contracts, and the checks in front of every call.
//!
//! Owns: what each kind of layer promises and demands ([`Contract`]), the argument order of each kernel's function,
//! tensor views over host memory, and the calls themselves. Refuses: model types; a host hands in views and gets
//! results.
//!
//! A [`LayerKernel`] is made by [`bind`] from verified, loaded code, and calling it is safe: dtype, shape, strides and
//! limits are checked before the call, on every call, without an allocation. What cannot be checked is that the
//! kernel's machine code does what its contract says; that is the trust that [`crate::verify`] stands for.

mod attention;
mod checks;
mod contract;
mod error;
mod gated_activation;
mod kernel;
mod native;
mod output;
mod rms_norm;
mod rotary;
#[cfg(feature = "wgpu")]
mod shader;
mod tensor;

pub use attention::AttentionKernel;
pub use contract::{Activation, Contract};
pub use error::BindError;
pub use gated_activation::GatedActivationKernel;
pub use kernel::{Code, KernelIdentity, LayerKernel, LayerMeta, bind};

pub use rms_norm::RmsNormKernel;
pub use rotary::{RotaryKernel, RotaryStyle};
pub use tensor::{Element, MAX_RANK, TensorMut, TensorRef};
