//! What devices a request speaks of.

use std::fmt;
use std::str::FromStr;

use crate::hint::Hint;
use crate::variant::{DeviceKey, UnknownDeviceKey};

const AUTO: &str = "auto";

/// The devices that a request speaks of. Printed and parsed as `xpu:1`, `xpu` or `auto`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Target {
    /// The best of the machine, by [`crate::resolve::AUTO_ORDER`], and software adapters last.
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
            Self::Any => f.pad(AUTO),
            Self::Key(key) => key.fmt(f),
            Self::One { key, index } => write!(f, "{key}:{index}"),
        }
    }
}

/// Why a text names no devices.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// The key is unknown.
    #[error("device {text:?} cannot be read")]
    Key {
        /// The text as given.
        text: String,
        /// What is wrong with its key.
        source: UnknownDeviceKey,
    },
    /// The number after the colon is larger than any device's.
    #[error("device {text:?} cannot be read: its number is too large, at most {} is one", u32::MAX)]
    TooLarge {
        /// The text as given.
        text: String,
    },
    /// What stands after the colon is no number of a device.
    #[error("device {text:?} has no number after the colon; expected a form such as xpu:1")]
    Index {
        /// The text as given.
        text: String,
    },
}

impl Hint for TargetError {
    fn hint(&self) -> Option<String> {
        Some("devices are named like cpu, xpu or xpu:1; auto takes the best of the machine".to_owned())
    }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == AUTO {
            return Ok(Self::Any);
        }
        let read = |key: &str| key.parse().map_err(|source| TargetError::Key { text: text.to_owned(), source });
        let Some((key, index)) = text.split_once(':') else {
            return Ok(Self::Key(read(text)?));
        };
        let key = read(key)?;
        // Digits only: the standard library also reads a sign.
        if index.is_empty() || !index.bytes().all(|b| b.is_ascii_digit()) {
            return Err(TargetError::Index { text: text.to_owned() });
        }
        let index = index.parse().map_err(|_| TargetError::TooLarge { text: text.to_owned() })?;
        Ok(Self::One { key, index })
    }
}

#[cfg(test)]
mod tests {
    use super::{Target, TargetError};
    use crate::variant::DeviceKey;

    #[test]
    fn targets_are_read_exactly() {
        for target in [Target::Any, Target::Key(DeviceKey::Xpu), Target::One { key: DeviceKey::Wgpu, index: 12 }] {
            assert_eq!(target.to_string().parse(), Ok(target));
        }
        assert_eq!("gaudi:1".parse(), Ok(Target::One { key: DeviceKey::Hpu, index: 1 }));
        for bad in ["xpu:", "xpu:+1", "xpu:-1", "xpu:1.0", "xpu:0:1", "xpu:99999999999x"] {
            assert!(matches!(bad.parse::<Target>(), Err(TargetError::Index { .. })), "{bad}");
        }
        assert_eq!("xpu:4294967295".parse(), Ok(Target::One { key: DeviceKey::Xpu, index: u32::MAX }));
        for bad in ["xpu:4294967296", "xpu:99999999999"] {
            assert!(matches!(bad.parse::<Target>(), Err(TargetError::TooLarge { .. })), "{bad}");
        }
        for bad in ["", "AUTO", "any", ":1", "gpu", "gpu:1"] {
            assert!(matches!(bad.parse::<Target>(), Err(TargetError::Key { .. })), "{bad}");
        }
    }
}
