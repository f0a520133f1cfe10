//! Builds with nothing compiled: Python for Torch, and shader packs.

use std::fmt;

use super::device::DeviceKey;
use super::error::VariantFault;

const UNIVERSAL: &str = "universal";
/// The published word for Apple's devices in noarch builds; their key is `mps`.
const METAL: &str = "metal";

/// What a noarch Torch build is for: the text after `torch-`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NoarchTarget(Option<DeviceKey>);

impl NoarchTarget {
    /// Any device: `torch-universal`.
    pub const UNIVERSAL: Self = Self(None);

    /// The devices of one key; `None` for `wgpu`, which Torch has no devices of.
    #[must_use]
    pub fn device(key: DeviceKey) -> Option<Self> {
        (key != DeviceKey::Wgpu).then_some(Self(Some(key)))
    }

    /// The key that it is for; `None` for any.
    #[must_use]
    pub const fn key(self) -> Option<DeviceKey> {
        self.0
    }

    pub(super) fn parse(part: &str) -> Result<Self, VariantFault> {
        if part == UNIVERSAL {
            return Ok(Self::UNIVERSAL);
        }
        DeviceKey::all()
            .filter_map(Self::device)
            .find(|target| target.as_str() == part)
            .ok_or_else(|| VariantFault::NoarchTarget { part: part.to_owned() })
    }

    /// The text after `torch-`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self.0 {
            None => UNIVERSAL,
            Some(DeviceKey::Mps) => METAL,
            Some(key) => key.as_str(),
        }
    }
}

impl fmt::Display for NoarchTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What a shader pack is for: the text after `wgsl-`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShaderTarget(Option<DeviceKey>);

impl ShaderTarget {
    /// Any adapter: `wgsl-universal`.
    pub const UNIVERSAL: Self = Self(None);

    /// The adapters of one key, as in `wgsl-xpu`; `None` for `cpu`, which has none.
    #[must_use]
    pub fn device(key: DeviceKey) -> Option<Self> {
        (key != DeviceKey::Cpu).then_some(Self(Some(key)))
    }

    /// The key that it is for; `None` for any.
    #[must_use]
    pub const fn key(self) -> Option<DeviceKey> {
        self.0
    }

    pub(super) fn parse(part: &str) -> Result<Self, VariantFault> {
        if part == UNIVERSAL {
            return Ok(Self::UNIVERSAL);
        }
        DeviceKey::all()
            .filter_map(Self::device)
            .find(|target| target.as_str() == part)
            .ok_or_else(|| VariantFault::ShaderTarget { part: part.to_owned() })
    }

    /// The text after `wgsl-`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self.0 {
            None => UNIVERSAL,
            Some(key) => key.as_str(),
        }
    }
}

impl fmt::Display for ShaderTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
