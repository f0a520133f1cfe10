//! The adapters that wgpu reaches.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::device::{DeviceInfo, Route};
use crate::dtype::DType;
use crate::variant::DeviceKey;

/// PCI vendor ids whose adapters have a device key of their own.
const VENDORS: [(u32, DeviceKey); 1] = [(0x8086, DeviceKey::Xpu)];

/// wgpu's entry point for some graphics APIs; `None` for none of them, which wgpu would panic on. Without debug layers,
/// whatever the build's profile: the same shader runs the same way in both.
pub(crate) fn instance(backends: wgpu::Backends) -> Option<wgpu::Instance> {
    let backends = backends & wgpu::Instance::enabled_backend_features();
    let flags = wgpu::InstanceFlags::empty();
    let descriptor =
        wgpu::InstanceDescriptor { backends, flags, ..wgpu::InstanceDescriptor::new_without_display_handle() };
    (!backends.is_empty()).then(|| wgpu::Instance::new(descriptor))
}

/// Every adapter, or a sentence on what went wrong.
pub(super) fn enumerate() -> Result<Vec<DeviceInfo>, String> {
    // Drivers are other people's code behind wgpu's; a panic there must not take down a program that can do without.
    // Nothing of ours is shared with the closure, so nothing can be left half-changed.
    let adapters = catch_unwind(AssertUnwindSafe(|| {
        let instance = instance(wgpu::Backends::all());
        let adapters = instance.map(|instance| pollster::block_on(instance.enumerate_adapters(wgpu::Backends::all())));
        adapters
            .unwrap_or_default()
            .into_iter()
            .map(|adapter| (adapter.get_info(), adapter.features()))
            .collect::<Vec<_>>()
    }));
    match adapters {
        Ok(adapters) => Ok(number(adapters.iter().map(|(info, features)| describe(info, *features)).collect())),
        Err(panic) => {
            let text = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied())
                .unwrap_or("no message");
            tracing::warn!(panic = text, "wgpu panicked while it listed adapters");
            Err(format!("wgpu could not list its adapters: it panicked with {text:?}"))
        }
    }
}

fn describe(info: &wgpu::AdapterInfo, features: wgpu::Features) -> DeviceInfo {
    let software = info.device_type == wgpu::DeviceType::Cpu;
    let vendor = VENDORS.iter().find(|(vendor, _)| *vendor == info.vendor).map(|(_, key)| *key);
    // A software adapter is no device of its vendor, whatever id it carries.
    let key = vendor.filter(|_| !software).unwrap_or(DeviceKey::Wgpu);
    let mut device = DeviceInfo::new(key, 0, info.name.clone(), Route::Adapter);
    device.api = Some(info.backend.to_string());
    device.driver = Some(format!("{} {}", info.driver, info.driver_info).trim().to_owned()).filter(|d| !d.is_empty());
    device.software = software;
    let optional = [(wgpu::Features::SHADER_F64, DType::F64), (wgpu::Features::SHADER_F16, DType::F16)];
    let mut dtypes = vec![DType::F32, DType::I32, DType::U32];
    dtypes.extend(optional.into_iter().filter(|(feature, _)| features.contains(*feature)).map(|(_, dtype)| dtype));
    dtypes.sort_unstable();
    device.dtypes = Some(dtypes);
    device
}

/// Numbers the adapters of each key from 0: hardware before software, else in the order of wgpu.
fn number(mut devices: Vec<DeviceInfo>) -> Vec<DeviceInfo> {
    devices.sort_by_key(|device| (device.key, device.software));
    let mut next = (DeviceKey::Cpu, 0);
    for device in &mut devices {
        if next.0 != device.key {
            next = (device.key, 0);
        }
        device.index = next.1;
        next.1 += 1;
    }
    devices
}

#[cfg(test)]
mod tests {
    use super::{describe, number};
    use crate::dtype::DType;
    use crate::variant::DeviceKey;

    fn adapter(vendor: u32, kind: wgpu::DeviceType, name: &str) -> wgpu::AdapterInfo {
        let mut info = wgpu::AdapterInfo::new(kind, wgpu::Backend::Vulkan);
        info.vendor = vendor;
        name.clone_into(&mut info.name);
        info
    }

    #[test]
    fn the_keys_that_adapters_get_are_those_that_adapters_are_looked_for() {
        let given = |key| key == DeviceKey::Wgpu || super::VENDORS.iter().any(|(_, vendors)| *vendors == key);
        for key in DeviceKey::all() {
            assert_eq!(crate::system::may_be_adapter(key), given(key), "{key}");
        }
    }

    #[test]
    fn keys_follow_the_vendor_and_numbers_the_key() {
        use wgpu::DeviceType::{Cpu, DiscreteGpu, IntegratedGpu};
        let infos = [
            adapter(0x10005, Cpu, "llvmpipe"),
            adapter(0x8086, IntegratedGpu, "Arc (MTL)"),
            adapter(0x10de, DiscreteGpu, "H200"),
            adapter(0x8086, DiscreteGpu, "Arc B580"),
            adapter(0x8086, Cpu, "a software adapter of Intel's"),
        ];
        let devices = number(infos.iter().map(|info| describe(info, wgpu::Features::empty())).collect());
        let shown: Vec<_> = devices.iter().map(|d| (d.key, d.index, d.name.as_str(), d.software)).collect();
        assert_eq!(
            shown,
            [
                (DeviceKey::Xpu, 0, "Arc (MTL)", false),
                (DeviceKey::Xpu, 1, "Arc B580", false),
                (DeviceKey::Wgpu, 0, "H200", false),
                (DeviceKey::Wgpu, 1, "llvmpipe", true),
                (DeviceKey::Wgpu, 2, "a software adapter of Intel's", true),
            ]
        );
    }

    #[test]
    fn optional_dtypes_follow_the_features() {
        let info = adapter(0, wgpu::DeviceType::Other, "x");
        let dtypes = |features| describe(&info, features).dtypes.unwrap();
        assert_eq!(dtypes(wgpu::Features::empty()), [DType::F32, DType::I32, DType::U32]);
        assert!(dtypes(wgpu::Features::SHADER_F16).contains(&DType::F16));
    }
}
