//! NVIDIA GPUs by drivers that the tests build from `fixtures/nvml.c` and `fixtures/libcuda.c`.

use std::sync::LazyLock;

use kernelhub::dtype::DType;
use kernelhub::system::{Capability, SystemInfo};
use kernelhub::variant::{DeviceKey, Version};

use super::{Described, shown};
use crate::support::native::compile_c;

const NVML: &str = "lib/libnvidia-ml.so.1";
const CUDA: &str = "lib/libcuda.so.1";

/// Listed out of the order of the bus, which is the order that the numbers have.
static FOUR: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let gpu = |uuid, bus| format!("{{\"NVIDIA H200\", \"GPU-{uuid}\", 9, 0, {bus}, 0x2335, 150754820096ull, 0}},");
    let gpus = [
        gpu("22222222-0000-0000-0000-000000000000", 0x9a),
        gpu("00000000-0000-0000-0000-000000000000", 0x18),
        gpu("11111111-0000-0000-0000-000000000000", 0x4d),
        gpu("33333333-0000-0000-0000-000000000000", 0xba),
    ];
    compile_c("nvml.c", "", &[&format!("-DGPUS={}", gpus.concat())])
});

fn four() -> Described {
    Described::new().file(NVML, &*FOUR)
}

fn probe(machine: &Described) -> SystemInfo {
    machine.probe(DeviceKey::Cuda)
}

#[test]
fn four_gpus_are_told_with_all_that_the_driver_knows() {
    let system = probe(&four());
    assert_eq!((system.notes.as_slice(), system.masks.as_slice()), (&[][..], &[][..]));
    assert_eq!(shown(&system), "0=0, 1=1, 2=2, 3=3");
    let gpu = &system.devices[1];
    assert_eq!((gpu.name.as_str(), gpu.api.as_deref()), ("NVIDIA H200", Some("CUDA")));
    assert_eq!(gpu.driver.as_deref(), Some("NVIDIA 580.159.04"));
    assert_eq!(gpu.backend_version, Some(Version::new(13, 0)));
    assert_eq!(gpu.memory_bytes, Some(150_754_820_096));
    assert_eq!(gpu.capability, Some(Capability { major: 9, minor: 0 }));
    assert_eq!(gpu.pci_address.as_deref(), Some("0000:4d:00.0"));
    assert_eq!(gpu.pci_id.as_deref(), Some("10de:2335"));
    assert_eq!(gpu.uuid.as_deref(), Some("GPU-11111111-0000-0000-0000-000000000000"));
    let dtypes = gpu.dtypes.as_ref().unwrap();
    assert!([DType::F64, DType::Bf16, DType::F16, DType::I8].iter().all(|dtype| dtypes.contains(dtype)), "{dtypes:?}");
    assert!(gpu.emulated.is_empty());
}

#[test]
fn every_mask_does_what_the_driver_does_and_says_it() {
    let by = |value: &str| format!("CUDA_VISIBLE_DEVICES={value}");
    let all = |value: &str| (0..4).map(|n| format!("{n} by {}", by(value))).collect::<Vec<_>>().join(", ");
    for (value, expected, effect, error) in [
        ("0,1,2,3", "0=0, 1=1, 2=2, 3=3".to_owned(), "hides none of 4", false),
        ("2", format!("0=2, 0 by {0}, 1 by {0}, 3 by {0}", by("2")), "hides 3 of 4; the one left is number 0", false),
        (
            "2,1",
            format!("0=2, 1=1, 0 by {0}, 3 by {0}", by("2,1")),
            "hides 2 of 4; the rest are numbered as listed",
            false,
        ),
        (
            "0,2,-1,1",
            format!("0=0, 1=2, 1 by {0}, 3 by {0}", by("0,2,-1,1")),
            "hides 2 of 4; the rest are numbered as listed",
            true,
        ),
        (
            "GPU-33,GPU-0",
            format!("0=3, 1=0, 1 by {0}, 2 by {0}", by("GPU-33,GPU-0")),
            "hides 2 of 4; the rest are numbered as listed",
            false,
        ),
        ("0,9", format!("0=0, 1 by {0}, 2 by {0}, 3 by {0}", by("0,9")), "hides 3 of 4", true),
        ("", all(""), "hides all 4", false),
        ("-1", all("-1"), "hides all 4", true),
        ("a", all("a"), "hides all 4", true),
        ("0,0", all("0,0"), "hides all 4", true),
        ("GPU-", all("GPU-"), "hides all 4", true),
    ] {
        let system = probe(&four().set("CUDA_VISIBLE_DEVICES", value));
        assert_eq!(shown(&system), expected, "{value:?}");
        let [mask] = &system.masks[..] else { panic!("{:?}", system.masks) };
        assert_eq!((mask.effect.as_str(), mask.error.is_some()), (effect, error), "{value:?}: {:?}", mask.error);
        assert_eq!((mask.variable.as_str(), mask.value.as_str()), ("CUDA_VISIBLE_DEVICES", value));
        assert_eq!(system.visible(DeviceKey::Cuda).count(), 4 - expected.matches(" by ").count());
    }
}

#[test]
fn an_order_that_the_driver_refuses_hides_everything() {
    for value in ["", "pci_bus_id", "PCI"] {
        let system = probe(&four().set("CUDA_DEVICE_ORDER", value).set("CUDA_VISIBLE_DEVICES", "0"));
        assert_eq!(system.visible(DeviceKey::Cuda).count(), 0, "{value:?}");
        assert!(system.devices[0].masked_by.as_deref().unwrap().starts_with("CUDA_DEVICE_ORDER="));
        assert!(system.masks[0].error.is_some() && system.masks[0].effect.starts_with("hides all 4"));
        assert!(system.masks[1].effect.contains("refuses CUDA_DEVICE_ORDER"), "{:?}", system.masks[1]);
    }
    for value in ["PCI_BUS_ID", "FASTEST_FIRST"] {
        let system = probe(&four().set("CUDA_DEVICE_ORDER", value));
        assert_eq!((shown(&system).as_str(), system.masks.len()), ("0=0, 1=1, 2=2, 3=3", 1));
        assert!(system.masks[0].error.is_none());
    }
    let system = probe(&four().set("NVIDIA_VISIBLE_DEVICES", "0"));
    assert_eq!(shown(&system), "0=0, 1=1, 2=2, 3=3", "the container runtime's variable hides nothing here");
    assert!(system.masks[0].effect.contains("container"));
}

/// A fast card behind a slow one on the bus.
fn mixed() -> Described {
    let gpus = "-DGPUS={\"Tesla T4\", \"GPU-aa\", 7, 5, 0x3b, 0x1eb8, 16106127360ull, -1},\
                {\"NVIDIA L40S\", \"GPU-bb\", 8, 9, 0x5e, 0x26b9, 48305799168ull, -1},\
                {\"GK210\", \"GPU-cc\", 3, 7, 0x86, 0x102d, 0, -1},";
    Described::new().file(NVML, compile_c("nvml.c", "", &[gpus]))
}

const FASTEST: &str =
    "-DGPUS={\"NVIDIA L40S\", 8, 9, 0x5e, 1}, {\"Tesla T4\", 7, 5, 0x3b, 1}, {\"GK210\", 3, 7, 0x86, 1},";

#[test]
fn gpus_of_several_kinds_are_numbered_by_the_driver_that_alone_knows() {
    let names = |system: &SystemInfo| system.devices.iter().map(|gpu| gpu.name.clone()).collect::<Vec<_>>();
    let cuda = compile_c("libcuda.c", "", &[FASTEST]);
    let system = probe(&mixed().file(CUDA, &cuda));
    assert_eq!(names(&system), ["NVIDIA L40S", "Tesla T4", "GK210"]);
    assert_eq!((shown(&system).as_str(), system.notes.len()), ("0=0, 1=1, 2=2", 0));
    let system = probe(&mixed().file(CUDA, &cuda).set("CUDA_DEVICE_ORDER", "PCI_BUS_ID"));
    assert_eq!(names(&system), ["Tesla T4", "NVIDIA L40S", "GK210"]);
    // Without the CUDA driver the order is a guess, and says so.
    let system = probe(&mixed());
    assert_eq!(names(&system), ["Tesla T4", "NVIDIA L40S", "GK210"]);
    assert!(system.notes[0].contains("CUDA_DEVICE_ORDER=PCI_BUS_ID"), "{:?}", system.notes);
    // Under a mask, the driver lists what the mask leaves.
    let masked = compile_c("libcuda.c", "", &["-DGPUS={\"Tesla T4\", 7, 5, 0x3b, 1},"]);
    let system = probe(&mixed().file(CUDA, masked).set("CUDA_VISIBLE_DEVICES", "1"));
    assert_eq!(shown(&system), "0=?, ? by CUDA_VISIBLE_DEVICES=1, ? by CUDA_VISIBLE_DEVICES=1");
    assert_eq!(
        (system.devices[0].name.as_str(), system.masks[0].effect.as_str()),
        ("Tesla T4", "hides 2 of 3; the one left is number 0")
    );
    let none = compile_c("libcuda.c", "", &["-DINIT=100"]);
    let system = probe(&mixed().file(CUDA, none).set("CUDA_VISIBLE_DEVICES", "9"));
    assert_eq!((system.visible(DeviceKey::Cuda).count(), system.masks[0].effect.as_str()), (0, "hides all 3"));
}

#[test]
fn what_a_gpu_computes_with_follows_its_generation() {
    let system = probe(&mixed().set("CUDA_DEVICE_ORDER", "PCI_BUS_ID"));
    let shown: Vec<_> = system
        .devices
        .iter()
        .map(|gpu| (gpu.dtypes.as_ref().unwrap().contains(&DType::F16), gpu.emulated.as_slice()))
        .collect();
    assert_eq!(shown, [(true, &[DType::Bf16][..]), (true, &[]), (false, &[DType::Bf16, DType::F16])]);
    assert_eq!(system.devices[2].memory_bytes, None);
}

fn mig(driver: &str) -> Described {
    let gpus = "-DGPUS={\"NVIDIA H200\", \"GPU-aaaaaaaa-1\", 9, 0, 0x18, 0x2335, 1, 1},\
                {\"NVIDIA H200\", \"GPU-bbbbbbbb-1\", 9, 0, 0x4d, 0x2335, 1, 0},\
                {\"NVIDIA H200\", \"GPU-cccccccc-1\", 9, 0, 0x9a, 0x2335, 1, 1},";
    let migs = "-DMIG={0, \"NVIDIA H200 MIG 1c.3g.71gb\", \"MIG-00000000-1\", 1, 0},\
                {0, \"NVIDIA H200 MIG 1c.3g.71gb\", \"MIG-11111111-1\", 1, 1},\
                {0, \"NVIDIA H200\", \"MIG-22222222-1\", 2, 0},";
    let driver = format!("-DDRIVER=\"{driver}\"");
    Described::new().file(NVML, compile_c("nvml.c", "", &[gpus, migs, &driver]))
}

#[test]
fn mig_devices_stand_in_the_place_of_their_gpu() {
    let system = probe(&mig("580.95.05"));
    // One compute instance of each GPU instance, and the GPU that is not in MIG mode.
    assert_eq!(shown(&system), "0=0, 1=1, 2=2, ? by MIG=one compute instance per GPU instance");
    let names: Vec<_> = system.devices.iter().map(|gpu| (gpu.name.as_str(), gpu.uuid.as_deref().unwrap())).collect();
    let expected = [
        ("NVIDIA H200 MIG 1c.3g.71gb", "MIG-00000000-1"),
        ("NVIDIA H200 MIG 2/0", "MIG-22222222-1"),
        ("NVIDIA H200", "GPU-bbbbbbbb-1"),
        ("NVIDIA H200 MIG 1c.3g.71gb", "MIG-11111111-1"),
    ];
    assert_eq!(names, expected);
    let first = &system.devices[0];
    assert_eq!(first.capability, Some(Capability { major: 9, minor: 0 }), "of its GPU");
    assert_eq!((first.memory_bytes, first.pci_address.as_deref()), (Some(19_327_352_832), Some("0000:18:00.0")));
    assert!(
        system.notes[0].contains("GPU-aaaaaaaa-1") && system.notes[0].contains("3 MIG devices"),
        "{:?}",
        system.notes
    );
    assert!(system.notes[1].contains("no MIG device") && system.notes[1].contains("-mig 0"), "{:?}", system.notes);
    // Drivers before 570 show a process one MIG device and nothing else.
    let system = probe(&mig("535.129.03"));
    let rule = "by MIG=one device per process";
    assert_eq!(shown(&system), format!("0=0, ? {rule}, ? {rule}, ? {rule}"));
}

#[test]
fn mig_devices_are_chosen_by_their_names() {
    let masked = |driver: &str, value: &str| {
        let system = probe(&mig(driver).set("CUDA_VISIBLE_DEVICES", value));
        system.visible(DeviceKey::Cuda).map(|gpu| gpu.uuid.clone().unwrap()).collect::<Vec<_>>()
    };
    for (value, expected) in [
        ("MIG-22,MIG-11", &["MIG-22222222-1", "MIG-11111111-1"][..]),
        // Of two compute instances of one GPU instance, the first is taken.
        ("MIG-11,MIG-00,MIG-22", &["MIG-11111111-1", "MIG-22222222-1"]),
        ("MIG-GPU-aaaaaaaa-1/1/1", &["MIG-11111111-1"]),
        ("GPU-bb", &["GPU-bbbbbbbb-1"]),
        ("GPU-aa", &[]),
    ] {
        assert_eq!(masked("580.95.05", value), expected, "{value:?}");
    }
    assert_eq!(masked("535.129.03", "MIG-22,MIG-11"), ["MIG-22222222-1"]);
    assert_eq!(masked("535.129.03", "GPU-bb"), ["GPU-bbbbbbbb-1"]);
}
