//! What stands on the PCI bus, by sysfs: `/sys/bus/pci/devices/<address>/{vendor,device,class}`.

use std::io::Read as _;
use std::path::Path;

use crate::system::environment::Environment;

/// The most entries of one folder that are looked at.
const MAX_ENTRIES: usize = 4096;
/// The most that is read of one file, in bytes.
const MAX_FILE: u64 = 64 << 10;

/// The class of display controllers, of which GPUs for computing are one kind (0x0302, 3D controller).
pub(super) const DISPLAY: u32 = 0x03;
/// The class of processing accelerators.
pub(super) const ACCELERATOR: u32 = 0x12;

/// A PCI device.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PciDevice {
    /// Its place, such as `0000:4d:00.0`.
    pub(super) address: String,
    pub(super) vendor: u16,
    pub(super) device: u16,
    /// Class, subclass and interface, a byte each.
    pub(super) class: u32,
}

impl PciDevice {
    /// The first byte of the class.
    pub(super) fn base_class(&self) -> u32 {
        self.class >> 16
    }

    /// Vendor and device id, such as `10de:2335`.
    pub(super) fn id(&self) -> String {
        format!("{:04x}:{:04x}", self.vendor, self.device)
    }
}

/// The devices of one vendor, in the order of their addresses.
pub(super) fn of_vendor(environment: &Environment, vendor: u16) -> Vec<PciDevice> {
    let folder = environment.path("sys/bus/pci/devices");
    let mut found: Vec<PciDevice> = entries(&folder)
        .into_iter()
        .filter_map(|address| {
            let number = |file: &str| {
                let text = text(&folder.join(&address).join(file))?;
                u32::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok()
            };
            let found = u16::try_from(number("vendor")?).ok().filter(|found| *found == vendor)?;
            let device = u16::try_from(number("device")?).ok()?;
            Some(PciDevice { vendor: found, device, class: number("class")?, address })
        })
        .collect();
    found.sort();
    found
}

/// The names in a folder, sorted; none when it cannot be read.
pub(super) fn entries(folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.take(MAX_ENTRIES).flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// The start of a file, as text; `None` when it is none that can be read.
pub(super) fn text(path: &Path) -> Option<String> {
    // Opening a pipe would wait for who writes to it.
    if !path.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    std::fs::File::open(path).ok()?.take(MAX_FILE).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::Found;
    use super::{DISPLAY, Environment, of_vendor, text};

    /// A described machine: files below a root, by their paths and contents.
    pub(in crate::system::native) fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Environment) {
        let root = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        let environment = Environment { root: Some(root.path().to_owned()), ..Environment::default() };
        (root, environment)
    }

    /// The files of one PCI device.
    pub(in crate::system::native) fn pci_files(
        address: &str,
        vendor: &str,
        device: &str,
        class: &str,
    ) -> Vec<(String, String)> {
        [("vendor", vendor), ("device", device), ("class", class)]
            .map(|(file, value)| (format!("sys/bus/pci/devices/{address}/{file}"), format!("{value}\n")))
            .to_vec()
    }

    /// Sets a driver's setting.
    pub(in crate::system::native) fn set(environment: &mut Environment, name: &str, value: &str) {
        environment.settings.insert(name.to_owned(), value.to_owned());
    }

    /// Numbers, and what hides each device: `0 - | 1 NAME=value`.
    pub(in crate::system::native) fn shown(found: &Found) -> String {
        let mut devices: Vec<_> = found.devices.iter().collect();
        devices.sort_by_key(|device| (device.masked_by.is_some(), device.index));
        let shown: Vec<String> = devices
            .iter()
            .map(|device| {
                let physical = device.physical_index.map_or_else(|| "?".to_owned(), |index| index.to_string());
                format!("{}<{physical} {}", device.index, device.masked_by.as_deref().unwrap_or("-"))
            })
            .collect();
        shown.join(" | ")
    }

    #[test]
    fn devices_of_a_vendor_are_found_and_what_is_no_device_is_passed_by() {
        let mut files = pci_files("0000:4d:00.0", "0x10de", "0x2335", "0x030200");
        files.extend(pci_files("0000:01:00.0", "0x10de", "0x22a3", "0x068000"));
        files.extend(pci_files("0000:00:02.0", "0x8086", "0x56c0", "0x038000"));
        files.extend(pci_files("0000:00:03.0", "0x10de", "garbage", "0x030000"));
        files.push(("sys/bus/pci/devices/0000:00:04.0/vendor".to_owned(), "0x10de".to_owned()));
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        let (_root, environment) = machine(&files);
        let found = of_vendor(&environment, 0x10de);
        let shown: Vec<_> = found.iter().map(|d| (d.address.as_str(), d.id(), d.base_class() == DISPLAY)).collect();
        let expected =
            [("0000:01:00.0", "10de:22a3".to_owned(), false), ("0000:4d:00.0", "10de:2335".to_owned(), true)];
        assert_eq!(shown, expected);
        assert_eq!(of_vendor(&Environment { root: Some("/nowhere".into()), ..environment }, 0x10de), []);
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_never_ends_is_read_in_part_and_a_pipe_not_at_all() {
        assert_eq!(text(std::path::Path::new("/dev/zero")), None);
        let folder = tempfile::tempdir().unwrap();
        let long = folder.path().join("long");
        std::fs::write(&long, vec![b'x'; 1 << 20]).unwrap();
        assert_eq!(text(&long).unwrap().len(), 64 << 10);
        let pipe = folder.path().join("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
            0,
        )
        .unwrap();
        assert_eq!(text(&pipe), None);
    }
}
