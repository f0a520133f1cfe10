//! Where kernels come from, as the planner sees it.

use std::sync::Arc;

use super::KernelRef;
use crate::bind::LayerKernel;
use crate::variant::DeviceKey;

/// Resolves, fetches, verifies, loads and binds kernels by name.
pub trait KernelProvider {
    /// The kernel `kernel`, bound to its layer `layer`, for tensors on `device`. Asked twice for the same thing, it
    /// returns the same kernel.
    ///
    /// # Errors
    /// [`ProvideError`] with the cause, whichever stage it came from.
    fn provide(&self, kernel: &KernelRef, layer: &str, device: DeviceKey) -> Result<Arc<LayerKernel>, ProvideError>;
}

/// A kernel that could not be had.
#[derive(Debug, thiserror::Error)]
#[error("{source}")]
pub struct ProvideError {
    /// Advice, where the cause has some.
    pub hint: Option<String>,
    /// The cause.
    pub source: Box<dyn std::error::Error + Send + Sync>,
}
