//! Where no driver answers: what stands on the PCI bus, and what it lacks. Such a GPU is a note and no device, because
//! nothing could run on it.

use std::time::Duration;

use super::super::Found;
use super::super::files;
use super::super::pci::{self, ACCELERATOR, DISPLAY, PciDevice};
use super::VISIBLE;
use super::by_driver::{says_no_device, words};
use crate::system::environment::Environment;
use crate::system::ffi::{CudaFailure, NvmlFailure, OpenError};
use crate::system::mask::Mask;
use crate::variant::DeviceKey;

const VENDOR: u64 = 0x10de;

pub(super) fn find(environment: &Environment, nvml: &NvmlFailure, cuda: &CudaFailure) -> Found {
    let mut found = Found::default();
    let hardware = hardware(environment);
    if says_no_device(cuda)
        && let Some(value) = environment.setting(VISIBLE).filter(|_| !hardware.is_empty())
    {
        // The driver runs, so it is the mask.
        let effect = format!("hides all {}", hardware.len());
        found.masks.push(Mask::new(DeviceKey::Cuda, VISIBLE, value, effect));
        found.notes.push(format!("{VISIBLE}={value} hides every NVIDIA GPU; without NVML they cannot be listed"));
        return found;
    }
    let mut reasons = Vec::new();
    match nvml {
        NvmlFailure::Open(OpenError::Absent) => {}
        NvmlFailure::Open(OpenError::Broken(reason)) => reasons.push(format!("NVML cannot be opened: {reason}")),
        // On a machine without a GPU, a driver that is installed is not loaded, and that is no fault.
        NvmlFailure::Start(_) if is_not_loaded(nvml) && hardware.is_empty() => {}
        NvmlFailure::Start(error) => reasons.push(error.to_string()),
    }
    match cuda {
        CudaFailure::Open(OpenError::Absent) => {}
        CudaFailure::Start(error)
            if hardware.is_empty() && (error.is_no_device() || error.is_stub() || is_not_loaded(nvml)) => {}
        // It says what NVML said, in other words.
        CudaFailure::Start(_) if !reasons.is_empty() => {}
        failure => reasons.push(words(failure)),
    }
    if hardware.is_empty() {
        found.notes.extend(reasons.into_iter().map(|reason| format!("NVIDIA's driver cannot be used: {reason}")));
        return found;
    }
    let module = module_version(environment).map_or_else(
        || "install NVIDIA's driver".to_owned(),
        |version| format!("the kernel module {version} is loaded; install the libraries of the same version"),
    );
    let reasons = if reasons.is_empty() {
        "neither NVML (libnvidia-ml.so.1) nor the CUDA driver (libcuda.so.1) is installed".to_owned()
    } else {
        reasons.join("; ")
    };
    found.notes.push(format!(
        "{} and cannot be used: {reasons}. {module}; a container has to be started with the GPUs, as by `--gpus all`",
        pci::counted("NVIDIA GPU", &hardware)
    ));
    found
}

fn is_not_loaded(nvml: &NvmlFailure) -> bool {
    matches!(nvml, NvmlFailure::Start(error) if error.is_not_loaded())
}

/// A driver that does not answer.
pub(super) fn hung(environment: &Environment, limit: Duration) -> Found {
    let hardware = hardware(environment);
    let which =
        if hardware.is_empty() { String::new() } else { format!(" ({})", pci::counted("NVIDIA GPU", &hardware)) };
    let note =
        format!("NVIDIA's driver did not answer within {} s and was left behind in a thread{which}", limit.as_secs());
    Found { notes: vec![note], ..Found::default() }
}

/// The GPUs of the machine, a word each: by the driver's own folder, else by the PCI bus.
pub(super) fn hardware(environment: &Environment) -> Vec<String> {
    let folder = environment.path("proc/driver/nvidia/gpus");
    let driven: Vec<String> = pci::entries(&folder)
        .into_iter()
        .map(|address| {
            let text = files::text(&folder.join(&address).join("information")).unwrap_or_default();
            let model = text.lines().find_map(|line| line.strip_prefix("Model:")).map(str::trim);
            match model.filter(|model| !model.is_empty()) {
                Some(model) => format!("{address} {model}"),
                None => address,
            }
        })
        .collect();
    if !driven.is_empty() {
        return driven;
    }
    let gpus = pci::of_vendor(environment, VENDOR);
    let gpus = gpus.iter().filter(|device| [DISPLAY, ACCELERATOR].contains(&device.base_class()));
    gpus.map(|device: &PciDevice| format!("{} {}", device.address, device.id())).collect()
}

/// The version of the kernel's part of the driver, when it is loaded.
pub(super) fn module_version(environment: &Environment) -> Option<String> {
    files::text(&environment.path("sys/module/nvidia/version"))
}
