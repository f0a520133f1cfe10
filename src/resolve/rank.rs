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

/// The order in which the best device of a machine is looked for: that of Transformers' pipelines (CUDA and `ROCm`,
/// Ascend, Gaudi, Intel GPUs, Apple GPUs), then what they don't choose among, then the processor.
///
/// Source: Transformers 5, the choice of a pipeline's device.
pub const AUTO_ORDER: [DeviceKey; 10] = [
    DeviceKey::Cuda,
    DeviceKey::Rocm,
    DeviceKey::Npu,
    DeviceKey::Hpu,
    DeviceKey::Xpu,
    DeviceKey::Mps,
    DeviceKey::Neuron,
    DeviceKey::Tpu,
    DeviceKey::Wgpu,
    DeviceKey::Cpu,
];

/// Distance of a device from an unspecific request: its place in [`AUTO_ORDER`], and software adapters after all.
pub(super) fn distance_of_any(key: DeviceKey, software: bool) -> u8 {
    if software {
        return u8::MAX;
    }
    // Every key has its place (a test of `device` holds the order to that), and there are ten.
    AUTO_ORDER.iter().position(|other| *other == key).and_then(|place| u8::try_from(place).ok()).unwrap_or(u8::MAX - 1)
}
