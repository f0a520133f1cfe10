//! Builds with nothing compiled: Python for Torch, and shader packs.

use std::fmt;

use super::device::DeviceKey;
use super::error::VariantFault;

/// What a noarch Torch build is for: the text after `torch-`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum NoarchTarget {
    /// Any device: `torch-universal`.
    Universal,
    /// The devices of one key: `torch-cuda`; Apple's is written `torch-metal`.
    Device(DeviceKey),
}

/// Published words of noarch targets that differ from the device key.
const METAL: &str = "metal";

impl NoarchTarget {
    pub(super) fn parse(part: &str) -> Result<Self, VariantFault> {
        let key = match part {
            "universal" => return Ok(Self::Universal),
            METAL => Some(DeviceKey::Mps),
            // wgpu is no device of Torch, and `mps` is not how these builds are published.
            _ => DeviceKey::all().find(|key| key.as_str() == part && !matches!(key, DeviceKey::Mps | DeviceKey::Wgpu)),
        };
        key.map(Self::Device).ok_or_else(|| VariantFault::NoarchTarget { part: part.to_owned() })
    }
}

impl fmt::Display for NoarchTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Universal => "universal",
            Self::Device(DeviceKey::Mps) => METAL,
            Self::Device(key) => key.as_str(),
        })
    }
}

/// What a shader pack is for: the text after `wgsl-`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum ShaderTarget {
    /// Tuned for the adapters of one device key: `wgsl-xpu`. Never [`DeviceKey::Cpu`].
    Device(DeviceKey),
    /// Any adapter: `wgsl-universal`.
    Universal,
}

impl ShaderTarget {
    pub(super) fn parse(part: &str) -> Result<Self, VariantFault> {
        if part == "universal" {
            return Ok(Self::Universal);
        }
        DeviceKey::all()
            .find(|key| key.as_str() == part && *key != DeviceKey::Cpu)
            .map(Self::Device)
            .ok_or_else(|| VariantFault::ShaderTarget { part: part.to_owned() })
    }
}

impl fmt::Display for ShaderTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Universal => "universal",
            Self::Device(key) => key.as_str(),
        })
    }
}
