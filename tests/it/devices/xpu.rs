//! Intel GPUs by the kernel's files.

use kernelhub::variant::{DeviceKey, Version};

use super::{Root, mask, numbers};

/// A machine with these cards of the driver xe: `(PCI bus, tiles)`.
pub(super) fn cards(cards: &[(&str, u32)]) -> Root {
    let root = Root::new();
    for (number, (bus, tiles)) in cards.iter().enumerate() {
        let device = if *bus == "00" { "02" } else { "00" };
        let folder = format!("sys/class/drm/card{number}");
        root.file(&format!("{folder}/device/vendor"), "0x8086\n");
        root.file(&format!("{folder}/device/device"), "0x0bd5\n");
        root.file(&format!("{folder}/device/uevent"), &format!("DRIVER=xe\nPCI_SLOT_NAME=0000:{bus}:{device}.0\n"));
        for tile in 0..*tiles {
            root.file(&format!("{folder}/device/tile{tile}/physical_vram_size_bytes"), "0x1000000000\n");
        }
        // A connector of the card, and its other node.
        root.file(&format!("sys/class/drm/card{number}-DP-1/status"), "disconnected\n");
        root.file(&format!("sys/class/drm/renderD{}/dev", 128 + number), "226:128\n");
    }
    root
}

#[test]
fn cards_are_listed_by_what_the_kernel_tells() {
    let root = cards(&[("4d", 2), ("9a", 2)]);
    // Cards of others, and one of Intel's that no compute driver serves.
    root.file("sys/class/drm/card7/device/vendor", "0x1002\n");
    root.file("sys/class/drm/card8/device/vendor", "0x8086\n");
    root.file("sys/class/drm/card8/device/device", "0x8108\n");
    root.file("sys/class/drm/card8/device/uevent", "DRIVER=gma500\nPCI_SLOT_NAME=0000:00:02.0\n");
    let system = root.probe(DeviceKey::Xpu, &[("ZE_FLAT_DEVICE_HIERARCHY", "COMPOSITE")]);
    assert_eq!(numbers(&system.devices), "0/0 1/1");
    let device = &system.devices[0];
    assert_eq!(device.name, "Intel GPU 8086:0bd5");
    assert_eq!((device.api.as_deref(), device.driver.as_deref()), (Some("sysfs"), Some("xe")));
    assert_eq!(device.pci_address.as_deref(), Some("0000:4d:00.0"));
    assert_eq!(device.pci_id.as_deref(), Some("8086:0bd5"));
    assert_eq!((device.tiles, device.memory_bytes), (Some(2), Some(128 << 30)));
    assert_eq!((&device.dtypes, &device.emulated), (&None, &vec![]));
    assert!(!system.is_xpu_available(), "no driver shows it");
    // Every tile a device is the default of this card's driver.
    let system = root.probe(DeviceKey::Xpu, &[("ZE_AFFINITY_MASK", "0,2")]);
    assert_eq!(numbers(&system.devices), "0/0 1/2 [1/1] [3/3]");
    assert_eq!(system.devices[1].tile_of, Some((1, 0)));
    assert_eq!(system.devices[1].memory_bytes, Some(64 << 30));
    assert_eq!(system.devices[2].masked_by.as_deref(), Some("ZE_AFFINITY_MASK=0,2"));
    assert_eq!(mask(&system, "ZE_AFFINITY_MASK").effect, "hides 2 of 4");
    assert!(system.notes[0].starts_with("ZE_FLAT_DEVICE_HIERARCHY is not set: every tile is a device"));
}

#[test]
fn a_laptop_has_one_device_and_tiles_of_i915_are_no_media_engines() {
    let root = Root::new();
    root.file("sys/class/drm/card1/device/vendor", "0x8086\n");
    root.file("sys/class/drm/card1/device/device", "0x7d55\n");
    root.link("sys/class/drm/card1/device/driver", "../../../bus/pci/drivers/i915");
    root.file("sys/class/drm/card1/device/uevent", "PCI_SLOT_NAME=0000:00:02.0\n");
    // The second is the media engine.
    root.file("sys/class/drm/card1/gt/gt0/id", "0");
    root.file("sys/class/drm/card1/gt/gt1/id", "1");
    let system = root.probe(DeviceKey::Xpu, &[]);
    assert_eq!(numbers(&system.devices), "0/0");
    assert_eq!((system.devices[0].tiles, system.devices[0].tile_of), (Some(1), None));
    assert_eq!(system.devices[0].driver.as_deref(), Some("i915"));
    assert_eq!((system.notes.len(), system.masks.len()), (0, 0));
    // The same folders on a Data Center GPU Max are tiles.
    root.file("sys/class/drm/card1/device/device", "0x0bd6\n");
    root.file("sys/class/drm/card1/lmem_total_bytes", "137438953472\n");
    let system = root.probe(DeviceKey::Xpu, &[("ZE_FLAT_DEVICE_HIERARCHY", "COMPOSITE")]);
    assert_eq!((system.devices[0].tiles, system.devices[0].memory_bytes), (Some(2), Some(128 << 30)));
}

#[test]
fn no_intel_gpu_is_no_news_and_one_without_a_driver_is() {
    let root = Root::new();
    let system = root.probe(DeviceKey::Xpu, &[]);
    assert_eq!((system.devices.len(), system.notes.len(), system.masks.len()), (0, 0, 0));
    let system = root.probe(DeviceKey::Xpu, &[("ZE_AFFINITY_MASK", "0"), ("ONEAPI_DEVICE_SELECTOR", "opencl:*")]);
    assert_eq!(mask(&system, "ZE_AFFINITY_MASK").effect, "there is no Intel GPU to act on");
    assert!(mask(&system, "ONEAPI_DEVICE_SELECTOR").effect.starts_with("no Level Zero device is left to SYCL"));
    for (address, class, taken) in
        [("0000:4d:00.0", "0x038000", false), ("0000:4e:00.0", "0x030000", true), ("0000:00:1f.3", "0x040300", false)]
    {
        root.file(&format!("sys/bus/pci/devices/{address}/vendor"), "0x8086\n");
        root.file(&format!("sys/bus/pci/devices/{address}/class"), &format!("{class}\n"));
        if taken {
            root.link(&format!("sys/bus/pci/devices/{address}/driver"), "../../../../bus/pci/drivers/xe");
        }
    }
    let system = root.probe(DeviceKey::Xpu, &[]);
    assert_eq!(system.notes, ["the Intel GPU at 0000:4d:00.0 has no kernel driver: i915 or xe is needed"]);
}

#[test]
fn the_version_of_oneapi_is_told_or_its_lack_is() {
    let root = cards(&[("4d", 1)]);
    let system = root.probe(DeviceKey::Xpu, &[]);
    assert_eq!((system.devices[0].backend_version, system.notes.len()), (None, 0));
    root.file("opt/intel/oneapi/compiler/2026.0/lib/libsycl.so.9", "");
    let system = root.probe(DeviceKey::Xpu, &[]);
    assert_eq!(system.devices[0].backend_version, Some(Version::new(2026, 0)));
    root.file("libraries/libsycl.so.9", "");
    let mut environment = root.environment(&[]);
    environment.library_path = vec![root.path().join("libraries")];
    let mut system = system;
    system.probe_native(DeviceKey::Xpu, &environment);
    assert_eq!(system.devices[0].backend_version, None);
    assert!(system.notes[0].contains("libsycl.so.9 was found, and nothing beside it tells its oneAPI version"));
}

#[test]
fn files_with_anything_in_them_are_no_cards() {
    let root = Root::new();
    for (number, (vendor, device, uevent)) in [
        ("", "0x0bd5", "DRIVER=xe\nPCI_SLOT_NAME=0000:4d:00.0"),
        ("0x8086", "\u{fffd}", "DRIVER=xe\nPCI_SLOT_NAME=0000:4d:00.0"),
        ("0x8086", "0xffffffffffff", "DRIVER=xe\nPCI_SLOT_NAME=0000:4d:00.0"),
        ("0x8086", "0x0bd5", "DRIVER=xe"),
        ("0x8086", "0x0bd5", "PCI_SLOT_NAME=0000:4d:00.0"),
    ]
    .into_iter()
    .enumerate()
    {
        let folder = format!("sys/class/drm/card{number}/device");
        root.file(&format!("{folder}/vendor"), vendor);
        root.file(&format!("{folder}/device"), device);
        root.file(&format!("{folder}/uevent"), uevent);
    }
    assert_eq!(root.probe(DeviceKey::Xpu, &[]).devices, []);
    // Tiles without end are not believed, nor memory beyond counting.
    for tile in 0..200 {
        root.file(&format!("sys/class/drm/card9/device/tile{tile}/physical_vram_size_bytes"), "0xffffffffffffffff\n");
    }
    root.file("sys/class/drm/card9/device/vendor", "0x8086");
    root.file("sys/class/drm/card9/device/device", "0x0bd5");
    root.file("sys/class/drm/card9/device/uevent", "DRIVER=xe\nPCI_SLOT_NAME=x");
    let system = root.probe(DeviceKey::Xpu, &[("ZE_FLAT_DEVICE_HIERARCHY", "COMPOSITE")]);
    assert_eq!((system.devices[0].tiles, system.devices[0].memory_bytes), (Some(64), None));
}
