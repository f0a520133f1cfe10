//! `HSA_OVERRIDE_GFX_VERSION`, by which people run code of an architecture on a GPU of another: `10.3.0` for `gfx1030`.
//! `HSA_OVERRIDE_GFX_VERSION_<N>` does so for the GPU of KFD's node N, and goes before it.
//!
//! The runtime below everything reads it for every GPU (`libhsakmt/src/topology.c` of ROCR). A text that is no version
//! fails the whole topology, and one of no known architecture fails its GPU's agent: in both cases `ROCm` does not start.

use super::{dtypes, gfx_name};
use crate::system::device::DeviceInfo;
use crate::system::environment::{Environment, GFX_OVERRIDE};
use crate::system::mask::Mask;
use crate::variant::DeviceKey;

/// Gives each device the architecture that code is loaded for, and tells of each setting. `nodes` has the devices'
/// numbers in KFD's topology.
pub(super) fn apply(devices: &mut [DeviceInfo], nodes: &[u32], environment: &Environment) -> Vec<Mask> {
    let of_node = |node: &u32| format!("{GFX_OVERRIDE}_{node}");
    let of_device: Vec<String> = nodes
        .iter()
        .map(of_node)
        .map(|own| if environment.setting(&own).is_some() { own } else { GFX_OVERRIDE.to_owned() })
        .collect();
    let mut masks = Vec::new();
    let settings = environment.settings.iter().filter(|(name, _)| name.starts_with(GFX_OVERRIDE));
    for (variable, value) in settings {
        let places: Vec<usize> = (0..devices.len()).filter(|place| of_device[*place] == *variable).collect();
        let mut mask = Mask::new(DeviceKey::Rocm, variable, value, "");
        if places.is_empty() {
            "nothing: no GPU is left that it speaks of".clone_into(&mut mask.effect);
        } else if let Some(arch) = read(value) {
            let mut instead: Vec<String> = Vec::new();
            for place in places {
                let device = &mut devices[place];
                let own = device.arch.replace(arch.clone()).unwrap_or_else(|| "an unknown architecture".to_owned());
                let (native, emulated) = dtypes(&arch);
                (device.dtypes, device.emulated) = (Some(native), emulated);
                if own != arch && !instead.contains(&own) {
                    instead.push(own);
                }
            }
            mask.effect = match instead.as_slice() {
                [] => format!("nothing: {arch} is what is here"),
                instead => format!("ROCm loads code of {arch} instead of {}", instead.join(", ")),
            };
        } else {
            mask.error = Some("expected the numbers of an architecture, such as 10.3.0 for gfx1030".to_owned());
            mask.effect = format!("ROCm does not start: hides all {}", devices.len());
            for device in devices.iter_mut() {
                device.masked_by.get_or_insert_with(|| format!("{variable}={value}"));
            }
        }
        masks.push(mask);
    }
    masks
}

/// The architecture of a text such as `10.3.0`, as C's `"%u.%u.%u"` reads it.
fn read(value: &str) -> Option<String> {
    let number = |text: &str| {
        let digits = text.trim_ascii_start();
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse::<u64>().ok()).flatten()
    };
    let numbers: Option<Vec<u64>> = value.splitn(4, '.').map(number).collect();
    match numbers?.as_slice() {
        // The runtime's limit of the first; a name has no room for the others' beyond a digit.
        [major @ 0..=63, minor @ 0..=15, stepping @ 0..=15] => gfx_name(major * 10_000 + minor * 100 + stepping),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn three_numbers_name_an_architecture() {
        for (value, arch) in [
            ("10.3.0", Some("gfx1030")),
            (" 9.0.10", Some("gfx90a")),
            ("11.5.01", Some("gfx1151")),
            ("", None),
            ("gfx1030", None),
            ("10.3", None),
            ("10.3.0.0", None),
            ("10.3.0 ", None),
            ("10.-3.0", None),
            ("10.3.", None),
            ("64.0.0", None),
            ("10.16.0", None),
            ("0.0.0", None),
            ("10.3.99999999999999999999", None),
        ] {
            assert_eq!(read(value).as_deref(), arch, "{value:?}");
        }
    }
}
