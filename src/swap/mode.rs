//! What a forward is for.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What the model is being run for. Decides which kernels may take a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Forward passes only. A layer may use a kernel that has no backward.
    #[default]
    Inference,
    /// Forward and backward. A layer uses only kernels that have a backward, else its differentiable reference code.
    Training,
}

impl Mode {
    /// The name in configurations and reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Inference => "inference",
            Self::Training => "training",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
