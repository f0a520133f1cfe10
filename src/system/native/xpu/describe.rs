//! One device, by what its driver or the kernel tells of it.

use super::machine::{Shown, address};
use super::mask::Unit;
use super::sysfs::{self, Card};
use crate::dtype::DType;
use crate::system::device::{DeviceInfo, NO_DRIVER, Route};
use crate::variant::DeviceKey;

/// Flags of `ze_device_module_properties_t` that are read.
const MODULE_FP16: u32 = 1 << 0;
const MODULE_FP64: u32 = 1 << 1;
/// A flag of its `fp64flags`: computed in software.
const SOFT_FLOAT: u32 = 1 << 7;

/// A device that its driver shows at a place of its list.
pub(super) fn of_driver(shown: &Shown, place: usize) -> DeviceInfo {
    let Shown { device, driver, bf16, .. } = shown;
    let index = u32::try_from(place).unwrap_or(u32::MAX);
    let name = if device.name.is_empty() { "Intel GPU" } else { &device.name };
    let mut info = DeviceInfo::new(DeviceKey::Xpu, index, name, Route::Native);
    info.memory_bytes = device.memory_bytes.filter(|bytes| *bytes > 0);
    info.api = Some("Level Zero".to_owned());
    info.driver = Some(driver.clone());
    info.pci_address = device.pci_address.map(address);
    info.pci_id = Some(format!("{:04x}:{:04x}", device.vendor_id, device.device_id));
    info.uuid = (device.uuid != [0; 16]).then(|| uuid(device.uuid));
    let tiles = u32::try_from(device.tiles.len()).unwrap_or(u32::MAX);
    info.tiles = Some(tiles.max(1));
    if let Some((flags, _fp16, fp64)) = device.module {
        let mut native = vec![DType::F32, DType::I64, DType::I32, DType::U32, DType::I8, DType::U8];
        if flags & MODULE_FP16 != 0 {
            native.push(DType::F16);
        }
        if flags & MODULE_FP64 != 0 {
            let list = if fp64 & SOFT_FLOAT == 0 { &mut native } else { &mut info.emulated };
            list.push(DType::F64);
        }
        let list = if *bf16 || bf16_by_id(device.device_id) { &mut native } else { &mut info.emulated };
        list.push(DType::Bf16);
        native.sort_unstable();
        info.emulated.sort_unstable();
        info.dtypes = Some(native);
    }
    info
}

/// Devices that convert bfloat16 natively whether or not their driver has the extension.
fn bf16_by_id(device_id: u32) -> bool {
    device_id & 0xfff == 0x201 || sysfs::is_data_center_max(device_id)
}

/// Groups of hexadecimal digits, as uuids are written.
fn uuid(bytes: [u8; 16]) -> String {
    let digits = bytes.map(|byte| format!("{byte:02x}")).concat();
    [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]].join("-")
}

/// A device that the kernel alone tells of.
pub(super) fn of_kernel(card: &Card, unit: &Unit, name: Option<&str>) -> DeviceInfo {
    let name = name.filter(|name| !name.is_empty()).map(str::to_owned);
    let name = name.unwrap_or_else(|| format!("Intel GPU 8086:{:04x}", card.device_id));
    let mut info = DeviceInfo::new(DeviceKey::Xpu, unit.unmasked_index, name, Route::Native);
    let part = u64::try_from(unit.tiles.len()).unwrap_or(1);
    // Tiles of a card are alike.
    info.memory_bytes = card.memory_bytes.map(|bytes| bytes / u64::from(card.tiles) * part);
    info.api = Some(NO_DRIVER.to_owned());
    info.driver = Some(card.driver.clone()).filter(|driver| !driver.is_empty());
    info.pci_address = Some(card.pci_address.clone()).filter(|address| !address.starts_with("unknown"));
    info.pci_id = Some(format!("8086:{:04x}", card.device_id));
    info
}
