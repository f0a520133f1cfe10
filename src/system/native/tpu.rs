//! Google TPUs: chips on the PCI bus, the kernel's `/dev/accel<N>` or `/dev/vfio/<N>`, and `libtpu.so`, which is looked
//! for and never opened: it takes the chips for itself. Tested on fixtures only.
//!
//! Sources: the PCI ids of `hardware_utils.py` of JAX; `TPU_VISIBLE_CHIPS` before `TPU_VISIBLE_DEVICES` by the comments of
//! the TPU runtime's users (both name chips of this host by number, with commas).

use std::path::PathBuf;

use super::list::{self, Repeat};
use super::pci;
use super::{Found, files};
use crate::dtype::DType;
use crate::system::device::{DeviceInfo, Route};
use crate::system::environment::Environment;
use crate::system::library;
use crate::system::mask::Mask;
use crate::variant::DeviceKey;

const CHIPS: &str = "TPU_VISIBLE_CHIPS";
const DEVICES: &str = "TPU_VISIBLE_DEVICES";
const BOUNDS: &str = "TPU_CHIPS_PER_HOST_BOUNDS";
const VENDOR: u64 = 0x1ae0;

/// PCI device id and generation.
const GENERATIONS: [(u64, &str); 9] = [
    (0x27, "v3"),
    (0x56, "plc"),
    (0x5e, "v4"),
    (0x62, "v5p"),
    (0x63, "v5e"),
    (0x6f, "v6e"),
    (0x76, "tpu7x"),
    (0x83, "tpu8i"),
    (0x7c, "tpu8t"),
];

pub(super) fn probe(environment: &Environment) -> Option<Found> {
    if !cfg!(target_os = "linux") && environment.root.is_none() {
        return None;
    }
    let mut found = Found::default();
    // Google's other devices (network, disk) have the same vendor.
    let chips: Vec<(pci::PciDevice, &str)> = pci::of_vendor(environment, VENDOR)
        .into_iter()
        .filter_map(|device| {
            let generation = GENERATIONS.iter().find(|(id, _)| *id == device.device)?.1;
            Some((device, generation))
        })
        .collect();
    if chips.is_empty() {
        return Some(found);
    }
    let named: Vec<String> = chips.iter().map(|(chip, generation)| format!("{} {generation}", chip.address)).collect();
    let opened = files::numbered(&environment.path("dev"), "accel").len()
        + files::numbered(&environment.path("dev/vfio"), "").len();
    if opened == 0 {
        found.notes.push(format!(
            "{} and cannot be used: there is neither /dev/accel0 nor /dev/vfio/0; a container has to be given them",
            pci::counted("TPU chip", &named)
        ));
        return Some(found);
    }
    for (index, (chip, generation)) in (0..).zip(&chips) {
        let mut device = DeviceInfo::new(DeviceKey::Tpu, index, format!("TPU {generation}"), Route::Native);
        device.api = Some("libtpu".to_owned());
        device.physical_index = Some(index);
        device.pci_address = Some(chip.address.clone());
        device.pci_id = Some(chip.id());
        device.arch = Some((*generation).to_owned());
        // "System architecture" of the Cloud TPU documentation: matrix units take bf16 and i8; f32 is computed.
        device.dtypes = Some(vec![DType::F32, DType::Bf16, DType::I32, DType::U32, DType::I8, DType::U8]);
        found.devices.push(device);
    }
    if !has_library(environment) {
        found.notes.push("TPU chips are here and libtpu.so is not found: `pip install libtpu` brings it".to_owned());
    }
    masks(&mut found, environment);
    Some(found)
}

/// Whether libtpu is in a Python environment, on the library path or among the system's libraries.
fn has_library(environment: &Environment) -> bool {
    let packages = library::packages(environment).into_iter().map(|folder| folder.join("libtpu/libtpu.so"));
    let listed = environment.library_path.iter().map(|folder| folder.join("libtpu.so"));
    let system = ["lib/libtpu.so", "usr/lib/libtpu.so"].map(|path| environment.path(path));
    // Python's packages are this machine's: a described one has none of them.
    let packages: Vec<PathBuf> = if environment.root.is_none() { packages.collect() } else { Vec::new() };
    packages.into_iter().chain(listed).chain(system).any(|path| path.is_file())
}

fn masks(found: &mut Found, environment: &Environment) {
    let mut read_before: Option<&str> = None;
    for variable in [CHIPS, DEVICES] {
        let Some(value) = environment.setting(variable) else { continue };
        let mask = |effect: String| Mask::new(DeviceKey::Tpu, variable, value, effect);
        found.masks.push(match read_before {
            Some(before) => mask(format!("nothing: {before} goes before it")),
            None if value.is_empty() => mask("nothing: an empty list is none".to_owned()),
            None => {
                read_before = Some(variable);
                let left = list::visible(&found.devices);
                let chosen = list::read(value, Repeat::Ends, |entry| list::number(entry, left.len()));
                list::apply(mask(String::new()), &mut found.devices, &left, chosen)
            }
        });
    }
    if let Some(value) = environment.setting(BOUNDS) {
        let effect = "tells libtpu how the chips of this host are joined: it hides none";
        found.masks.push(Mask::new(DeviceKey::Tpu, BOUNDS, value, effect));
    }
}
