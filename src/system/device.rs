//! Devices other than the processor.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::dtype::DType;
use crate::variant::{DeviceKey, Version};

/// How a device is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Route {
    /// By its vendor's own driver: compiled builds run on it.
    Native,
    /// As an adapter of wgpu: shader packs run on it.
    Adapter,
}

/// Whether an adapter may have this key: those of [vendors](super::adapters) that have one of their own, and `wgpu`.
pub(crate) const fn may_be_adapter(key: DeviceKey) -> bool {
    matches!(key, DeviceKey::Xpu | DeviceKey::Wgpu)
}

/// One device. A GPU that has a native driver and is a wgpu adapter too is listed once for each route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// Its kind.
    pub key: DeviceKey,
    /// Its number among the devices of the same key and route that this process sees, from 0. Of one that a mask hides:
    /// its number without the mask.
    pub index: u32,
    /// Its name, as the driver tells it.
    pub name: String,
    /// How it is reached.
    pub route: Route,
    /// Its own memory, in bytes.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
    /// The interface it was found by, such as `Vulkan` or `CUDA`.
    #[serde(default)]
    pub api: Option<String>,
    /// The driver and its version, as it tells them.
    #[serde(default)]
    pub driver: Option<String>,
    /// Highest version of the backend's toolkit that the driver serves: CUDA 13.0, `ROCm` 7.2, oneAPI 2026.0, CANN 8.3.
    #[serde(default)]
    pub backend_version: Option<Version>,
    /// Whether it computes on the processor and only poses as a GPU.
    #[serde(default)]
    pub software: bool,
    /// Compute capability (CUDA).
    #[serde(default)]
    pub capability: Option<Capability>,
    /// Name of the architecture, for kinds that have one: with its features on `ROCm` (`gfx90a:sramecc+:xnack-`), the
    /// generation elsewhere (`gaudi2`, `trn1`).
    #[serde(default)]
    pub arch: Option<String>,
    /// The element types that it computes with natively, when known.
    #[serde(default)]
    pub dtypes: Option<Vec<DType>>,
    /// Element types that its driver or libraries take and compute in another type, at a loss of speed.
    #[serde(default)]
    pub emulated: Vec<DType>,
    /// Its number among the devices of the same key and route when no mask and no order is set; `None` when unknown.
    #[serde(default)]
    pub physical_index: Option<u32>,
    /// Its place on the PCI bus, such as `0000:4d:00.0`.
    #[serde(default)]
    pub pci_address: Option<String>,
    /// Vendor and device id on the PCI bus, such as `8086:0bd5`, in lower case.
    #[serde(default)]
    pub pci_id: Option<String>,
    /// Its unique name across boots, as the driver writes it.
    #[serde(default)]
    pub uuid: Option<String>,
    /// The number of tiles that it has (Intel), where it shows as one device; 1 for a device that is one tile.
    #[serde(default)]
    pub tiles: Option<u32>,
    /// The card and the tile that it is, where every tile shows as a device: `(card, tile)`.
    #[serde(default)]
    pub tile_of: Option<(u32, u32)>,
    /// Its place in the server, stable across boots (Gaudi's module id).
    #[serde(default)]
    pub module: Option<u32>,
    /// The setting that hides it from this process, such as `CUDA_VISIBLE_DEVICES=0`; `None` when it is visible.
    #[serde(default)]
    pub masked_by: Option<String>,
}

impl DeviceInfo {
    /// A device with nothing else known.
    #[must_use]
    pub fn new(key: DeviceKey, index: u32, name: impl Into<String>, route: Route) -> Self {
        Self {
            key,
            index,
            name: name.into(),
            route,
            memory_bytes: None,
            api: None,
            driver: None,
            backend_version: None,
            software: false,
            capability: None,
            arch: None,
            dtypes: None,
            emulated: Vec::new(),
            physical_index: None,
            pci_address: None,
            pci_id: None,
            uuid: None,
            tiles: None,
            tile_of: None,
            module: None,
            masked_by: None,
        }
    }
}

/// [`DeviceInfo::api`] of a device that only the system's own files tell of.
pub(super) const NO_DRIVER: &str = "sysfs";

impl DeviceInfo {
    /// Whether a driver serves it. A device without one is listed, with a note on what to install, and cannot be used.
    #[must_use]
    pub fn has_driver(&self) -> bool {
        self.route == Route::Adapter || self.api.as_deref() != Some(NO_DRIVER)
    }

    /// The compute capability as one number, as kernel mappings have it: 86 for CUDA's 8.6, 115 for `ROCm`'s gfx1151.
    /// `None`: the kind has none, or it is not known.
    #[must_use]
    pub fn capability_number(&self) -> Option<u32> {
        if let Some(Capability { major, minor }) = self.capability {
            return major.checked_mul(10)?.checked_add(minor);
        }
        // gfx, then the major number, and one digit each for the minor one and the stepping, which may be hexadecimal.
        let digits = self.arch.as_deref()?.strip_prefix("gfx")?.split(':').next()?;
        let (rest, _stepping) = digits.split_at_checked(digits.len().checked_sub(1)?)?;
        let (major, minor) = rest.split_at_checked(rest.len().checked_sub(1)?)?;
        let minor = u32::from_str_radix(minor, 16).ok()?;
        major.parse::<u32>().ok()?.checked_mul(10)?.checked_add(minor)
    }
}

/// A CUDA compute capability. Printed, parsed and stored with a dot, as `metadata.json` writes it: `8.6`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Capability {
    /// The generation.
    pub major: u32,
    /// The step within it.
    pub minor: u32,
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// A text that is no compute capability.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a compute capability: {text:?}; expected two numbers with a dot, as in 8.6")]
pub struct CapabilityError {
    /// The text as given.
    pub text: String,
}

impl FromStr for Capability {
    type Err = CapabilityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let Version { major, minor } = text.parse().map_err(|_| CapabilityError { text: text.to_owned() })?;
        Ok(Self { major, minor })
    }
}

impl TryFrom<String> for Capability {
    type Error = CapabilityError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Capability> for String {
    fn from(capability: Capability) -> Self {
        capability.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::{Capability, DeviceInfo, Route};
    use crate::variant::DeviceKey;

    #[test]
    fn capabilities_are_one_number_for_mappings() {
        let mut gpu = DeviceInfo::new(DeviceKey::Cuda, 0, "gpu", Route::Native);
        assert_eq!(gpu.capability_number(), None);
        gpu.capability = Some(Capability { major: 12, minor: 1 });
        assert_eq!(gpu.capability_number(), Some(121));
        let rocm = |arch: &str| {
            let arch = Some(arch.to_owned());
            DeviceInfo { arch, ..DeviceInfo::new(DeviceKey::Rocm, 0, "gpu", Route::Native) }.capability_number()
        };
        assert_eq!([rocm("gfx1151"), rocm("gfx90a:sramecc+:xnack-"), rocm("gfx942")], [Some(115), Some(90), Some(94)]);
        assert_eq!([rocm(""), rocm("gfx"), rocm("gfx9"), rocm("gfx90"), rocm("x"), rocm("gfx\u{e9}")], [None; 6]);
    }
}
