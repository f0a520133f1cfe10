//! The `attention.varlen` contract's typed face.

use super::LayerMeta;
use super::kernel::Route;

/// A kernel for [`super::Contract::AttentionVarlen`].
#[derive(Debug)]
pub struct AttentionVarlenKernel {
    pub(super) meta: LayerMeta,
    #[expect(dead_code, reason = "no host calls it yet")]
    pub(super) route: Route,
}

impl AttentionVarlenKernel {
    /// What the kernel is and demands.
    #[must_use]
    pub fn meta(&self) -> &LayerMeta {
        &self.meta
    }
}
