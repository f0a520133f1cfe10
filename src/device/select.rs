//! Which device a request means.

use super::error::{DeviceError, Listed};
use super::{Chosen, Device, Devices};
use crate::resolve::Target;
use crate::system::{DeviceInfo, Route, SystemInfo};
use crate::variant::DeviceKey;

impl Devices {
    /// The order in which `auto` looks for a device. The first key with a visible device that is no software adapter is
    /// taken. Builds are preferred in the same order where any device will do.
    pub const AUTO_ORDER: [DeviceKey; 10] = crate::resolve::AUTO_ORDER;

    /// The device that a request means. Of a device with two routes, the native one.
    ///
    /// `auto` is [`Devices::best`]. A key takes its first visible device, by number; `wgpu` any hardware adapter before a
    /// software one, also an adapter that has a key of its own. A device that no driver serves is never taken.
    ///
    /// # Errors
    /// [`DeviceError::Hidden`] when a mask hides what was asked for, [`DeviceError::NoDriver`] when no driver serves it,
    /// [`DeviceError::Missing`] when it isn't there, [`DeviceError::Unprobed`] when nobody has looked for it.
    pub fn select(&self, target: Target) -> Result<Device, DeviceError> {
        let Some(key) = target.key() else { return Ok(self.best()) };
        let index = target.index();
        if key == DeviceKey::Cpu {
            return match index {
                None | Some(0) => Ok(Device { info: processor(&self.system), chosen: Chosen::ByName }),
                Some(_) => Err(self.absent(target, key)),
            };
        }
        let info = self.first(key, index).ok_or_else(|| self.absent(target, key))?;
        Ok(Device { info, chosen: Chosen::ByName })
    }

    /// The first device of [`Devices::AUTO_ORDER`] that is visible and no software adapter; the processor in the end.
    #[must_use]
    pub fn best(&self) -> Device {
        let found =
            Self::AUTO_ORDER.into_iter().find_map(|key| self.first(key, None).filter(|device| !device.software));
        Device { info: found.unwrap_or_else(|| processor(&self.system)), chosen: Chosen::Automatically }
    }

    /// The first visible device of a key, or the one with a number.
    fn first(&self, key: DeviceKey, index: Option<u32>) -> Option<DeviceInfo> {
        let serves = |device: &&DeviceInfo| {
            let own = device.key == key;
            // An adapter with a key of its own answers to `wgpu` too, but has its number under its own key.
            let lent = key == DeviceKey::Wgpu && index.is_none() && device.route == Route::Adapter;
            (own || lent) && index.is_none_or(|index| device.index == index) && usable(device)
        };
        let found = self.system.devices.iter().filter(serves);
        found.min_by_key(|device| (device.software, device.route, device.key, device.index)).cloned()
    }

    /// Why there is none.
    fn absent(&self, target: Target, key: DeviceKey) -> DeviceError {
        let listed = |key: DeviceKey| {
            let mut devices: Vec<Listed> = if key == DeviceKey::Cpu {
                vec![Listed::of(&processor(&self.system))]
            } else {
                self.system.devices.iter().filter(|device| device.key == key).map(Listed::of).collect()
            };
            devices.sort();
            devices
        };
        let own = listed(key);
        let others = DeviceKey::all().filter(|other| *other != key).flat_map(listed);
        let others = others.filter(|device| device.masked_by.is_none() && device.has_driver).collect();
        // The faults and advice that probing left, such as a driver that is not installed.
        let notes = self.system.notes.clone();
        // Those that hide something, and not those that were only read.
        let hides = |variable: &str| {
            let by =
                |device: &Listed| device.masked_by.as_deref().and_then(|by| by.split('=').next()) == Some(variable);
            own.iter().any(by)
        };
        let masks = self.system.masks.iter().filter(|mask| mask.key == key && hides(&mask.variable)).cloned().collect();
        if own.iter().any(|device| device.masked_by.is_some() && target.index().is_none_or(|i| own_covers(&own, i))) {
            return DeviceError::Hidden { target, devices: own, masks };
        }
        let asked = |device: &&Listed| target.index().is_none_or(|index| device.index == index);
        if own.iter().filter(asked).any(|device| device.masked_by.is_none() && !device.has_driver) {
            return DeviceError::NoDriver { target, devices: own, notes };
        }
        if own.is_empty() && self.system.unprobed.contains(&key) {
            return DeviceError::Unprobed { target, notes };
        }
        DeviceError::Missing { target, devices: own, others, notes }
    }
}

/// Whether a number would name a device if no mask were set.
fn own_covers(own: &[Listed], index: u32) -> bool {
    usize::try_from(index).is_ok_and(|index| index < own.len())
}

/// Whether this process can use it.
pub(super) fn usable(device: &DeviceInfo) -> bool {
    device.masked_by.is_none() && device.has_driver()
}

/// The processor, as a device.
fn processor(system: &SystemInfo) -> DeviceInfo {
    let name = system.cpu.model.clone().unwrap_or_else(|| "the processor".to_owned());
    let mut device = DeviceInfo::new(DeviceKey::Cpu, 0, name, Route::Native);
    device.memory_bytes = system.cpu.memory_bytes;
    device.api = system.arch.map(|arch| arch.as_str().to_owned());
    device.physical_index = Some(0);
    let (native, emulated) = system.cpu.dtypes();
    device.dtypes = Some(native);
    device.emulated = emulated;
    device
}
