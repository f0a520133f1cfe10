//! GPUs as the CUDA driver lists them, where NVML cannot be used (as on some Jetson boards): those that this process
//! sees, after the masks, which the driver reads for itself from the process's environment.

use std::fmt::Write as _;

use super::super::{Found, list};
use super::{VISIBLE, absent, set_capability, version};
use crate::system::device::{DeviceInfo, Route};
use crate::system::environment::Environment;
use crate::system::ffi::{CAPABILITY_MAJOR, CAPABILITY_MINOR, CudaFailure, LibCuda, NvmlFailure, OpenError};
use crate::system::mask::Mask;
use crate::variant::DeviceKey;

/// The most devices that are looked at.
const MAX_DEVICES: i32 = 256;

pub(super) fn find(environment: &Environment, nvml: &NvmlFailure) -> Found {
    let cuda = match LibCuda::open(environment) {
        Ok(cuda) => cuda,
        Err(failure) => return absent::find(environment, nvml, &failure),
    };
    let mut found = Found::default();
    match nvml {
        NvmlFailure::Open(OpenError::Absent) => {}
        NvmlFailure::Open(OpenError::Broken(reason)) => {
            found.notes.push(format!("NVML cannot be opened, the CUDA driver was asked instead: {reason}"));
        }
        NvmlFailure::Start(error) => {
            found.notes.push(format!("NVML cannot be used, the CUDA driver was asked instead: {error}"));
        }
    }
    let count = match cuda.count() {
        Ok(count) => count,
        Err(error) => {
            found.notes.push(error.to_string());
            return found;
        }
    };
    if count > MAX_DEVICES {
        found
            .notes
            .push(format!("the CUDA driver counts {count} devices, which cannot be: {MAX_DEVICES} are looked at"));
    }
    let backend = cuda.version().ok().and_then(version);
    let module = absent::module_version(environment);
    let visible = environment.setting(VISIBLE);
    let mut failures = 0;
    for index in 0..count.min(MAX_DEVICES) {
        match describe(&cuda, index) {
            Ok(mut device) => {
                device.backend_version = backend;
                device.driver = module.as_ref().map(|version| format!("NVIDIA {version}"));
                // Under a mask, the driver does not say what the number would be without it.
                device.physical_index = visible.is_none().then_some(device.index);
                found.devices.push(device);
            }
            Err(error) => {
                if failures == 0 {
                    found.notes.push(format!("device {index} of the CUDA driver cannot be used: {error}"));
                }
                failures += 1;
            }
        }
    }
    if failures > 1 {
        found.notes.push(format!("{} more devices of the CUDA driver cannot be used", failures - 1));
    }
    if let Some(value) = visible.filter(|_| !found.devices.is_empty()) {
        let (left, known) = (found.devices.len(), absent::hardware(environment).len());
        let effect = if known < left {
            format!("leaves {left}; how many it hides is not known without NVML")
        } else {
            list::effect(known, left, true)
        };
        found.masks.push(Mask::new(DeviceKey::Cuda, VISIBLE, value, effect));
    }
    found
}

fn describe(cuda: &LibCuda, index: i32) -> Result<DeviceInfo, String> {
    let device = cuda.device(index).map_err(|error| error.to_string())?;
    let name = cuda.name(device).ok().filter(|name| !name.is_empty()).unwrap_or_else(|| "NVIDIA GPU".to_owned());
    let mut info = DeviceInfo::new(DeviceKey::Cuda, u32::try_from(index).unwrap_or_default(), name, Route::Native);
    info.api = Some("CUDA".to_owned());
    info.memory_bytes = cuda.memory_bytes(device).ok();
    info.pci_address = cuda.pci_address(device).ok().filter(|address| !address.is_empty());
    info.uuid =
        cuda.uuid(device).ok().map(|bytes| uuid(if info.name.contains(" MIG ") { "MIG" } else { "GPU" }, bytes));
    let half = |attribute| cuda.attribute(attribute, device);
    if let (Ok(major), Ok(minor)) = (half(CAPABILITY_MAJOR), half(CAPABILITY_MINOR)) {
        set_capability(&mut info, major, minor);
    }
    Ok(info)
}

/// As `nvidia-smi -L` writes it.
fn uuid(kind: &str, bytes: [u8; 16]) -> String {
    let mut text = kind.to_owned();
    for (place, byte) in bytes.into_iter().enumerate() {
        if [0, 4, 6, 8, 10].contains(&place) {
            text.push('-');
        }
        // Writing to a String does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Whether the driver runs and sees no device.
pub(super) fn says_no_device(failure: &CudaFailure) -> bool {
    matches!(failure, CudaFailure::Start(error) if error.is_no_device())
}

/// Why the CUDA driver cannot be used.
pub(super) fn words(failure: &CudaFailure) -> String {
    match failure {
        CudaFailure::Open(OpenError::Absent) => "libcuda is not installed".to_owned(),
        CudaFailure::Open(OpenError::Broken(reason)) => format!("libcuda cannot be opened: {reason}"),
        CudaFailure::Start(error) => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn uuids_are_written_as_the_tools_write_them() {
        let bytes = 0x9d4d_39a1_f297_1d4f_1354_153e_6181_e927_u128.to_be_bytes();
        assert_eq!(super::uuid("GPU", bytes), "GPU-9d4d39a1-f297-1d4f-1354-153e6181e927");
    }
}
