//! The kernels. Each file checks its arguments, and then runs over raw pointers that the checks cover.
//!
//! Invariant: after the checks no address is computed outside a tensor's span, and every output element is written.

#[cfg(feature = "activation")]
pub(crate) mod activation;
#[cfg(feature = "flash-attn2")]
pub(crate) mod attention;
#[cfg(any(feature = "rmsnorm", feature = "layer-norm"))]
mod blocks;
#[cfg(feature = "cross-entropy")]
pub(crate) mod cross_entropy;
#[cfg(feature = "embedding")]
pub(crate) mod embedding;
#[cfg(any(feature = "cross-entropy", feature = "softmax"))]
mod exponentials;
#[cfg(feature = "layer-norm")]
pub(crate) mod layer_norm;
#[cfg(feature = "linear")]
pub(crate) mod linear;
#[cfg(feature = "flash-attn2")]
mod multiply;
#[cfg(feature = "rmsnorm")]
pub(crate) mod rms_norm;
#[cfg(feature = "rotary")]
pub(crate) mod rotary;
#[cfg(any(
    feature = "rmsnorm",
    feature = "layer-norm",
    feature = "rotary",
    feature = "activation",
    feature = "cross-entropy",
    feature = "softmax"
))]
mod rows;
#[cfg(feature = "softmax")]
pub(crate) mod softmax;
