//! The generations of Gaudi, and what each computes with.

use crate::dtype::DType;
use crate::system::environment::Environment;

/// A generation of Gaudi.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Generation {
    First,
    Second,
    Third,
}

impl Generation {
    /// By the PCI device id under the vendor `1da3`.
    pub(super) fn from_pci(device_id: u64) -> Option<Self> {
        match device_id {
            0x1000 | 0x1001 | 0x1010 | 0x1011 => Some(Self::First),
            0x1020 | 0x1030 => Some(Self::Second),
            0x1060..=0x106f => Some(Self::Third),
            _ => None,
        }
    }

    /// By `device_type` of the kernel's driver: `GAUDI`, `GAUDI SEC`, `GAUDI2`, `GAUDI2B`, `GAUDI3`. `GOYA` is none.
    pub(super) fn from_device_type(text: &str) -> Option<Self> {
        let rest = text.to_ascii_uppercase();
        match rest.strip_prefix("GAUDI")?.trim_start().chars().next() {
            Some('2') => Some(Self::Second),
            Some('3') => Some(Self::Third),
            Some(digit) if digit.is_ascii_digit() => None,
            _ => Some(Self::First),
        }
    }

    /// The word in [`DeviceInfo::arch`](crate::system::DeviceInfo::arch).
    pub(super) fn arch(self) -> &'static str {
        match self {
            Self::First => "gaudi",
            Self::Second => "gaudi2",
            Self::Third => "gaudi3",
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::First => "Intel Gaudi",
            Self::Second => "Intel Gaudi 2",
            Self::Third => "Intel Gaudi 3",
        }
    }

    /// The element types that it computes with, and those that its software takes and computes in another type.
    ///
    /// bf16 is native to all; f16 came with the second. Nothing computes in f64: PyTorch's doubles become f32 there, so
    /// it is in neither list. i64 is native or computed as i32: [`int64`].
    pub(super) fn dtypes(self, int64: bool) -> (Vec<DType>, Vec<DType>) {
        let mut native = vec![DType::F32, DType::Bf16, DType::I32, DType::U32, DType::I8, DType::U8];
        if self != Self::First {
            native.push(DType::F16);
        }
        let mut emulated = Vec::new();
        let list = if int64 { &mut native } else { &mut emulated };
        list.push(DType::I64);
        native.sort_unstable();
        (native, emulated)
    }
}

/// Whether 64-bit integers are computed as such, and not as 32-bit ones.
///
/// `PT_ENABLE_INT64_SUPPORT` decides where it is set. Where it is not, eager mode has them on every generation but the
/// first, and lazy mode has not. Lazy mode is on with `PT_HPU_LAZY_MODE=1`; unset is eager, as Gaudi's releases of today
/// have it (up to 1.19 unset was lazy).
///
/// Source: "Runtime Environment Variables" of the Gaudi documentation.
pub(super) fn int64(generation: Generation, environment: &Environment, notes: &mut Vec<String>) -> bool {
    let mut flag = |name: &str| {
        let value = environment.setting(name)?;
        match value.trim().to_ascii_lowercase().as_str() {
            "1" | "true" => Some(true),
            "0" | "false" => Some(false),
            _ => {
                let note = format!(
                    "{name}={}: expected 0, 1, false or true; taken for unset",
                    crate::system::printable(value)
                );
                if !notes.contains(&note) {
                    notes.push(note);
                }
                None
            }
        }
    };
    let lazy = flag("PT_HPU_LAZY_MODE").unwrap_or(false);
    flag("PT_ENABLE_INT64_SUPPORT").unwrap_or(!lazy && generation != Generation::First)
}

#[cfg(test)]
mod tests {
    use super::{Environment, Generation, int64};

    #[test]
    fn generations_have_their_ids_and_names() {
        use Generation::{First, Second, Third};
        for (ids, generation) in [
            (vec![0x1000, 0x1001, 0x1010, 0x1011], Some(First)),
            (vec![0x1020, 0x1030], Some(Second)),
            (vec![0x1060, 0x1061, 0x106f], Some(Third)),
            (vec![0x0001, 0x1002, 0x1021, 0x105f, 0x1070], None),
        ] {
            for id in ids {
                assert_eq!(Generation::from_pci(id), generation, "{id:#x}");
            }
        }
        for (text, generation) in [
            ("GAUDI", Some(First)),
            ("GAUDI SEC", Some(First)),
            ("GAUDI2", Some(Second)),
            ("gaudi2b", Some(Second)),
            ("GAUDI3", Some(Third)),
            ("GAUDI9", None),
            ("GOYA", None),
            ("", None),
        ] {
            assert_eq!(Generation::from_device_type(text), generation, "{text}");
        }
    }

    #[test]
    fn sixty_four_bits_follow_the_settings_the_mode_and_the_generation() {
        use Generation::{First, Second, Third};
        for (generation, support, lazy, expected) in [
            (Second, None, None, true),
            (Third, None, Some("0"), true),
            (First, None, None, false),
            (Second, None, Some("1"), false),
            (Second, Some("1"), Some("1"), true),
            (Second, Some("false"), None, false),
            (First, Some("True"), None, true),
        ] {
            let mut environment = Environment::default();
            for (name, value) in [("PT_ENABLE_INT64_SUPPORT", support), ("PT_HPU_LAZY_MODE", lazy)] {
                environment.settings.extend(value.map(|value| (name.to_owned(), value.to_owned())));
            }
            let mut notes = Vec::new();
            assert_eq!(int64(generation, &environment, &mut notes), expected, "{generation:?} {support:?} {lazy:?}");
            assert_eq!(notes, Vec::<String>::new());
        }
        let mut environment = Environment::default();
        environment.settings.insert("PT_HPU_LAZY_MODE".to_owned(), "maybe".to_owned());
        let mut notes = Vec::new();
        assert!(int64(Second, &environment, &mut notes) && int64(Second, &environment, &mut notes));
        assert_eq!(notes, ["PT_HPU_LAZY_MODE=maybe: expected 0, 1, false or true; taken for unset"]);
    }
}
