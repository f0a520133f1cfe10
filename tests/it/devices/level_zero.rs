//! Intel GPUs by a Level Zero driver of the tests' own, behind the real loader: in a process of their own each, since a
//! driver reads the process's environment, and once.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

use kernelhub::dtype::DType;
use kernelhub::system::{DeviceInfo, Environment, SystemInfo};
use kernelhub::variant::{Arch, DeviceKey, Os};
use tempfile::TempDir;

use super::xpu::cards;
use super::{Root, mask, numbers};
use crate::support::native::compile_c;

/// Where the process that is asked puts its answer.
const ANSWER: &str = "KERNELHUB_TEST_LEVEL_ZERO_ANSWER";
const ROOT: &str = "KERNELHUB_TEST_LEVEL_ZERO_ROOT";

/// The driver, and loaders of it.
struct Libraries {
    driver: PathBuf,
    /// The driver of other cards.
    second: PathBuf,
    /// Folders with a `libze_loader.so.1` that is the driver as well: of version 1.8, of 1.10, and a broken one.
    loaders: [PathBuf; 3],
    _folder: TempDir,
}

static LIBRARIES: LazyLock<Libraries> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let library = |name: &str, options: &[&str]| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, compile_c("level_zero.c", "", options)).unwrap();
        path
    };
    let driver = library("libfake.so", &["-fvisibility=hidden"]);
    let second = library("libfake_second.so", &["-fvisibility=hidden", "-DSECOND"]);
    let loader = |name: &str, options: &[&str]| {
        library(&format!("{name}/libze_loader.so.1"), options).parent().unwrap().to_owned()
    };
    let loaders = [
        loader("old", &["-DAS_LOADER"]),
        loader("new", &["-DAS_LOADER", "-DWITH_INIT_DRIVERS"]),
        loader("broken", &["-DAS_LOADER", "-DWITHOUT_SUB_DEVICES"]),
    ];
    Libraries { driver, second, loaders, _folder: folder }
});

/// Whether the loader is installed; says so when it is not.
#[expect(clippy::print_stdout, reason = "a test says why it skips")]
pub(super) fn has_loader() -> bool {
    let folders = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"];
    let found = folders.iter().any(|folder| Path::new(folder).join("libze_loader.so.1").exists());
    if !found {
        println!("skipped: no Level Zero loader is installed; scripts/setup-tests.sh installs it");
    }
    found
}

/// The process that is asked: writes what it finds.
#[test]
fn child() {
    let Some(answer) = std::env::var_os(ANSWER) else { return };
    let mut system = SystemInfo::described(Os::Linux, Arch::X86_64);
    let mut environment = Environment::read();
    environment.root = std::env::var_os(ROOT).map(PathBuf::from);
    environment.python_prefixes.clear();
    environment.library_path.clear();
    system.probe_native(DeviceKey::Xpu, &environment);
    std::fs::write(answer, serde_json::to_vec(&system).unwrap()).unwrap();
}

/// Asks a process whose environment has these settings; `None` for the installed loader.
fn run(root: &Root, loader: Option<&Path>, settings: &[(&str, &str)]) -> (Output, Option<SystemInfo>) {
    let answer = tempfile::NamedTempFile::new().unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "devices::level_zero::child", "--nocapture"]);
    command.env(ANSWER, answer.path()).env(ROOT, root.path());
    command.env("ZE_ENABLE_ALT_DRIVERS", &LIBRARIES.driver);
    for name in
        ["ZE_AFFINITY_MASK", "ZE_FLAT_DEVICE_HIERARCHY", "ZE_ENABLE_PCI_ID_DEVICE_ORDER", "ONEAPI_DEVICE_SELECTOR"]
    {
        command.env_remove(name);
    }
    if let Some(loader) = loader {
        command.env("LD_LIBRARY_PATH", loader);
    }
    command.envs(settings.iter().copied());
    let output = command.output().unwrap();
    let system = serde_json::from_slice(&std::fs::read(answer.path()).unwrap()).ok();
    (output, system)
}

fn ask_by(root: &Root, loader: Option<&Path>, settings: &[(&str, &str)]) -> SystemInfo {
    let (output, system) = run(root, loader, settings);
    system.unwrap_or_else(|| panic!("{settings:?}: {} {}", output.status, String::from_utf8_lossy(&output.stderr)))
}

pub(super) fn ask(root: &Root, settings: &[(&str, &str)]) -> SystemInfo {
    ask_by(root, None, settings)
}

/// `(card, tile)` of the visible devices; no tile where the device is a card.
fn places(system: &SystemInfo) -> Vec<(String, Option<u32>)> {
    let place = |device: &DeviceInfo| {
        (device.pci_address.clone().unwrap_or_default()[5..7].to_owned(), device.tile_of.map(|(_, tile)| tile))
    };
    system.visible(DeviceKey::Xpu).map(place).collect()
}

#[test]
fn two_cards_of_two_tiles_are_told_in_full() {
    if !has_loader() {
        return;
    }
    let root = cards(&[("4d", 2), ("9a", 2)]);
    let machine = [("FAKE_ZE_CARDS", "2,2"), ("FAKE_ZE_BUSES", "4d,9a")];
    let system = ask(&root, &[&machine[..], &[("ZE_FLAT_DEVICE_HIERARCHY", "COMPOSITE")]].concat());
    assert_eq!(system.notes, Vec::<String>::new());
    assert_eq!(numbers(&system.devices), "0/0 1/1");
    let device = &system.devices[1];
    assert_eq!(device.name, "Intel(R) Data Center GPU Max 1550");
    assert_eq!(device.memory_bytes, Some(128 << 30));
    assert_eq!(device.api.as_deref(), Some("Level Zero"));
    assert_eq!(device.driver.as_deref(), Some("1.3.27642"));
    assert_eq!(device.pci_address.as_deref(), Some("0000:9a:00.0"));
    assert_eq!(device.pci_id.as_deref(), Some("8086:0bd5"));
    assert_eq!(device.uuid.as_deref(), Some("86800000-0000-0000-9a00-000000000000"));
    assert_eq!((device.tiles, device.tile_of), (Some(2), None));
    let every =
        [DType::F64, DType::F32, DType::Bf16, DType::F16, DType::I64, DType::I32, DType::U32, DType::I8, DType::U8];
    assert_eq!(device.dtypes.as_deref(), Some(&every[..]));
    assert_eq!(device.emulated, []);
    assert!(system.is_xpu_available());
    let row = mask(&system, "ZE_FLAT_DEVICE_HIERARCHY");
    assert_eq!(row.effect, "every card is a device, with its tiles inside (COMPOSITE)");

    for (word, effect) in [
        ("FLAT", "every tile is a device (FLAT)"),
        ("COMBINED", "every tile is a device that knows its card (COMBINED)"),
    ] {
        let system = ask(&root, &[&machine[..], &[("ZE_FLAT_DEVICE_HIERARCHY", word)]].concat());
        assert_eq!(numbers(&system.devices), "0/0 1/1 2/2 3/3");
        let tiles: Vec<_> = system.devices.iter().map(|device| (device.tiles, device.tile_of)).collect();
        assert_eq!(tiles, [(0, 0), (0, 1), (1, 0), (1, 1)].map(|place| (Some(1), Some(place))));
        assert_eq!(system.devices[3].uuid.as_deref(), Some("86800000-0000-0000-9a00-000000000002"));
        assert_eq!(system.devices[3].memory_bytes, Some(64 << 30));
        assert_eq!(mask(&system, "ZE_FLAT_DEVICE_HIERARCHY").effect, effect);
        assert_eq!(system.notes, Vec::<String>::new());
    }
}

#[test]
fn what_the_driver_has_by_default_is_said_where_it_makes_a_difference() {
    if !has_loader() {
        return;
    }
    let machine = [("FAKE_ZE_CARDS", "2,2"), ("FAKE_ZE_BUSES", "4d,9a")];
    let root = cards(&[("4d", 2), ("9a", 2)]);
    for (word, count, says) in [("COMPOSITE", 2, "every card is a device"), ("FLAT", 4, "every tile is a device")] {
        let system = ask(&root, &[&machine[..], &[("FAKE_ZE_DEFAULT", word)]].concat());
        assert_eq!(system.devices.len(), count);
        let note = &system.notes[0];
        assert!(note.starts_with("ZE_FLAT_DEVICE_HIERARCHY is not set: ") && note.contains(says), "{note}");
        // A word that is none leaves the default, and is an error.
        let system =
            ask(&root, &[&machine[..], &[("FAKE_ZE_DEFAULT", word), ("ZE_FLAT_DEVICE_HIERARCHY", "flat")]].concat());
        assert_eq!(system.devices.len(), count);
        let row = mask(&system, "ZE_FLAT_DEVICE_HIERARCHY");
        assert!(row.effect.starts_with("leaves the driver's default: ") && row.effect.contains(says), "{row:?}");
        assert_eq!(row.error.as_deref(), Some("expected COMPOSITE, FLAT or COMBINED"));
    }
    // A driver that is older than the setting.
    let old = [("FAKE_ZE_FAULT", "old"), ("ZE_FLAT_DEVICE_HIERARCHY", "FLAT")];
    let system = ask(&root, &[&machine[..], &old].concat());
    assert_eq!(numbers(&system.devices), "0/0 1/1");
    let row = mask(&system, "ZE_FLAT_DEVICE_HIERARCHY");
    assert_eq!(row.error.as_deref(), Some("the driver does not know FLAT"));
    // Cards of one tile: nothing to say.
    let root = cards(&[("4d", 1), ("9a", 1)]);
    let system = ask(&root, &[("FAKE_ZE_CARDS", "1,1"), ("FAKE_ZE_BUSES", "4d,9a")]);
    assert_eq!((system.devices.len(), system.notes.len()), (2, 0));
}

#[test]
fn every_row_of_the_mask_table_is_what_the_driver_shows() {
    if !has_loader() {
        return;
    }
    let root = cards(&[("4d", 4), ("9a", 4)]);
    let card = |bus: &str| (bus.to_owned(), None);
    let tile = |bus: &str, tile| (bus.to_owned(), Some(tile));
    for (hierarchy, value, expected, effect, error) in [
        ("COMPOSITE", "0, 1", vec![card("4d"), card("9a")], "hides nothing", None),
        ("COMPOSITE", "1", vec![card("9a")], "hides 1 of 2", None),
        ("COMPOSITE", "0.0", vec![tile("4d", 0)], "hides 1 of 2, and 3 of 4 tiles of the rest", None),
        ("COMPOSITE", "1.1,1.2", vec![card("9a")], "hides 1 of 2, and 2 of 4 tiles of the rest", None),
        (
            "COMPOSITE",
            "0.2,1.3,1.0,0.3",
            vec![card("4d"), card("9a")],
            "hides nothing, and 4 of 8 tiles of the rest",
            None,
        ),
        ("FLAT", "0,4", vec![tile("4d", 0), tile("9a", 0)], "hides 6 of 8", None),
        ("FLAT", "1,2,7", vec![tile("4d", 1), tile("4d", 2), tile("9a", 3)], "hides 5 of 8", None),
        ("COMBINED", "4,0", vec![tile("4d", 0), tile("9a", 0)], "hides 6 of 8", None),
        ("FLAT", "0.0", vec![], "hides all 8", Some("invalid in FLAT")),
        ("FLAT", "9", vec![], "hides all 8", Some("there is no device 9: only 0 to 7")),
        ("COMPOSITE", "9", vec![], "hides all 2", Some("there is no device 9: only 0 to 1")),
        ("FLAT", "9,5", vec![tile("9a", 1)], "hides 7 of 8", Some("there is no device 9")),
        ("FLAT", "3,3", vec![tile("4d", 3)], "hides 7 of 8", Some("named twice")),
        ("FLAT", "3,", vec![tile("4d", 3)], "hides 7 of 8", None),
        ("FLAT", "0x3", vec![tile("4d", 3)], "hides 7 of 8", None),
        (
            "COMPOSITE",
            "",
            vec![card("4d"), card("9a")],
            "hides nothing: Intel's driver takes an empty mask for none",
            None,
        ),
        (
            "COMPOSITE",
            "a",
            vec![],
            "hides all 2; no driver was asked: Intel's ends the process on this mask",
            Some("\"a\" is no number"),
        ),
    ] {
        let settings = [
            ("FAKE_ZE_CARDS", "4,4"),
            ("FAKE_ZE_BUSES", "4d,9a"),
            ("ZE_FLAT_DEVICE_HIERARCHY", hierarchy),
            ("ZE_AFFINITY_MASK", value),
        ];
        let system = ask(&root, &settings);
        assert_eq!(places(&system), expected, "{hierarchy} {value}");
        let row = mask(&system, "ZE_AFFINITY_MASK");
        assert_eq!(row.effect, effect, "{hierarchy} {value}");
        assert_eq!(row.error.is_some(), error.is_some(), "{hierarchy} {value}: {row:?}");
        assert!(error.is_none_or(|error| row.error.as_ref().unwrap().contains(error)), "{row:?}");
        assert_eq!(system.notes, Vec::<String>::new(), "{hierarchy} {value}");

        // The rules alone, without a driver, come to the same.
        let by_rules = root.probe(DeviceKey::Xpu, &settings[2..]);
        let essence = |device: &DeviceInfo| {
            (
                device.index,
                device.physical_index,
                device.tiles,
                device.tile_of,
                device.masked_by.clone(),
                device.pci_address.clone(),
            )
        };
        let [by_driver, by_rules_too] =
            [&system, &by_rules].map(|system| system.devices.iter().map(essence).collect::<Vec<_>>());
        assert_eq!(by_driver, by_rules_too, "{hierarchy} {value}");
        assert_eq!(&by_rules.masks, &system.masks, "{hierarchy} {value}");
    }
}

#[test]
fn the_order_by_pci_address_is_followed_and_said() {
    if !has_loader() {
        return;
    }
    let root = cards(&[("00", 1), ("4d", 1), ("9a", 1)]);
    let machine = [("FAKE_ZE_CARDS", "1,1,1"), ("FAKE_ZE_BUSES", "00,4d,9a"), ("FAKE_ZE_DEVICE_ID", "56a0")];
    let system = ask(&root, &machine);
    assert_eq!(places(&system), [("4d".to_owned(), None), ("9a".to_owned(), None), ("00".to_owned(), None)]);
    assert_eq!(numbers(&system.devices), "0/0 1/1 2/2");
    let order = ("ZE_ENABLE_PCI_ID_DEVICE_ORDER", "1");
    let system = ask(&root, &[&machine[..], &[order]].concat());
    assert_eq!(places(&system), [("00".to_owned(), None), ("4d".to_owned(), None), ("9a".to_owned(), None)]);
    assert_eq!(numbers(&system.devices), "0/2 1/0 2/1");
    assert_eq!(mask(&system, order.0).effect, "orders the devices by PCI address, integrated ones too");
    // The mask counts in the order that is in force.
    let system = ask(&root, &[&machine[..], &[order, ("ZE_AFFINITY_MASK", "0,2")]].concat());
    assert_eq!(numbers(&system.devices), "0/2 1/1 [1/0]");
    assert_eq!(system.devices[2].masked_by.as_deref(), Some("ZE_AFFINITY_MASK=0,2"));
    assert_eq!(mask(&system, "ZE_AFFINITY_MASK").effect, "hides 1 of 3");
    for (value, error) in [("0", false), ("yes", true), ("2", true), ("", true)] {
        let system = ask(&root, &[&machine[..], &[(order.0, value)]].concat());
        assert_eq!(mask(&system, order.0).error.is_some(), error, "{value}");
    }
}

#[test]
fn element_types_are_native_or_emulated_by_what_the_driver_tells() {
    if !has_loader() {
        return;
    }
    let dtypes = |settings: &[(&str, &str)]| {
        let system = ask(&cards(&[("10", 1)]), settings);
        let device = system.devices.first().unwrap().clone();
        (device.dtypes.unwrap(), device.emulated)
    };
    let arc = ("FAKE_ZE_DEVICE_ID", "56a0");
    let (native, emulated) = dtypes(&[arc, ("FAKE_ZE_MODULE", "1,0")]);
    assert!(native.contains(&DType::F16) && !native.contains(&DType::F64) && !native.contains(&DType::Bf16));
    assert_eq!(emulated, [DType::Bf16]);
    // The driver computes doubles in software.
    let (native, emulated) = dtypes(&[arc, ("FAKE_ZE_MODULE", "3,128")]);
    assert!(native.contains(&DType::F16) && !native.contains(&DType::F64));
    assert_eq!(emulated, [DType::F64, DType::Bf16]);
    let (native, emulated) =
        dtypes(&[arc, ("FAKE_ZE_EXTENSION", "ZE_extension_bfloat16_conversions"), ("FAKE_ZE_MODULE", "0,0")]);
    assert!(native.contains(&DType::Bf16) && !native.contains(&DType::F16));
    assert_eq!(emulated, []);
    for id in ["0201", "0bd0", "0bdf"] {
        assert!(dtypes(&[("FAKE_ZE_DEVICE_ID", id)]).0.contains(&DType::Bf16), "{id}");
    }
}

#[test]
fn a_driver_that_fails_costs_what_it_would_have_told() {
    if !has_loader() {
        return;
    }
    let root = cards(&[("4d", 2)]);
    let machine = [("FAKE_ZE_CARDS", "2"), ("FAKE_ZE_BUSES", "4d"), ("ZE_FLAT_DEVICE_HIERARCHY", "COMPOSITE")];
    for (fault, note) in [
        ("init", "found no driver with a device (0x78000001)"),
        ("drivers", "counts 4000000000 in zeDriverGet"),
        ("devices", "counts 4000000000 in zeDeviceGet"),
        ("device-get", "failed in zeDeviceGet (0x7ffffffe)"),
        ("properties", "failed in zeDeviceGetProperties"),
        ("null", ""),
        ("npu", ""),
        ("vendor", ""),
        ("extensions", "counts 4000000000 in zeDriverGetExtensionProperties"),
        ("driver-properties", "failed in zeDriverGetProperties"),
        ("sub-devices", "failed in zeDeviceGetSubDevices"),
        ("module-properties", "failed in zeDeviceGetModuleProperties"),
        ("memory", "failed in zeDeviceGetMemoryProperties"),
        ("memory-sum", ""),
        ("names", ""),
        ("grows", ""),
        ("pci", ""),
        ("tile-number", ""),
    ] {
        let system = ask(&root, &[&machine[..], &[("FAKE_ZE_FAULT", fault)]].concat());
        assert!(system.notes.iter().any(|text| text.contains(note)) || note.is_empty(), "{fault}: {:?}", system.notes);
        let different: BTreeSet<_> = system.notes.iter().collect();
        assert_eq!(system.notes.len(), different.len(), "{fault}: {:?}", system.notes);
        assert!(system.devices.len() <= 2, "{fault}");
        match fault {
            // The kernel still lists the card.
            "init" | "drivers" => {
                assert_eq!(system.devices[0].api.as_deref(), Some("sysfs"), "{fault}");
                assert!(!system.is_xpu_available());
            }
            "names" => assert_eq!(system.devices[0].name.chars().count(), 256),
            "memory" => assert_eq!(system.devices[0].memory_bytes, None),
            "module-properties" => assert_eq!(system.devices[0].dtypes, None),
            "extensions" | "driver-properties" | "sub-devices" | "memory-sum" => {
                assert_eq!(system.devices[0].api.as_deref(), Some("Level Zero"), "{fault}");
            }
            _ => {}
        }
    }
    // Without a mask the driver shows what it likes, and what it does not show is said.
    let system = ask(&root, &[&machine[..], &[("FAKE_ZE_FAULT", "vendor")]].concat());
    assert!(system.notes[0].contains("does not show the Intel GPU at 0000:4d:00.0"), "{:?}", system.notes);
    // A driver that does not follow the mask is believed.
    let ignores = [("FAKE_ZE_FAULT", "ignores-mask"), ("ZE_AFFINITY_MASK", "7")];
    let system = ask(&root, &[&machine[..], &ignores].concat());
    assert_eq!(system.visible(DeviceKey::Xpu).count(), 1);
    assert_eq!(mask(&system, "ZE_AFFINITY_MASK").effect, "hides nothing");
}

#[test]
fn the_devices_of_several_drivers_are_numbered_through() {
    if !has_loader() {
        return;
    }
    let drivers = format!("{},{}", LIBRARIES.driver.display(), LIBRARIES.second.display());
    let root = cards(&[("00", 1), ("4d", 2)]);
    let system = ask(
        &root,
        &[
            ("ZE_ENABLE_ALT_DRIVERS", drivers.as_str()),
            ("FAKE_ZE_CARDS", "2"),
            ("FAKE_ZE_BUSES", "4d"),
            ("FAKE_ZE_SECOND_CARDS", "1"),
            ("FAKE_ZE_SECOND_BUSES", "00"),
            ("ZE_FLAT_DEVICE_HIERARCHY", "FLAT"),
        ],
    );
    assert_eq!(places(&system), [("4d".to_owned(), Some(0)), ("4d".to_owned(), Some(1)), ("00".to_owned(), None)]);
    assert_eq!(numbers(&system.devices), "0/0 1/1 2/2");
    assert_eq!(system.notes, Vec::<String>::new());
}

#[test]
fn a_list_of_more_drivers_than_anybody_has_is_not_tried() {
    if !has_loader() {
        return;
    }
    let root = cards(&[("4d", 1)]);
    let drivers = vec!["libnone.so"; 10_000].join(",");
    let system = ask(&root, &[("ZE_ENABLE_ALT_DRIVERS", drivers.as_str())]);
    assert!(system.notes.iter().any(|note| note.contains("names 10000 libraries")), "{:?}", system.notes);
    assert_eq!(system.devices.len(), 1, "the kernel tells of the card all the same");
}

#[test]
fn loaders_of_every_age_are_asked_and_a_broken_one_is_said() {
    let root = cards(&[("4d", 2), ("9a", 2)]);
    let machine = [("FAKE_ZE_CARDS", "2,2"), ("FAKE_ZE_BUSES", "4d,9a"), ("ZE_FLAT_DEVICE_HIERARCHY", "FLAT")];
    let [old, new, broken] = &LIBRARIES.loaders;
    for loader in [old, new] {
        let system = ask_by(&root, Some(loader), &[&machine[..], &[("ZE_AFFINITY_MASK", "0,2")]].concat());
        assert_eq!(numbers(&system.devices), "0/0 1/2 [1/1] [3/3]");
        assert_eq!(mask(&system, "ZE_AFFINITY_MASK").effect, "hides 2 of 4");
        let system = ask_by(&root, Some(loader), &[&machine[..], &[("FAKE_ZE_FAULT", "drivers")]].concat());
        assert!(system.notes[0].contains("counts 4000000000 in ze"), "{:?}", system.notes);
    }
    let system = ask_by(&root, Some(broken), &machine);
    assert!(system.notes[0].contains("has no function zeDeviceGetSubDevices"), "{:?}", system.notes);
    assert_eq!(system.devices.len(), 4, "by the kernel");
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("libze_loader.so.1"), "no library").unwrap();
    let system = ask_by(&root, Some(folder.path()), &machine);
    assert!(
        system.notes[0].contains("could not be opened") && system.notes[0].contains("libze1"),
        "{:?}",
        system.notes
    );
}

#[test]
fn without_cards_of_the_kernel_the_driver_alone_is_believed() {
    // As on Windows, and in a Linux inside of it.
    let machine = [("FAKE_ZE_CARDS", "2,1"), ("FAKE_ZE_BUSES", "4d,9a"), ("FAKE_ZE_DEFAULT", "FLAT")];
    let loader = Some(LIBRARIES.loaders[1].as_path());
    let system = ask_by(&Root::new(), loader, &machine);
    assert_eq!(numbers(&system.devices), "0/0 1/1 2/2");
    assert_eq!(places(&system), [("4d".to_owned(), Some(0)), ("4d".to_owned(), Some(1)), ("9a".to_owned(), None)]);
    let system = ask_by(&Root::new(), loader, &[&machine[..], &[("FAKE_ZE_FAULT", "pci")]].concat());
    assert_eq!(system.visible(DeviceKey::Xpu).count(), 3);
}
