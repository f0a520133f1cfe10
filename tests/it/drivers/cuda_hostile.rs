//! NVIDIA's driver in part, broken or not there.

use kernelhub::dtype::DType;
use kernelhub::system::SystemInfo;
use kernelhub::variant::{DeviceKey, Version};

use super::{Described, shown};
use crate::support::native::compile_c;

const NVML: &str = "lib/libnvidia-ml.so.1";
const CUDA: &str = "lib/libcuda.so.1";
const ONE: &str = "-DGPUS={\"NVIDIA H200\", \"GPU-aa\", 9, 0, 0x18, 0x2335, 1, 0},";

fn probe(machine: &Described) -> SystemInfo {
    machine.probe(DeviceKey::Cuda)
}

/// A GPU on the bus, beside a switch of the same vendor.
fn with_hardware() -> Described {
    let device = |machine: Described, address: &str, id: &str, class: &str| {
        machine
            .file(&format!("sys/bus/pci/devices/{address}/vendor"), "0x10de\n")
            .file(&format!("sys/bus/pci/devices/{address}/device"), format!("{id}\n"))
            .file(&format!("sys/bus/pci/devices/{address}/class"), format!("{class}\n"))
    };
    let machine = device(Described::new(), "0000:18:00.0", "0x2335", "0x030200");
    device(machine, "0000:07:00.0", "0x22a3", "0x068000")
}

#[test]
fn a_machine_without_gpus_is_silent_whatever_is_installed_or_set() {
    let silent = |machine: Described| {
        let system = probe(&machine.set("CUDA_VISIBLE_DEVICES", "0").set("NVIDIA_VISIBLE_DEVICES", "all"));
        let found = (&system.devices[..], &system.masks[..], &system.notes[..]);
        assert_eq!(found, (&[][..], &[][..], &[][..]));
    };
    silent(Described::new());
    // The driver is installed and there is no GPU: its kernel module is not loaded.
    let nvml = compile_c("nvml.c", "", &["-DINIT=9"]);
    silent(Described::new().file(NVML, &nvml));
    silent(Described::new().file(NVML, &nvml).file(CUDA, compile_c("libcuda.c", "", &["-DINIT=100"])));
    silent(Described::new().file(NVML, &nvml).file(CUDA, compile_c("libcuda.c", "", &["-DINIT=999"])));
    silent(Described::new().file(NVML, compile_c("nvml.c", "", &[])));
    // A toolkit's stub for linking.
    silent(Described::new().file(CUDA, compile_c("libcuda.c", "", &["-DINIT=34"])));
}

#[test]
fn a_gpu_without_a_driver_is_a_note_that_says_what_to_install() {
    let system = probe(&with_hardware());
    assert!(system.devices.is_empty(), "nothing could run on it");
    let [note] = &system.notes[..] else { panic!("{:?}", system.notes) };
    for part in
        ["1 NVIDIA GPU is", "0000:18:00.0 10de:2335", "libnvidia-ml.so.1", "libcuda.so.1", "install NVIDIA's driver"]
    {
        assert!(note.contains(part), "{part}: {note}");
    }
    assert!(!note.contains("22a3"), "a switch is no GPU: {note}");
    // The kernel's part is there: a container without the libraries.
    let information = "Model: \t\t NVIDIA H200\nIRQ:   \t\t 41\n";
    let machine = with_hardware()
        .file("proc/driver/nvidia/gpus/0000:18:00.0/information", information)
        .file("sys/module/nvidia/version", "580.159.04\n");
    let system = probe(&machine);
    let note = &system.notes[0];
    assert!(note.contains("0000:18:00.0 NVIDIA H200") && note.contains("module 580.159.04 is loaded"), "{note}");
    assert!(note.contains("--gpus all"), "{note}");
    // A driver that is there and fails is quoted.
    let nvml = compile_c("nvml.c", "", &["-DINIT=18"]);
    let system = probe(&with_hardware().file(NVML, nvml));
    assert!(system.notes[0].contains("different driver versions (error 18)"), "{:?}", system.notes);
    let system = probe(&with_hardware().file(NVML, "no library").file(CUDA, "no library"));
    assert!(system.notes[0].contains("NVML cannot be opened"), "{:?}", system.notes);
}

#[test]
fn the_cuda_driver_is_asked_where_there_is_no_nvml() {
    let gpus = "-DGPUS={\"Orin\", 8, 7, 0, 32000000000ull}, {\"Old\", 5, 0, 1, 1},";
    let cuda = compile_c("libcuda.c", "", &[gpus]);
    let system = probe(&Described::new().file(CUDA, &cuda));
    assert_eq!((shown(&system).as_str(), system.notes.len()), ("0=0, 1=1", 0));
    let gpu = &system.devices[0];
    assert_eq!((gpu.name.as_str(), gpu.memory_bytes), ("Orin", Some(32_000_000_000)));
    assert_eq!(gpu.backend_version, Some(Version::new(12, 8)));
    assert_eq!(gpu.capability.unwrap().to_string(), "8.7");
    assert_eq!(gpu.uuid.as_deref(), Some("GPU-11111111-1111-1111-1111-111111111111"));
    assert_eq!(system.devices[1].emulated, [DType::Bf16, DType::F16]);
    // It applies the mask itself: what is listed is what is left.
    let system = probe(&Described::new().file(CUDA, &cuda).set("CUDA_VISIBLE_DEVICES", "3,4"));
    assert_eq!(shown(&system), "0=?, 1=?");
    assert!(system.masks[0].effect.contains("not known"), "{:?}", system.masks);
    let system =
        probe(&with_hardware().file(CUDA, compile_c("libcuda.c", "", &["-DINIT=100"])).set("CUDA_VISIBLE_DEVICES", ""));
    assert_eq!((system.devices.len(), system.masks[0].effect.as_str()), (0, "hides all 1"));
    // NVML that is there and of no use is told of.
    let broken = compile_c("nvml.c", "", &["-DINIT=999"]);
    let system = probe(&Described::new().file(NVML, broken).file(CUDA, &cuda));
    assert_eq!(shown(&system), "0=0, 1=1");
    assert!(system.notes[0].contains("error 999"), "{:?}", system.notes);
}

#[test]
fn libraries_that_are_none_are_told_of() {
    let empty = compile_c("helper.c", "", &[]);
    let system = probe(&Described::new().file(NVML, &empty).file(CUDA, &empty));
    assert!(system.devices.is_empty());
    assert!(system.notes.iter().any(|note| note.contains("no function nvmlInit_v2")), "{:?}", system.notes);
    // Each function may be missing, and what it tells is then not known.
    for missing in [
        "nvmlShutdown",
        "nvmlSystemGetDriverVersion",
        "nvmlSystemGetCudaDriverVersion_v2",
        "nvmlDeviceGetCount_v2",
        "nvmlDeviceGetHandleByIndex_v2",
        "nvmlDeviceGetName",
        "nvmlDeviceGetUUID",
        "nvmlDeviceGetMemoryInfo",
        "nvmlDeviceGetCudaComputeCapability",
        "nvmlDeviceGetPciInfo_v3",
        "nvmlDeviceGetMigMode",
    ] {
        let without = format!("-D{missing}=absent_function");
        let system = probe(&Described::new().file(NVML, compile_c("nvml.c", "", &[ONE, &without])));
        let needed = ["nvmlDeviceGetCount_v2", "nvmlDeviceGetHandleByIndex_v2"].contains(&missing);
        assert_eq!(system.devices.len(), usize::from(!needed), "{missing}: {:?}", system.notes);
        assert!(!needed || system.notes[0].contains(missing), "{:?}", system.notes);
    }
}

#[test]
fn nonsense_is_bounded_and_never_taken_for_a_fact() {
    // Success everywhere, and every text filled to the last byte.
    let system = probe(&Described::new().file(NVML, compile_c("nvml.c", "", &[ONE, "-DHOSTILE", "-DCUDA=-5"])));
    let gpu = &system.devices[0];
    assert_eq!(gpu.name, "\u{fffd}".repeat(96));
    assert_eq!(gpu.backend_version, None);
    assert!(!system.to_string().is_empty());
    let absurd = "-DGPUS={\"x\", \"y\", -7, 2000000000, 0xffffffff, 0xffff, 18446744073709551615ull, 77},\
                  {\"x\", \"y\", 2000000000, 0, 0, 0, 0, 0},";
    let system = probe(&Described::new().file(NVML, compile_c("nvml.c", "", &[absurd, "-DCUDA=2147483647"])));
    for gpu in &system.devices {
        assert_eq!((gpu.capability, gpu.dtypes.as_ref(), gpu.backend_version), (None, None, None));
    }
    assert_eq!(system.devices.len(), 2);
    // 2^31 GPUs, of which one answers; then a handle that is none.
    let clock = std::time::Instant::now();
    let system = probe(&Described::new().file(NVML, compile_c("nvml.c", "", &[ONE, "-DCOUNT=2147483648u"])));
    assert!(clock.elapsed() < std::time::Duration::from_secs(30));
    assert_eq!(system.devices.len(), 1);
    assert!(system.notes[0].contains("cannot be"), "{:?}", system.notes);
    assert!(system.notes.len() < 8, "{:?}", system.notes);
    let system = probe(&Described::new().file(NVML, compile_c("nvml.c", "", &[ONE, "-DNO_HANDLE"])));
    assert_eq!((system.devices.len(), system.notes.len()), (0, 1), "{:?}", system.notes);
    // A fault that is more than the absence of a GPU is told, though no bus shows one: so it is under Windows' Linux.
    let system = probe(&Described::new().file(CUDA, compile_c("libcuda.c", "", &["-DINIT=803"])));
    assert!(system.notes[0].contains("different driver versions (error 803)"), "{:?}", system.notes);
    for count in ["-1", "2147483647"] {
        let gpus = "-DGPUS={\"a\", 9, 0, 1, 1},";
        let cuda = compile_c("libcuda.c", "", &[gpus, &format!("-DCOUNT={count}")]);
        let system = probe(&Described::new().file(CUDA, cuda));
        assert_eq!(system.devices.len(), usize::from(count != "-1"), "{:?}", system.notes);
        assert!(system.notes.len() <= 3, "{:?}", system.notes);
    }
}

/// Set in a child: the driver that it asks never answers, and would keep every later test of this process waiting.
const HUNG: &str = "KERNELHUB_TEST_CUDA_HANGS";

#[test]
fn a_driver_that_hangs_is_left_behind() {
    if std::env::var_os(HUNG).is_some() {
        let machine = with_hardware().file(NVML, compile_c("nvml.c", "", &[ONE, "-DHANG"]));
        let system = probe(&machine);
        assert!(system.devices.is_empty());
        assert!(system.notes[0].contains("did not answer within 30 s"), "{:?}", system.notes);
        assert!(system.notes[0].contains("0000:18:00.0"), "{:?}", system.notes);
        println!("left behind");
        return;
    }
    let clock = std::time::Instant::now();
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "--nocapture", "drivers::cuda_hostile::a_driver_that_hangs_is_left_behind"]);
    let output = child.env(HUNG, "1").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stdout).contains("left behind"));
    assert!(clock.elapsed() < std::time::Duration::from_secs(150), "{:?}", clock.elapsed());
}
