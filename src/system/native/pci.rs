//! What stands on the PCI bus, by sysfs: `/sys/bus/pci/devices/<address>/{vendor,device,class}`.

use std::path::Path;

use super::files;
use crate::system::environment::Environment;

/// The most entries of one folder that are looked at.
const MAX_ENTRIES: usize = 4096;

/// The class of display controllers, of which GPUs for computing are one kind (0x0302, 3D controller).
pub(super) const DISPLAY: u64 = 0x03;
/// The class of processing accelerators.
pub(super) const ACCELERATOR: u64 = 0x12;

/// A PCI device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PciDevice {
    /// Its place, such as `0000:4d:00.0`.
    pub(super) address: String,
    pub(super) vendor: u64,
    pub(super) device: u64,
    /// Class, subclass and interface, a byte each.
    class: u64,
}

impl PciDevice {
    /// The first byte of the class.
    pub(super) fn base_class(&self) -> u64 {
        self.class >> 16
    }

    /// Vendor and device id, such as `10de:2335`.
    pub(super) fn id(&self) -> String {
        format!("{:04x}:{:04x}", self.vendor, self.device)
    }
}

/// The devices of one vendor, in the order of their addresses.
pub(super) fn of_vendor(environment: &Environment, vendor: u64) -> Vec<PciDevice> {
    files::pci_devices(&environment.path("sys/bus/pci/devices"), vendor)
        .into_iter()
        .filter_map(|(address, folder)| {
            let device = files::number(&folder.join("device"))?;
            Some(PciDevice { address, vendor, device, class: files::number(&folder.join("class"))? })
        })
        .collect()
}

/// The names in a folder, sorted; none when it cannot be read.
pub(super) fn entries(folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.take(MAX_ENTRIES).flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// `1 X is` and `2 Xs are`, with the devices in brackets: at most eight of them.
pub(super) fn counted(what: &str, devices: &[String]) -> String {
    const MAX_NAMED: usize = 8;
    let mut named = devices.iter().take(MAX_NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
    if devices.len() > MAX_NAMED {
        named.push_str(", ...");
    }
    match devices.len() {
        1 => format!("1 {what} is on the PCI bus ({named})"),
        count => format!("{count} {what}s are on the PCI bus ({named})"),
    }
}
