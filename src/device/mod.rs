//! The device that a program runs on.
//!
//! Owns: [`Devices`], which answers what a text such as `xpu:1`, `cuda` or `auto` means on a machine, and [`Device`], a
//! device that is there and visible. Refuses: probing, which is [`crate::system`]'s work, and any choice of a build,
//! which is [`crate::resolve`]'s.
//!
//! Invariant: a [`Device`] was among the visible ones of its machine. Asking for one that a mask hides, or that isn't
//! there, is an error that lists what is; nothing is taken in its place.

mod error;
mod needs;
mod select;
#[cfg(test)]
mod tests;

pub use error::{DeviceError, Listed};
pub use needs::{Emulation, Support};

use std::fmt;
use std::str::FromStr;

use crate::resolve::Target;
use crate::system::{DeviceInfo, Environment, Route, SystemInfo};
use crate::variant::DeviceKey;

/// A device that is there, and that this process may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    info: DeviceInfo,
    chosen: Chosen,
}

/// Who chose a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chosen {
    /// The caller, by its key.
    ByName,
    /// The order of [`Devices::AUTO_ORDER`].
    Automatically,
}

impl Device {
    /// Finds what a text names on this machine: `xpu:1` is one device, `cuda` the first visible one of that key, `auto`
    /// the best of the machine by [`Devices::AUTO_ORDER`].
    ///
    /// Looks only for devices of the key that is named: `cpu` starts no driver. `auto` asks every vendor's driver, and
    /// wgpu where none has a device.
    ///
    /// # Errors
    /// [`DeviceError::Text`] when the text names no devices; [`DeviceError::Hidden`], [`DeviceError::Missing`] and
    /// [`DeviceError::Unprobed`] when there is no such device to be used.
    pub fn parse(text: &str) -> Result<Self, DeviceError> {
        let target = Target::from_str(text)?;
        Devices::probe(target, &Environment::read()).select(target)
    }

    /// Its kind.
    #[must_use]
    pub const fn key(&self) -> DeviceKey {
        self.info.key
    }

    /// Its number among the visible devices of its key and route.
    #[must_use]
    pub const fn index(&self) -> u32 {
        self.info.index
    }

    /// How it is reached.
    #[must_use]
    pub const fn route(&self) -> Route {
        self.info.route
    }

    /// What is known of it.
    #[must_use]
    pub const fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// Whether [`Devices::auto`] chose it, and not the caller.
    #[must_use]
    pub const fn is_automatic(&self) -> bool {
        matches!(self.chosen, Chosen::Automatically)
    }
}

impl fmt::Display for Device {
    /// As it is asked for: `xpu:1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.info.key, self.info.index)
    }
}

impl From<&Device> for Target {
    fn from(device: &Device) -> Self {
        Self::One { key: device.key(), index: device.index() }
    }
}

/// The devices of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Devices {
    system: SystemInfo,
}

impl Devices {
    /// Looks on this machine for what a request may mean, and for no more.
    #[must_use]
    pub fn probe(target: Target, environment: &Environment) -> Self {
        let mut system = SystemInfo::probe_in(environment);
        if let Some(key) = target.key() {
            system.probe_key(key, environment);
            return Self { system };
        }
        for key in Self::AUTO_ORDER {
            system.probe_native(key, environment);
        }
        // Adapters cost more than all the rest: only where they could be the answer.
        #[cfg(feature = "wgpu")]
        if !system.devices.iter().any(select::usable) {
            system.probe_adapters();
        }
        Self { system }
    }

    /// The devices of a machine that was probed before, or described.
    #[must_use]
    pub const fn of(system: SystemInfo) -> Self {
        Self { system }
    }

    /// What is known of the machine.
    #[must_use]
    pub const fn system(&self) -> &SystemInfo {
        &self.system
    }

    /// The best device of this machine, by [`Devices::AUTO_ORDER`]. Where there is no other, or masks hide all others, it
    /// is the processor.
    #[must_use]
    pub fn auto() -> Device {
        Self::probe(Target::Any, &Environment::read()).best()
    }
}
