//! Which devices an entry is for.

use std::fmt;
use std::str::FromStr;

use crate::hint::{Hint, nearest};
use crate::variant::DeviceKey;

/// The device that kernels are looked up for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Target {
    /// Its kind.
    pub device: DeviceKey,
    /// Its compute capability as one number, 86 for 8.6 (CUDA), 115 for gfx1151 (`ROCm`); `None` where the kind has
    /// none or nobody knows it.
    pub capability: Option<u32>,
}

impl From<DeviceKey> for Target {
    fn from(device: DeviceKey) -> Self {
        Self { device, capability: None }
    }
}

/// Capabilities from `minimum` to `maximum`, both included. Printed and parsed as `80-89`, `90-` or `-89`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CapabilityRange {
    minimum: u32,
    /// `u32::MAX`: there is none.
    maximum: u32,
}

impl CapabilityRange {
    /// From `minimum` to `maximum`, either of which may be open. `None` when the range holds nothing or everything.
    #[must_use]
    pub fn new(minimum: Option<u32>, maximum: Option<u32>) -> Option<Self> {
        let range = Self { minimum: minimum.unwrap_or(0), maximum: maximum.unwrap_or(u32::MAX) };
        let is_everything = range.minimum == 0 && range.maximum == u32::MAX;
        (range.minimum <= range.maximum && !is_everything).then_some(range)
    }

    /// Whether the range holds `capability`.
    #[must_use]
    pub fn contains(self, capability: u32) -> bool {
        (self.minimum..=self.maximum).contains(&capability)
    }

    fn size(self) -> u32 {
        self.maximum - self.minimum
    }

    fn overlaps(self, other: Self) -> bool {
        self.minimum <= other.maximum && other.minimum <= self.maximum
    }
}

impl fmt::Display for CapabilityRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.minimum > 0 || self.maximum == u32::MAX {
            write!(f, "{}", self.minimum)?;
        }
        f.write_str("-")?;
        if self.maximum < u32::MAX { write!(f, "{}", self.maximum) } else { Ok(()) }
    }
}

/// One device key of a configuration: `cuda`, or those devices of it that have a capability, `cuda:80-89`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceSelector {
    key: DeviceKey,
    capability: Option<CapabilityRange>,
}

/// A text that selects no device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceSelectorError {
    /// The device is not known.
    #[error("unknown device {text:?}; known: {}", known().join(", "))]
    Device {
        /// The text as given.
        text: String,
    },
    /// The range of capabilities is malformed, or holds nothing.
    #[error("{text:?}: the capabilities {range:?} are no range such as 80-89, 90- or -89")]
    Range {
        /// The text as given.
        text: String,
        /// The part after the colon.
        range: String,
    },
    /// The kind of device has no capabilities.
    #[error("{text:?}: {key} devices have no capability; only cuda and rocm have")]
    NoCapability {
        /// The text as given.
        text: String,
        /// The kind of device.
        key: DeviceKey,
    },
}

fn known() -> Vec<&'static str> {
    DeviceKey::all().map(DeviceKey::as_str).collect()
}

impl DeviceSelectorError {
    /// The device that was probably meant.
    pub(super) fn suggestion(&self) -> Option<&'static str> {
        match self {
            Self::Device { text } => nearest(text, known()),
            _ => None,
        }
    }
}

impl Hint for DeviceSelectorError {
    fn hint(&self) -> Option<String> {
        self.suggestion().map(|near| format!("did you mean {near:?}?"))
    }
}

impl From<DeviceKey> for DeviceSelector {
    fn from(key: DeviceKey) -> Self {
        Self { key, capability: None }
    }
}

impl DeviceSelector {
    /// The kind of device.
    #[must_use]
    pub fn key(self) -> DeviceKey {
        self.key
    }

    /// The capabilities that the entry is for; `None`: whatever it is, and where it is not known.
    #[must_use]
    pub fn capability(self) -> Option<CapabilityRange> {
        self.capability
    }

    /// How many capabilities it holds: of two that hold a device's, the smaller one decides.
    pub(super) fn size(self) -> u32 {
        self.capability.map_or(u32::MAX, CapabilityRange::size)
    }

    /// Whether there may be a device for which neither of the two is the smaller one.
    pub(super) fn ties_with(self, other: Self) -> bool {
        match (self.capability, other.capability) {
            (Some(a), Some(b)) => self.key == other.key && a != b && a.size() == b.size() && a.overlaps(b),
            _ => false,
        }
    }
}

impl FromStr for DeviceSelector {
    type Err = DeviceSelectorError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let unknown = || DeviceSelectorError::Device { text: text.to_owned() };
        let parsed = |key: &str| key.parse::<DeviceKey>().map_err(|_| unknown());
        // `cuda:1` is an index to others, not a range: it is refused as the unknown device that it is here.
        let Some((key, range)) = text.split_once(':').filter(|(_, range)| range.contains('-')) else {
            return parsed(text).map(Self::from);
        };
        let key = parsed(key)?;
        if !matches!(key, DeviceKey::Cuda | DeviceKey::Rocm) {
            return Err(DeviceSelectorError::NoCapability { text: text.to_owned(), key });
        }
        let malformed = || DeviceSelectorError::Range { text: text.to_owned(), range: range.to_owned() };
        let (minimum, maximum) = range.split_once('-').ok_or_else(malformed)?;
        let bound = |bound: &str| match bound {
            "" => Ok(None),
            digits if digits.len() <= 5 && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                digits.parse().map(Some).map_err(|_| malformed())
            }
            _ => Err(malformed()),
        };
        let capability = CapabilityRange::new(bound(minimum)?, bound(maximum)?).ok_or_else(malformed)?;
        Ok(Self { key, capability: Some(capability) })
    }
}

impl fmt::Display for DeviceSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.capability {
            None => write!(f, "{}", self.key),
            Some(range) => write!(f, "{}:{range}", self.key),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{DeviceSelector, DeviceSelectorError};
    use crate::variant::DeviceKey;

    #[test]
    fn keys_and_ranges_round_trip() {
        for text in ["cpu", "cuda", "wgpu", "cuda:80-89", "rocm:115-115", "cuda:90-", "cuda:-89", "cuda:-0"] {
            assert_eq!(text.parse::<DeviceSelector>().unwrap().to_string(), text);
        }
        assert_eq!("hip:90-".parse::<DeviceSelector>().unwrap().key(), DeviceKey::Rocm);
        let ampere: DeviceSelector = "cuda:80-89".parse().unwrap();
        let holds = |capability| ampere.capability().unwrap().contains(capability);
        assert_eq!([79, 80, 89, 90].map(holds), [false, true, true, false]);
    }

    #[test]
    fn what_selects_no_device_is_refused() {
        for text in ["cuda:1", "CUDA", "", "cuda:", "cuda:x", "gpu:80-89"] {
            assert!(matches!(text.parse::<DeviceSelector>(), Err(DeviceSelectorError::Device { .. })), "{text:?}");
        }
        for text in ["cuda:-", "cuda:90-80", "cuda:8.0-8.9", "cuda:80-89-90", "cuda:+8-9", "cuda:0-", "cuda:999999-"] {
            assert!(matches!(text.parse::<DeviceSelector>(), Err(DeviceSelectorError::Range { .. })), "{text:?}");
        }
        assert!(matches!("xpu:1-2".parse::<DeviceSelector>(), Err(DeviceSelectorError::NoCapability { .. })));
    }

    #[test]
    fn equal_ranges_that_overlap_tie_and_others_do_not() {
        let tie = |a: &str, b: &str| a.parse::<DeviceSelector>().unwrap().ties_with(b.parse().unwrap());
        assert!(tie("cuda:80-89", "cuda:85-94"));
        assert!(!tie("cuda:80-89", "cuda:90-99") && !tie("cuda:80-89", "cuda:80-90") && !tie("cuda:80-", "cuda:90-"));
        assert!(!tie("cuda:80-89", "rocm:85-94") && !tie("cuda", "cuda:80-89"));
    }
}
