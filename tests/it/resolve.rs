//! Described machines against lists of builds, through the public interface.
#![expect(clippy::unwrap_used, reason = "a helper panics as the test that calls it would")]

use kernelhub::dtype::DType;
use kernelhub::hint::Hint as _;
use kernelhub::resolve::{Candidate, Note, Reason, Request, Resolution, ResolveError, Verdict, choose, resolve};
use kernelhub::system::{Capability, DeviceInfo, Libc, LibraryFound, Route, SystemInfo};
use kernelhub::variant::{AnyVariant, Arch, DeviceKey, Os, Version};
use proptest::prelude::*;

fn linux() -> SystemInfo {
    let mut system = SystemInfo::described(Os::Linux, Arch::X86_64);
    system.libc = Some(Libc::Glibc(Version::new(2, 36)));
    system
}

fn with_tvm_ffi(mut system: SystemInfo) -> SystemInfo {
    system.tvm_ffi =
        Some(LibraryFound { path: "/opt/tvm_ffi/lib/libtvm_ffi.so".into(), version: Some("0.1.15".to_owned()) });
    system
}

fn cuda(major: u32, minor: u32, capability: &str) -> SystemInfo {
    let mut device = DeviceInfo::new(DeviceKey::Cuda, 0, "NVIDIA H200", Route::Native);
    device.backend_version = Some(Version::new(major, minor));
    device.capability = Some(capability.parse().unwrap());
    device.memory_bytes = Some(150_754_820_096);
    device.api = Some("CUDA".to_owned());
    device.driver = Some("580.95".to_owned());
    device.dtypes = Some(vec![DType::F64, DType::F32, DType::Bf16, DType::F16]);
    let mut system = with_tvm_ffi(linux());
    system.devices.push(device);
    system
}

fn rocm(major: u32, minor: u32, arch: &str) -> SystemInfo {
    let mut device = DeviceInfo::new(DeviceKey::Rocm, 0, "Radeon 8060S", Route::Native);
    device.backend_version = Some(Version::new(major, minor));
    device.arch = Some(arch.to_owned());
    let mut system = with_tvm_ffi(linux());
    system.devices.push(device);
    system
}

fn adapter(key: DeviceKey, index: u32, name: &str, software: bool) -> DeviceInfo {
    let mut device = DeviceInfo::new(key, index, name, Route::Adapter);
    device.software = software;
    device.api = Some("vulkan".to_owned());
    device
}

/// A laptop with an Intel GPU and Mesa's software adapter.
fn intel_laptop() -> SystemInfo {
    let mut system = linux();
    system.devices.push(adapter(DeviceKey::Xpu, 0, "Intel Arc Graphics (MTL)", false));
    system.devices.push(adapter(DeviceKey::Wgpu, 0, "llvmpipe (LLVM 15.0.6, 256 bits)", true));
    system
}

fn chosen(names: &[&str], system: &SystemInfo, request: &Request) -> Option<String> {
    let candidates = Candidate::from_names(names.iter().copied());
    let resolution = resolve(&candidates, system, request);
    assert_eq!(resolution.decisions.len(), names.len(), "a decision for every candidate");
    resolution.chosen.map(|index| names[index].to_owned())
}

/// The reason for the only candidate.
fn reason(candidate: Candidate, system: &SystemInfo, request: &Request) -> Reason {
    let resolution = resolve(&[candidate], system, request);
    resolution.decisions[0].reason().unwrap_or_else(|| panic!("accepted: {resolution}")).clone()
}

fn named(name: &str) -> Candidate {
    Candidate::new(AnyVariant::read(name), 0)
}

fn kind(reason: &Reason) -> String {
    serde_json::to_value(reason).unwrap()["kind"].as_str().unwrap().to_owned()
}

const CPU: Request = Request::device(DeviceKey::Cpu);
const CUDA: Request = Request::device(DeviceKey::Cuda);
const XPU: Request = Request::device(DeviceKey::Xpu);
const WGPU: Request = Request::device(DeviceKey::Wgpu);

#[test]
fn f01_cuda_takes_the_highest_minor_of_the_same_major() {
    let builds = ["tvm-ffi01-cu126-x86_64-linux", "tvm-ffi01-cu128-x86_64-linux", "tvm-ffi01-cu130-x86_64-linux"];
    for (host, expected) in [
        ((12, 9), Some(builds[1])),
        ((12, 5), None),
        ((12, 6), Some(builds[0])),
        ((12, 10), Some(builds[1])),
        ((13, 2), Some(builds[2])),
        ((14, 0), None),
        ((11, 8), None),
    ] {
        assert_eq!(chosen(&builds, &cuda(host.0, host.1, "9.0"), &CUDA).as_deref(), expected, "host {host:?}");
    }
}

#[test]
fn f01_other_backends_match_exactly() {
    let builds = ["tvm-ffi01-rocm63-x86_64-linux", "tvm-ffi01-rocm714-x86_64-linux", "tvm-ffi01-rocm72-x86_64-linux"];
    let request = Request::device(DeviceKey::Rocm);
    assert_eq!(chosen(&builds, &rocm(7, 14, "gfx1151"), &request).as_deref(), Some(builds[1]));
    assert_eq!(chosen(&builds, &rocm(7, 3, "gfx1151"), &request), None);
    let mut machine = linux();
    let mut device = DeviceInfo::new(DeviceKey::Xpu, 0, "Intel Data Center GPU Max 1550", Route::Native);
    device.backend_version = Some(Version::new(2026, 0));
    machine.devices.push(device);
    let builds = ["tvm-ffi01-xpu20253-x86_64-linux", "tvm-ffi01-xpu20260-x86_64-linux"];
    assert_eq!(chosen(&builds, &machine, &XPU).as_deref(), Some(builds[1]));
    machine.devices[0].backend_version = None;
    assert_eq!(chosen(&builds, &machine, &XPU), None, "an unknown version is no match");
}

#[test]
fn f02_every_candidate_has_a_reason_of_its_own_kind() {
    let names = [
        "tvm-ffi01-cu128-x86_64-windows",
        "tvm-ffi01-cu128-aarch64-linux",
        "tvm-ffi01-rocm63-x86_64-linux",
        "tvm-ffi02-cu128-x86_64-linux",
    ];
    let candidates = Candidate::from_names(names);
    let error = choose(&candidates, &cuda(12, 8, "9.0"), &CUDA).unwrap_err();
    let ResolveError::NothingFits { resolution, .. } = &error else { panic!("{error}") };
    let mut kinds: Vec<String> = resolution.decisions.iter().map(|d| kind(d.reason().unwrap())).collect();
    kinds.sort();
    assert_eq!(kinds, ["backend", "cpu-arch", "framework-version", "os"]);
    for name in names {
        assert!(error.to_string().contains(name), "{error}");
    }
}

#[test]
fn f03_capability_is_checked_before_the_download() {
    let build = |archs: &[&str]| {
        let mut candidate = named("tvm-ffi01-cu128-x86_64-linux");
        candidate.archs = Some(archs.iter().map(|&arch| arch.to_owned()).collect());
        candidate
    };
    let machine = cuda(12, 8, "10.0");
    assert_eq!(
        reason(build(&["8.0", "9.0a"]), &machine, &CUDA),
        Reason::Capability {
            archs: vec!["8.0".to_owned(), "9.0a".to_owned()],
            actual: Capability { major: 10, minor: 0 }
        }
    );
    let resolution = resolve(&[build(&["7.0", "9.0+PTX"])], &machine, &CUDA);
    assert_eq!(resolution.decisions[0].notes(), []);
    // An empty list is unknown: accepted, said so, and behind a build that is known to fit.
    let mut known = build(&["9.0+PTX"]);
    known.variant = AnyVariant::read("tvm-ffi01-cu126-x86_64-linux");
    let resolution = resolve(&[build(&[]), known], &machine, &CUDA);
    assert_eq!(resolution.chosen, Some(1));
    assert!(matches!(resolution.decisions[1].notes(), [Note::ArchUnknown]));
}

#[test]
fn f04_rocm_architectures_are_named_on_both_sides() {
    let mut candidate = named("tvm-ffi01-rocm72-x86_64-linux");
    candidate.archs = Some(vec!["gfx942".to_owned()]);
    let text = reason(candidate, &rocm(7, 2, "gfx1151"), &Request::device(DeviceKey::Rocm)).to_string();
    assert!(text.contains("gfx942") && text.contains("gfx1151"), "{text}");
}

#[test]
fn f33_torch_builds_without_libtorch_are_rejected_with_that_reason() {
    let names =
        ["torch211-cxx11-cpu-x86_64-linux", "torch211-cpu-x86_64-linux", "torch-stable-abi211-cpu-x86_64-linux"];
    let error = choose(&Candidate::from_names(names), &linux(), &CPU).unwrap_err();
    let ResolveError::NothingFits { resolution, .. } = &error else { panic!("{error}") };
    assert!(resolution.decisions.iter().all(|d| matches!(d.reason(), Some(Reason::FrameworkMissing { .. }))));
    assert!(error.hint().unwrap().contains("tvm-ffi or wgsl build"), "{:?}", error.hint());
    assert_eq!(reason(named("torch-cpu"), &linux(), &CPU), Reason::NeedsPython);
}

#[test]
fn torch_builds_need_the_version_and_a_loader() {
    let mut machine = linux();
    machine.torch =
        Some(LibraryFound { path: "/opt/libtorch/lib/libtorch.so".into(), version: Some("2.12.1+cpu".into()) });
    let fits = |name: &str, request: &Request| resolve(&[named(name)], &machine, request).chosen.is_some();
    let mut loader = CPU;
    loader.torch_loader = true;
    assert!(matches!(reason(named("torch212-cpu-x86_64-linux"), &machine, &CPU), Reason::FrameworkUnsupported { .. }));
    assert!(fits("torch212-cpu-x86_64-linux", &loader) && fits("torch212-cxx11-cpu-x86_64-linux", &loader));
    assert!(fits("torch-stable-abi211-cpu-x86_64-linux", &loader));
    assert!(matches!(reason(named("torch211-cpu-x86_64-linux"), &machine, &loader), Reason::FrameworkVersion { .. }));
    assert!(!fits("torch-stable-abi213-cpu-x86_64-linux", &loader));
    assert_eq!(reason(named("torch212-cxx98-cpu-x86_64-linux"), &machine, &loader), Reason::CxxAbi);
}

#[test]
fn torch_builds_need_a_library_that_is_built_for_their_backend() {
    let mut loader = CUDA;
    loader.torch_loader = true;
    let on = |library: &str, build: &str, request: &Request| {
        let mut machine = cuda(13, 0, "9.0");
        machine.torch =
            Some(LibraryFound { path: "/opt/libtorch/lib/libtorch.so".into(), version: Some(library.into()) });
        let resolution = resolve(&[named(build)], &machine, request);
        resolution.decisions[0].reason().map_or_else(|| "fits".to_owned(), kind)
    };
    let cu130 = "torch213-cxx11-cu130-x86_64-linux";
    for (library, expected) in [
        ("2.13.0+cu130", "fits"),
        ("2.13.0+cu132", "fits"),
        ("2.13.0", "fits"),
        ("2.13.0a0+git1234", "fits"),
        ("2.13.0+cpu", "framework-backend"),
        ("2.13.0+cu126", "framework-backend"),
        ("2.13.0+rocm7.2", "framework-backend"),
        ("2.13.0+xpu", "framework-backend"),
        ("2.13.0+hpu", "framework-backend"),
        ("2.12.0+cu130", "framework-version"),
    ] {
        assert_eq!(on(library, cu130, &loader), expected, "{library}");
    }
    assert_eq!(on("2.13.0+cu126", "torch-stable-abi210-cu130-x86_64-linux", &loader), "framework-backend");
    // The processor is in every libtorch.
    let cpu = CPU.with_torch_loader(true);
    assert_eq!(on("2.13.0+cu126", "torch213-cxx11-cpu-x86_64-linux", &cpu), "fits");
    let error = choose(
        &Candidate::from_names([cu130]),
        &{
            let mut machine = cuda(13, 0, "9.0");
            machine.torch = Some(LibraryFound { path: "/t".into(), version: Some("2.13.0+cpu".into()) });
            machine
        },
        &loader,
    )
    .unwrap_err();
    assert!(error.to_string().contains("built for cuda 13.0; the library of Torch here is built for cpu"), "{error}");
    assert!(error.hint().unwrap().contains("LIBTORCH"), "{:?}", error.hint());
}

#[test]
fn systems_older_than_publishers_build_for_are_said() {
    let noted =
        |system: &SystemInfo, candidate: Candidate| resolve(&[candidate], system, &CPU).decisions[0].notes().to_vec();
    let build = || named("tvm-ffi01-cpu-x86_64-linux");
    let mut old = with_tvm_ffi(linux());
    old.libc = Some(Libc::Glibc(Version::new(2, 17)));
    let floor = |system: &'static str, usual, actual| Note::BelowUsualFloor { system: system.into(), usual, actual };
    assert_eq!(noted(&old, build())[0], floor("glibc", Version::new(2, 28), Version::new(2, 17)));
    // What the build itself asks for says more.
    let mut known = build();
    known.minimum_glibc = Some(Version::new(2, 17));
    assert_eq!(noted(&old, known)[..], [Note::TvmFfiUnknown][..0]);
    old.libc = Some(Libc::Glibc(Version::new(2, 28)));
    assert!(!noted(&old, build()).iter().any(|note| matches!(note, Note::BelowUsualFloor { .. })));
    let mut mac = SystemInfo::described(Os::Darwin, Arch::Aarch64);
    mac.os_version = Some("15.6.1".to_owned());
    let notes = noted(&mac, named("tvm-ffi01-cpu-aarch64-darwin"));
    assert!(notes.contains(&floor("macOS", Version::new(26, 0), Version::new(15, 6))), "{notes:?}");
}

#[test]
fn what_has_to_be_looked_for_is_what_decides_on_a_build() {
    let mut machine = linux();
    machine.unprobed = DeviceKey::all().filter(|key| *key != DeviceKey::Cpu).collect();
    let keys = |names: &[&str], request: &Request| -> Vec<DeviceKey> {
        let candidates = Candidate::from_names(names.iter().copied());
        resolve(&candidates, &machine, request).unprobed().into_iter().collect()
    };
    let names = [
        "tvm-ffi01-cu128-x86_64-linux",
        "tvm-ffi01-cpu-x86_64-linux",
        "wgsl-xpu",
        "torch29-xpu20260-x86_64-linux",
        "tvm-ffi01-rocm72-aarch64-linux",
    ];
    // Torch is not here and the AMD build is for another processor: neither makes anybody look for its device.
    assert_eq!(keys(&names, &Request::any()), [DeviceKey::Cuda, DeviceKey::Wgpu]);
    assert_eq!(keys(&names, &CUDA), [DeviceKey::Cuda, DeviceKey::Wgpu]);
    assert_eq!(keys(&names[..2], &CUDA), [DeviceKey::Cuda]);
    assert_eq!(keys(&names, &CPU), []);
}

#[test]
fn tvm_ffi_is_needed_only_by_builds_that_import_it() {
    let build = |imports| {
        let mut candidate = named("tvm-ffi01-cpu-x86_64-linux");
        candidate.imports_tvm_ffi = imports;
        candidate
    };
    let without = linux();
    assert_eq!(resolve(&[build(None)], &without, &CPU).decisions[0].notes(), [Note::TvmFfiUnknown]);
    assert_eq!(resolve(&[build(Some(false))], &without, &CPU).decisions[0].notes(), []);
    let error = choose(&[build(Some(true))], &without, &CPU).unwrap_err();
    assert!(error.hint().unwrap().contains("KERNELHUB_TVM_FFI"), "{:?}", error.hint());
    assert_eq!(resolve(&[build(Some(true))], &with_tvm_ffi(linux()), &CPU).chosen, Some(0));
    let mut newer = with_tvm_ffi(linux());
    newer.tvm_ffi.as_mut().unwrap().version = Some("0.2.0".to_owned());
    assert_eq!(resolve(&[build(None)], &newer, &CPU).decisions[0].notes(), [Note::TvmFfiUnknown]);
    assert!(matches!(reason(build(Some(true)), &newer, &CPU), Reason::FrameworkVersion { .. }));
    assert_eq!(resolve(&[build(Some(false))], &newer, &CPU).chosen, Some(0));
}

#[test]
fn c_library_floors_hold() {
    let mut candidate = named("tvm-ffi01-cpu-x86_64-linux");
    candidate.minimum_glibc = Some(Version::new(2, 38));
    assert!(matches!(reason(candidate.clone(), &linux(), &CPU), Reason::GlibcTooOld { .. }));
    candidate.minimum_glibc = Some(Version::new(2, 36));
    assert_eq!(resolve(&[candidate.clone()], &linux(), &CPU).chosen, Some(0));
    let mut musl = linux();
    musl.libc = Some(Libc::Musl);
    assert_eq!(reason(candidate.clone(), &musl, &CPU), Reason::Libc { actual: Libc::Musl });
    musl.libc = None;
    assert!(resolve(&[candidate], &musl, &CPU).decisions[0].notes().contains(&Note::LibcUnknown));
}

#[test]
fn metal_builds_need_their_macos() {
    let mut mac = SystemInfo::described(Os::Darwin, Arch::Aarch64);
    mac.devices.push(DeviceInfo::new(DeviceKey::Mps, 0, "Apple M4", Route::Native));
    let build = || named("tvm-ffi01-metal-aarch64-darwin");
    let request = Request::device(DeviceKey::Mps);
    for (version, fits) in [(None, false), (Some("15.6.1"), false), (Some("26.0"), true), (Some("26"), true)] {
        mac.os_version = version.map(str::to_owned);
        assert_eq!(resolve(&[build()], &mac, &request).chosen.is_some(), fits, "{version:?}");
    }
}

#[test]
fn shaders_serve_the_adapters_of_their_target() {
    let packs = ["wgsl-cuda", "wgsl-universal", "wgsl-wgpu", "wgsl-xpu"];
    let laptop = intel_laptop();
    assert_eq!(chosen(&packs, &laptop, &XPU).as_deref(), Some("wgsl-xpu"));
    assert_eq!(chosen(&packs[..3], &laptop, &XPU).as_deref(), Some("wgsl-wgpu"));
    assert_eq!(chosen(&packs[..2], &laptop, &XPU).as_deref(), Some("wgsl-universal"));
    assert_eq!(chosen(&packs[..1], &laptop, &XPU), None);
    // Any adapter: the hardware one before the software one.
    let resolution = resolve(&Candidate::from_names(packs), &laptop, &WGPU);
    assert_eq!(resolution.chosen_decision().unwrap().device().unwrap().to_string(), "xpu:0");
    // One adapter by its own number.
    let request = Request::one(DeviceKey::Wgpu, 0);
    let resolution = resolve(&Candidate::from_names(packs), &laptop, &request);
    let decision = resolution.chosen_decision().unwrap();
    assert_eq!(decision.device().unwrap().to_string(), "wgpu:0");
    assert!(matches!(decision.notes(), [Note::Software { .. }]));
    assert_eq!(decision.variant.to_string(), "wgsl-wgpu");
    // No adapter at all, looked for or not.
    let mut bare = linux();
    for unprobed in [false, true] {
        if unprobed {
            bare.unprobed.insert(DeviceKey::Wgpu);
        }
        let found = reason(named("wgsl-universal"), &bare, &WGPU);
        assert!(matches!(found, Reason::ShaderNeedsAdapter { unprobed: said, .. } if said == unprobed), "{found:?}");
    }
    assert!(matches!(reason(named("wgsl-universal"), &laptop, &CPU), Reason::Backend { .. }));
}

#[test]
fn native_code_comes_before_shaders_and_the_request_bounds_the_device() {
    let names = ["wgsl-universal", "wgsl-xpu", "tvm-ffi01-cpu-x86_64-linux", "tvm-ffi01-xpu20260-x86_64-linux"];
    let mut machine = intel_laptop();
    assert_eq!(chosen(&names, &machine, &XPU).as_deref(), Some("wgsl-xpu"));
    let mut native = DeviceInfo::new(DeviceKey::Xpu, 0, "Intel Arc Graphics", Route::Native);
    native.backend_version = Some(Version::new(2026, 0));
    machine.devices.push(native);
    assert_eq!(chosen(&names, &machine, &XPU).as_deref(), Some("tvm-ffi01-xpu20260-x86_64-linux"));
    assert_eq!(chosen(&names, &machine, &CPU).as_deref(), Some("tvm-ffi01-cpu-x86_64-linux"));
    assert_eq!(chosen(&names, &machine, &Request::any()).as_deref(), Some("tvm-ffi01-xpu20260-x86_64-linux"));
    // Software adapters come after the processor when any device will do.
    machine.devices.retain(|device| device.software);
    assert_eq!(chosen(&names, &machine, &Request::any()).as_deref(), Some("tvm-ffi01-cpu-x86_64-linux"));
    assert_eq!(chosen(&names, &machine, &XPU), None);
}

#[test]
fn missing_masked_and_unprobed_devices_are_told_apart() {
    let build = || named("tvm-ffi01-cu128-x86_64-linux");
    let text = |system: &SystemInfo, request: &Request| reason(build(), system, request).to_string();
    let mut machine = linux();
    assert_eq!(text(&machine, &CUDA), "needs device cuda; there is none here");
    machine.unprobed.insert(DeviceKey::Cuda);
    assert_eq!(text(&machine, &CUDA), "needs device cuda; such devices were not looked for");
    let mut machine = cuda(12, 8, "9.0");
    let second = Request::one(DeviceKey::Cuda, 1);
    assert_eq!(text(&machine, &second), "needs device cuda:1; there is none here");
    machine.devices[0].masked_by = Some("CUDA_VISIBLE_DEVICES=".to_owned());
    assert_eq!(text(&machine, &CUDA), "needs device cuda; it is hidden by CUDA_VISIBLE_DEVICES=");
}

#[test]
fn a_failure_names_what_would_fit_elsewhere() {
    let names = ["tvm-ffi01-cpu-x86_64-linux", "wgsl-universal"];
    let error = choose(&Candidate::from_names(names), &intel_laptop(), &CUDA).unwrap_err();
    let hint = error.hint().unwrap();
    assert!(hint.contains("device cpu of this machine would take tvm-ffi01-cpu-x86_64-linux"), "{hint}");
    assert!(hint.contains("device xpu of this machine would take wgsl-universal"), "{hint}");
    assert!(hint.contains("there are builds for cpu, wgsl-universal"), "{hint}");
    assert_eq!(choose(&[], &linux(), &CPU).unwrap_err(), ResolveError::NoCandidates);
}

/// A list with one of everything.
const MIXED: [&str; 16] = [
    "torch213-cxx11-cu130-x86_64-linux",
    "torch-stable-abi211-cu128-x86_64-linux",
    "torch-cuda",
    "tvm-ffi01-cpu-x86_64-linux",
    "tvm-ffi01-cpu-aarch64-linux",
    "tvm-ffi01-cpu-aarch64-darwin",
    "tvm-ffi02-cu128-x86_64-linux",
    "tvm-ffi01-cu126-x86_64-linux",
    "tvm-ffi01-cu128-x86_64-linux",
    "tvm-ffi01-cu130-x86_64-linux",
    "tvm-ffi01-rocm714-x86_64-linux",
    "wgsl-universal",
    "wgsl-xpu",
    "wgsl-wgpu",
    "jax05-cu130-x86_64-linux",
    "evil\u{1b}[2J\u{202e}",
];

#[test]
fn the_trace_reads_as_a_table() {
    let resolution = resolve(&Candidate::from_names(MIXED), &cuda(12, 9, "9.0"), &CUDA);
    insta::assert_snapshot!("trace_cuda_12_9", resolution.to_string());
    let resolution = resolve(&Candidate::from_names(MIXED), &intel_laptop(), &XPU);
    insta::assert_snapshot!("trace_intel_laptop", resolution.to_string());
    let json = serde_json::to_string_pretty(&resolution).unwrap();
    insta::assert_snapshot!("trace_intel_laptop_json", json);
}

#[test]
fn a_failure_reads_as_a_table_with_a_hint() {
    let names = MIXED.into_iter().filter(|name| !name.contains("-cpu-"));
    let error = choose(&Candidate::from_names(names), &intel_laptop(), &CPU).unwrap_err();
    insta::assert_snapshot!("nothing_fits", format!("error: {error}\nhint: {}", error.hint().unwrap()));
}

#[test]
fn devices_read_as_a_table() {
    let mut system = cuda(13, 0, "9.0");
    system.os_version = Some("Debian GNU/Linux 12 (bookworm)".to_owned());
    system.cpu.model = Some("Intel(R) Xeon(R) Platinum 8480+".to_owned());
    (system.cpu.physical_cores, system.cpu.logical_cores, system.cpu.usable_cores) = (Some(112), Some(224), Some(16));
    system.cpu.memory_bytes = Some(128 << 30);
    system.cpu.features = ["avx2", "fma", "avx512f", "avx512bf16"].map(str::to_owned).to_vec();
    system.devices.extend(intel_laptop().devices);
    system.devices[1].driver = Some("Intel open-source Mesa driver Mesa 25.0".to_owned());
    system.devices[2].dtypes = Some(vec![DType::F32, DType::F16]);
    let mut hidden = DeviceInfo::new(DeviceKey::Cuda, 1, "NVIDIA H200", Route::Native);
    hidden.masked_by = Some("CUDA_VISIBLE_DEVICES=0".to_owned());
    system.devices.push(hidden);
    system.unprobed = [DeviceKey::Hpu, DeviceKey::Npu].into();
    system.notes.push("LIBTORCH=/nowhere names no library: /nowhere/lib/libtorch.so is not a file".to_owned());
    insta::assert_snapshot!("devices", system.to_string());
    let json = serde_json::to_string(&system).unwrap();
    assert_eq!(serde_json::from_str::<SystemInfo>(&json).unwrap(), system, "a described machine survives JSON");
}

#[test]
fn a_machine_can_be_written_by_hand() {
    let text = r#"{
        "os": "linux", "arch": "x86_64", "libc": {"glibc": "2.34"},
        "tvm_ffi": {"path": "/usr/lib/libtvm_ffi.so", "version": "0.1.9"},
        "devices": [
            {"key": "cuda", "index": 1, "name": "B200", "route": "native", "backend_version": "12.9", "capability": "10.0"},
            {"key": "cuda", "index": 0, "name": "A10", "route": "native", "backend_version": "12.9", "capability": "8.6"}
        ]
    }"#;
    let machine: SystemInfo = serde_json::from_str(text).unwrap();
    let mut candidate = named("tvm-ffi01-cu128-x86_64-linux");
    candidate.archs = Some(vec!["10.0a".to_owned()]);
    // Code for one of the two devices: it is that one that the build serves.
    let resolution = resolve(&[candidate.clone()], &machine, &CUDA);
    assert_eq!(resolution.decisions[0].device().unwrap().to_string(), "cuda:1");
    assert!(matches!(
        reason(candidate.clone(), &machine, &Request::one(DeviceKey::Cuda, 0)),
        Reason::Capability { actual: Capability { major: 8, minor: 6 }, .. }
    ));
    candidate.archs = Some(vec!["8.0".to_owned(), "10.0a".to_owned()]);
    assert_eq!(resolve(&[candidate], &machine, &CUDA).decisions[0].device().unwrap().to_string(), "cuda:0");
}

#[test]
fn reasons_survive_json() {
    for system in [cuda(12, 9, "9.0"), intel_laptop(), linux()] {
        for key in DeviceKey::all() {
            for decision in resolve(&Candidate::from_names(MIXED), &system, &Request::device(key)).decisions {
                if let Some(reason) = decision.reason() {
                    let json = serde_json::to_string(reason).unwrap();
                    assert_eq!(&serde_json::from_str::<Reason>(&json).unwrap(), reason, "{json}");
                }
            }
        }
    }
}

/// What a report shows, without the places in the list.
fn shown(resolution: &Resolution) -> String {
    format!("{resolution}{}", serde_json::to_string(resolution).unwrap())
}

fn machines() -> Vec<SystemInfo> {
    vec![linux(), cuda(12, 9, "9.0"), cuda(13, 2, "12.0"), rocm(7, 14, "gfx1151"), intel_laptop()]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_order_of_the_candidates_plays_no_part(
        picks in prop::collection::vec((0..MIXED.len(), 0..3_usize), 0..24).prop_shuffle(),
        machine in 0..5_usize,
        key in prop::option::of(prop::sample::select(DeviceKey::all().collect::<Vec<_>>())),
    ) {
        let candidates: Vec<Candidate> =
            picks.iter().map(|(name, artifact)| Candidate::new(AnyVariant::read(MIXED[*name]), *artifact)).collect();
        let mut sorted = candidates.clone();
        sorted.sort_by(|a, b| (&a.variant, a.artifact).cmp(&(&b.variant, b.artifact)));
        let system = &machines()[machine];
        let request = key.map_or(Request::any(), Request::device);
        let (a, b) = (resolve(&candidates, system, &request), resolve(&sorted, system, &request));
        prop_assert_eq!(shown(&a), shown(&b));
        prop_assert_eq!(
            a.chosen.map(|index| &candidates[index]),
            b.chosen.map(|index| &sorted[index])
        );
        prop_assert_eq!(a.decisions.len(), candidates.len());
        let winners = a.decisions.iter().filter(|d| matches!(d.verdict, Verdict::Chosen { .. })).count();
        prop_assert_eq!(winners, usize::from(a.chosen.is_some()));
        prop_assert_eq!(a.chosen.is_some(), a.decisions.iter().any(kernelhub::resolve::Decision::accepted));
    }

    #[test]
    fn random_names_never_panic(names in prop::collection::vec(".{0,40}", 0..8)) {
        let candidates = Candidate::from_names(names.iter().map(String::as_str));
        let resolution = resolve(&candidates, &linux(), &CPU);
        prop_assert_eq!(resolution.decisions.len(), names.len());
        let escaped = !resolution.to_string().contains('\x1b');
        prop_assert!(escaped);
    }
}
