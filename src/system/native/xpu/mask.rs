//! What `ZE_AFFINITY_MASK` shows and hides, computed without a driver.
//!
//! Source: the Level Zero specification, core programming guide, "Affinity Mask" and "Device Hierarchy" (1.7 and later):
//! a list of ordinals with commas between them, read after the hierarchy is known. In COMPOSITE an ordinal is a card, or
//! a card and one of its tiles (`1.2`); in FLAT and COMBINED it is a tile, counted over all cards, and an entry with a
//! point is invalid. The order of the entries does not matter, devices keep the driver's order.
//!
//! The specification does not say what becomes of an entry that is invalid, too high or no number. There this follows
//! Intel's driver (compute-runtime, `ExecutionEnvironment::parseAffinityMask`): it passes by what is invalid or too
//! high, reads `0x1` and `010` as C does, takes an empty mask for none, and throws on what is no number at all, which
//! ends the process. That is why such a mask is never shown to a driver: [`AffinityMask::fatal`].

use std::collections::HashSet;
use std::fmt;

use crate::system::native::list::{quoted, sentence};

/// How devices with several tiles are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hierarchy {
    /// A card is one device, its tiles are sub-devices.
    Composite,
    /// Every tile is a device.
    Flat,
    /// Every tile is a device that knows its card.
    Combined,
}

impl Hierarchy {
    /// By the value of `ZE_FLAT_DEVICE_HIERARCHY`. Case counts; anything else leaves the driver's default.
    pub(super) fn from_setting(value: &str) -> Option<Self> {
        match value {
            "COMPOSITE" => Some(Self::Composite),
            "FLAT" => Some(Self::Flat),
            "COMBINED" => Some(Self::Combined),
            _ => None,
        }
    }

    /// Whether a tile is a device.
    pub(super) fn shows_tiles(self) -> bool {
        self != Self::Composite
    }
}

impl fmt::Display for Hierarchy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Composite => "COMPOSITE",
            Self::Flat => "FLAT",
            Self::Combined => "COMBINED",
        })
    }
}

/// A device as the hierarchy makes it, seen or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unit {
    /// Its card, in the driver's order.
    pub(super) card: u32,
    /// The tiles of the card that it has: all of them where a card is hidden or no mask speaks of its tiles.
    pub(super) tiles: Vec<u32>,
    /// Whether it is one of several tiles of its card, and not the card.
    pub(super) is_tile: bool,
    /// Its number without a mask.
    pub(super) unmasked_index: u32,
    /// Whether the mask shows it.
    pub(super) visible: bool,
}

/// One part of a mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Entry {
    /// `1`
    Device(u32),
    /// `1.2`
    Tile(u32, u32),
    /// `1.2.0`: engines of a tile in old drivers, nothing today.
    Deeper,
}

/// A mask that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AffinityMask {
    entries: Vec<(String, Entry)>,
    faults: Vec<String>,
    fatal: bool,
}

impl AffinityMask {
    /// Reads a mask. An empty one is `None`: to Intel's driver it is unset.
    pub(super) fn read(value: &str) -> Option<Self> {
        // The driver's own word for an unset one.
        if value.is_empty() || value == "default" {
            return None;
        }
        let mut mask = Self { entries: Vec::new(), faults: Vec::new(), fatal: false };
        let mut known = HashSet::new();
        // A comma at the end ends the last entry and begins none.
        for text in value.strip_suffix(',').unwrap_or(value).split(',') {
            let shown = quoted(text);
            let mut parts: Vec<&str> = text.split('.').collect();
            // As with the comma.
            if parts.len() > 1 && parts.last() == Some(&"") {
                parts.pop();
            }
            let numbers: Option<Vec<(u32, bool)>> = parts.iter().take(2).map(|part| c_number(part)).collect();
            let Some(numbers) = numbers else {
                mask.fatal = true;
                mask.faults.push(if text.trim().is_empty() {
                    "an entry is empty".to_owned()
                } else {
                    format!("{shown} is no number")
                });
                continue;
            };
            if numbers.iter().any(|(_, exact)| !exact) {
                let read = numbers.iter().map(|(number, _)| number.to_string()).collect::<Vec<_>>().join(".");
                mask.faults.push(format!("{shown} is read as {read}"));
            }
            let entry = match (numbers.as_slice(), parts.len()) {
                ([(device, _)], 1) => Entry::Device(*device),
                ([(card, _), (tile, _)], 2) => Entry::Tile(*card, *tile),
                (_, 3) => Entry::Deeper,
                // Deeper ones end the process as texts do.
                _ => {
                    mask.fatal = true;
                    Entry::Deeper
                }
            };
            if entry == Entry::Deeper {
                mask.faults.push(format!("{shown} names more than a card and a tile"));
            }
            if !known.insert(entry) && entry != Entry::Deeper {
                mask.faults.push(format!("{shown} is named twice, which changes nothing"));
            }
            mask.entries.push((shown, entry));
        }
        Some(mask)
    }

    /// Whether Intel's driver ends the process that it is loaded into when it reads this mask.
    pub(super) fn fatal(&self) -> bool {
        self.fatal
    }

    /// What is wrong with it on a machine whose cards have these numbers of tiles, in a sentence; `None`: nothing.
    pub(super) fn fault(&self, hierarchy: Hierarchy, cards: &[u32]) -> Option<String> {
        let mut faults = self.faults.clone();
        let devices = if hierarchy.shows_tiles() { cards.iter().sum() } else { count(cards) };
        for (shown, entry) in &self.entries {
            match *entry {
                Entry::Device(device) if device >= devices => {
                    faults.push(format!("there is no device {device}: {}", range(devices)));
                }
                Entry::Tile(..) if hierarchy.shows_tiles() => {
                    faults.push(format!(
                        "{shown} names a tile of a card, which is invalid in {hierarchy}: there every tile is a device"
                    ));
                }
                Entry::Tile(card, _) if card >= devices => {
                    faults.push(format!("there is no card {card}: {}", range(devices)));
                }
                Entry::Tile(card, tile) if cards.get(card as usize).is_some_and(|tiles| tile >= *tiles) => {
                    faults.push(format!("card {card} has no tile {tile}: {}", range(cards[card as usize])));
                }
                _ => {}
            }
        }
        sentence(&faults)
    }
}

/// `count` devices, as a range of numbers.
fn range(devices: u32) -> String {
    match devices {
        0 => "there is none".to_owned(),
        1 => "only 0".to_owned(),
        devices => format!("only 0 to {}", devices - 1),
    }
}

fn count(cards: &[u32]) -> u32 {
    u32::try_from(cards.len()).unwrap_or(u32::MAX)
}

/// A number as C's `strtoul` with base 0 reads its start, as 32 bits, and whether that was all of the text. `None` where
/// it finds no digit or more than 64 bits.
fn c_number(text: &str) -> Option<(u32, bool)> {
    let text = text.trim_start_matches(is_blank);
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let hexadecimal = ["0x", "0X"].iter().find_map(|prefix| digits.strip_prefix(prefix));
    let (radix, digits) = match hexadecimal.filter(|rest| rest.starts_with(|c: char| c.is_ascii_hexdigit())) {
        Some(rest) => (16, rest),
        None if digits.starts_with('0') => (8, digits),
        None => (10, digits),
    };
    let end = digits.find(|c: char| !c.is_digit(radix)).unwrap_or(digits.len());
    let number = u64::from_str_radix(&digits[..end], radix).ok()?;
    let wide = if negative { number.wrapping_neg() } else { number };
    #[expect(clippy::cast_possible_truncation, reason = "the driver cuts it off as well")]
    let number = wide as u32;
    Some((number, digits[end..].chars().all(is_blank) && !negative && u64::from(number) == wide))
}

/// C's `isspace`.
fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t'..='\r')
}

/// The devices of a machine whose cards have these numbers of tiles, in the driver's order, those that the mask hides
/// included. A mask that is [fatal](AffinityMask::fatal) hides all of them.
pub(super) fn units(hierarchy: Hierarchy, cards: &[u32], mask: Option<&AffinityMask>) -> Vec<Unit> {
    let mut units = Vec::new();
    let mut first_tile = 0;
    for (card, tiles) in (0_u32..).zip(cards) {
        // What of this card the mask shows.
        let shows = |tile: u32| {
            let Some(mask) = mask else { return true };
            !mask.fatal
                && mask.entries.iter().any(|(_, entry)| match (*entry, hierarchy.shows_tiles()) {
                    (Entry::Device(device), true) => device == first_tile + tile,
                    (Entry::Device(device), false) => device == card,
                    (Entry::Tile(of, named), false) => of == card && named == tile,
                    (Entry::Tile(..), true) | (Entry::Deeper, _) => false,
                })
        };
        if hierarchy.shows_tiles() {
            units.extend((0..*tiles).map(|tile| Unit {
                card,
                tiles: vec![tile],
                is_tile: *tiles > 1,
                unmasked_index: first_tile + tile,
                visible: shows(tile),
            }));
        } else {
            let shown: Vec<u32> = (0..*tiles).filter(|tile| shows(*tile)).collect();
            let visible = !shown.is_empty();
            // One tile alone is shown in the place of its card.
            let is_tile = shown.len() == 1 && *tiles > 1;
            let tiles = if visible { shown } else { (0..*tiles).collect() };
            units.push(Unit { card, tiles, is_tile, unmasked_index: card, visible });
        }
        first_tile += tiles;
    }
    units
}

#[cfg(test)]
#[path = "mask_tests.rs"]
mod tests;
