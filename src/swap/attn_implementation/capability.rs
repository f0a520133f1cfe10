//! What an attention kernel can do.

use std::fmt;

use serde::Serialize;

use crate::bind::{Contract, LayerMeta};
use crate::dtype::DType;

/// What one layer of an attention kernel can do, from what it declares.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "independent abilities, each a column of a table")]
pub struct AttentionCapability {
    /// The kernel and layer, as `owner/name@v1:Layer`.
    pub kernel: String,
    /// Whether it takes sequences of different lengths, packed one behind the other.
    pub varlen: bool,
    /// Whether it takes keys and values in the blocks of a paged cache.
    pub paged: bool,
    /// Element types that it computes.
    pub dtypes: Vec<DType>,
    /// Head sizes that it takes, in elements. Empty: all up to the maximum.
    pub head_sizes: Vec<u32>,
    /// The largest head size, in elements. Absent: no limit.
    pub max_head_size: Option<u32>,
    /// Head sizes must be a multiple of this many elements.
    pub head_size_multiple_of: u32,
    /// Whether it takes a window, on both sides.
    pub window: bool,
    /// Whether it takes a soft cap of the scores.
    pub softcap: bool,
    /// Whether it has a backward pass.
    pub backward: bool,
}

impl AttentionCapability {
    /// `None` for a kernel that does not compute attention.
    #[must_use]
    pub fn of(meta: &LayerMeta) -> Option<Self> {
        let (varlen, paged) = match meta.contract {
            Contract::Attention => (false, false),
            Contract::AttentionVarlen => (true, false),
            Contract::AttentionPaged => (false, true),
            _ => return None,
        };
        Some(Self {
            kernel: meta.identity.to_string(),
            varlen,
            paged,
            dtypes: meta.dtypes.clone(),
            head_sizes: meta.limits.head_sizes.clone(),
            max_head_size: meta.limits.max_head_size,
            head_size_multiple_of: meta.limits.last_dim_multiple_of,
            window: meta.lacks(&["window_left", "window_right"]).is_none(),
            softcap: meta.lacks(&["softcap"]).is_none(),
            backward: meta.has_backward,
        })
    }
}

impl fmt::Display for AttentionCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dtypes: Vec<_> = self.dtypes.iter().map(|dtype| dtype.as_str()).collect();
        let sizes = match (self.head_sizes.is_empty(), self.max_head_size) {
            (false, _) => format!("{:?}", self.head_sizes),
            (true, Some(maximum)) => format!("up to {maximum}"),
            (true, None) => "any".to_owned(),
        };
        write!(f, "{}: {}, head sizes {sizes}", self.kernel, dtypes.join(", "))?;
        if self.head_size_multiple_of > 1 {
            write!(f, " in steps of {}", self.head_size_multiple_of)?;
        }
        for (has, what) in [
            (self.varlen, "packed sequences"),
            (self.paged, "paged cache"),
            (self.window, "window"),
            (self.softcap, "softcap"),
            (self.backward, "backward"),
        ] {
            if has {
                write!(f, ", {what}")?;
            }
        }
        Ok(())
    }
}
