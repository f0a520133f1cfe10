//! The device keys: one table, used by configurations, reports and resolution.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::hint::nearest;

/// The kind of device that a kernel mapping is keyed by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum DeviceKey {
    /// The processor.
    Cpu,
    /// NVIDIA GPUs.
    Cuda,
    /// AMD GPUs; alias `hip`.
    Rocm,
    /// Intel GPUs.
    Xpu,
    /// Intel Gaudi; alias `gaudi`.
    Hpu,
    /// Apple GPUs; alias `metal`.
    Mps,
    /// Huawei Ascend.
    Npu,
    /// AWS Neuron.
    Neuron,
    /// Google TPU.
    Tpu,
    /// Any GPU that wgpu reaches.
    Wgpu,
}

/// (key, name, fixed aliases), in the order of the enum.
const TABLE: [(DeviceKey, &str, &[&str]); 10] = [
    (DeviceKey::Cpu, "cpu", &[]),
    (DeviceKey::Cuda, "cuda", &[]),
    (DeviceKey::Rocm, "rocm", &["hip"]),
    (DeviceKey::Xpu, "xpu", &[]),
    (DeviceKey::Hpu, "hpu", &["gaudi"]),
    (DeviceKey::Mps, "mps", &["metal"]),
    (DeviceKey::Npu, "npu", &[]),
    (DeviceKey::Neuron, "neuron", &[]),
    (DeviceKey::Tpu, "tpu", &[]),
    (DeviceKey::Wgpu, "wgpu", &[]),
];

impl DeviceKey {
    /// Every key, in the order of the documentation.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|(key, _, _)| *key)
    }

    /// The name in configurations and reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        // The table has one row per key, in the order of the enum; a test holds it to that.
        TABLE[self as usize].1
    }
}

impl fmt::Display for DeviceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl From<DeviceKey> for String {
    fn from(key: DeviceKey) -> Self {
        key.as_str().to_owned()
    }
}

/// A name that is no device key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown device key {name:?}; known: {}{}", known(), suggestion(.name))]
pub struct UnknownDeviceKey {
    /// The name as given.
    pub name: String,
}

fn known() -> String {
    let names = TABLE.iter().map(|(_, name, aliases)| match aliases {
        [] => (*name).to_owned(),
        aliases => format!("{name} ({})", aliases.join(", ")),
    });
    names.collect::<Vec<_>>().join(", ")
}

fn suggestion(name: &str) -> String {
    nearest(name, TABLE.iter().map(|(_, known, _)| *known))
        .map(|known| format!("; did you mean {known:?}?"))
        .unwrap_or_default()
}

impl FromStr for DeviceKey {
    type Err = UnknownDeviceKey;

    /// Parses a key or one of its fixed aliases. Case counts: `CUDA` is an error that names `cuda`.
    fn from_str(name: &str) -> Result<Self, Self::Err> {
        TABLE
            .iter()
            .find(|(_, known, aliases)| *known == name || aliases.contains(&name))
            .map(|(key, _, _)| *key)
            .ok_or_else(|| UnknownDeviceKey { name: name.to_owned() })
    }
}

impl TryFrom<String> for DeviceKey {
    type Error = UnknownDeviceKey;

    fn try_from(name: String) -> Result<Self, Self::Error> {
        name.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::DeviceKey;

    #[test]
    fn every_name_parses_to_its_key_and_aliases_are_fixed() {
        for (row, key) in DeviceKey::all().enumerate() {
            assert_eq!(key as usize, row, "the table is in the order of the enum");
            assert_eq!(key.as_str().parse(), Ok(key));
        }
        assert_eq!("hip".parse(), Ok(DeviceKey::Rocm));
        assert_eq!("gaudi".parse(), Ok(DeviceKey::Hpu));
        assert_eq!("metal".parse(), Ok(DeviceKey::Mps));
        for bad in ["CUDA", "cuda:1", "", "gpu"] {
            assert!(bad.parse::<DeviceKey>().is_err(), "{bad:?}");
        }
        assert!("CUDA".parse::<DeviceKey>().unwrap_err().to_string().contains("did you mean \"cuda\"?"));
    }
}
