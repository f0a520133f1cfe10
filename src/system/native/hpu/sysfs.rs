//! Gaudi accelerators as the kernel lists them.
//!
//! Source: `Documentation/ABI/testing/sysfs-driver-habanalabs` of the Linux kernel. `/sys/class/accel` holds the
//! accelerators of every vendor, so each is asked whose it is.

use crate::system::environment::Environment;
use crate::system::native::files;

use super::generation::Generation;

/// The PCI vendor id of Habana Labs.
const VENDOR: u64 = 0x1da3;

/// One accelerator.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Accelerator {
    /// Its number: `accel<N>`, the index of `hl-smi`.
    pub(super) number: u32,
    pub(super) generation: Option<Generation>,
    /// `device_type`, as the driver writes it.
    pub(super) device_type: Option<String>,
    pub(super) module: Option<u32>,
    pub(super) pci_address: Option<String>,
    pub(super) device_id: Option<u64>,
    pub(super) driver_version: Option<String>,
    /// `status`, when it is not `operational`.
    pub(super) fault: Option<String>,
}

/// The accelerators that the kernel's driver serves, by their numbers.
pub(super) fn accelerators(environment: &Environment) -> Vec<Accelerator> {
    let entries = files::numbered(&environment.path("sys/class/accel"), "accel");
    let found = entries.into_iter().filter_map(|(number, folder)| {
        let device = folder.join("device");
        let text = |name: &str| files::text(&device.join(name));
        let device_type = text("device_type");
        let of_type = device_type.as_deref().and_then(Generation::from_device_type);
        match files::number(&device.join("vendor")) {
            Some(VENDOR) => {}
            None if of_type.is_some() => {}
            _ => return None,
        }
        let device_id = files::number(&device.join("device")).filter(|id| *id <= 0xffff);
        let generation = device_id.and_then(Generation::from_pci).or(of_type);
        // The vendor's first chip, for inference, is no Gaudi; one that is newer than this list may be.
        if generation.is_none() && device_id.is_none_or(|id| id < 0x1000) {
            return None;
        }
        Some(Accelerator {
            number,
            generation,
            device_type,
            module: files::number(&device.join("module_id")).and_then(|module| u32::try_from(module).ok()),
            pci_address: text("pci_addr"),
            device_id,
            driver_version: text("driver_ver"),
            fault: text("status").filter(|status| !status.eq_ignore_ascii_case("operational")),
        })
    });
    found.collect()
}

/// Gaudi devices on the PCI bus that no kernel driver has taken, by their addresses.
pub(super) fn without_driver(environment: &Environment) -> Vec<String> {
    files::pci_devices(&environment.path("sys/bus/pci/devices"), VENDOR)
        .into_iter()
        .filter(|(_, folder)| files::number(&folder.join("device")).and_then(Generation::from_pci).is_some())
        .filter(|(_, folder)| files::link_name(&folder.join("driver")).is_none())
        .map(|(address, _)| address)
        .collect()
}

/// Whether this process has the device's node, by which it is opened: a container is given those that it may use.
pub(super) fn has_node(environment: &Environment, number: u32) -> bool {
    // The second is that of drivers before Linux 6.2.
    [format!("dev/accel/accel{number}"), format!("dev/hl{number}")].iter().any(|node| environment.path(node).exists())
}

/// The numbers of all nodes.
pub(super) fn nodes(environment: &Environment) -> Vec<u32> {
    let mut found = files::numbered(&environment.path("dev"), "hl");
    found.extend(files::numbered(&environment.path("dev/accel"), "accel"));
    found.into_iter().map(|(number, _)| number).collect()
}
