//! What a report says of the choice.

use std::fmt;

use serde::Serialize;

use super::{AttentionCapability, AttnImplementation};

/// What became of the word for a model's attention.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AttentionReport {
    /// The word as configured.
    pub requested: AttnImplementation,
    /// What it came to: `eager`, `sdpa`, or the kernel by its name.
    pub chosen: String,
    /// What `auto` would have preferred, best first, and why it is not that.
    pub passed_over: Vec<PassedOver>,
    /// What the chosen kernel can do, by layer. Empty for reference code.
    pub kernels: Vec<AttentionCapability>,
}

/// A candidate that was not chosen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PassedOver {
    /// The candidate, by its word or its kernel's name.
    pub candidate: String,
    /// Why not.
    pub reason: String,
}

impl fmt::Display for AttentionReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "attention: {}", self.requested)?;
        if self.requested.to_string() != self.chosen {
            write!(f, ", which is {}", self.chosen)?;
        }
        for PassedOver { candidate, reason } in &self.passed_over {
            write!(f, "\n  not {candidate}: {reason}")?;
        }
        Ok(())
    }
}
