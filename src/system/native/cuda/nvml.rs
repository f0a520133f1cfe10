//! GPUs as NVML lists them: all of them, whatever the masks of this process are.

use super::super::{Found, list};
use super::mask::{self, Nameable};
use super::order::{self, Numbers};
use super::{VISIBLE, set_capability, version};
use crate::system::device::{DeviceInfo, Route};
use crate::system::environment::Environment;
use crate::system::ffi::{Nvml, NvmlDevice, Pci};
use crate::system::mask::Mask;
use crate::variant::{DeviceKey, Version};

/// The most GPUs that are looked at. The largest servers have 16.
const MAX_GPUS: u32 = 256;
/// The most MIG devices of one GPU that are looked at. There are 7 at most.
const MAX_MIG: u32 = 64;
/// From this driver on, a process sees one compute instance of every GPU instance, and GPUs beside them. Before it, one
/// MIG device and nothing else.
const MANY_MIG_SINCE: u32 = 570;
/// What hides the compute instances that CUDA passes by.
const MIG_RULE: &str = "MIG=one compute instance per GPU instance";
/// The same, before [`MANY_MIG_SINCE`].
const OLD_MIG_RULE: &str = "MIG=one device per process";

/// A device, and what masks name it by.
struct Gpu {
    info: DeviceInfo,
    pci: Option<Pci>,
    name: Nameable,
}

pub(super) fn find(nvml: &Nvml, environment: &Environment) -> Found {
    let mut notes = Vec::new();
    let driver = nvml.driver_version().map_err(|error| notes.push(error.to_string())).ok();
    let backend = nvml.cuda_version().map_err(|error| notes.push(error.to_string())).ok().and_then(version);
    let mut gpus = gpus(nvml, &mut notes);
    for gpu in &mut gpus {
        gpu.info.api = Some("CUDA".to_owned());
        gpu.info.driver = driver.as_ref().map(|version| format!("NVIDIA {version}"));
        gpu.info.backend_version = backend;
    }
    let old = driver.as_deref().and_then(Version::leading).is_some_and(|version| version.major < MANY_MIG_SINCE);
    let mut found = number(gpus, old, environment);
    notes.append(&mut found.notes);
    Found { notes, ..found }
}

/// Every GPU in the order of the PCI bus; in the place of one in MIG mode, its MIG devices.
fn gpus(nvml: &Nvml, notes: &mut Vec<String>) -> Vec<Gpu> {
    let count = match nvml.count() {
        Ok(count) => count,
        Err(error) => {
            notes.push(error.to_string());
            return Vec::new();
        }
    };
    if count > MAX_GPUS {
        notes.push(format!("NVML counts {count} GPUs, which cannot be: {MAX_GPUS} are looked at"));
    }
    let mut failures = Vec::new();
    let mut parents: Vec<(Gpu, NvmlDevice)> = Vec::new();
    for index in 0..count.min(MAX_GPUS) {
        match nvml.gpu(index) {
            Ok(gpu) => parents.push((describe(gpu), gpu)),
            Err(error) => failures.push(format!("NVIDIA GPU {index} cannot be used: {error}")),
        }
    }
    // A broken driver may say the same of every one.
    let more = failures.len().saturating_sub(3);
    failures.truncate(3);
    notes.append(&mut failures);
    if more > 0 {
        notes.push(format!("{more} more NVIDIA GPUs cannot be used"));
    }
    parents.sort_by_key(|(gpu, _)| gpu.pci);
    let mut found = Vec::new();
    for (gpu, handle) in parents {
        if handle.is_mig() {
            found.extend(mig_devices(&gpu, handle, notes));
        } else {
            found.push(gpu);
        }
    }
    found
}

fn describe(gpu: NvmlDevice) -> Gpu {
    let name = gpu.name().ok().filter(|name| !name.is_empty());
    let mut info = DeviceInfo::new(DeviceKey::Cuda, 0, name.unwrap_or_else(|| "NVIDIA GPU".to_owned()), Route::Native);
    info.uuid = gpu.uuid().ok().filter(|uuid| !uuid.is_empty());
    // A GPU that shares the processor's memory has none to tell of.
    info.memory_bytes = gpu.memory_bytes().ok();
    if let Ok((major, minor)) = gpu.capability() {
        set_capability(&mut info, major, minor);
    }
    let pci = gpu.pci().ok();
    if let Some(pci) = pci {
        info.pci_address = Some(format!("{:04x}:{:02x}:{:02x}.0", pci.domain, pci.bus, pci.device));
        info.pci_id = Some(format!("{:04x}:{:04x}", pci.vendor_id, pci.device_id));
    }
    let name = Nameable { uuid: info.uuid.clone(), ..Nameable::default() };
    Gpu { info, pci, name }
}

fn mig_devices(parent: &Gpu, handle: NvmlDevice, notes: &mut Vec<String>) -> Vec<Gpu> {
    let uuid = parent.info.uuid.clone().unwrap_or_default();
    let most = handle.max_mig_devices().unwrap_or(0).min(MAX_MIG);
    let devices: Vec<Gpu> = (0..most)
        .filter_map(|index| handle.mig_device(index).ok())
        .map(|device| {
            let mut gpu = describe(device);
            let instances = device.instances().ok();
            // Older drivers give the name of the GPU.
            if !gpu.info.name.contains("MIG") {
                let (gi, ci) = instances.unwrap_or_default();
                gpu.info.name = format!("{} MIG {gi}/{ci}", parent.info.name);
            }
            gpu.info.capability = parent.info.capability;
            gpu.info.dtypes.clone_from(&parent.info.dtypes);
            gpu.info.emulated.clone_from(&parent.info.emulated);
            gpu.info.pci_address.clone_from(&parent.info.pci_address);
            gpu.info.pci_id.clone_from(&parent.info.pci_id);
            gpu.pci = parent.pci;
            gpu.name.mig = instances.map(|(gi, ci)| (uuid.clone(), gi, ci));
            gpu
        })
        .collect();
    let whose = format!("{} at {}", parent.info.name, parent.info.pci_address.as_deref().unwrap_or("an unknown place"));
    notes.push(match devices.len() {
        0 => format!(
            "{whose} is in MIG mode and has no MIG device: nothing can use it; `nvidia-smi mig -cgi` makes devices, \
             `nvidia-smi -mig 0` ends the mode"
        ),
        count => format!("{whose} ({uuid}) is in MIG mode: its {count} MIG devices stand in its place"),
    });
    devices
}

/// Numbers the devices as CUDA does, and reads the masks.
fn number(mut gpus: Vec<Gpu>, old: bool, environment: &Environment) -> Found {
    let mut found = Found::default();
    if gpus.is_empty() {
        return found;
    }
    let listed = one_per_instance(&gpus, (0..gpus.len()).collect(), old);
    for (number, place) in listed.iter().enumerate() {
        gpus[*place].name.number = Some(number);
    }
    let has_mig = gpus.iter().any(|gpu| gpu.name.mig.is_some());
    let (names, mut devices): (Vec<Nameable>, Vec<DeviceInfo>) =
        gpus.iter().map(|gpu| (gpu.name.clone(), gpu.info.clone())).unzip();
    for (place, device) in devices.iter_mut().enumerate() {
        let number = names[place].number;
        device.physical_index = number.and_then(|number| u32::try_from(number).ok());
        device.index = device.physical_index.unwrap_or(u32::try_from(place).unwrap_or(u32::MAX));
    }
    let rule = if old { OLD_MIG_RULE } else { MIG_RULE };
    let visible = environment.setting(VISIBLE);
    match order::find(&mut devices, has_mig, environment, &mut found) {
        Numbers::Refused => {
            found.masks.extend(visible.map(|value| {
                let effect = format!("nothing more: the driver refuses {}", super::ORDER);
                Mask::new(DeviceKey::Cuda, VISIBLE, value, effect)
            }));
        }
        Numbers::Driver(order) => found.masks.extend(order::apply(&mut devices, &names, &order, visible)),
        Numbers::Bus => {
            let mut left = listed;
            if let Some(value) = visible {
                let mut chosen = mask::read(value, &names);
                left = one_per_instance(&gpus, chosen.order.clone(), old);
                let dropped: Vec<usize> = chosen.order.iter().copied().filter(|place| !left.contains(place)).collect();
                chosen.order.clone_from(&left);
                let all: Vec<usize> = (0..devices.len()).collect();
                found.masks.push(list::apply(
                    Mask::new(DeviceKey::Cuda, VISIBLE, value, ""),
                    &mut devices,
                    &all,
                    chosen,
                ));
                for place in dropped {
                    devices[place].masked_by = Some(rule.to_owned());
                }
            } else {
                for (_, device) in devices.iter_mut().enumerate().filter(|(place, _)| !left.contains(place)) {
                    device.masked_by = Some(rule.to_owned());
                }
            }
        }
    }
    found.devices = devices;
    found
}

/// Of these places, those that CUDA lists: the first compute instance of every GPU instance and all GPUs that are not
/// in MIG mode; with an old driver, the first MIG device alone where there is one.
fn one_per_instance(gpus: &[Gpu], places: Vec<usize>, old: bool) -> Vec<usize> {
    let mut seen = Vec::new();
    if old && let Some(first) = places.iter().find(|place| gpus[**place].name.mig.is_some()) {
        return vec![*first];
    }
    places
        .into_iter()
        .filter(|place| match &gpus[*place].name.mig {
            None => true,
            Some((uuid, gi, _)) if seen.contains(&(uuid, gi)) => false,
            Some((uuid, gi, _)) => {
                seen.push((uuid, gi));
                true
            }
        })
        .collect()
}
