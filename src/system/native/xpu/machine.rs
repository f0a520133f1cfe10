//! What the kernel lists, what the driver shows and what the settings say, put together. Pure.
//!
//! The driver applies the settings itself, and what it shows is the truth. What it hides is found by the cards that the
//! kernel lists and by the rules of [`super::mask`].

use super::describe::{of_driver, of_kernel};
use super::mask::{AffinityMask, Hierarchy, Unit, units};
use super::sysfs::{self, Card};
use crate::system::device::DeviceInfo;
use crate::system::ffi::level_zero::{Device, Driver};
use crate::system::printable;
use crate::variant::Version;

/// The flag of `ze_device_properties_t` of what is a part of a device.
const SUBDEVICE: u32 = 1 << 1;
const GPU: u32 = 1;
const INTEL: u32 = 0x8086;
const BF16_CONVERSIONS: &str = "ZE_extension_bfloat16_conversions";

/// A device that the driver shows, with what its driver tells.
#[derive(Debug, Clone)]
pub(super) struct Shown {
    pub(super) device: Device,
    /// The driver's version.
    pub(super) driver: String,
    /// Whether the driver has the extension for bfloat16.
    pub(super) bf16: bool,
    /// The place of its card.
    pub(super) card: usize,
}

/// A PCI address as the kernel writes it.
pub(super) fn address([domain, bus, device, function]: [u32; 4]) -> String {
    format!("{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
}

/// The settings, read.
#[derive(Debug, Clone, Default)]
pub(super) struct Settings {
    /// `ZE_FLAT_DEVICE_HIERARCHY`, where it is one of its words.
    pub(super) hierarchy: Option<Hierarchy>,
    /// `ZE_AFFINITY_MASK`, where it masks.
    pub(super) mask: Option<AffinityMask>,
    /// `ZE_AFFINITY_MASK`, as it stands.
    pub(super) mask_value: String,
    /// `ZE_ENABLE_PCI_ID_DEVICE_ORDER`.
    pub(super) pci_order: bool,
    /// oneAPI's version.
    pub(super) backend_version: Option<Version>,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Machine {
    pub(super) devices: Vec<DeviceInfo>,
    pub(super) notes: Vec<String>,
    /// The hierarchy in force.
    pub(super) hierarchy: Hierarchy,
    /// The tiles of each card, in the order of the devices.
    pub(super) topology: Vec<u32>,
    /// Tiles that a mask hides of cards that it shows: `(hidden, of)`.
    pub(super) hidden_tiles: (u32, u32),
    /// Whether the order by PCI address differs from the default one.
    pub(super) reordered: bool,
}

/// Puts a machine together. `drivers` is `None` where none could be asked: then the rules alone decide what is visible.
pub(super) fn assemble(mut cards: Vec<Card>, drivers: Option<Vec<Driver>>, settings: &Settings) -> Machine {
    let mut notes = Vec::new();
    let asked = drivers.is_some();
    let shown = shown(drivers.unwrap_or_default(), &mut cards);
    let mut default_order: Vec<usize> = (0..cards.len()).collect();
    default_order.sort_by(|a, b| cards[*a].rank(false).cmp(&cards[*b].rank(false)));
    let mut order = default_order.clone();
    order.sort_by(|a, b| cards[*a].rank(settings.pci_order).cmp(&cards[*b].rank(settings.pci_order)));

    let topology: Vec<u32> = order.iter().map(|card| cards[*card].tiles).collect();
    let hierarchy = settings.hierarchy.filter(|set| !contradicted(*set, &shown));
    let hierarchy = hierarchy.or_else(|| observed(&shown, &cards, settings)).unwrap_or_else(|| {
        let max = order.first().is_some_and(|card| sysfs::is_data_center_max(cards[*card].device_id));
        if max { Hierarchy::Flat } else { Hierarchy::Composite }
    });
    // Numbers without mask and order: cards by the default order, one or as many as there are tiles each.
    let width = |card: usize| if hierarchy.shows_tiles() { cards[card].tiles } else { 1 };
    let first = |of: usize| default_order.iter().take_while(|card| **card != of).map(|card| width(*card)).sum::<u32>();

    let mut devices = Vec::new();
    let mut hidden_tiles = (0, 0);
    let mut placed = vec![false; shown.len()];
    let all = units(hierarchy, &topology, settings.mask.as_ref());
    for unit in &all {
        let card = order[unit.card as usize];
        let place = asked.then(|| find(unit, card, &all, &order, &shown, &placed)).flatten();
        let physical = first(card) + if hierarchy.shows_tiles() { unit.tiles[0] } else { 0 };
        let mut device = if let Some(place) = place {
            placed[place] = true;
            of_driver(&shown[place], place)
        } else {
            // Another device of this kind, which the driver does show, tells the name that its driver has for it.
            let named = shown.iter().find(|shown| shown.device.device_id == cards[card].device_id);
            of_kernel(&cards[card], unit, named.map(|shown| shown.device.name.as_str()))
        };
        let visible = if asked { place.is_some() } else { unit.visible };
        if !visible && unit.visible {
            // Not a mask's work.
            notes.push(format!(
                "the Level Zero driver does not show the Intel GPU at {}: it may be too old for it, or /dev/dri may not \
                 be open to this user",
                cards[card].pci_address
            ));
            continue;
        }
        if !visible {
            device.masked_by = Some(format!("ZE_AFFINITY_MASK={}", settings.mask_value));
            device.index = unit.unmasked_index;
        }
        if visible && !hierarchy.shows_tiles() && settings.mask.is_some() {
            let kept = u32::try_from(unit.tiles.len()).unwrap_or(u32::MAX);
            hidden_tiles = (hidden_tiles.0 + (cards[card].tiles - kept), hidden_tiles.1 + cards[card].tiles);
        }
        device.physical_index = Some(physical);
        device.tiles.get_or_insert(u32::try_from(unit.tiles.len()).unwrap_or(u32::MAX));
        device.tile_of = unit.is_tile.then(|| (unit.card, unit.tiles[0]));
        device.backend_version = settings.backend_version;
        devices.push(device);
    }
    if !asked {
        // Devices of one kind are numbered in their order.
        for (index, device) in (0..).zip(devices.iter_mut().filter(|device| device.masked_by.is_none())) {
            device.index = index;
        }
    }
    for (place, shown) in shown.iter().enumerate().filter(|(place, _)| !placed[*place]) {
        notes.push(format!(
            "the Level Zero driver shows {} as device {place}, which ZE_AFFINITY_MASK and {hierarchy} do not lead to",
            printable(&shown.device.name)
        ));
        devices.push(of_driver(shown, place));
    }
    devices.sort_by_key(|device| (device.masked_by.is_some(), device.index));
    notes.dedup();
    Machine { devices, notes, hierarchy, topology, hidden_tiles, reordered: order != default_order }
}

/// Whether the mask leaves nothing of these cards, by the rules.
pub(super) fn hides_all(cards: &[Card], settings: &Settings) -> bool {
    let machine = assemble(cards.to_vec(), None, settings);
    !machine.devices.is_empty() && machine.devices.iter().all(|device| device.masked_by.is_some())
}

/// Intel's GPUs of all drivers in their order, each with its card. Cards that the kernel does not list (on Windows, and
/// in a Linux inside of it) are made up from what the driver tells.
fn shown(drivers: Vec<Driver>, cards: &mut Vec<Card>) -> Vec<Shown> {
    let mut found: Vec<Shown> = Vec::new();
    for driver in drivers {
        let bf16 = driver.extensions.iter().any(|extension| extension == BF16_CONVERSIONS);
        // As Intel writes it; the specification says of this number that it grows.
        let version = driver.version;
        let text = format!("{}.{}.{}", version >> 24, version >> 16 & 0xff, version & 0xffff);
        for device in driver.devices.into_iter().filter(|device| device.kind == GPU && device.vendor_id == INTEL) {
            let address = device.pci_address.map(address);
            let known = match &address {
                Some(address) => cards.iter().position(|card| card.pci_address == *address),
                // Without an address, tiles of one card have the kernel's card in common with nobody.
                None => None,
            };
            let card = known.unwrap_or_else(|| {
                cards.push(Card {
                    // Sorts as the driver has them.
                    pci_address: address.unwrap_or_else(|| format!("unknown:ff:{:04}", cards.len())),
                    device_id: device.device_id,
                    driver: String::new(),
                    tiles: 1,
                    memory_bytes: None,
                });
                cards.len() - 1
            });
            found.push(Shown { device, driver: text.clone(), bf16, card });
        }
    }
    for (index, card) in cards.iter_mut().enumerate() {
        let of_card = || found.iter().filter(|shown| shown.card == index);
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let named =
            of_card().filter(|shown| shown.device.flags & SUBDEVICE != 0).map(|shown| shown.device.subdevice_id);
        let most = [
            count(of_card().count()),
            of_card().map(|shown| count(shown.device.tiles.len())).max().unwrap_or(0),
            named.max().map_or(0, |tile| tile.saturating_add(1)),
        ];
        // Bounded as the kernel's are: a number of a tile is a driver's word.
        card.tiles = card.tiles.max(most.into_iter().max().unwrap_or(1)).min(64);
    }
    found
}

/// Whether the driver shows another hierarchy than the one that was set, as those older than the setting do.
fn contradicted(set: Hierarchy, shown: &[Shown]) -> bool {
    match set {
        Hierarchy::Composite => shares_cards(shown),
        // COMBINED shows no sub-devices of tiles either.
        Hierarchy::Flat | Hierarchy::Combined => shown.iter().any(|shown| shown.device.tiles.len() > 1),
    }
}

fn shares_cards(shown: &[Shown]) -> bool {
    shown.iter().enumerate().any(|(place, device)| shown[..place].iter().any(|other| other.card == device.card))
}

/// The hierarchy that the driver shows; `None` where what it shows would look the same in all.
fn observed(shown: &[Shown], cards: &[Card], settings: &Settings) -> Option<Hierarchy> {
    if shown.iter().any(|shown| shown.device.tiles.len() > 1) {
        return Some(Hierarchy::Composite);
    }
    if shares_cards(shown) {
        return Some(Hierarchy::Flat);
    }
    // One tile of a card of several: by a mask such as `0.1`, or because every tile is a device.
    let tile = shown.iter().any(|shown| cards[shown.card].tiles > 1);
    let composite = settings.mask_value.contains('.');
    tile.then_some(if composite { Hierarchy::Composite } else { Hierarchy::Flat })
}

/// The place in the driver's list of the device that a unit is.
fn find(unit: &Unit, card: usize, all: &[Unit], order: &[usize], shown: &[Shown], placed: &[bool]) -> Option<usize> {
    let of_card: Vec<usize> = (0..shown.len()).filter(|place| shown[*place].card == card).collect();
    let visible: Vec<&Unit> = all.iter().filter(|unit| unit.visible && order[unit.card as usize] == card).collect();
    if visible.len() == of_card.len() {
        // As the rules have it: the n-th that should be visible is the n-th that is.
        return visible.iter().position(|other| *other == unit).map(|n| of_card[n]);
    }
    // Not as the rules have it: by the tile that it says that it is, else the first that is left.
    let free = |place: &&usize| !placed[**place];
    let says = |place: &&usize| {
        let device = &shown[**place].device;
        device.flags & SUBDEVICE != 0 && unit.tiles == [device.subdevice_id]
    };
    let told = of_card.iter().filter(free).find(says).copied();
    told.or_else(|| of_card.iter().filter(free).find(|place| shown[**place].device.flags & SUBDEVICE == 0).copied())
}
