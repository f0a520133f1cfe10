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

    /// The compute capability of the device that kernels for `device` run on, as [`super::Target`] has it. `None`: the
    /// kind has none, or nobody knows it.
    fn capability(&self, device: DeviceKey) -> Option<u32> {
        let _ = device;
        None
    }

    /// What switches kernels off altogether, such as `USE_HUB_KERNELS says no`; reports repeat it. `None`: nothing
    /// does.
    fn switched_off(&self) -> Option<&'static str> {
        None
    }

    /// What a report must say about where a kernel comes from: that a local folder takes its place. `None`: it comes
    /// from where its name says.
    fn note(&self, kernel: &KernelRef) -> Option<String> {
        let _ = kernel;
        None
    }
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

impl ProvideError {
    /// The whole chain of causes and the advice in one line, for a report.
    pub(super) fn in_one_line(&self) -> String {
        let mut line = self.to_string();
        let mut cause = self.source.source();
        while let Some(error) = cause {
            let text = error.to_string();
            // A transparent wrapper repeats its cause's words.
            if !line.ends_with(&text) {
                line = format!("{line}: {text}");
            }
            cause = error.source();
        }
        match &self.hint {
            Some(hint) => format!("{line} ({hint})"),
            None => line,
        }
    }
}
