//! The settings that hide AMD GPUs, in the order in which the runtimes read them:
//!
//! 1. `ROCR_VISIBLE_DEVICES`, by the `ROCm` runtime under everything (`amd_filter_device.cpp` of ROCR): numbers in C's
//!    notation or `GPU-` and the start of a UUID, blanks around them, any case. It ends at what names no device and at
//!    what names one again. Set and empty, it hides all.
//! 2. `HIP_VISIBLE_DEVICES`, by HIP (`rocdevice.cpp` of CLR), or `CUDA_VISIBLE_DEVICES` where that is unset or empty: of
//!    the devices that the first left. Numbers in plain decimal or a part of a UUID. It ends at what names no device;
//!    what names one again counts once. Set and empty, it hides nothing.
//! 3. `GPU_DEVICE_ORDINAL` is documented for both `OpenCL` and HIP; CLR reads it for `OpenCL` alone.

use super::super::list::{self, Chosen, Repeat};
use crate::system::device::DeviceInfo;
use crate::system::environment::Environment;
use crate::system::mask::Mask;
use crate::variant::DeviceKey;

const ROCR: &str = "ROCR_VISIBLE_DEVICES";
const HIP: &str = "HIP_VISIBLE_DEVICES";
const CUDA: &str = "CUDA_VISIBLE_DEVICES";
const ORDINAL: &str = "GPU_DEVICE_ORDINAL";

/// The longest UUID that ROCR looks at: `GPU-` and 16 digits.
const MAX_UUID: usize = 20;

/// Hides what the settings hide, and tells of each.
pub(super) fn apply(devices: &mut [DeviceInfo], environment: &Environment) -> Vec<Mask> {
    let mask = |variable, value, effect: &str| Mask::new(DeviceKey::Rocm, variable, value, effect);
    let mut masks = Vec::new();
    if let Some(value) = environment.setting(ROCR) {
        let left = list::visible(devices);
        let chosen = rocr(value, &uuids(devices, &left));
        masks.push(list::apply(mask(ROCR, value, ""), devices, &left, chosen));
    }
    let mut read_before: Option<&str> = None;
    for variable in [HIP, CUDA] {
        let Some(value) = environment.setting(variable) else { continue };
        masks.push(match read_before {
            Some(before) => mask(variable, value, &format!("nothing: {before} goes before it")),
            None if value.is_empty() => mask(variable, value, "nothing: to HIP, an empty list is none"),
            None => {
                read_before = Some(variable);
                let left = list::visible(devices);
                let chosen = hip(value, &uuids(devices, &left));
                list::apply(mask(variable, value, ""), devices, &left, chosen)
            }
        });
    }
    if let Some(value) = environment.setting(ORDINAL) {
        masks.push(mask(ORDINAL, value, "nothing: it is read for OpenCL alone"));
    }
    masks
}

fn uuids(devices: &[DeviceInfo], places: &[usize]) -> Vec<String> {
    places.iter().map(|place| devices[*place].uuid.clone().unwrap_or_default()).collect()
}

/// A comma at the end stands before nothing.
fn without_last_comma(value: &str) -> &str {
    value.strip_suffix(',').unwrap_or(value)
}

fn rocr(value: &str, uuids: &[String]) -> Chosen {
    list::read(without_last_comma(value), Repeat::Ends, |entry| {
        let entry = entry.trim().to_ascii_uppercase();
        if entry.starts_with('G') {
            // At least one digit behind "GPU-".
            if !(5..=MAX_UUID).contains(&entry.len()) {
                return Err("is no UUID".to_owned());
            }
            let mut fits = (0..uuids.len()).filter(|place| uuids[*place].to_ascii_uppercase().starts_with(&entry));
            return match (fits.next(), fits.next()) {
                (Some(place), None) => Ok(place),
                (Some(_), Some(_)) => Err("is the start of several UUIDs".to_owned()),
                _ => Err("is the UUID of no device here".to_owned()),
            };
        }
        let number = c_number(&entry).ok_or("is no device number")?;
        usize::try_from(number).ok().filter(|number| *number < uuids.len()).ok_or_else(|| list::no_such(uuids.len()))
    })
}

/// A whole text as C's `strtol` reads it without a given base: 010 is 8, 0x10 is 16.
fn c_number(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (digits, base) = if let Some(hexadecimal) = digits.strip_prefix("0X") {
        (hexadecimal, 16)
    } else if digits.len() > 1 && digits.starts_with('0') {
        (&digits[1..], 8)
    } else {
        (digits, 10)
    };
    if digits.starts_with(['+', '-']) {
        return None;
    }
    let number = i64::from_str_radix(digits, base).ok()?;
    Some(if negative { -number } else { number })
}

fn hip(value: &str, uuids: &[String]) -> Chosen {
    list::read(without_last_comma(value), Repeat::Ignored, |entry| {
        if entry.contains("GPU-") {
            let place = uuids.iter().position(|uuid| uuid.contains(entry));
            return place.ok_or_else(|| "is the UUID of no device here".to_owned());
        }
        let place = list::number(entry, uuids.len())?;
        // Only the shortest way to write a number is one.
        if entry == place.to_string() { Ok(place) } else { Err("is no device number".to_owned()) }
    })
}

#[cfg(test)]
mod tests {
    use super::{hip, rocr};

    fn uuids() -> Vec<String> {
        ["GPU-4b2c1a9f8d3e6f7a", "GPU-4b2c1a9f00000000", "", "GPU-00112233445566aa"].map(str::to_owned).to_vec()
    }

    #[test]
    fn the_runtime_below_takes_numbers_of_c_and_the_start_of_a_uuid() {
        for (value, order) in [
            ("", &[][..]),
            ("2,0", &[2, 0]),
            (" 1 ,0x3,", &[1, 3]),
            ("03", &[3]),
            ("010", &[]),
            ("1,1,0", &[1]),
            ("-1", &[]),
            ("0,4,1", &[0]),
            ("0x", &[]),
            ("+1,+-1", &[1]),
            ("gpu-0011,GPU-4B2C1A9F8", &[3, 0]),
            ("GPU-4b2c1a9f", &[]),
            ("GPU-", &[]),
            ("GPU-00112233445566aa0", &[]),
            ("0,,1", &[0]),
            ("9223372036854775808", &[]),
        ] {
            let chosen = rocr(value, &uuids());
            assert_eq!(chosen.order, order, "{value:?}: {:?}", chosen.error);
        }
        assert!(rocr("0,a", &uuids()).error.is_some() && rocr("0,1", &uuids()).error.is_none());
    }

    #[test]
    fn hip_takes_plain_numbers_and_parts_of_a_uuid() {
        for (value, order) in [
            ("2,0", &[2, 0][..]),
            ("0,0,1,", &[0, 1]),
            ("0,,1", &[0]),
            ("00", &[]),
            (" 0", &[]),
            ("0x1", &[]),
            ("-1,0", &[]),
            ("1,9,0", &[1]),
            ("GPU-4b2c1a9f,GPU-0011", &[0, 3]),
            ("GPU-4B2C", &[]),
            ("1,gpu-0011", &[1]),
        ] {
            let chosen = hip(value, &uuids());
            assert_eq!(chosen.order, order, "{value:?}: {:?}", chosen.error);
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read(value in "(GPU-|gpu-|)[0-9a-fA-FxX,+ é-]{0,30}") {
            let is_empty = ["", ","].contains(&value.as_str());
            for chosen in [rocr(&value, &uuids()), hip(&value, &uuids())] {
                proptest::prop_assert!(chosen.order.iter().all(|place| *place < 4));
                proptest::prop_assert!(!chosen.order.is_empty() || chosen.error.is_some() || is_empty);
            }
        }
    }
}
