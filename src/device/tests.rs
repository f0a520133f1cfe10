//! Requests on described machines.

use super::{Device, DeviceError, Devices, Emulation, Support};
use crate::dtype::DType;
use crate::hint::Hint as _;
use crate::resolve::Target;
use crate::system::{DeviceInfo, Mask, Route, SystemInfo};
use crate::variant::{Arch, DeviceKey, Os};

fn machine(devices: impl IntoIterator<Item = DeviceInfo>) -> Devices {
    let mut system = SystemInfo::described(Os::Linux, Arch::X86_64);
    system.devices = devices.into_iter().collect();
    Devices::of(system)
}

fn gpu(key: DeviceKey, index: u32, route: Route) -> DeviceInfo {
    DeviceInfo::new(key, index, format!("{key} card {index}"), route)
}

fn software() -> DeviceInfo {
    DeviceInfo { software: true, ..gpu(DeviceKey::Wgpu, 0, Route::Adapter) }
}

fn select(devices: &Devices, text: &str) -> Result<Device, DeviceError> {
    devices.select(text.parse::<Target>()?)
}

/// Four cards behind `CUDA_VISIBLE_DEVICES=2,0`.
fn masked() -> Devices {
    let mask = "CUDA_VISIBLE_DEVICES=2,0";
    let seen =
        |index, physical| DeviceInfo { physical_index: Some(physical), ..gpu(DeviceKey::Cuda, index, Route::Native) };
    let hidden = |physical| DeviceInfo { masked_by: Some(mask.to_owned()), ..seen(physical, physical) };
    let mut devices = machine([seen(0, 2), seen(1, 0), hidden(1), hidden(3)]);
    devices.system.masks.push(Mask::new(DeviceKey::Cuda, "CUDA_VISIBLE_DEVICES", "2,0", "hides 2 of 4"));
    devices.system.masks.push(Mask::new(DeviceKey::Cuda, "CUDA_DEVICE_ORDER", "PCI_BUS_ID", "orders by PCI address"));
    devices
}

#[test]
fn auto_takes_the_first_key_with_hardware_and_the_processor_in_the_end() {
    let native = |key| gpu(key, 0, Route::Native);
    let adapter = |key| gpu(key, 0, Route::Adapter);
    // Each key is taken before all that stand after it.
    for (place, key) in Devices::AUTO_ORDER.into_iter().enumerate().take(8) {
        let rest = Devices::AUTO_ORDER[place..8].iter().rev().map(|key| native(*key));
        assert_eq!(machine(rest.chain([adapter(DeviceKey::Wgpu)])).best().key(), key);
    }
    assert_eq!(machine([adapter(DeviceKey::Wgpu), software()]).best().key(), DeviceKey::Wgpu);
    assert_eq!(machine([adapter(DeviceKey::Xpu)]).best().to_string(), "xpu:0", "an adapter of Intel's is an xpu");
    let both = machine([adapter(DeviceKey::Xpu), native(DeviceKey::Xpu)]).best();
    assert_eq!(both.route(), Route::Native, "the native route of the same device");
    for devices in [machine([]), machine([software()])] {
        let best = devices.best();
        assert!(best.key() == DeviceKey::Cpu && best.is_automatic());
    }
    let mut devices = masked();
    devices.system.devices.retain(|device| device.masked_by.is_some());
    assert_eq!(devices.best().key(), DeviceKey::Cpu, "hidden devices are none");
    let mut keys = Devices::AUTO_ORDER.to_vec();
    keys.sort_unstable();
    assert!(keys.into_iter().eq(DeviceKey::all()), "every key has its place");
}

#[test]
fn a_request_takes_what_it_names_and_nothing_else() {
    let devices = masked();
    assert_eq!(select(&devices, "cuda").unwrap().info().physical_index, Some(2), "the first visible one");
    assert_eq!(select(&devices, "cuda:1").unwrap().info().physical_index, Some(0));
    assert!(!select(&devices, "cuda").unwrap().is_automatic());
    assert_eq!(select(&devices, "cpu:0").unwrap().key(), DeviceKey::Cpu);
    let laptop = machine([gpu(DeviceKey::Xpu, 0, Route::Adapter), software()]);
    assert_eq!(select(&laptop, "wgpu").unwrap().key(), DeviceKey::Xpu, "hardware before software");
    assert!(select(&laptop, "wgpu:0").unwrap().info().software, "a number is one among its own key");
}

#[test]
fn what_cannot_be_used_is_an_error_that_lists_what_is_there() {
    let devices = masked();
    let error = select(&devices, "cuda:3").unwrap_err();
    assert!(matches!(error, DeviceError::Hidden { .. }), "{error}");
    let text = error.to_string();
    for part in ["cuda:3", "CUDA_VISIBLE_DEVICES=\"2,0\" (hides 2 of 4)", "cuda:0 (cuda card 0)", "hidden by"] {
        assert!(text.contains(part), "{part:?} in {text}");
    }
    assert!(!text.contains("CUDA_DEVICE_ORDER"), "it hides nothing: {text}");
    assert_eq!(error.hint().unwrap(), "change or unset CUDA_VISIBLE_DEVICES, or ask for a visible device");

    let error = select(&devices, "cuda:4").unwrap_err();
    assert!(matches!(error, DeviceError::Missing { .. }), "no mask hides a fifth of four: {error}");
    let error = select(&devices, "xpu").unwrap_err();
    assert!(matches!(error, DeviceError::Missing { .. }), "{error}");
    assert!(error.to_string().contains("this machine has: cpu:0 (the processor), cuda:0"), "{error}");
    let error = select(&devices, "cpu:1").unwrap_err();
    assert!(error.to_string().contains("there are: cpu:0"), "{error}");

    let mut unknown = machine([]);
    unknown.system.unprobed.insert(DeviceKey::Hpu);
    unknown.system.notes.push("install the driver".to_owned());
    let error = select(&unknown, "gaudi:1").unwrap_err();
    assert!(matches!(error, DeviceError::Unprobed { .. }), "{error}");
    assert_eq!(error.hint().unwrap(), "install the driver");

    let error = select(&devices, "CUDA").unwrap_err();
    assert!(matches!(error, DeviceError::Text(_)), "{error}");
}

#[test]
fn a_type_that_the_device_lacks_is_an_error_unless_emulation_is_allowed() {
    let mut turing = gpu(DeviceKey::Cuda, 0, Route::Native);
    turing.dtypes = Some(vec![DType::F64, DType::F32, DType::F16]);
    turing.emulated = vec![DType::Bf16];
    let device = select(&machine([turing.clone()]), "cuda").unwrap();
    assert_eq!(device.require(DType::F16, Emulation::Refuse), Ok(Support::Native));
    let error = device.require(DType::Bf16, Emulation::Refuse).unwrap_err();
    assert!(error.to_string().contains("only emulates bf16; it computes in f64, f32, f16"), "{error}");
    assert!(error.hint().unwrap().contains("allow emulation"));
    assert_eq!(device.require(DType::Bf16, Emulation::Allow), Ok(Support::Emulated));
    turing.emulated.clear();
    let device = select(&machine([turing.clone()]), "cuda").unwrap();
    let error = device.require(DType::Bf16, Emulation::Allow).unwrap_err();
    assert!(error.to_string().contains("does not have bf16"), "{error}");
    turing.dtypes = None;
    let device = select(&machine([turing]), "cuda").unwrap();
    assert_eq!(device.require(DType::Bf16, Emulation::Refuse), Ok(Support::Unknown), "nobody knows");
}

#[test]
fn a_processor_emulates_half_types_for_who_asked_for_it() {
    let plain = machine([]);
    let named = select(&plain, "cpu").unwrap();
    assert_eq!(named.require(DType::Bf16, Emulation::Refuse), Ok(Support::Emulated));
    assert!(plain.best().require(DType::Bf16, Emulation::Refuse).is_err(), "nobody asked for a processor");
    let mut new = SystemInfo::described(Os::Linux, Arch::X86_64);
    new.cpu.features = vec!["avx512bf16".to_owned()];
    assert_eq!(Devices::of(new).best().require(DType::Bf16, Emulation::Refuse), Ok(Support::Native));
}

#[test]
fn the_processor_needs_no_driver_and_names_are_escaped_in_errors() {
    assert_eq!(Device::parse("cpu").unwrap().key(), DeviceKey::Cpu);
    let devices = machine([DeviceInfo { name: "\u{1b}[31m".to_owned(), ..gpu(DeviceKey::Cuda, 0, Route::Native) }]);
    let error = select(&devices, "cuda:1").unwrap_err();
    assert!(!error.to_string().contains('\u{1b}'), "{error}");
}

#[test]
fn a_device_without_a_driver_is_listed_and_never_taken() {
    let mut card = gpu(DeviceKey::Xpu, 0, Route::Native);
    card.api = Some("sysfs".to_owned());
    let mut devices = machine([card.clone()]);
    devices.system.notes.push("install Level Zero".to_owned());
    assert_eq!(devices.best().key(), DeviceKey::Cpu);
    let error = select(&devices, "xpu").unwrap_err();
    assert!(matches!(error, DeviceError::NoDriver { .. }), "{error}");
    assert!(error.to_string().contains("xpu:0 (xpu card 0, no driver)"), "{error}");
    assert_eq!(error.hint().unwrap(), "install Level Zero");
    // The same GPU as an adapter needs no native driver.
    let both = machine([card, gpu(DeviceKey::Xpu, 0, Route::Adapter)]);
    assert_eq!(select(&both, "xpu:0").unwrap().route(), Route::Adapter);
}
