//! The settings of Level Zero and SYCL, and what each did.

use super::machine::{Machine, Settings};
use super::mask::{AffinityMask, Hierarchy};
use super::sycl;
use crate::system::environment::Environment;
use crate::system::mask::Mask;
use crate::variant::DeviceKey;

const HIERARCHY: &str = "ZE_FLAT_DEVICE_HIERARCHY";
const AFFINITY: &str = "ZE_AFFINITY_MASK";
const ORDER: &str = "ZE_ENABLE_PCI_ID_DEVICE_ORDER";
const SELECTOR: &str = "ONEAPI_DEVICE_SELECTOR";

/// Reads them; the version of oneAPI is left open.
pub(super) fn read(environment: &Environment) -> Settings {
    let mask_value = environment.setting(AFFINITY).unwrap_or_default().to_owned();
    Settings {
        hierarchy: environment.setting(HIERARCHY).and_then(Hierarchy::from_setting),
        mask: AffinityMask::read(&mask_value),
        mask_value,
        pci_order: environment.setting(ORDER).is_some_and(|value| order(value).0),
        backend_version: None,
    }
}

/// Whether the value orders by PCI address, and whether it is one of the two that are defined. Intel's driver takes any
/// number but 0 for 1.
fn order(value: &str) -> (bool, bool) {
    let number = value.trim().parse::<i64>();
    (number.as_ref().is_ok_and(|number| *number != 0), matches!(number, Ok(0 | 1)))
}

/// A row for each setting that is set.
pub(super) fn masks(environment: &Environment, settings: &Settings, machine: &Machine) -> Vec<Mask> {
    let mut masks = Vec::new();
    let none = machine.devices.is_empty();
    if let Some(value) = environment.setting(HIERARCHY) {
        masks.push(hierarchy(value, settings, machine));
    }
    if let Some(value) = environment.setting(AFFINITY) {
        masks.push(affinity(value, settings, machine));
    }
    if let Some(value) = environment.setting(ORDER) {
        let (by_address, defined) = order(value);
        let effect = match (by_address, machine.reordered) {
            (true, true) => "orders the devices by PCI address, integrated ones too",
            (true, false) => "orders the devices by PCI address, which is their order without it",
            (false, _) => "leaves the driver's order: integrated devices last, else by PCI address",
        };
        let mut mask = Mask::new(DeviceKey::Xpu, ORDER, value, effect);
        mask.error = (!defined).then(|| "expected 0 or 1".to_owned());
        masks.push(mask);
    }
    if none {
        for mask in &mut masks {
            "there is no Intel GPU to act on".clone_into(&mut mask.effect);
        }
    }
    masks.extend(environment.setting(SELECTOR).map(sycl::selector));
    masks
}

fn shows(hierarchy: Hierarchy) -> &'static str {
    match hierarchy {
        Hierarchy::Composite => "every card is a device, with its tiles inside (COMPOSITE)",
        Hierarchy::Flat => "every tile is a device (FLAT)",
        Hierarchy::Combined => "every tile is a device that knows its card (COMBINED)",
    }
}

fn hierarchy(value: &str, settings: &Settings, machine: &Machine) -> Mask {
    let mut effect = shows(machine.hierarchy).to_owned();
    let mut error = None;
    match settings.hierarchy {
        None => {
            error = Some("expected COMPOSITE, FLAT or COMBINED".to_owned());
            effect = format!("leaves the driver's default: {effect}");
        }
        Some(set) if set != machine.hierarchy => {
            error = Some(format!("the driver does not know {set}"));
            effect = format!("none: {effect}");
        }
        Some(_) if machine.topology.iter().all(|tiles| *tiles == 1) => {
            effect.push_str("; no card has more than one tile");
        }
        Some(_) => {}
    }
    let mut mask = Mask::new(DeviceKey::Xpu, HIERARCHY, value, effect);
    mask.error = error;
    mask
}

fn affinity(value: &str, settings: &Settings, machine: &Machine) -> Mask {
    let Some(mask) = &settings.mask else {
        return Mask::new(
            DeviceKey::Xpu,
            AFFINITY,
            value,
            "hides nothing: Intel's driver takes an empty mask for none",
        );
    };
    let total = machine.devices.len();
    let hidden = machine.devices.iter().filter(|device| device.masked_by.is_some()).count();
    let mut effect = match (hidden, total) {
        (0, _) => "hides nothing".to_owned(),
        (hidden, total) if hidden == total => format!("hides all {total}"),
        (hidden, total) => format!("hides {hidden} of {total}"),
    };
    if machine.hidden_tiles.0 > 0 {
        let (hidden, of) = machine.hidden_tiles;
        effect = format!("{effect}, and {hidden} of {of} tiles of the rest");
    }
    if mask.fatal() {
        effect.push_str("; no driver was asked: Intel's ends the process on this mask");
    }
    let mut row = Mask::new(DeviceKey::Xpu, AFFINITY, value, effect);
    row.error = mask.fault(machine.hierarchy, &machine.topology);
    row
}

/// Which hierarchy is in force where nobody set one and it makes a difference.
pub(super) fn hierarchy_note(settings: &Settings, machine: &Machine) -> Option<String> {
    let several = machine.topology.iter().any(|tiles| *tiles > 1);
    (settings.hierarchy.is_none() && several)
        .then(|| format!("{HIERARCHY} is not set: {}, as Intel's driver has it by default", shows(machine.hierarchy)))
}
