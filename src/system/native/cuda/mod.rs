//! NVIDIA GPUs: by NVML, which makes no context and takes some 12 ms; by the CUDA driver where there is no NVML; and
//! where neither can be opened, the PCI bus and `/proc/driver/nvidia` say what a driver would be for.
//!
//! Tried on an H200 with driver 580.159, MIG off. MIG devices, several GPUs, and GPUs of several kinds were tested with
//! drivers of our own only; what they do then follows NVIDIA's MIG user guide ("MIG device names", which holds CUDA's
//! enumeration) and the CUDA programming guide.

mod absent;
mod by_driver;
mod mask;
mod nvml;
mod order;

use std::time::Duration;

use super::Found;
use super::watch::Watch;
use crate::dtype::DType;
use crate::system::device::{Capability, DeviceInfo};
use crate::system::environment::Environment;
use crate::system::ffi::Nvml;
use crate::system::mask::Mask;
use crate::variant::{DeviceKey, Version};

/// How long the driver may take. Where nothing keeps the GPUs awake it starts each of them first, which takes seconds.
const TIME_LIMIT: Duration = Duration::from_secs(30);

static WATCH: Watch = Watch::new();

const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";
const ORDER: &str = "CUDA_DEVICE_ORDER";
const CONTAINER: &str = "NVIDIA_VISIBLE_DEVICES";

pub(super) fn probe(environment: &Environment) -> Option<Found> {
    if cfg!(target_os = "macos") {
        return None;
    }
    let asked = environment.clone();
    let answer = WATCH.within(TIME_LIMIT, move || ask(&asked));
    let mut found = answer.unwrap_or_else(|| absent::hung(environment, TIME_LIMIT));
    if let Some(value) = environment.setting(CONTAINER).filter(|_| !found.devices.is_empty()) {
        let effect = "chose the GPUs that this container was given; nothing reads it here";
        found.masks.push(Mask::new(DeviceKey::Cuda, CONTAINER, value, effect));
    }
    Some(found)
}

fn ask(environment: &Environment) -> Found {
    match Nvml::open(environment) {
        Ok(nvml) => nvml::find(&nvml, environment),
        Err(failure) => by_driver::find(environment, &failure),
    }
}

/// Sets what follows from the compute capability.
fn set_capability(device: &mut DeviceInfo, major: i32, minor: i32) {
    let (Ok(major), Ok(minor)) = (u32::try_from(major), u32::try_from(minor)) else { return };
    if !(1..100).contains(&major) || minor >= 100 {
        return;
    }
    let capability = Capability { major, minor };
    device.capability = Some(capability);
    // "Arithmetic instructions" of the programming guide: half precision from 5.3 on, bfloat16 from 8.0 on. Below,
    // conversions to and from f32 are all there is.
    let mut native = vec![DType::F64, DType::F32];
    for (dtype, since) in [(DType::Bf16, (8, 0)), (DType::F16, (5, 3))] {
        let list = if (major, minor) >= since { &mut native } else { &mut device.emulated };
        list.push(dtype);
    }
    native.extend([DType::I64, DType::I32, DType::U32, DType::I8, DType::U8]);
    device.dtypes = Some(native);
}

/// 1000 * major + 10 * minor, as the driver tells it.
fn version(number: i32) -> Option<Version> {
    let number = u32::try_from(number).ok().filter(|number| (1000..1_000_000).contains(number))?;
    Some(Version::new(number / 1000, number % 1000 / 10))
}
