//! `CUDA_VISIBLE_DEVICES`, as the CUDA programming guide (section 5.2, CUDA environment variables) defines it, and
//! where the guide is silent as driver 580.159 reads it on an H200: each row of the tests that says so was tried there.
//!
//! The kind of the first entry is the kind of the list: numbers, `GPU-` UUIDs or `MIG-` UUIDs. An entry of another kind
//! names nothing. Numbers are read as C's `strtoul` reads them and cut to 32 bits: `1gpu` is 1 and 4294967296 is 0.
//! UUIDs may be cut short, and may be written without dashes and in capitals.

use super::super::list::{self, Chosen, Repeat};

/// What an entry can name: a GPU that is not in MIG mode, or a MIG device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Nameable {
    /// Its number where no mask is set, when it has one.
    pub(super) number: Option<usize>,
    /// `GPU-...` or `MIG-...`.
    pub(super) uuid: Option<String>,
    /// Of a MIG device: the UUID of its GPU, the number of its GPU instance and of its compute instance.
    pub(super) mig: Option<(String, u32, u32)>,
}

/// Reads the variable: places in `devices`.
pub(super) fn read(value: &str, devices: &[Nameable]) -> Chosen {
    let kind = ["GPU-", "MIG-"].into_iter().find(|kind| value.starts_with(kind));
    list::read(value, Repeat::HidesAll, |entry| match kind {
        None => by_number(entry, devices),
        Some(kind) => by_uuid(entry, kind, devices),
    })
}

fn by_number(entry: &str, devices: &[Nameable]) -> Result<usize, String> {
    let number = strtoul(entry).ok_or("is no device number")?;
    let place = usize::try_from(number).ok().and_then(|n| devices.iter().position(|device| device.number == Some(n)));
    place.ok_or_else(|| list::no_such(devices.iter().filter(|device| device.number.is_some()).count()))
}

/// C's `strtoul` in base 10, then a conversion to `int`; `None` when there is no digit.
fn strtoul(text: &str) -> Option<i32> {
    let text = text.trim_start_matches([' ', '\t', '\n', '\u{b}', '\u{c}', '\r']);
    let (negative, digits) = match text.as_bytes().first() {
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        _ => (false, text),
    };
    let end = digits.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(digits.len());
    if end == 0 {
        return None;
    }
    // What is too large becomes the largest, whatever its sign.
    let number = match digits[..end].parse::<u64>() {
        Ok(number) if negative => number.wrapping_neg(),
        Ok(number) => number,
        Err(_) => u64::MAX,
    };
    #[expect(clippy::cast_possible_truncation, reason = "the driver keeps the lower 32 bits")]
    Some((number as u32).cast_signed())
}

fn by_uuid(entry: &str, kind: &str, devices: &[Nameable]) -> Result<usize, String> {
    let rest = entry.strip_prefix(kind).ok_or_else(|| format!("does not start with {kind} as the first entry does"))?;
    let fits: Vec<usize> = if let Some((gpu, instances)) = rest.split_once('/').filter(|_| kind == "MIG-") {
        // The form of drivers before 470: MIG-<GPU UUID>/<GPU instance>/<compute instance>.
        let (gi, ci) = instances.split_once('/').ok_or("is no MIG device")?;
        let wanted = (gi.parse::<u32>().ok(), ci.parse::<u32>().ok());
        let fits = |device: &Nameable| {
            device.mig.as_ref().is_some_and(|(uuid, gi, ci)| uuid == gpu && wanted == (Some(*gi), Some(*ci)))
        };
        (0..devices.len()).filter(|place| fits(&devices[*place])).collect()
    } else {
        let digits = digits(rest).ok_or("is no UUID")?;
        let fits = |device: &Nameable| {
            let uuid = device.uuid.as_deref().and_then(|uuid| uuid.strip_prefix(kind));
            uuid.and_then(self::digits).is_some_and(|uuid| uuid.starts_with(&digits))
        };
        (0..devices.len()).filter(|place| fits(&devices[*place])).collect()
    };
    match fits[..] {
        [one] => Ok(one),
        [] => Err("is the UUID of no device here".to_owned()),
        _ => Err(format!("is the start of {} UUIDs", fits.len())),
    }
}

/// The digits of a UUID or of its start, in small letters. What stands behind a whole one is not looked at.
fn digits(text: &str) -> Option<String> {
    let mut digits = String::new();
    for c in text.chars().filter(|c| *c != '-') {
        if digits.len() == 32 {
            break;
        }
        digits.push(c.to_ascii_lowercase());
        if !c.is_ascii_hexdigit() {
            return None;
        }
    }
    Some(digits).filter(|digits| !digits.is_empty())
}

#[cfg(test)]
mod tests {
    use super::{Chosen, Nameable, read, strtoul};

    const UUIDS: [&str; 4] = [
        "GPU-9d4d39a1-f297-1d4f-1354-153e6181e927",
        "GPU-9d4d39a2-0000-1111-2222-333333333333",
        "GPU-00112233-4455-6677-8899-aabbccddeeff",
        "GPU-ffffffff-ffff-ffff-ffff-ffffffffffff",
    ];

    fn gpus(count: usize) -> Vec<Nameable> {
        let gpu = |n: usize| Nameable { number: Some(n), uuid: Some(UUIDS[n].to_owned()), mig: None };
        (0..count).map(gpu).collect()
    }

    /// Every row was tried on one H200 with driver 580.159: `true` is that the driver listed it.
    #[test]
    fn one_gpu_is_left_or_hidden_as_the_driver_does() {
        let full = UUIDS[0];
        let rows: &[(&str, bool)] = &[
            ("", false),
            ("0", true),
            ("0,0", false),
            ("0,1", true),
            ("1", false),
            ("1,0", false),
            ("1,1", false),
            ("-1", false),
            ("-1,-1", false),
            ("0,-1", true),
            ("0,-1,0", true),
            ("0,1,0", true),
            ("0,,0", true),
            ("abc", false),
            ("none", false),
            ("0,abc", true),
            ("0abc", true),
            ("0 ", true),
            (" 0", true),
            ("\t0", true),
            ("0 ,1", true),
            ("+0", true),
            ("-0", true),
            ("00", true),
            ("01", false),
            ("0x0", true),
            ("0x1", true),
            ("0.0", true),
            ("0;0", true),
            ("0-1", true),
            ("-2", false),
            (",0", false),
            ("0,", true),
            ("4294967296", true),
            ("-4294967296", true),
            ("9223372036854775808", true),
            ("18446744073709551616", false),
            ("GPU", false),
            ("GPU-", false),
            ("GPU-z", false),
            ("GPU-9", true),
            ("GPU-9d4d39a1", true),
            ("GPU-9d4d39a1-", true),
            ("GPU-9d4d39a1f", true),
            ("GPU-9d4d39a1f297", true),
            ("GPU-9d4dzz", false),
            ("GPU-9d4d39a1 ,0", false),
            ("GPU-9D4D39A1-F297-1D4F-1354-153E6181E927", true),
            ("gpu-9d4d39a1-f297-1d4f-1354-153e6181e927", false),
            ("9d4d39a1-f297-1d4f-1354-153e6181e927", false),
            (full, true),
        ];
        let longer: Vec<(String, bool)> = vec![
            (format!("{full},0"), true),
            (format!("{full},0,{full}"), true),
            (format!("0,{full}"), true),
            (format!("0,{full},0"), true),
            ("0,GPU-zz,0".to_owned(), true),
            (format!("{full},{full}"), false),
            (format!("{full},GPU-9d4d3"), false),
            (format!("GPU-00000000,{full}"), false),
            (format!("{full},abc"), true),
            (format!(" {full}"), false),
            (format!("{full} "), true),
            (format!("{full}zz"), true),
            (format!("MIG-{full}"), false),
            (format!("MIG-{full}/1/0"), false),
            ("MIG-".to_owned(), false),
        ];
        let rows = rows.iter().map(|(value, left)| ((*value).to_owned(), *left)).chain(longer);
        for (value, left) in rows {
            let chosen = read(&value, &gpus(1));
            let expected = if left { vec![0] } else { vec![] };
            assert_eq!(chosen.order, expected, "{value:?}: {:?}", chosen.error);
            // Nothing but the empty list hides a GPU without a word.
            assert!(left || value.is_empty() || chosen.error.is_some(), "{value:?}");
        }
    }

    /// The programming guide's own examples.
    #[test]
    fn lists_order_and_end_as_the_guide_has_it() {
        for (value, order) in [
            ("2,1", &[2, 1][..]),
            ("0,2,-1,1", &[0, 2]),
            ("3,2,1,0", &[3, 2, 1, 0]),
            ("GPU-ffff,GPU-0011", &[3, 2]),
            // Not unique.
            ("GPU-9d4d39a", &[]),
            ("GPU-0,GPU-9d4d39a,GPU-f", &[2]),
            ("GPU-9d4d39a2,1", &[1]),
        ] {
            assert_eq!(read(value, &gpus(4)).order, order, "{value:?}");
        }
        let error = read("0,7", &gpus(4)).error.unwrap();
        assert_eq!(error, "\"7\" names no device: there are 0 to 3: it and what follows it are ignored");
        let error = read("GPU-9d4d39a", &gpus(4)).error.unwrap();
        assert!(error.contains("is the start of 2 UUIDs"), "{error}");
    }

    #[test]
    fn mig_devices_are_named_by_both_forms() {
        let mig = |uuid: &str, ci| Nameable {
            number: None,
            uuid: Some(uuid.to_owned()),
            mig: Some((UUIDS[3].to_owned(), 1, ci)),
        };
        let mut devices = gpus(1);
        devices.extend([
            mig("MIG-c788539f-c1ea-5a36-8b4d-9b07d024b1bb", 0),
            mig("MIG-405bbda1-6b05-535f-9702-f95e8cd170ce", 1),
        ]);
        let old = format!("MIG-{}/1/1", UUIDS[3]);
        for (value, order) in [
            ("MIG-405bbda1,MIG-c7", &[2, 1][..]),
            (old.as_str(), &[2]),
            ("GPU-9d", &[0]),
            ("MIG-405bbda1,GPU-9d", &[2]),
            ("MIG-GPU-ffffffff/1/1", &[]),
            ("MIG-9d", &[]),
            ("0,1", &[0]),
        ] {
            assert_eq!(read(value, &devices).order, order, "{value:?}");
        }
    }

    #[test]
    fn numbers_are_read_as_c_reads_them() {
        assert_eq!(["", "-", "+", "x", " -"].map(strtoul), [None; 5]);
        assert_eq!([strtoul("+7x"), strtoul("-1"), strtoul("4294967297")], [Some(7), Some(-1), Some(1)]);
        assert_eq!(strtoul("-18446744073709551616"), Some(-1), "too large is the largest, whatever the sign");
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_and_names_each_device_once(value in "(GPU-|MIG-|)[0-9a-fA-FGPUMI,/ é-]{0,40}") {
            let Chosen { mut order, error } = read(&value, &gpus(4));
            let count = order.len();
            order.sort_unstable();
            order.dedup();
            proptest::prop_assert!(order.len() == count && order.iter().all(|place| *place < 4));
            proptest::prop_assert!(count > 0 || error.is_some() || value.is_empty());
        }
    }
}
