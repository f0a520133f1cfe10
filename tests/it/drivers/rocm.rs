//! AMD GPUs by trees of the kernel's files.

use std::fmt::Write as _;

use kernelhub::dtype::DType;
use kernelhub::variant::{DeviceKey, Version};

use super::{Described, shown};

/// A GPU of KFD: node, target, place on the bus, unique id.
fn gpu(machine: Described, node: u32, target: u32, location: u32, unique_id: u64) -> Described {
    let folder = format!("sys/class/kfd/kfd/topology/nodes/{node}");
    let mut properties = String::from("cpu_cores_count 0\nsimd_count 304\nmem_banks_count 1\nvendor_id 4098\n");
    writeln!(properties, "gfx_target_version {target}\ndevice_id 29857\nlocation_id {location}\ndomain 0").unwrap();
    writeln!(properties, "unique_id {unique_id}").unwrap();
    machine
        .file(&format!("{folder}/properties"), properties)
        .file(&format!("{folder}/mem_banks/0/properties"), "heap_type 1\nsize_in_bytes 206141652992\nflags 0\n")
        .file(&format!("{folder}/mem_banks/1/properties"), "heap_type 0\nsize_in_bytes 1\nflags 0\n")
}

fn processor(machine: Described) -> Described {
    let properties = "cpu_cores_count 96\nsimd_count 0\nvendor_id 0\ngfx_target_version 0\n";
    machine.file("sys/class/kfd/kfd/topology/nodes/0/properties", properties).file("dev/kfd", "")
}

fn three() -> Described {
    let machine = gpu(processor(Described::new()), 2, 90_402, 0x2600, 0x1122_3344_5566_7788);
    let machine = gpu(machine, 10, 110_501, 0xc100, 0);
    gpu(machine, 1, 90_010, 0x0500, 0xabcd).file("opt/rocm/.info/version", "7.2.0-43\n")
}

#[test]
fn gpus_are_told_by_the_kernels_files() {
    let machine = three()
        .file("sys/bus/pci/devices/0000:05:00.0/product_name", "AMD Instinct MI250X\n")
        .file("sys/module/amdgpu/version", "6.16.6\n");
    let system = machine.probe(DeviceKey::Rocm);
    assert_eq!((shown(&system).as_str(), system.notes.len()), ("0=0, 1=1, 2=2", 0));
    let archs: Vec<_> = system.devices.iter().map(|gpu| gpu.arch.as_deref().unwrap()).collect();
    assert_eq!(archs, ["gfx90a", "gfx942", "gfx1151"], "in the order of the nodes, as numbers");
    let gpu = &system.devices[0];
    assert_eq!((gpu.name.as_str(), gpu.memory_bytes), ("AMD Instinct MI250X", Some(206_141_652_992)));
    assert_eq!((gpu.pci_address.as_deref(), gpu.pci_id.as_deref()), (Some("0000:05:00.0"), Some("1002:74a1")));
    assert_eq!((gpu.uuid.as_deref(), gpu.driver.as_deref()), (Some("GPU-000000000000abcd"), Some("amdgpu 6.16.6")));
    assert_eq!((gpu.backend_version, gpu.api.as_deref()), (Some(Version::new(7, 2)), Some("ROCm")));
    assert!(gpu.dtypes.as_ref().unwrap().contains(&DType::Bf16));
    assert_eq!((system.devices[2].name.as_str(), system.devices[2].uuid.as_deref()), ("AMD GPU (gfx1151)", None));
}

#[test]
fn masks_are_read_in_the_order_of_the_runtimes() {
    let masked = |settings: &[(&str, &str)]| {
        let machine = settings.iter().fold(three(), |machine, (name, value)| machine.set(name, value));
        let system = machine.probe(DeviceKey::Rocm);
        let effects: Vec<String> = system.masks.iter().map(|mask| mask.effect.clone()).collect();
        (shown(&system), effects.join(" | "))
    };
    let (devices, effects) =
        masked(&[("ROCR_VISIBLE_DEVICES", "2,0"), ("HIP_VISIBLE_DEVICES", "1"), ("CUDA_VISIBLE_DEVICES", "0")]);
    assert_eq!(devices, "0=0, 1 by ROCR_VISIBLE_DEVICES=2,0, 2 by HIP_VISIBLE_DEVICES=1");
    assert_eq!(
        effects,
        "hides 1 of 3; the rest are numbered as listed | hides 1 of 2; the one left is number 0 | nothing: \
         HIP_VISIBLE_DEVICES goes before it"
    );
    let (devices, effects) = masked(&[("HIP_VISIBLE_DEVICES", ""), ("CUDA_VISIBLE_DEVICES", "1")]);
    assert_eq!(devices, "0=1, 0 by CUDA_VISIBLE_DEVICES=1, 2 by CUDA_VISIBLE_DEVICES=1");
    assert!(effects.starts_with("nothing: to HIP"), "{effects}");
    let (devices, _) = masked(&[("ROCR_VISIBLE_DEVICES", "")]);
    assert!(devices.starts_with("0 by ROCR_VISIBLE_DEVICES=, "), "{devices}");
    let (devices, effects) = masked(&[("GPU_DEVICE_ORDINAL", "1")]);
    assert_eq!((devices.as_str(), effects.as_str()), ("0=0, 1=1, 2=2", "nothing: it is read for OpenCL alone"));
    let (devices, _) = masked(&[("ROCR_VISIBLE_DEVICES", "GPU-1122")]);
    assert_eq!(devices, "0=1, 0 by ROCR_VISIBLE_DEVICES=GPU-1122, 2 by ROCR_VISIBLE_DEVICES=GPU-1122");
}

#[test]
fn an_override_is_the_architecture_that_code_is_loaded_for() {
    let overridden = |settings: &[(&str, &str)]| {
        let machine = settings.iter().fold(three(), |machine, (name, value)| machine.set(name, value));
        let system = machine.probe(DeviceKey::Rocm);
        let archs: Vec<String> = system.devices.iter().map(|gpu| gpu.arch.clone().unwrap()).collect();
        let told = system.masks.iter().map(|mask| format!("{}: {}", mask.variable, mask.effect));
        (archs.join(" "), told.collect::<Vec<_>>().join(" | "), system)
    };
    let (archs, told, system) = overridden(&[("HSA_OVERRIDE_GFX_VERSION", "10.3.0")]);
    assert_eq!(archs, "gfx1030 gfx1030 gfx1030");
    assert_eq!(told, "HSA_OVERRIDE_GFX_VERSION: ROCm loads code of gfx1030 instead of gfx90a, gfx942, gfx1151");
    assert_eq!(system.devices[1].name, "AMD GPU (gfx942)", "the name is the hardware's");
    assert_eq!(system.devices[1].emulated, [DType::Bf16], "the types are those of the code");

    // Of one node, before all; the nodes are KFD's: 1, 2, 10.
    let (archs, told, _) =
        overridden(&[("HSA_OVERRIDE_GFX_VERSION", "9.4.2"), ("HSA_OVERRIDE_GFX_VERSION_10", "11.0.0")]);
    assert_eq!(archs, "gfx942 gfx942 gfx1100");
    assert_eq!(
        told,
        "HSA_OVERRIDE_GFX_VERSION: ROCm loads code of gfx942 instead of gfx90a | HSA_OVERRIDE_GFX_VERSION_10: ROCm \
         loads code of gfx1100 instead of gfx1151"
    );
    let (archs, told, _) = overridden(&[("HSA_OVERRIDE_GFX_VERSION_0", "11.0.0"), ("ROCR_VISIBLE_DEVICES", "1")]);
    assert_eq!(archs, "gfx942 gfx90a gfx1151", "the one that is left first");
    assert!(told.starts_with("HSA_OVERRIDE_GFX_VERSION_0: nothing: no GPU"), "{told}");

    for value in ["", "gfx1030", "11.0"] {
        let (archs, told, system) = overridden(&[("HSA_OVERRIDE_GFX_VERSION", value), ("HIP_VISIBLE_DEVICES", "0")]);
        assert_eq!(archs, "gfx90a gfx942 gfx1151");
        assert!(told.starts_with("HSA_OVERRIDE_GFX_VERSION: ROCm does not start: hides all 3"), "{told}");
        assert!(system.masks[0].error.as_deref().unwrap().contains("such as 10.3.0"), "{:?}", system.masks);
        let by = format!("HSA_OVERRIDE_GFX_VERSION={value}");
        assert!(system.devices.iter().all(|gpu| gpu.masked_by.as_deref() == Some(&by)), "{:?}", system.devices);
    }
}

/// A backend comes from devices, never from folders. (The streams of the same case are the calling conventions': no
/// kernel for ROCm is called yet.)
#[test]
fn f53_a_stray_rocm_folder_makes_no_device() {
    for machine in [
        Described::new().file("opt/rocm/.info/version", "7.2.0-43"),
        Described::new().file("opt/rocm/lib/libamdhip64.so", "").set("ROCM_PATH", "/opt/rocm"),
        processor(Described::new()).file("opt/rocm/.info/version", "7.2.0-43").set("HIP_VISIBLE_DEVICES", "0"),
    ] {
        let system = machine.probe(DeviceKey::Rocm);
        let found = (&system.devices[..], &system.masks[..], &system.notes[..]);
        assert_eq!(found, (&[][..], &[][..], &[][..]));
    }
    let empty = Described::new();
    std::fs::create_dir_all(empty.root.path().join("opt/rocm")).unwrap();
    let system = empty.probe(DeviceKey::Rocm);
    assert!(system.devices.is_empty() && system.notes.is_empty());
}

#[test]
fn what_is_missing_to_use_a_gpu_is_told() {
    let machine = gpu(Described::new(), 1, 90_402, 0x2600, 1);
    let system = machine.probe(DeviceKey::Rocm);
    assert!(system.devices.is_empty() && system.notes[0].contains("--device=/dev/kfd"), "{:?}", system.notes);
    let machine = gpu(processor(Described::new()), 1, 90_402, 0x2600, 1);
    let system = machine.probe(DeviceKey::Rocm);
    assert!(system.devices[0].backend_version.is_none() && system.notes[0].contains("ROCM_PATH"), "{:?}", system.notes);
    let machine = machine.file("sw/rocm/.info/version", "6.4.1").set("ROCM_PATH", "/sw/rocm");
    assert_eq!(machine.probe(DeviceKey::Rocm).devices[0].backend_version, Some(Version::new(6, 4)));
    let bus = "sys/bus/pci/devices/0000:03:00.0";
    let machine = Described::new()
        .file(&format!("{bus}/vendor"), "0x1002")
        .file(&format!("{bus}/device"), "0x744c")
        .file(&format!("{bus}/class"), "0x030000");
    let system = machine.probe(DeviceKey::Rocm);
    assert!(system.devices.is_empty() && system.notes[0].contains("0000:03:00.0 1002:744c"), "{:?}", system.notes);
}

#[test]
fn broken_files_are_passed_by() {
    let node = "sys/class/kfd/kfd/topology/nodes/1/properties";
    for properties in
        ["", "simd_count 4", "simd_count -1\nvendor_id 4098", "simd_count 99999999999999999999\nvendor_id 4098"]
    {
        let system = processor(Described::new()).file(node, properties).probe(DeviceKey::Rocm);
        assert!(system.devices.is_empty(), "{properties:?}");
    }
    let huge = format!(
        "simd_count 4\nvendor_id 4098\nlocation_id {0}\ndomain {0}\ndevice_id {0}\ngfx_target_version {0}",
        u64::MAX
    );
    let system = processor(Described::new()).file(node, huge).probe(DeviceKey::Rocm);
    assert_eq!((system.devices[0].arch.as_deref(), system.devices[0].name.as_str()), (None, "AMD GPU"));
}
