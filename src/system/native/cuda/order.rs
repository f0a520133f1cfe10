//! `CUDA_DEVICE_ORDER`, and the numbers that CUDA gives.
//!
//! NVML lists by the place on the bus; CUDA does when it is told to (`PCI_BUS_ID`). By its default (`FASTEST_FIRST`) it
//! puts first what it takes for the fastest, by a rule that is written nowhere. For GPUs of one kind both are the same
//! order. For others the CUDA driver is asked: it takes 0.2 s, and there is no other way to number them right.

use super::super::{Found, list};
use super::mask::{self, Nameable};
use super::{ORDER, VISIBLE};
use crate::system::device::DeviceInfo;
use crate::system::environment::Environment;
use crate::system::ffi::LibCuda;
use crate::system::mask::Mask;
use crate::variant::DeviceKey;

/// The most devices that are asked for.
const MAX_DEVICES: i32 = 256;

/// Where the numbers come from.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Numbers {
    /// From the order of the bus, which the devices have.
    Bus,
    /// From the driver: the places of those that it lists, masks applied.
    Driver(Vec<usize>),
    /// From nowhere: the setting cannot be read, and every device is hidden.
    Refused,
}

/// Reads the setting, and asks the driver where nothing else can tell.
pub(super) fn find(devices: &mut [DeviceInfo], has_mig: bool, environment: &Environment, found: &mut Found) -> Numbers {
    let setting = environment.setting(ORDER);
    let mut say = |effect: &str, error: Option<&str>| {
        found.masks.extend(setting.map(|value| {
            let mask = Mask::new(DeviceKey::Cuda, ORDER, value, effect);
            Mask { error: error.map(str::to_owned), ..mask }
        }));
    };
    match setting {
        Some("PCI_BUS_ID") => {
            say("numbers devices in the order of the PCI bus", None);
            return Numbers::Bus;
        }
        None | Some("FASTEST_FIRST") => say("numbers first what the driver takes for the fastest", None),
        // Tried on driver 580.159: cuInit fails with error 101 on any other value, small letters and the empty one
        // included.
        Some(_) => {
            let all = devices.len();
            say(
                &format!("hides all {all}: the driver refuses to start"),
                Some("is neither FASTEST_FIRST nor PCI_BUS_ID, in capitals"),
            );
            let by = format!("{ORDER}={}", setting.unwrap_or_default());
            for device in devices.iter_mut() {
                device.masked_by = Some(by.clone());
            }
            return Numbers::Refused;
        }
    }
    let alike = devices.windows(2).all(|pair| pair[0].name == pair[1].name && pair[0].capability == pair[1].capability);
    // MIG devices are listed behind one another, whatever their sizes.
    if alike || has_mig {
        return Numbers::Bus;
    }
    let asked = ask(devices, environment);
    if let Err(reason) = &asked {
        found.notes.push(format!(
            "these NVIDIA GPUs are of several kinds, and the CUDA driver alone knows how it numbers them ({reason}): \
             they are numbered in the order of the PCI bus here, which {ORDER}=PCI_BUS_ID makes CUDA do too"
        ));
    }
    asked.map_or(Numbers::Bus, Numbers::Driver)
}

/// The places of the devices that the CUDA driver lists, in its order.
fn ask(devices: &[DeviceInfo], environment: &Environment) -> Result<Vec<usize>, String> {
    let cuda = match LibCuda::open(environment) {
        Ok(cuda) => cuda,
        Err(failure) => {
            // It counts none because the mask leaves none.
            return if super::by_driver::says_no_device(&failure) && environment.setting(VISIBLE).is_some() {
                Ok(Vec::new())
            } else {
                Err(super::by_driver::words(&failure))
            };
        }
    };
    let count = cuda.count().map_err(|error| error.to_string())?;
    (0..count.min(MAX_DEVICES))
        .map(|index| {
            let address = cuda.device(index).and_then(|device| cuda.pci_address(device));
            let address = address.map_err(|error| error.to_string())?;
            let place = devices.iter().position(|device| device.pci_address.as_deref() == Some(&address));
            place.ok_or_else(|| format!("it lists a device at {address} that NVML does not"))
        })
        .collect()
}

/// Numbers the devices as the driver lists them. Its list tells what the mask did; why is in the mask itself.
pub(super) fn apply(
    devices: &mut [DeviceInfo],
    names: &[Nameable],
    order: &[usize],
    visible: Option<&str>,
) -> Option<Mask> {
    let all: Vec<usize> = (0..devices.len()).collect();
    let chosen =
        list::Chosen { order: order.to_vec(), error: visible.and_then(|value| mask::read(value, names).error) };
    let Some(value) = visible else {
        let none = Mask::new(DeviceKey::Cuda, "CUDA", "not listed by the driver", "");
        list::apply(none, devices, &all, chosen);
        for device in devices.iter_mut() {
            // Without a mask, the numbers are those without a mask.
            device.physical_index = device.masked_by.is_none().then_some(device.index);
        }
        return None;
    };
    // How the driver would number the hidden ones too, it does not say.
    for device in devices.iter_mut() {
        device.physical_index = None;
    }
    let mask = list::apply(Mask::new(DeviceKey::Cuda, VISIBLE, value, ""), devices, &all, chosen);
    Some(Mask { effect: list::effect(devices.len(), order.len(), true), ..mask })
}
