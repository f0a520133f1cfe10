//! Intel GPUs as the kernel lists them: all of them, whatever a mask hides, with or without a Level Zero driver.
//!
//! Sources: the kernel's `Documentation/ABI` of i915 and xe; `uevent` of PCI devices. Tiles: xe has a folder
//! `device/tile<N>` for each; i915 has `gt/gt<N>`, which are tiles on the Data Center GPU Max alone (elsewhere a second
//! one is the media engine). Memory: xe tells it of each tile, Intel's own i915 of the card, the kernel's i915 not at
//! all.

use std::path::Path;

use crate::system::environment::Environment;
use crate::system::native::files;

const VENDOR: u64 = 0x8086;

/// One card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Card {
    /// Such as `0000:4d:00.0`.
    pub(super) pci_address: String,
    pub(super) device_id: u32,
    /// The kernel's driver: `i915` or `xe`.
    pub(super) driver: String,
    /// At least 1.
    pub(super) tiles: u32,
    pub(super) memory_bytes: Option<u64>,
}

impl Card {
    /// Whether it is part of the processor: those stand on the first bus.
    pub(super) fn integrated(&self) -> bool {
        self.pci_address.split(':').nth(1) == Some("00")
    }

    /// By which Intel's driver orders devices: integrated ones last, unless the order is that of PCI alone.
    pub(super) fn rank(&self, pci_order: bool) -> (bool, &str) {
        (self.integrated() && !pci_order, &self.pci_address)
    }
}

/// Whether the device id is one of the Data Center GPU Max (Ponte Vecchio).
pub(super) fn is_data_center_max(device_id: u32) -> bool {
    device_id & 0xff0 == 0xbd0
}

/// The cards that a kernel driver serves, by their PCI addresses.
pub(super) fn cards(environment: &Environment) -> Vec<Card> {
    let mut cards: Vec<Card> = files::numbered(&environment.path("sys/class/drm"), "card")
        .into_iter()
        .filter_map(|(_, folder)| card(&folder))
        .collect();
    cards.sort_by(|a, b| a.pci_address.cmp(&b.pci_address));
    cards.dedup_by(|a, b| a.pci_address == b.pci_address);
    cards
}

fn card(folder: &Path) -> Option<Card> {
    let device = folder.join("device");
    if files::number(&device.join("vendor")) != Some(VENDOR) {
        return None;
    }
    let uevent = files::text(&device.join("uevent")).unwrap_or_default();
    let field =
        |name: &str| uevent.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).map(str::to_owned);
    let driver = field("DRIVER").or_else(|| files::link_name(&device.join("driver")))?;
    if driver != "i915" && driver != "xe" {
        return None;
    }
    let pci_address = field("PCI_SLOT_NAME").or_else(|| files::link_name(&device))?;
    let device_id = u32::try_from(files::number(&device.join("device"))?).ok()?;
    let tile_folders = files::numbered(&device, "tile");
    let tiles = match driver.as_str() {
        "xe" => tile_folders.len(),
        _ if is_data_center_max(device_id) => files::numbered(&folder.join("gt"), "gt").len(),
        _ => 1,
    };
    let tile_memory = |(_, tile): &(u32, std::path::PathBuf)| files::number(&tile.join("physical_vram_size_bytes"));
    let memory_bytes = [folder, device.as_path()]
        .iter()
        .find_map(|folder| files::number(&folder.join("lmem_total_bytes")))
        .or_else(|| tile_folders.iter().map(tile_memory).try_fold(0, |sum: u64, bytes| sum.checked_add(bytes?)))
        .filter(|bytes| *bytes > 0);
    Some(Card {
        pci_address,
        device_id,
        driver,
        tiles: u32::try_from(tiles).unwrap_or(u32::MAX).clamp(1, 64),
        memory_bytes,
    })
}

/// Intel GPUs on the PCI bus that no kernel driver has taken, by their addresses.
pub(super) fn without_driver(environment: &Environment) -> Vec<String> {
    /// VGA, 3D and display controllers.
    const DISPLAY: u64 = 0x03;
    files::pci_devices(&environment.path("sys/bus/pci/devices"), VENDOR)
        .into_iter()
        .filter(|(_, folder)| files::number(&folder.join("class")).is_some_and(|class| class >> 16 == DISPLAY))
        .filter(|(_, folder)| files::link_name(&folder.join("driver")).is_none())
        .map(|(address, _)| address)
        .collect()
}
