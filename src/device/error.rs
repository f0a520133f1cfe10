//! Why there is no such device.

use std::fmt;

use crate::dtype::DType;
use crate::hint::Hint;
use crate::resolve::{Target, TargetError};
use crate::system::{DeviceInfo, Mask, Route, printable, printable_sentence};
use crate::variant::DeviceKey;

/// A device in an error's list. Printed as `xpu:1 (Intel Arc B580)`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed {
    /// Its kind.
    pub key: DeviceKey,
    /// The setting that hides it; `None` when it is visible.
    pub masked_by: Option<String>,
    /// Its number; of a hidden one, the number that it has without the mask.
    pub index: u32,
    /// How it is reached.
    pub route: Route,
    /// Its name.
    pub name: String,
    /// Whether a driver serves it.
    pub has_driver: bool,
}

impl Listed {
    pub(super) fn of(device: &DeviceInfo) -> Self {
        let DeviceInfo { key, index, route, masked_by, name, .. } = device;
        Self {
            key: *key,
            index: *index,
            route: *route,
            masked_by: masked_by.clone(),
            name: name.clone(),
            has_driver: device.has_driver(),
        }
    }
}

impl fmt::Display for Listed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{} ({}", self.key, self.index, printable(&self.name))?;
        if let Some(mask) = &self.masked_by {
            write!(f, ", hidden by {}", printable(mask))?;
        }
        if !self.has_driver {
            f.write_str(", no driver")?;
        }
        f.write_str(")")
    }
}

/// Why a request for a device cannot be met.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The text names no devices.
    #[error(transparent)]
    Text(#[from] TargetError),
    /// A mask hides it.
    #[error("device {target} is hidden{}; of its kind there are: {}", by(.masks), list(.devices))]
    Hidden {
        /// What was asked for.
        target: Target,
        /// The devices of the key.
        devices: Vec<Listed>,
        /// The settings that hide some of them.
        masks: Vec<Mask>,
    },
    /// It is in the machine, and no driver serves it.
    #[error("no driver serves device {target}; of its kind there are: {}", list(.devices))]
    NoDriver {
        /// What was asked for.
        target: Target,
        /// The devices of the key.
        devices: Vec<Listed>,
        /// What probing noted.
        notes: Vec<String>,
    },
    /// It isn't there.
    #[error("there is no device {target}; {}", there(.devices, .others))]
    Missing {
        /// What was asked for.
        target: Target,
        /// The devices of the key.
        devices: Vec<Listed>,
        /// The visible devices of other keys.
        others: Vec<Listed>,
        /// What probing noted.
        notes: Vec<String>,
    },
    /// Nobody has looked for devices of the key.
    #[error("device {target} was not looked for on this machine")]
    Unprobed {
        /// What was asked for.
        target: Target,
        /// What probing noted.
        notes: Vec<String>,
    },
    /// It lacks an element type.
    #[error(
        "device {device} ({}) {} {dtype}; it computes in {}",
        printable(.name),
        if *.emulated { "only emulates" } else { "does not have" },
        dtypes(.native)
    )]
    DType {
        /// The device, as it is asked for.
        device: String,
        /// Its name.
        name: String,
        /// The type that was asked for.
        dtype: DType,
        /// Whether the device takes it, at a loss of speed.
        emulated: bool,
        /// The types that it has.
        native: Vec<DType>,
    },
}

impl Hint for DeviceError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Text(error) => error.hint(),
            Self::Hidden { masks, .. } => {
                let variables: Vec<&str> = masks.iter().map(|mask| mask.variable.as_str()).collect();
                let variables = if variables.is_empty() { "the mask".to_owned() } else { variables.join(" and ") };
                Some(format!("change or unset {variables}, or ask for a visible device"))
            }
            Self::NoDriver { notes, .. } | Self::Missing { notes, .. } | Self::Unprobed { notes, .. } => {
                Some(if notes.is_empty() {
                    "`kernelhub devices` lists what is there; auto takes the best of the machine".to_owned()
                } else {
                    notes.iter().map(|note| printable_sentence(note)).collect::<Vec<_>>().join("; ")
                })
            }
            Self::DType { emulated: true, .. } => {
                Some("allow emulation to take its rounding at a loss of speed, or ask for a native type".to_owned())
            }
            Self::DType { .. } => Some("ask for a type that the device has, or for another device".to_owned()),
        }
    }
}

fn by(masks: &[Mask]) -> String {
    let masks: Vec<String> = masks
        .iter()
        .map(|mask| {
            format!(
                "{}=\"{}\" ({})",
                printable(&mask.variable),
                printable(&mask.value),
                printable_sentence(&mask.effect)
            )
        })
        .collect();
    if masks.is_empty() { String::new() } else { format!(" by {}", masks.join(" and ")) }
}

fn list(devices: &[Listed]) -> String {
    if devices.is_empty() {
        return "none".to_owned();
    }
    devices.iter().map(Listed::to_string).collect::<Vec<_>>().join(", ")
}

fn there(devices: &[Listed], others: &[Listed]) -> String {
    let others = list(others);
    if devices.is_empty() { format!("this machine has: {others}") } else { format!("there are: {}", list(devices)) }
}

fn dtypes(native: &[DType]) -> String {
    if native.is_empty() {
        return "no type that it tells of".to_owned();
    }
    native.iter().map(|dtype| dtype.as_str()).collect::<Vec<_>>().join(", ")
}
