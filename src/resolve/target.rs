//! What devices a request speaks of.

use std::fmt;

use crate::variant::DeviceKey;

/// The devices that a request speaks of. Printed as `xpu:1`, `xpu` or `any`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The best of the machine: its accelerators and hardware adapters in the order of the device table, then the
    /// processor, then software adapters.
    Any,
    /// Any device of a key. `wgpu` means every adapter, also one that has a key of its own.
    Key(DeviceKey),
    /// One device, by the number that it has among those of its key.
    One {
        /// Its key.
        key: DeviceKey,
        /// Its number, from 0.
        index: u32,
    },
}

impl Target {
    /// The key, unless any will do.
    #[must_use]
    pub const fn key(self) -> Option<DeviceKey> {
        match self {
            Self::Any => None,
            Self::Key(key) | Self::One { key, .. } => Some(key),
        }
    }

    /// The number, when one device was named.
    #[must_use]
    pub const fn index(self) -> Option<u32> {
        match self {
            Self::Any | Self::Key(_) => None,
            Self::One { index, .. } => Some(index),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any"),
            Self::Key(key) => key.fmt(f),
            Self::One { key, index } => write!(f, "{key}:{index}"),
        }
    }
}
