//! Apple GPUs, by `system_profiler`: nothing of Apple's is linked. Tested on fixtures only; on a Mac it has not run.
//!
//! Sources: `system_profiler -json SPDisplaysDataType SPHardwareDataType` as macOS 12 to 26 print it
//! (`spdisplays_mtlgpufamilysupport`, before it `spdisplays_metal`); for types, the Metal Shading Language
//! Specification: no `double`; `bfloat` since Metal 3.1, which came with macOS 14.
//!
//! The version of macOS, which published builds ask for, is the system's own: `SystemInfo::os_version`.

use serde::Deserialize;

use super::{Found, files};
use crate::dtype::DType;
use crate::system::command;
use crate::system::device::{DeviceInfo, Route};
use crate::system::environment::Environment;
use crate::system::os;
use crate::variant::DeviceKey;

/// Metal's `bfloat` needs this macOS.
const BFLOAT_SINCE: u32 = 14;

pub(super) fn probe(environment: &Environment) -> Option<Found> {
    // Only macOS has this file.
    let version = files::text(&environment.path("System/Library/CoreServices/SystemVersion.plist"))?;
    let macos = os::product_version(&version);
    let mut found = Found::default();
    let arguments = ["-json", "SPDisplaysDataType", "SPHardwareDataType"];
    let tools = super::with_commands_of(environment, &["usr/sbin"]);
    let output = match command::run(&tools, "system_profiler", &arguments, command::TIME_LIMIT) {
        Ok(output) => output,
        Err(error) => {
            found.notes.push(format!("Apple GPUs cannot be listed: {error}"));
            return Some(found);
        }
    };
    match serde_json::from_str::<Profile>(&output) {
        Ok(profile) => found.devices = devices(&profile, macos.as_deref()),
        Err(error) => found.notes.push(format!("Apple GPUs cannot be listed: system_profiler: {error}")),
    }
    Some(found)
}

/// What is read of the profile. Every value is a text.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Profile {
    #[serde(rename = "SPDisplaysDataType")]
    displays: Vec<Display>,
    #[serde(rename = "SPHardwareDataType")]
    hardware: Vec<Hardware>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Display {
    #[serde(rename = "sppci_model")]
    model: Option<String>,
    #[serde(rename = "sppci_cores")]
    cores: Option<String>,
    #[serde(rename = "spdisplays_vendor")]
    vendor: Option<String>,
    #[serde(rename = "spdisplays_vram")]
    memory: Option<String>,
    #[serde(rename = "spdisplays_mtlgpufamilysupport")]
    family: Option<String>,
    #[serde(rename = "spdisplays_metal")]
    supported: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Hardware {
    physical_memory: Option<String>,
}

/// The GPUs that Metal drives.
fn devices(profile: &Profile, macos: Option<&str>) -> Vec<DeviceInfo> {
    let memory = profile.hardware.first().and_then(|hardware| bytes(hardware.physical_memory.as_deref()?));
    let major = macos.and_then(|text| text.split('.').next()?.parse::<u32>().ok());
    let drives = |display: &&Display| {
        let family = display.family.as_deref().is_some_and(|family| family.contains("metal"));
        family || display.supported.as_deref() == Some("spdisplays_supported")
    };
    let describe = |(index, display): (u32, &Display)| {
        let name = display.model.clone().unwrap_or_else(|| "GPU".to_owned());
        let cores = display.cores.as_deref().filter(|cores| cores.parse::<u16>().is_ok());
        let name = cores.map_or(name.clone(), |cores| format!("{name} ({cores} cores)"));
        let mut device = DeviceInfo::new(DeviceKey::Mps, index, name, Route::Native);
        device.api = Some("Metal".to_owned());
        device.physical_index = Some(index);
        // Apple's own share the memory of the machine.
        let own = display.vendor.as_deref() == Some("sppci_vendor_Apple");
        device.memory_bytes = if own { memory } else { display.memory.as_deref().and_then(bytes) };
        let mut dtypes = vec![DType::F32];
        if major.is_some_and(|major| major >= BFLOAT_SINCE) {
            dtypes.push(DType::Bf16);
        }
        dtypes.extend([DType::F16, DType::I64, DType::I32, DType::U32, DType::I8, DType::U8]);
        device.dtypes = Some(dtypes);
        device
    };
    (0..).zip(profile.displays.iter().filter(drives)).map(describe).collect()
}

/// `24 GB` and `1536 MB`, of 2^30 and 2^20 bytes.
fn bytes(text: &str) -> Option<u64> {
    let (number, unit) = text.split_once(' ')?;
    let shift = match unit {
        "TB" => 40,
        "GB" => 30,
        "MB" => 20,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::{Profile, bytes, devices};
    use crate::dtype::DType;

    const M3: &str = r#"{
        "SPDisplaysDataType": [{"_name": "Apple M3 Pro", "spdisplays_mtlgpufamilysupport": "spdisplays_metal3",
            "spdisplays_ndrvs": [], "spdisplays_vendor": "sppci_vendor_Apple", "sppci_bus": "spdisplays_builtin",
            "sppci_cores": "18", "sppci_device_type": "spdisplays_gpu", "sppci_model": "Apple M3 Pro"}],
        "SPHardwareDataType": [{"chip_type": "Apple M3 Pro", "physical_memory": "36 GB"}]
    }"#;
    const INTEL: &str = r#"{
        "SPDisplaysDataType": [
            {"sppci_model": "Intel UHD Graphics 630", "spdisplays_vendor": "Intel", "spdisplays_metal": "spdisplays_supported",
             "spdisplays_vram_shared": "1536 MB"},
            {"sppci_model": "Radeon Pro 5500M", "spdisplays_vram": "8 GB", "spdisplays_mtlgpufamilysupport": "spdisplays_metal2"},
            {"sppci_model": "GeForce GT 120"}],
        "SPHardwareDataType": [{"physical_memory": "32 GB"}]
    }"#;

    #[test]
    fn gpus_that_metal_drives_are_listed() {
        let profile: Profile = serde_json::from_str(M3).unwrap();
        let gpus = devices(&profile, Some("26.1"));
        assert_eq!((gpus.len(), gpus[0].name.as_str()), (1, "Apple M3 Pro (18 cores)"));
        assert_eq!(gpus[0].memory_bytes, Some(36 << 30), "the machine's own");
        let dtypes = gpus[0].dtypes.as_ref().unwrap();
        assert!(dtypes.contains(&DType::Bf16) && !dtypes.contains(&DType::F64));
        assert!(!devices(&profile, Some("13.6")).remove(0).dtypes.unwrap().contains(&DType::Bf16));
        let profile: Profile = serde_json::from_str(INTEL).unwrap();
        let gpus = devices(&profile, None);
        let shown: Vec<_> = gpus.iter().map(|gpu| (gpu.index, gpu.name.as_str(), gpu.memory_bytes)).collect();
        assert_eq!(shown, [(0, "Intel UHD Graphics 630", None), (1, "Radeon Pro 5500M", Some(8 << 30))]);
        assert!(devices(&serde_json::from_str("{}").unwrap(), None).is_empty());
    }

    #[test]
    fn sizes_are_read() {
        assert_eq!(
            [bytes("24 GB"), bytes("1536 MB"), bytes("1 TB")],
            [Some(24 << 30), Some(1536 << 20), Some(1 << 40)]
        );
        assert_eq!(
            [bytes(""), bytes("24"), bytes("x GB"), bytes("18446744073709551615 GB"), bytes("-1 GB")],
            [None; 5]
        );
    }
}
