//! Intel Gaudi accelerators, by the kernel's files and `hl-smi`.
//!
//! A device is listed where the kernel's driver serves it and this process has its node. Its memory is not: nothing here
//! tells it. `hl-smi` is asked for the modules only where the kernel does not tell them, since it takes a second.
//!
//! Tested on described trees and with a command of the tests' own; a Gaudi was never at hand.

mod generation;
mod mask;
mod smi;
mod sysfs;

use super::Found;
use crate::system::SystemInfo;
use crate::system::device::{DeviceInfo, Route};
use crate::system::environment::Environment;
use crate::system::printable;
use crate::variant::DeviceKey;
use sysfs::Accelerator;

pub(super) fn probe(environment: &Environment) -> Option<Found> {
    if !cfg!(target_os = "linux") {
        return None;
    }
    let mut notes = Vec::new();
    for address in sysfs::without_driver(environment) {
        notes.push(format!("the Gaudi at {address} has no kernel driver: install and load habanalabs"));
    }
    let mut accelerators = sysfs::accelerators(environment);
    let nodes = if accelerators.is_empty() { gaudi_nodes(environment) } else { Vec::new() };
    if !nodes.is_empty() || accelerators.iter().any(|accelerator| accelerator.module.is_none()) {
        match smi::modules(environment) {
            Ok(modules) => {
                if accelerators.is_empty() {
                    // The kernel's files are not to be seen here: what the command tells is all there is.
                    let numbers = modules.keys().filter(|number| nodes.contains(number));
                    accelerators
                        .extend(numbers.map(|number| Accelerator { number: *number, ..Accelerator::default() }));
                }
                for accelerator in &mut accelerators {
                    let told = modules.get(&accelerator.number).copied().flatten();
                    accelerator.module = accelerator.module.or(told);
                }
            }
            Err(error) if !accelerators.is_empty() => {
                notes.push(format!("the modules of the Gaudi devices are not known: {error}"));
            }
            // Nodes of accelerators of another vendor, and no word of a Gaudi.
            Err(_) => {}
        }
    }
    let given: Vec<Accelerator> =
        accelerators.iter().filter(|one| sysfs::has_node(environment, one.number)).cloned().collect();
    for Accelerator { number, .. } in accelerators.iter().filter(|one| !given.contains(one)) {
        notes.push(format!(
            "the Gaudi accel{number} has no node /dev/accel/accel{number} here: this container was not given it"
        ));
    }
    let numbered: Vec<_> = given.iter().map(|accelerator| (accelerator.number, accelerator.module)).collect();
    let settings = [mask::DEVICES, mask::MODULES].map(|name| environment.setting(name));
    let (hidden_by, masks) = mask::apply(&numbered, settings[0], settings[1]);
    if given.len() < accelerators.len() && hidden_by.iter().all(Option::is_none) {
        // What a mask leaves is checked where the mask is read; this is what a container was given.
        let modules: Option<Vec<u32>> = given.iter().map(|accelerator| accelerator.module).collect();
        notes.extend(modules.and_then(|modules| mask::group_fault(&modules)));
    }
    let mut next = 0;
    let devices = given.iter().zip(hidden_by).map(|(accelerator, hidden_by)| {
        let mut device = describe(accelerator, environment, &mut notes);
        if hidden_by.is_none() {
            device.index = next;
            next += 1;
        }
        device.masked_by = hidden_by;
        device
    });
    let mut devices: Vec<DeviceInfo> = devices.collect();
    devices.sort_by_key(|device| (device.masked_by.is_some(), device.index));
    Some(Found { devices, masks, notes })
}

/// Nodes that may be a Gaudi's where the kernel's files are not to be seen at all: where they are, they list it.
fn gaudi_nodes(environment: &Environment) -> Vec<u32> {
    if environment.path("sys/class/accel").exists() { Vec::new() } else { sysfs::nodes(environment) }
}

fn describe(accelerator: &Accelerator, environment: &Environment, notes: &mut Vec<String>) -> DeviceInfo {
    let number = accelerator.number;
    let generation = accelerator.generation;
    let named = accelerator.device_type.as_deref().map(printable);
    let name = generation.map(|generation| generation.name().to_owned()).or(named);
    let mut device = DeviceInfo::new(DeviceKey::Hpu, number, name.as_deref().unwrap_or("Intel Gaudi"), Route::Native);
    device.api = Some("habanalabs".to_owned());
    device.driver.clone_from(&accelerator.driver_version);
    device.arch = generation.map(|generation| generation.arch().to_owned());
    if let Some(generation) = generation {
        let (native, emulated) = generation.dtypes(generation::int64(generation, environment, notes));
        (device.dtypes, device.emulated) = (Some(native), emulated);
    }
    device.physical_index = Some(number);
    device.pci_address.clone_from(&accelerator.pci_address);
    device.pci_id = accelerator.device_id.map(|id| format!("1da3:{id:04x}"));
    device.module = accelerator.module;
    if let Some(fault) = &accelerator.fault {
        notes.push(format!("the Gaudi accel{number} is not ready: its driver says {:?}", printable(fault)));
    }
    device
}

impl SystemInfo {
    /// Whether a Gaudi can be used: one that the kernel's driver serves, whose node this process has, and that no mask
    /// hides.
    ///
    /// Transformers' `is_torch_hpu_available` is true when the Python packages `torch` and `habana_frameworks` are there
    /// (and `accelerate`, where it is installed, is 1.5 or newer) and `torch.hpu.is_available()` says so, which loads the
    /// Gaudi software and asks it for its devices. This asks no Python: it is true without those packages, and it cannot
    /// tell that another process holds the device, or that the Gaudi software does not fit the driver. Speaks of the
    /// devices in this description: [`SystemInfo::probe_native`] looks for them.
    #[must_use]
    pub fn is_hpu_available(&self) -> bool {
        self.visible(DeviceKey::Hpu).any(|device| device.route == Route::Native)
    }
}
