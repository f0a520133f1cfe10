//! Gaudi by the kernel's files and a command of the tests' own.

use kernelhub::dtype::DType;
use kernelhub::variant::DeviceKey;

use super::{Root, mask, numbers};

/// Modules of a server's devices, in the order of their indices.
const MODULES: [u32; 8] = [5, 4, 7, 6, 2, 3, 0, 1];

/// A server of 8; `modules`: whether the kernel tells them.
pub(super) fn server(device_id: &str, modules: bool) -> Root {
    let root = Root::new();
    for (number, module) in MODULES.iter().enumerate() {
        let folder = format!("sys/class/accel/accel{number}/device");
        root.file(&format!("{folder}/vendor"), "0x1da3\n");
        root.file(&format!("{folder}/device"), &format!("{device_id}\n"));
        root.file(&format!("{folder}/device_type"), "GAUDI2\n");
        root.file(&format!("{folder}/pci_addr"), &format!("0000:{:02x}:00.0\n", 0x19 + number));
        root.file(&format!("{folder}/driver_ver"), "1.22.0-abc\n");
        root.file(&format!("{folder}/status"), "operational\n");
        if modules {
            root.file(&format!("{folder}/module_id"), &format!("{module}\n"));
        }
        root.file(&format!("sys/class/accel/accel_controlD{number}/dev"), "");
        root.file(&format!("dev/accel/accel{number}"), "");
        root.file(&format!("dev/accel/accel_controlD{number}"), "");
    }
    root
}

/// `hl-smi` as the documentation shows it: the rows in no order.
fn smi(head: bool) -> String {
    let mut rows: Vec<String> =
        MODULES.iter().enumerate().map(|(index, module)| format!("{index}, {module}")).collect();
    rows.rotate_left(3);
    rows.swap(0, 5);
    let head = if head { "index, module_id\n" } else { "" };
    format!("[ \"$*\" = \"-Q index,module_id -f csv\" ] || exit 2\ncat <<'END'\n{head}{}\nEND\n", rows.join("\n"))
}

#[test]
fn a_server_is_told_in_full() {
    let root = server("0x1020", true);
    // The kernel told everything: the command is not asked.
    root.command("hl-smi", "exit 1");
    let system = root.probe(DeviceKey::Hpu, &[]);
    assert_eq!((system.notes.len(), system.masks.len()), (0, 0), "{:?}", system.notes);
    assert_eq!(numbers(&system.devices), "0/0 1/1 2/2 3/3 4/4 5/5 6/6 7/7");
    assert_eq!(system.devices.iter().map(|device| device.module.unwrap()).collect::<Vec<_>>(), MODULES);
    let device = &system.devices[2];
    assert_eq!((device.name.as_str(), device.arch.as_deref()), ("Intel Gaudi 2", Some("gaudi2")));
    assert_eq!((device.api.as_deref(), device.driver.as_deref()), (Some("habanalabs"), Some("1.22.0-abc")));
    assert_eq!((device.pci_address.as_deref(), device.pci_id.as_deref()), (Some("0000:1b:00.0"), Some("1da3:1020")));
    assert_eq!(device.memory_bytes, None);
    let native = [DType::F32, DType::Bf16, DType::F16, DType::I64, DType::I32, DType::U32, DType::I8, DType::U8];
    assert_eq!((device.dtypes.as_deref(), &device.emulated), (Some(&native[..]), &vec![]));
    assert!(system.is_hpu_available());
    let lazy = root.probe(DeviceKey::Hpu, &[("PT_HPU_LAZY_MODE", "1")]);
    assert_eq!(lazy.devices[0].emulated, [DType::I64]);
    assert!(!lazy.devices[0].dtypes.as_ref().unwrap().contains(&DType::I64));
}

#[test]
fn modules_come_from_the_command_where_the_kernel_does_not_tell_them() {
    for head in [true, false] {
        let root = server("0x1060", false);
        root.command("hl-smi", &smi(head));
        let system = root.probe(DeviceKey::Hpu, &[("HABANA_VISIBLE_MODULES", "4,5,6,7")]);
        assert_eq!(system.notes, Vec::<String>::new());
        assert_eq!(system.devices[0].arch.as_deref(), Some("gaudi3"));
        assert_eq!(numbers(&system.devices), "0/0 1/1 2/2 3/3 [4/4] [5/5] [6/6] [7/7]");
        assert_eq!(system.devices[4].masked_by.as_deref(), Some("HABANA_VISIBLE_MODULES=4,5,6,7"));
        assert_eq!(mask(&system, "HABANA_VISIBLE_MODULES").effect, "hides 4 of 8");
        assert_eq!(mask(&system, "HABANA_VISIBLE_MODULES").error, None);
    }
}

#[test]
fn a_command_that_fails_costs_the_modules_alone() {
    for (script, text) in [
        (None, "hl-smi is in no folder of PATH: install habanalabs-firmware-tools"),
        (Some("echo 'no driver' >&2; exit 3"), "failed (exit status: 3): no driver"),
        (Some("echo 'garbage\x1b[31m'"), "hl-smi printed a line that is no row of index, module_id"),
        (Some("while :; do echo '0, 1'; done"), "it wrote more than 262144 bytes"),
        (Some("kill -9 $$"), "failed (signal: 9"),
    ] {
        let root = server("0x1020", false);
        if let Some(script) = script {
            root.command("hl-smi", script);
        }
        let system = root.probe(DeviceKey::Hpu, &[("HABANA_VISIBLE_MODULES", "0,1")]);
        assert_eq!(system.notes.len(), 1, "{script:?}");
        assert!(system.notes[0].contains(text) && !system.notes[0].contains('\x1b'), "{:?}", system.notes);
        assert_eq!(system.visible(DeviceKey::Hpu).count(), 8);
        let row = mask(&system, "HABANA_VISIBLE_MODULES");
        assert_eq!(row.error.as_deref(), Some("the module ids of this machine are not known"));
        // Indices need no modules.
        let system = root.probe(DeviceKey::Hpu, &[("HABANA_VISIBLE_DEVICES", "6,7")]);
        assert_eq!(numbers(&system.devices), "0/6 1/7 [0/0] [1/1] [2/2] [3/3] [4/4] [5/5]");
    }
}

#[test]
fn only_devices_whose_nodes_are_here_are_listed() {
    let root = server("0x1020", true);
    for number in [0, 1, 2, 3, 4, 5] {
        std::fs::remove_file(root.path().join(format!("dev/accel/accel{number}"))).unwrap();
    }
    let container = [("HABANA_VISIBLE_DEVICES", "6,7"), ("HABANA_VISIBLE_MODULES", "0,1")];
    let system = root.probe(DeviceKey::Hpu, &container);
    assert_eq!(numbers(&system.devices), "0/6 1/7");
    assert_eq!(system.notes.len(), 6);
    assert!(system.notes[0].contains("has no node /dev/accel/accel0 here"), "{:?}", system.notes);
    assert_eq!(mask(&system, "HABANA_VISIBLE_MODULES").effect, "hides nothing");
    // A container that was given a part that does not work together.
    let part = server("0x1020", true);
    for number in 3..8 {
        std::fs::remove_file(part.path().join(format!("dev/accel/accel{number}"))).unwrap();
    }
    let system = part.probe(DeviceKey::Hpu, &[]);
    assert!(system.notes[5].starts_with("the modules {4,5,7} are no group that works together"), "{:?}", system.notes);
    for number in [6, 7] {
        std::fs::remove_file(root.path().join(format!("dev/accel/accel{number}"))).unwrap();
    }
    let system = root.probe(DeviceKey::Hpu, &container);
    assert!(system.devices.is_empty() && !system.is_hpu_available());
    let system = server("0x1020", true).probe(DeviceKey::Hpu, &[("HABANA_VISIBLE_MODULES", "9")]);
    assert!(system.devices.len() == 8 && !system.is_hpu_available(), "all are hidden");
}

#[test]
fn a_device_without_its_driver_or_out_of_order_is_said() {
    let root = Root::new();
    for (address, device, taken) in
        [("0000:19:00.0", "0x1020", false), ("0000:1a:00.0", "0x1060", true), ("0000:1b:00.0", "0x0001", false)]
    {
        root.file(&format!("sys/bus/pci/devices/{address}/vendor"), "0x1da3\n");
        root.file(&format!("sys/bus/pci/devices/{address}/device"), &format!("{device}\n"));
        if taken {
            root.link(&format!("sys/bus/pci/devices/{address}/driver"), "../../../../bus/pci/drivers/habanalabs");
        }
    }
    let system = root.probe(DeviceKey::Hpu, &[]);
    assert_eq!(system.devices, []);
    assert_eq!(system.notes, ["the Gaudi at 0000:19:00.0 has no kernel driver: install and load habanalabs"]);
    let root = server("0x1000", true);
    root.file("sys/class/accel/accel3/device/status", "in device reset\n");
    let system = root.probe(DeviceKey::Hpu, &[]);
    assert_eq!(system.notes, ["the Gaudi accel3 is not ready: its driver says \"in device reset\""]);
    assert_eq!(system.devices[0].arch.as_deref(), Some("gaudi"));
    assert_eq!(system.devices[0].emulated, [DType::I64], "the first generation");
}

#[test]
fn accelerators_of_others_are_no_gaudi_and_unknown_ones_are_named_by_their_driver() {
    let root = Root::new();
    let accelerator = |number: u32, files: &[(&str, &str)]| {
        for (name, content) in files {
            root.file(&format!("sys/class/accel/accel{number}/device/{name}"), content);
        }
        root.file(&format!("dev/accel/accel{number}"), "");
    };
    // An NPU of Intel's, the vendor's inference chip, and files that say nothing.
    accelerator(0, &[("vendor", "0x8086\n"), ("device", "0x7d1d\n")]);
    accelerator(1, &[("vendor", "0x1da3\n"), ("device", "0x0001\n"), ("device_type", "GOYA\n")]);
    accelerator(2, &[("vendor", "\u{0}")]);
    root.command("hl-smi", "exit 1");
    assert_eq!(root.probe(DeviceKey::Hpu, &[]).devices, []);
    assert_eq!(root.probe(DeviceKey::Hpu, &[]).notes, Vec::<String>::new());
    // Newer than this list; and without a PCI vendor beside it.
    accelerator(
        3,
        &[("vendor", "0x1da3\n"), ("device", "0x1080\n"), ("device_type", "GAUDI4\n"), ("module_id", "0\n")],
    );
    accelerator(4, &[("device_type", "GAUDI3\n"), ("module_id", "1\n")]);
    let system = root.probe(DeviceKey::Hpu, &[]);
    assert_eq!(numbers(&system.devices), "0/3 1/4");
    assert_eq!((system.devices[0].name.as_str(), &system.devices[0].arch), ("GAUDI4", &None));
    assert_eq!((&system.devices[0].dtypes, system.devices[1].arch.as_deref()), (&None, Some("gaudi3")));
}

#[test]
fn the_command_alone_is_believed_where_the_kernels_files_are_not_to_be_seen() {
    let root = Root::new();
    root.file("dev/accel/accel0", "");
    root.file("dev/accel/accel6", "");
    root.command("hl-smi", &smi(true));
    let system = root.probe(DeviceKey::Hpu, &[]);
    assert_eq!(numbers(&system.devices), "0/0 1/6");
    assert_eq!(system.devices[1].module, Some(0));
    assert_eq!((&system.devices[1].arch, &system.devices[1].dtypes), (&None, &None));
    // A machine without any: the command is not even started.
    let root = Root::new();
    root.command("hl-smi", "echo started > \"$0.ran\"; exit 1");
    let system = root.probe(DeviceKey::Hpu, &[]);
    assert_eq!((system.devices.len(), system.notes.len()), (0, 0));
    assert!(!root.path().join("commands/hl-smi.ran").exists());
}
