//! AMD GPUs, by what the kernel's compute driver, KFD, tells in `/sys/class/kfd/kfd/topology`: no library is opened.
//! Tested on fixtures only.
//!
//! Sources: the kernel's `amdkfd` (`kfd_topology.c`: the files, and `kfd_crat.h`: the kinds of memory); "GPU isolation
//! techniques" of the `ROCm` documentation, with what the runtimes do in detail in [`mask`].
//!
//! The devices come from the kernel alone. A folder of `ROCm`, or what is left of one, makes no device; its version is
//! told for devices that are there.

mod gfx_override;
mod mask;

use std::path::Path;

use super::pci::{self, DISPLAY};
use super::{Found, files};
use crate::dtype::DType;
use crate::system::device::{DeviceInfo, Route};
use crate::system::environment::Environment;
use crate::variant::{DeviceKey, Version};

const VENDOR: u64 = 0x1002;

pub(super) fn probe(environment: &Environment) -> Option<Found> {
    if !cfg!(target_os = "linux") && environment.root.is_none() {
        return None;
    }
    let mut found = Found::default();
    let nodes = files::numbered(&environment.path("sys/class/kfd/kfd/topology/nodes"), "");
    let (numbers, gpus): (Vec<u32>, Vec<Node>) =
        nodes.iter().filter_map(|(number, folder)| Some((*number, Node::read(folder)?))).unzip();
    if gpus.is_empty() {
        found.notes.extend(without_kfd(environment));
        return Some(found);
    }
    if let Some(note) = no_access(environment, gpus.len()) {
        found.notes.push(note);
        return Some(found);
    }
    let runtime = runtime(environment);
    let module = files::text(&environment.path("sys/module/amdgpu/version"));
    let driver = module.map_or_else(|| "amdgpu".to_owned(), |version| format!("amdgpu {version}"));
    for (index, gpu) in (0..).zip(&gpus) {
        let mut device = gpu.describe(index, environment);
        device.driver = Some(driver.clone());
        device.backend_version = runtime;
        found.devices.push(device);
    }
    if runtime.is_none() {
        found.notes.push(
            "AMD GPUs are here and the version of ROCm is not known: /opt/rocm has no .info/version; ROCM_PATH names \
             its folder where it is another"
                .to_owned(),
        );
    }
    found.masks = gfx_override::apply(&mut found.devices, &numbers, environment);
    found.masks.extend(mask::apply(&mut found.devices, environment));
    Some(found)
}

/// AMD's GPUs on the bus that KFD does not drive.
fn without_kfd(environment: &Environment) -> Option<String> {
    let gpus = pci::of_vendor(environment, VENDOR);
    let gpus: Vec<String> = gpus
        .iter()
        .filter(|device| device.base_class() == DISPLAY)
        .map(|device| format!("{} {}", device.address, device.id()))
        .collect();
    (!gpus.is_empty()).then(|| {
        format!(
            "{} and cannot compute: the kernel's amdgpu driver with KFD (/sys/class/kfd) is not loaded for it",
            pci::counted("AMD GPU", &gpus)
        )
    })
}

/// Why `/dev/kfd`, by which every program computes, cannot be used.
fn no_access(environment: &Environment, count: usize) -> Option<String> {
    let path = environment.path("dev/kfd");
    if !path.exists() {
        return Some(format!(
            "{count} AMD GPUs are here and cannot be used: there is no /dev/kfd; a container has to be started with \
             `--device=/dev/kfd --device=/dev/dri`"
        ));
    }
    #[cfg(target_os = "linux")]
    if rustix::fs::access(&path, rustix::fs::Access::READ_OK | rustix::fs::Access::WRITE_OK).is_err() {
        return Some(format!(
            "{count} AMD GPUs are here and cannot be used: no permission on /dev/kfd; its group, mostly `render`, has \
             to have this user"
        ));
    }
    None
}

/// The version of the `ROCm` that is installed, by the file that its packages leave: `6.4.1-83`.
fn runtime(environment: &Environment) -> Option<Version> {
    let folder = environment.setting("ROCM_PATH").filter(|folder| !folder.is_empty()).unwrap_or("/opt/rocm");
    let file = environment.path(folder.trim_start_matches('/')).join(".info/version");
    Version::leading(&files::text(&file)?)
}

/// A GPU of KFD's topology.
#[derive(Debug, Default, PartialEq, Eq)]
struct Node {
    target: u64,
    device_id: u64,
    location: u64,
    domain: u64,
    unique_id: u64,
    memory: u64,
}

impl Node {
    /// `None` for a node that is no GPU, or that this process may not look at.
    fn read(folder: &Path) -> Option<Self> {
        let text = files::text(&folder.join("properties"))?;
        let value = |name| property(&text, name);
        // A node without compute units is a processor.
        if value("simd_count").is_none_or(|count| count == 0) || value("vendor_id") != Some(VENDOR) {
            return None;
        }
        let number = |name| value(name).unwrap_or_default();
        Some(Self {
            target: number("gfx_target_version"),
            device_id: number("device_id"),
            location: number("location_id"),
            domain: number("domain"),
            unique_id: number("unique_id"),
            memory: files::numbered(&folder.join("mem_banks"), "")
                .iter()
                .filter_map(|(_, bank)| memory(&files::text(&bank.join("properties"))?))
                .fold(0, u64::saturating_add),
        })
    }

    fn describe(&self, index: u32, environment: &Environment) -> DeviceInfo {
        let (bus, slot, function) = (self.location >> 8 & 0xff, self.location >> 3 & 0x1f, self.location & 7);
        let address = format!("{:04x}:{bus:02x}:{slot:02x}.{function}", self.domain & 0xffff_ffff);
        let product = files::text(&environment.path("sys/bus/pci/devices").join(&address).join("product_name"));
        let arch = gfx_name(self.target);
        let name = product.unwrap_or_else(|| match &arch {
            Some(arch) => format!("AMD GPU ({arch})"),
            None => "AMD GPU".to_owned(),
        });
        let mut device = DeviceInfo::new(DeviceKey::Rocm, index, name, Route::Native);
        device.api = Some("ROCm".to_owned());
        device.physical_index = Some(index);
        device.pci_id = Some(format!("{VENDOR:04x}:{:04x}", self.device_id & 0xffff));
        device.pci_address = Some(address);
        device.memory_bytes = Some(self.memory).filter(|bytes| *bytes > 0);
        device.uuid = (self.unique_id != 0).then(|| format!("GPU-{:016x}", self.unique_id));
        if let Some(arch) = &arch {
            let (native, emulated) = dtypes(arch);
            device.dtypes = Some(native);
            device.emulated = emulated;
        }
        device.arch = arch;
        device
    }
}

/// `name value` lines.
fn property(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

/// The size of a bank of the GPU's own memory: heaps 1 and 2 are its frame buffer, open to the host or not.
fn memory(properties: &str) -> Option<u64> {
    let heap = property(properties, "heap_type")?;
    [1, 2].contains(&heap).then(|| property(properties, "size_in_bytes"))?
}

/// The architecture's name: 90010 is 9.0.10, `gfx90a`; the minor number and the stepping are one digit each.
fn gfx_name(target: u64) -> Option<String> {
    let (major, minor, stepping) = (target / 10_000, target / 100 % 100, target % 100);
    (target > 0 && minor < 16 && stepping < 16 && major < 100).then(|| format!("gfx{major}{minor:x}{stepping:x}"))
}

/// The types that an architecture computes with, and those that are computed in others. `bf16` has instructions from
/// CDNA 1 (gfx908) and RDNA 3 (gfx11) on.
fn dtypes(arch: &str) -> (Vec<DType>, Vec<DType>) {
    let generation = &arch[.."gfx".len() + 2];
    let native = ["gfx11", "gfx12"].contains(&generation)
        || ["gfx908", "gfx90a"].contains(&arch)
        || ["gfx94", "gfx95"].contains(&generation);
    let mut dtypes = vec![DType::F64, DType::F32];
    if native {
        dtypes.push(DType::Bf16);
    }
    dtypes.extend([DType::F16, DType::I64, DType::I32, DType::U32, DType::I8, DType::U8]);
    (dtypes, if native { vec![] } else { vec![DType::Bf16] })
}

#[cfg(test)]
mod tests {
    use super::{dtypes, gfx_name, memory};
    use crate::dtype::DType;

    #[test]
    fn names_have_a_hexadecimal_stepping() {
        for (target, name) in [
            (90_010, "gfx90a"),
            (90_402, "gfx942"),
            (110_501, "gfx1151"),
            (100_300, "gfx1030"),
            (90_006, "gfx906"),
            (120_001, "gfx1201"),
            (90_012, "gfx90c"),
            (80_003, "gfx803"),
        ] {
            assert_eq!(gfx_name(target).as_deref(), Some(name));
        }
        assert_eq!([gfx_name(0), gfx_name(90_099), gfx_name(91_600), gfx_name(u64::MAX)], [None, None, None, None]);
    }

    #[test]
    fn bfloat16_is_native_where_there_are_instructions() {
        for (arch, native) in [
            ("gfx908", true),
            ("gfx90a", true),
            ("gfx942", true),
            ("gfx950", true),
            ("gfx1151", true),
            ("gfx1201", true),
            ("gfx906", false),
            ("gfx90c", false),
            ("gfx1030", false),
            ("gfx803", false),
        ] {
            let (dtypes, emulated) = dtypes(arch);
            assert_eq!((dtypes.contains(&DType::Bf16), emulated.is_empty()), (native, native), "{arch}");
        }
        // The shortest name that there can be.
        assert!(dtypes(&gfx_name(10_000).unwrap()).0.contains(&DType::F16));
    }

    #[test]
    fn only_the_gpus_own_memory_counts() {
        assert_eq!(memory("heap_type 1\nsize_in_bytes 68702699520\nflags 0\n"), Some(68_702_699_520));
        assert_eq!(memory("heap_type 2\nsize_in_bytes 5"), Some(5));
        assert_eq!([memory("heap_type 0\nsize_in_bytes 5"), memory("heap_type 1"), memory("")], [None, None, None]);
    }
}
