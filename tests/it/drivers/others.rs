//! Ascend, Neuron, TPU and Apple devices by trees of files and commands of the tests' own.

use std::time::{Duration, Instant};

use kernelhub::dtype::DType;
use kernelhub::system::SystemInfo;
use kernelhub::variant::{DeviceKey, Version};

use super::{Described, shown};

const NPU_SMI: &str = "cat << END
| npu-smi 24.1.0                   Version: 24.1.0                                               |
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
| 0     910B3               | OK            | 70.0        34                0    / 0             |
| 0                         | 0000:C1:00.0  | 0           0    / 0          3404 / 65536         |
| 1     910B3               | OK            | 66.9        34                0    / 0             |
| 0                         | 0000:81:00.0  | 0           0    / 0          3402 / 65536         |
END";

fn ascend() -> Described {
    let cann =
        format!("usr/local/Ascend/ascend-toolkit/latest/{}-linux/ascend_toolkit_install.info", std::env::consts::ARCH);
    Described::new()
        .file("dev/davinci0", "")
        .file("dev/davinci1", "")
        .file("dev/davinci_manager", "")
        .file("usr/local/Ascend/driver/version.info", "Version=24.1.0\nascendhal_version=7.35.19\n")
        .file(&cann, "package_name=Ascend-cann-toolkit\nversion=8.3.RC1\ninnerversion=V100\n")
        .command("npu-smi", NPU_SMI)
}

#[test]
fn ascend_npus_are_told_by_files_and_npu_smi() {
    let system = ascend().probe(DeviceKey::Npu);
    assert_eq!((shown(&system).as_str(), system.notes.len()), ("0=0, 1=1", 0), "{:?}", system.notes);
    let npu = &system.devices[0];
    assert_eq!((npu.name.as_str(), npu.arch.as_deref()), ("Ascend 910B3", Some("ascend910b3")));
    assert_eq!((npu.memory_bytes, npu.pci_address.as_deref()), (Some(64 << 30), Some("0000:c1:00.0")));
    assert_eq!((npu.backend_version, npu.driver.as_deref()), (Some(Version::new(8, 3)), Some("Ascend 24.1.0")));
    let system = ascend().set("ASCEND_RT_VISIBLE_DEVICES", "1, 0").probe(DeviceKey::Npu);
    assert_eq!(shown(&system), "0=1, 0 by ASCEND_RT_VISIBLE_DEVICES=1, 0");
    assert!(system.masks[0].error.as_deref().unwrap().contains("neither a number nor a comma"), "{:?}", system.masks);
    // A home that is set is the one that counts, and there is no CANN in it.
    let system = ascend().set("ASCEND_HOME_PATH", "/elsewhere").probe(DeviceKey::Npu);
    assert_eq!(system.devices[0].backend_version, None);
    assert!(system.notes[0].contains("ASCEND_HOME_PATH"), "{:?}", system.notes);
    // More chips than device files, as in a container: no name is given to the wrong one.
    let system = ascend().file("dev/davinci7", "").probe(DeviceKey::Npu);
    assert_eq!((system.devices.len(), system.devices[0].name.as_str()), (3, "Ascend NPU"));
    assert!(system.notes[0].contains("which is which"), "{:?}", system.notes);
}

fn neuron() -> Described {
    let rows: Vec<String> = [0, 1]
        .map(|n| {
            format!(
                "{{\"neuron_device\": {n}, \"bdf\": \"0000:0{n}:1e.0\", \"nc_count\": 2, \"memory_size\": 34359738368}}"
            )
        })
        .to_vec();
    let machine = [0, 1].iter().fold(Described::new(), |machine, n| {
        let sysfs = format!("sys/class/neuron_device/neuron{n}");
        machine
            .file(&format!("dev/neuron{n}"), "")
            .file(&format!("{sysfs}/core_count"), "2\n")
            .file(&format!("{sysfs}/info/architecture/device_name"), "Trainium1\n")
            .file(&format!("{sysfs}/info/architecture/instance_type"), "Trn1\n")
    });
    machine
        .file("sys/module/neuron/version", "2.26.5.0\n")
        .command("neuron-ls", &format!("echo '[{}]'", rows.join(",")))
}

#[test]
fn neuron_devices_are_masked_by_their_cores() {
    let system = neuron().probe(DeviceKey::Neuron);
    assert_eq!((shown(&system).as_str(), system.notes.len()), ("0=0, 1=1", 0), "{:?}", system.notes);
    let chip = &system.devices[1];
    assert_eq!((chip.name.as_str(), chip.arch.as_deref()), ("Trainium1 (2 cores)", Some("trn1")));
    assert_eq!((chip.memory_bytes, chip.pci_address.as_deref()), (Some(32 << 30), Some("0000:01:1e.0")));
    assert!(chip.dtypes.as_ref().unwrap().contains(&DType::Bf16));
    for (value, devices, effect, error) in [
        ("0-3", "0=0, 1=1", "leaves 4 of 4 cores; hides 0 of 2 devices", false),
        ("2", "0=1, 0 by NEURON_RT_VISIBLE_CORES=2", "leaves 1 of 4 cores; hides 1 of 2 devices", false),
        ("1-2", "0=0, 1=1", "leaves 2 of 4 cores; hides 0 of 2 devices", false),
        (
            "0-4",
            "0 by NEURON_RT_VISIBLE_CORES=0-4, 1 by NEURON_RT_VISIBLE_CORES=0-4",
            "leaves 0 of 4 cores; hides 2 of 2 devices",
            true,
        ),
    ] {
        let system =
            neuron().set("NEURON_RT_VISIBLE_CORES", value).set("NEURON_RT_NUM_CORES", "2").probe(DeviceKey::Neuron);
        assert_eq!(shown(&system), devices, "{value}");
        assert_eq!((system.masks[0].effect.as_str(), system.masks[0].error.is_some()), (effect, error), "{value}");
        assert!(system.masks[1].effect.contains("goes before it"));
    }
}

fn tpu() -> Described {
    let device = |machine: Described, address: &str, id: &str| {
        let folder = format!("sys/bus/pci/devices/{address}");
        machine
            .file(&format!("{folder}/vendor"), "0x1ae0\n")
            .file(&format!("{folder}/device"), id)
            .file(&format!("{folder}/class"), "0x120000\n")
    };
    // The last is Google's network card.
    [("0000:00:05.0", "0x006f\n"), ("0000:00:04.0", "0x006f\n"), ("0000:00:06.0", "0x0042\n")]
        .iter()
        .fold(Described::new(), |machine, (address, id)| device(machine, address, id))
}

#[test]
fn tpus_are_told_by_the_bus() {
    let machine = tpu().file("dev/vfio/0", "").file("dev/vfio/vfio", "").file("lib/libtpu.so", "");
    let system = machine.probe(DeviceKey::Tpu);
    assert_eq!((shown(&system).as_str(), system.notes.len()), ("0=0, 1=1", 0), "{:?}", system.notes);
    let chip = &system.devices[0];
    assert_eq!(
        (chip.name.as_str(), chip.arch.as_deref(), chip.pci_address.as_deref()),
        ("TPU v6e", Some("v6e"), Some("0000:00:04.0"))
    );
    let machine = machine.set("TPU_VISIBLE_CHIPS", "1").set("TPU_VISIBLE_DEVICES", "0");
    let system = machine.probe(DeviceKey::Tpu);
    assert_eq!(shown(&system), "0=1, 0 by TPU_VISIBLE_CHIPS=1");
    assert!(system.masks[1].effect.contains("TPU_VISIBLE_CHIPS goes before it"));
    let system =
        tpu().file("dev/accel0", "").set("TPU_VISIBLE_CHIPS", "").set("TPU_VISIBLE_DEVICES", "5").probe(DeviceKey::Tpu);
    assert_eq!((system.visible(DeviceKey::Tpu).count(), system.masks[1].error.is_some()), (0, true));
    assert!(system.notes[0].contains("pip install libtpu"), "{:?}", system.notes);
    let system = tpu().probe(DeviceKey::Tpu);
    assert!(system.devices.is_empty() && system.notes[0].contains("2 TPU chips are"), "{:?}", system.notes);
}

const PLIST: &str = "<dict><key>ProductVersion</key><string>26.1</string></dict>";

#[test]
fn apple_gpus_are_told_by_the_systems_profiler() {
    let profile = r#"echo '{"SPDisplaysDataType": [{"sppci_model": "Apple M4", "sppci_cores": "10",
        "spdisplays_vendor": "sppci_vendor_Apple", "spdisplays_mtlgpufamilysupport": "spdisplays_metal4"}],
        "SPHardwareDataType": [{"physical_memory": "24 GB"}]}'"#;
    let plist = "System/Library/CoreServices/SystemVersion.plist";
    let system = Described::new().file(plist, PLIST).command("system_profiler", profile).probe(DeviceKey::Mps);
    let gpu = &system.devices[0];
    assert_eq!((gpu.name.as_str(), gpu.memory_bytes), ("Apple M4 (10 cores)", Some(24 << 30)));
    assert!(gpu.dtypes.as_ref().unwrap().contains(&DType::Bf16));
    let system = Described::new().file(plist, PLIST).command("system_profiler", "echo '{'").probe(DeviceKey::Mps);
    assert!(system.devices.is_empty() && system.notes[0].contains("system_profiler"), "{:?}", system.notes);
}

/// On another machine none of them finds anything, and none has a word to say.
#[test]
fn a_plain_machine_is_silent() {
    for key in [DeviceKey::Npu, DeviceKey::Neuron, DeviceKey::Tpu, DeviceKey::Rocm, DeviceKey::Cuda] {
        let system = Described::new().file("dev/null0", "").probe(key);
        assert_eq!((system.devices.len(), system.notes.len()), (0, 0), "{key}: {:?}", system.notes);
    }
    // Apple's prober does not look at all where there is no macOS, and nothing is known of such devices then.
    let mut system: SystemInfo =
        serde_json::from_str(r#"{"os": "linux", "arch": "x86_64", "unprobed": ["mps"]}"#).unwrap();
    system.probe_native(DeviceKey::Mps, &Described::new().environment);
    assert!(system.unprobed.contains(&DeviceKey::Mps));
}

#[test]
fn a_device_that_cannot_be_used_is_a_note() {
    let card = |vendor: &str| {
        let folder = "sys/bus/pci/devices/0000:c1:00.0";
        Described::new()
            .file(&format!("{folder}/vendor"), vendor)
            .file(&format!("{folder}/device"), "0xd802")
            .file(&format!("{folder}/class"), "0x120000")
    };
    for (vendor, key, part) in
        [("0x19e5", DeviceKey::Npu, "/dev/davinci0"), ("0x1d0f", DeviceKey::Neuron, "aws-neuronx-dkms")]
    {
        let system = card(vendor).probe(key);
        assert!(system.devices.is_empty() && system.notes[0].contains(part), "{:?}", system.notes);
    }
}

/// The commands of a machine may hang, never stop writing, print nonsense, fail, or be missing. The devices stay.
#[test]
fn commands_that_fail_cost_what_they_would_have_told() {
    let scripts = [
        ("sleep 600", "took more than"),
        ("while :; do echo 0123456789012345678901234567890123456789; done", "wrote more than"),
        ("printf '\\377\\376 nonsense | 0 | : | 1'", ""),
        ("echo broken >&2; exit 3", "broken"),
    ];
    let one = |key, machine: fn() -> Described, name: &str, script: &str, words: &str| {
        let clock = Instant::now();
        let system = machine().command(name, script).probe(key);
        assert!(clock.elapsed() < Duration::from_mins(1), "{script}");
        assert_eq!(system.devices.len(), 2, "{script}");
        assert_eq!(system.devices[0].memory_bytes, None);
        let said = system.notes.iter().any(|note| note.contains(words) && note.contains("known"));
        assert!(said || words.is_empty(), "{script}: {:?}", system.notes);
    };
    let tools = [(DeviceKey::Npu, ascend as fn() -> Described, "npu-smi"), (DeviceKey::Neuron, neuron, "neuron-ls")];
    std::thread::scope(|scope| {
        for (key, machine, name) in tools {
            for (script, words) in scripts {
                scope.spawn(move || one(key, machine, name, script, words));
            }
        }
    });
    for (key, machine, name) in tools {
        let mut missing = machine();
        missing.environment.settings.remove("PATH");
        assert!(missing.probe(key).notes[0].contains(name), "{name}");
    }
    // Where the vendor installs it, it is found without a PATH.
    let mut neuron_without_path = neuron();
    let root = neuron_without_path.root.path().to_owned();
    std::fs::create_dir_all(root.join("opt/aws/neuron")).unwrap();
    std::fs::rename(root.join("bin"), root.join("opt/aws/neuron/bin")).unwrap();
    neuron_without_path.environment.settings.remove("PATH");
    assert!(neuron_without_path.probe(DeviceKey::Neuron).notes.is_empty());
    // Nonsense of the Neuron tool is no list, and the driver's own files tell the cores.
    let system = neuron().command("neuron-ls", "echo nonsense").probe(DeviceKey::Neuron);
    assert_eq!(system.devices[0].name, "Trainium1 (2 cores)");
    assert!(system.notes[0].contains("neuron-ls"), "{:?}", system.notes);
}
