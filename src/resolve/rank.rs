//! The order of the candidates that fit.

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};

use crate::variant::{CxxAbi, DeviceKey, FrameworkKind, Version};

/// What kind of code serves the device. The order is the preference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Place {
    /// Compiled for the device's own backend.
    Native,
    /// Shaders tuned for the device's key.
    PortableKeyed,
    /// Shaders for the key `wgpu`, on an adapter that has a key of its own.
    PortableWgpu,
    /// Shaders for any adapter.
    PortableUniversal,
}

impl Place {
    /// A few words for a report.
    #[must_use]
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::PortableKeyed => "portable, for this kind of adapter",
            Self::PortableWgpu => "portable, for adapters without a kind of their own",
            Self::PortableUniversal => "portable, for any adapter",
        }
    }
}

/// The preference among candidates that fit: the lowest is taken. Compared field by field, from the top.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct Rank {
    /// How far the device is from the one asked for: 0 for that one, more for those that stand in for it.
    pub distance: u8,
    /// What kind of code it is.
    pub place: Place,
    /// Whether it is unknown that the build has code for the device.
    pub arch_unknown: bool,
    /// The calling interface.
    pub framework: Option<FrameworkKind>,
    /// The interface's version: the highest first.
    pub framework_version: Reverse<Option<Version>>,
    /// The mark of the C++ ABI: builds without one first, as newer builds have none.
    pub cxx_abi: Option<CxxAbi>,
    /// The backend's version: the highest first.
    pub backend_version: Reverse<Option<Version>>,
}

/// Distance of a device from an unspecific request, by which the best of the machine is found: accelerators and
/// hardware adapters in the order of the device table, then the processor, then software adapters.
pub(super) fn distance_of_any(key: DeviceKey, software: bool) -> u8 {
    // `Cpu` is the first row of the table; at most a dozen keys, so that the cast is exact.
    match (key, software) {
        (_, true) => u8::MAX,
        (DeviceKey::Cpu, false) => u8::MAX - 1,
        (key, false) => key as u8,
    }
}
