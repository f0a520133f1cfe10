//! Whether one candidate fits.

use std::cmp::Reverse;

use super::archs::{cuda_serves, rocm_serves};
use super::rank::{Place, Rank, distance_of_any};
use super::reason::{Note, Reason};
use super::report::DeviceRef;
use super::{Candidate, Request, TVM_FFI_VERSION, Target};
use crate::system::{DeviceInfo, Libc, LibraryFound, Route, SystemInfo};
use crate::variant::{
    AnyVariant, ArchBuild, Backend, CxxAbi, DeviceKey, Framework, Os, ShaderTarget, Variant, Version,
};

/// Published Metal builds use Metal 4, which macOS has since this version; builds for its processors are made for it too.
const METAL_MINIMUM_MACOS: Version = Version::new(26, 0);

/// Publishers hold to the symbol versions of `manylinux_2_28`, whose C library is this; a build may ask for less.
const USUAL_GLIBC: Version = Version::new(2, 28);

/// How a candidate fits.
#[derive(Debug)]
pub(super) struct Fit {
    pub(super) rank: Rank,
    pub(super) device: DeviceRef,
    pub(super) notes: Vec<Note>,
}

pub(super) fn check(candidate: &Candidate, system: &SystemInfo, request: &Request) -> Result<Fit, Reason> {
    if let Some(fault) = &candidate.metadata_fault {
        return Err(Reason::Metadata { fault: fault.clone() });
    }
    match &candidate.variant {
        AnyVariant::Unknown { reason, .. } => Err(Reason::UnknownForm { fault: reason.clone() }),
        AnyVariant::Known(Variant::Noarch(_)) => Err(Reason::NeedsPython),
        AnyVariant::Known(Variant::Arch(build)) => arch_build(candidate, build, system, request),
        AnyVariant::Known(Variant::Shader(target)) => shader_pack(*target, system, request),
    }
}

fn arch_build(candidate: &Candidate, build: &ArchBuild, system: &SystemInfo, request: &Request) -> Result<Fit, Reason> {
    let mut notes = Vec::new();
    host(candidate, build, system, &mut notes)?;
    framework(candidate, build, system, request, &mut notes)?;
    let (device, arch_unknown) = device(candidate, build.backend(), system, request, &mut notes)?;
    let rank = Rank {
        distance: if request.target == Target::Any { distance_of_any(device.key, false) } else { 0 },
        place: Place::Native,
        arch_unknown,
        framework: Some(build.framework().kind()),
        framework_version: Reverse(Some(build.framework().version())),
        cxx_abi: build.framework().cxx_abi(),
        backend_version: Reverse(build.backend().version()),
    };
    Ok(Fit { rank, device, notes })
}

/// System, processor, C library.
fn host(candidate: &Candidate, build: &ArchBuild, system: &SystemInfo, notes: &mut Vec<Note>) -> Result<(), Reason> {
    if system.os != Some(build.os()) {
        return Err(Reason::Os { expected: build.os(), actual: system.os });
    }
    if system.arch != Some(build.arch()) {
        return Err(Reason::CpuArch { expected: build.arch(), actual: system.arch });
    }
    let below = |system: &'static str, usual: Version, actual: Version| {
        (actual < usual).then(|| Note::BelowUsualFloor { system: system.into(), usual, actual })
    };
    if build.os() == Os::Darwin {
        // Builds for its GPU are held to the floor itself, where the device is looked at.
        let actual = system.os_version.as_deref().and_then(macos_version);
        let actual = actual.filter(|_| build.backend() != Backend::Metal);
        notes.extend(actual.and_then(|actual| below("macOS", METAL_MINIMUM_MACOS, actual)));
    }
    if build.os() != Os::Linux {
        return Ok(());
    }
    match (system.libc, candidate.minimum_glibc) {
        (Some(Libc::Glibc(actual)), Some(required)) if actual < required => {
            Err(Reason::GlibcTooOld { required, actual })
        }
        (Some(Libc::Glibc(actual)), None) => {
            notes.extend(below("glibc", USUAL_GLIBC, actual));
            Ok(())
        }
        (Some(Libc::Glibc(_)), Some(_)) => Ok(()),
        (Some(actual), _) => Err(Reason::Libc { actual }),
        (None, _) => {
            notes.push(Note::LibcUnknown);
            Ok(())
        }
    }
}

fn framework(
    candidate: &Candidate,
    build: &ArchBuild,
    system: &SystemInfo,
    request: &Request,
    notes: &mut Vec<Note>,
) -> Result<(), Reason> {
    let framework = build.framework();
    let (kind, version) = (framework.kind(), framework.version());
    let library = match framework {
        Framework::TvmFfi(version) => {
            if version != TVM_FFI_VERSION {
                return Err(Reason::FrameworkVersion {
                    framework: kind,
                    expected: version,
                    actual: Some(TVM_FFI_VERSION),
                });
            }
            // A library whose package does not tell its version is asked when it is loaded.
            let serves = |library: &LibraryFound| library.leading_version().is_none_or(|actual| actual == version);
            match candidate.imports_tvm_ffi {
                Some(true) => system.tvm_ffi.as_ref(),
                Some(false) => return Ok(()),
                None => {
                    if !system.tvm_ffi.as_ref().is_some_and(serves) {
                        notes.push(Note::TvmFfiUnknown);
                    }
                    return Ok(());
                }
            }
        }
        Framework::Torch { .. } | Framework::TorchStableAbi { .. } => system.torch.as_ref(),
    };
    let Some(library) = library else {
        return Err(Reason::FrameworkMissing { framework: kind, version });
    };
    let actual = library.leading_version();
    let fits = match framework {
        Framework::TvmFfi(_) => actual.is_none_or(|actual| actual == version),
        Framework::TorchStableAbi { .. } => {
            actual.is_some_and(|actual| actual.major == version.major && actual >= version)
        }
        Framework::Torch { .. } => actual == Some(version),
    };
    if !fits {
        return Err(Reason::FrameworkVersion { framework: kind, expected: version, actual });
    }
    if framework.cxx_abi() == Some(CxxAbi::Cxx98) {
        return Err(Reason::CxxAbi);
    }
    if !matches!(framework, Framework::TvmFfi(_)) {
        library_backend(build, library)?;
    }
    if !matches!(framework, Framework::TvmFfi(_)) && !request.torch_loader {
        return Err(Reason::FrameworkUnsupported { framework: kind, version });
    }
    Ok(())
}

/// libtorch is built for one backend, as the end of its version says (`2.13.0+cu130`), and for the processor besides; a
/// build for another backend finds nothing in it. A version that does not say fits.
fn library_backend(build: &ArchBuild, library: &LibraryFound) -> Result<(), Reason> {
    let backend = build.backend();
    let Some((_, tag)) = library.version.as_deref().and_then(|version| version.split_once('+')) else { return Ok(()) };
    // `rocm7.2` has a dot where variants have none; `xpu` has no version.
    let of_library = Backend::from_word(&tag.replace('.', ""));
    let fits = match (backend, of_library) {
        (Backend::Cuda(build), Some(Backend::Cuda(library))) => {
            build.major == library.major && build.minor <= library.minor
        }
        (Backend::Rocm(build), Some(Backend::Rocm(library))) => build == library,
        (Backend::Cpu, _) => true,
        // `xpu` and `hpu` have no version, and are devices all the same.
        (backend, None) => tag.parse().map_or(true, |device: DeviceKey| device == backend.device_key()),
        (_, Some(_)) => false,
    };
    if fits {
        return Ok(());
    }
    Err(Reason::FrameworkBackend {
        framework: build.framework().kind(),
        backend: backend.name().into(),
        expected: backend.version(),
        actual: tag.to_owned(),
    })
}

/// The device that the build runs on, and whether it is unknown that the build has code for it.
fn device(
    candidate: &Candidate,
    backend: Backend,
    system: &SystemInfo,
    request: &Request,
    notes: &mut Vec<Note>,
) -> Result<(DeviceRef, bool), Reason> {
    let key = backend.device_key();
    if let Some(requested) = request.target.key().filter(|requested| *requested != key) {
        return Err(Reason::Backend { requested, actual: key });
    }
    let index = request.target.index();
    if backend == Backend::Cpu {
        return match index {
            None | Some(0) => Ok((DeviceRef { key, index: 0, route: Route::Native }, false)),
            Some(_) => Err(Reason::NoDevice { key, index, unprobed: false, masked_by: None }),
        };
    }
    let asked = |device: &&DeviceInfo| {
        device.key == key && device.route == Route::Native && index.is_none_or(|index| device.index == index)
    };
    // The first device that the build fits; when it fits none, what the first one lacks.
    let mut visible: Vec<&DeviceInfo> = system.visible(key).filter(asked).collect();
    visible.sort_by_key(|device| device.index);
    let mut first_reason = None;
    for device in visible {
        match device_serves(candidate, backend, device, system, first_reason.is_none()) {
            Ok(note) => {
                let arch_unknown = note.is_some();
                notes.extend(note);
                return Ok((DeviceRef { key, index: device.index, route: Route::Native }, arch_unknown));
            }
            Err(reason) => first_reason = first_reason.or(reason),
        }
    }
    Err(first_reason.unwrap_or_else(|| Reason::NoDevice {
        key,
        index,
        unprobed: system.unprobed.contains(&key),
        masked_by: system.devices.iter().find(asked).and_then(|device| device.masked_by.clone()),
    }))
}

/// Version of the backend, then architecture. A note when the architecture cannot be compared. The reason is made only
/// where it is wanted: it copies the build's list of architectures, and a machine may have many devices.
fn device_serves(
    candidate: &Candidate,
    backend: Backend,
    device: &DeviceInfo,
    system: &SystemInfo,
    wants_reason: bool,
) -> Result<Option<Note>, Option<Reason>> {
    let reject = |reason: &dyn Fn() -> Reason| Err(wants_reason.then(reason));
    if let Some(expected) = backend.version() {
        let actual = device.backend_version;
        let fits = match backend {
            Backend::Cuda(_) => {
                actual.is_some_and(|actual| actual.major == expected.major && actual.minor >= expected.minor)
            }
            _ => actual == Some(expected),
        };
        if !fits {
            return reject(&|| Reason::BackendVersion { backend: backend.name().into(), expected, actual });
        }
    }
    if backend == Backend::Metal {
        let actual = system.os_version.as_deref().and_then(macos_version);
        if actual.is_none_or(|actual| actual < METAL_MINIMUM_MACOS) {
            return reject(&|| Reason::MacosTooOld { required: METAL_MINIMUM_MACOS, actual });
        }
    }
    // An empty list says nothing: builds without device code leave it out.
    let archs = candidate.archs.as_deref().filter(|archs| !archs.is_empty());
    let unknown = || Ok(Some(Note::ArchUnknown));
    match (backend, archs) {
        (Backend::Cuda(_), Some(archs)) => match device.capability {
            None => unknown(),
            Some(actual) if cuda_serves(archs, actual) => Ok(None),
            Some(actual) => reject(&|| Reason::Capability { archs: archs.to_vec(), actual }),
        },
        (Backend::Rocm(_), Some(archs)) => match &device.arch {
            None => unknown(),
            Some(actual) if rocm_serves(archs, actual) => Ok(None),
            Some(actual) => reject(&|| Reason::DeviceArch { archs: archs.to_vec(), actual: actual.clone() }),
        },
        // The other backends publish no lists; one that appears has no meaning here yet.
        (Backend::Cuda(_) | Backend::Rocm(_), None) | (_, Some(_)) => unknown(),
        (_, None) => Ok(None),
    }
}

/// `26.1.2`, `26.1` or `26`.
fn macos_version(text: &str) -> Option<Version> {
    Version::leading(text).or_else(|| format!("{text}.0").parse().ok())
}

fn shader_pack(target: ShaderTarget, system: &SystemInfo, request: &Request) -> Result<Fit, Reason> {
    if request.target.key() == Some(DeviceKey::Cpu) {
        let actual = target.key().unwrap_or(DeviceKey::Wgpu);
        return Err(Reason::Backend { requested: DeviceKey::Cpu, actual });
    }
    // An adapter with a key of its own is a wgpu adapter as well, but `wgpu:1` names one by its own number.
    let asked = |device: &&DeviceInfo| {
        device.route == Route::Adapter
            && device.masked_by.is_none()
            && match request.target {
                Target::Any => true,
                Target::Key(key) => device.key == key || key == DeviceKey::Wgpu,
                Target::One { key, index } => device.key == key && device.index == index,
            }
    };
    let best = system
        .devices
        .iter()
        .filter(asked)
        .filter_map(|device| {
            let place = match target.key() {
                None => Place::PortableUniversal,
                Some(key) if key == device.key => Place::PortableKeyed,
                Some(DeviceKey::Wgpu) => Place::PortableWgpu,
                Some(_) => return None,
            };
            let distance = match request.target {
                Target::Any => distance_of_any(device.key, device.software),
                Target::Key(_) | Target::One { .. } => u8::from(device.software),
            };
            Some((distance, place, device))
        })
        .min_by_key(|(distance, place, device)| (*distance, *place, device.key, device.index));
    let Some((distance, place, device)) = best else {
        let mut adapters: Vec<DeviceKey> = system.devices.iter().filter(asked).map(|device| device.key).collect();
        adapters.sort_unstable();
        adapters.dedup();
        let unprobed = system.unprobed.contains(&DeviceKey::Wgpu);
        return Err(Reason::ShaderNeedsAdapter { target, adapters, unprobed });
    };
    let rank = Rank {
        distance,
        place,
        arch_unknown: false,
        framework: None,
        framework_version: Reverse(None),
        cxx_abi: None,
        backend_version: Reverse(None),
    };
    let notes = device.software.then(|| Note::Software { device: device.name.clone() }).into_iter().collect();
    Ok(Fit { rank, device: DeviceRef { key: device.key, index: device.index, route: Route::Adapter }, notes })
}
