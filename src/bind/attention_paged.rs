//! The `attention.paged` contract's typed face.

use super::LayerMeta;
use super::kernel::Route;

/// A kernel for [`super::Contract::AttentionPaged`].
#[derive(Debug)]
pub struct AttentionPagedKernel {
    pub(super) meta: LayerMeta,
    #[expect(dead_code, reason = "no host calls it yet")]
    pub(super) route: Route,
}

impl AttentionPagedKernel {
    /// What the kernel is and demands.
    #[must_use]
    pub fn meta(&self) -> &LayerMeta {
        &self.meta
    }
}
