//! Masks that are lists of devices, split at commas: what most drivers have. How an entry names a device, and what a
//! repeated one does, is each driver's own.

use crate::system::device::DeviceInfo;
use crate::system::mask::Mask;
use crate::system::printable_up_to;

/// Most faults of one setting that are told.
const MAX_FAULTS: usize = 8;

/// A piece of a setting or of a command's output between quotation marks, with what a terminal would obey escaped, and
/// cut where it is longer than anything that a person would write.
pub(super) fn quoted(text: &str) -> String {
    format!("\"{}\"", printable_up_to(text, 60))
}

/// Faults in one sentence, each once, and no more than a person reads: a setting may be as long as an environment.
pub(super) fn sentence(faults: &[String]) -> Option<String> {
    let mut told: Vec<&str> = Vec::new();
    let mut left = 0;
    for fault in faults {
        match told.len() {
            _ if told.contains(&fault.as_str()) => {}
            MAX_FAULTS => left += 1,
            _ => told.push(fault),
        }
    }
    let more = if left > 0 { format!("; and {left} more") } else { String::new() };
    (!told.is_empty()).then(|| told.join("; ") + &more)
}

/// What a list leaves of some devices.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Chosen {
    /// The places of those left, in the order of the list.
    pub(super) order: Vec<usize>,
    /// Why the list is not read as it stands.
    pub(super) error: Option<String>,
}

/// What a driver makes of an entry whose device came before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeat {
    /// It refuses the whole list.
    HidesAll,
    /// The list ends before it.
    Ends,
    /// It counts once.
    Ignored,
}

/// Reads a list from the left, up to the first entry that names no device. `find` gives an entry's place among the
/// devices, or why there is none.
pub(super) fn read(value: &str, repeat: Repeat, find: impl Fn(&str) -> Result<usize, String>) -> Chosen {
    let mut chosen = Chosen::default();
    if value.is_empty() {
        return chosen;
    }
    for entry in value.split(',') {
        let place = match find(entry) {
            Ok(place) => place,
            Err(reason) => {
                chosen.error = Some(format!("{} {reason}: it and what follows it are ignored", quoted(entry)));
                return chosen;
            }
        };
        if !chosen.order.contains(&place) {
            chosen.order.push(place);
            continue;
        }
        match repeat {
            Repeat::Ignored => {}
            Repeat::Ends => {
                chosen.error =
                    Some(format!("{} names a device again: it and what follows it are ignored", quoted(entry)));
                return chosen;
            }
            Repeat::HidesAll => {
                let error = format!("{} names a device again: the driver refuses the whole list", quoted(entry));
                return Chosen { order: Vec::new(), error: Some(error) };
            }
        }
    }
    chosen
}

/// A number in decimal digits and nothing else, below a count.
pub(super) fn number(entry: &str, count: usize) -> Result<usize, String> {
    if entry.is_empty() || !entry.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("is no device number".to_owned());
    }
    match entry.parse() {
        Ok(number) if number < count => Ok(number),
        _ => Err(no_such(count)),
    }
}

/// Why a number names no device.
pub(super) fn no_such(count: usize) -> String {
    match count {
        0 => "names a device, and none is left".to_owned(),
        1 => "names no device: there is 0 alone".to_owned(),
        count => format!("names no device: there are 0 to {}", count - 1),
    }
}

/// The places of the devices that no mask hides yet, in the order of their numbers.
pub(super) fn visible(devices: &[DeviceInfo]) -> Vec<usize> {
    let mut places: Vec<usize> = (0..devices.len()).filter(|place| devices[*place].masked_by.is_none()).collect();
    places.sort_by_key(|place| devices[*place].index);
    places
}

/// Hides and renumbers devices as a setting has it, and says what it did. `visible` is what [`visible`] gave, and
/// `chosen` speaks of places in it.
pub(super) fn apply(mut mask: Mask, devices: &mut [DeviceInfo], visible: &[usize], chosen: Chosen) -> Mask {
    let by = format!("{}={}", mask.variable, mask.value);
    for place in visible {
        let device = &mut devices[*place];
        device.masked_by = Some(by.clone());
        // The number of a hidden one is that without any mask.
        device.index = device.physical_index.unwrap_or(device.index);
    }
    for (number, place) in chosen.order.iter().enumerate() {
        let device = &mut devices[visible[*place]];
        device.masked_by = None;
        device.index = u32::try_from(number).unwrap_or(u32::MAX);
    }
    let renumbered = chosen.order.iter().enumerate().any(|(number, place)| number != *place);
    mask.effect = effect(visible.len(), chosen.order.len(), renumbered);
    mask.error = chosen.error;
    mask
}

/// `hides 2 of 4`, and that those left have other numbers than before.
pub(super) fn effect(of: usize, left: usize, renumbered: bool) -> String {
    let hides = match of.saturating_sub(left) {
        0 => format!("hides none of {of}"),
        _ if left == 0 => format!("hides all {of}"),
        hidden => format!("hides {hidden} of {of}"),
    };
    match left {
        1 if renumbered => format!("{hides}; the one left is number 0"),
        2.. if renumbered => format!("{hides}; the rest are numbered as listed"),
        _ => hides,
    }
}

#[cfg(test)]
mod tests {
    use super::{Chosen, Repeat, apply, number, read, visible};
    use crate::system::Route;
    use crate::system::device::DeviceInfo;
    use crate::system::mask::Mask;
    use crate::variant::DeviceKey;

    fn chosen(value: &str, repeat: Repeat) -> (Vec<usize>, bool) {
        let Chosen { order, error } = read(value, repeat, |entry| number(entry, 4));
        (order, error.is_some())
    }

    #[test]
    fn a_list_ends_at_the_first_entry_that_names_nothing() {
        for (value, order, error) in [
            ("", &[][..], false),
            ("2,0", &[2, 0], false),
            ("0,2,-1,1", &[0, 2], true),
            ("4", &[], true),
            ("1,", &[1], true),
            (",1", &[], true),
            ("1, 2", &[1], true),
            ("99999999999999999999", &[], true),
            ("+1", &[], true),
            ("\u{661}", &[], true),
        ] {
            assert_eq!(chosen(value, Repeat::Ends), (order.to_vec(), error), "{value:?}");
        }
    }

    #[test]
    fn a_repeated_entry_does_what_its_driver_has_it_do() {
        assert_eq!(chosen("3,1,3,2", Repeat::Ends), (vec![3, 1], true));
        assert_eq!(chosen("3,1,3,2", Repeat::Ignored), (vec![3, 1, 2], false));
        assert_eq!(chosen("3,1,3,2", Repeat::HidesAll), (vec![], true));
        assert_eq!(chosen("3,9,3", Repeat::HidesAll), (vec![3], true), "what is ignored repeats nothing");
    }

    #[test]
    fn two_masks_in_a_row_each_hide_of_what_the_other_left() {
        let device = |index| {
            let device = DeviceInfo::new(DeviceKey::Rocm, index, "gpu", Route::Native);
            DeviceInfo { physical_index: Some(index), ..device }
        };
        let mut devices: Vec<DeviceInfo> = (0..4).map(device).collect();
        let mut hide = |variable: &str, value: &str| {
            let left = visible(&devices);
            let chosen = read(value, Repeat::Ends, |entry| number(entry, left.len()));
            apply(Mask::new(DeviceKey::Rocm, variable, value, ""), &mut devices, &left, chosen)
        };
        assert_eq!(hide("FIRST", "3,1,2").effect, "hides 1 of 4; the rest are numbered as listed");
        let second = hide("SECOND", "0,2");
        assert_eq!(second.effect, "hides 1 of 3; the rest are numbered as listed");
        let third = hide("THIRD", "5");
        assert_eq!((third.effect.as_str(), third.error.is_some()), ("hides all 2", true));
        let shown: Vec<_> = devices.iter().map(|d| (d.index, d.masked_by.as_deref().unwrap_or("-"))).collect();
        assert_eq!(shown, [(0, "FIRST=3,1,2"), (1, "SECOND=0,2"), (2, "THIRD=5"), (3, "THIRD=5")]);
        let mut one = vec![device(0), device(1)];
        let left = visible(&one);
        let mask =
            apply(Mask::new(DeviceKey::Rocm, "ONE", "1", ""), &mut one, &left, Chosen { order: vec![1], error: None });
        assert_eq!(mask.effect, "hides 1 of 2; the one left is number 0");
        assert_eq!((one[1].index, one[1].physical_index), (0, Some(1)));
    }
}
