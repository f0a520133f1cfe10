//! Versions of two numbers, and the joined digits by which variants write them.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::error::VariantFault;

/// A version of two numbers, such as CUDA 13.0 or glibc 2.36. Printed and parsed with a dot; ordered as numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Version {
    /// The number before the dot.
    pub major: u32,
    /// The number after the dot: 12.10 is above 12.9.
    pub minor: u32,
}

impl Version {
    /// A version of these two numbers.
    #[must_use]
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }

    /// The first two numbers of a longer version: `2.9.1+cu130` gives 2.9, `0.1.15.post2` gives 0.1.
    ///
    /// `None` when the text does not start with two numbers and a dot between them.
    #[must_use]
    pub fn leading(text: &str) -> Option<Self> {
        let (major, rest) = text.split_once('.')?;
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        Some(Self { major: number(major)?, minor: number(&rest[..end])? })
    }
}

/// Digits only: `u32::from_str` also takes a sign.
fn number(digits: &str) -> Option<u32> {
    digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())?
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// A text that is no version of two numbers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a version: {text:?}; expected two numbers with a dot, as in 13.0")]
pub struct VersionError {
    /// The text as given.
    pub text: String,
}

impl FromStr for Version {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.split_once('.')
            .and_then(|(major, minor)| Some(Self { major: number(major)?, minor: number(minor)? }))
            .ok_or_else(|| VersionError { text: text.to_owned() })
    }
}

impl TryFrom<String> for Version {
    type Error = VersionError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Version> for String {
    fn from(version: Version) -> Self {
        version.to_string()
    }
}

/// A family of joined versions: the word before the digits, and the majors that it can have.
///
/// The ranges are chosen so that a first digit decides how long the major is: with majors 4 to 39, a first digit of 4
/// or more can only be a whole major, and one of 1 to 3 only the first of two digits. So no text has two readings.
pub(super) struct Family {
    pub(super) word: &'static str,
    majors: RangeInclusive<u32>,
}

pub(super) const TORCH: Family = Family { word: "torch", majors: 1..=9 };
pub(super) const STABLE_ABI: Family = Family { word: "torch-stable-abi", majors: 1..=9 };
pub(super) const TVM_FFI: Family = Family { word: "tvm-ffi", majors: 0..=9 };
pub(super) const CUDA: Family = Family { word: "cu", majors: 10..=99 };
pub(super) const ROCM: Family = Family { word: "rocm", majors: 4..=39 };
/// oneAPI counts in years.
pub(super) const XPU: Family = Family { word: "xpu", majors: 2000..=2999 };
pub(super) const CANN: Family = Family { word: "cann", majors: 5..=49 };

impl Family {
    /// Splits joined digits into the one version that they can mean.
    pub(super) fn split(&self, digits: &str) -> Result<Version, VariantFault> {
        let fault = || VariantFault::VersionDigits {
            family: self.word.to_owned(),
            digits: digits.to_owned(),
            lowest: *self.majors.start(),
            highest: *self.majors.end(),
        };
        // Also keeps the slicing below on character boundaries.
        if !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(fault());
        }
        let mut readings = (1..digits.len()).filter_map(|at| {
            let (major, minor) = digits.split_at(at);
            let version = Version { major: canonical(major)?, minor: canonical(minor)? };
            self.majors.contains(&version.major).then_some(version)
        });
        match (readings.next(), readings.next()) {
            (Some(version), None) => Ok(version),
            _ => Err(fault()),
        }
    }
}

/// A number without leading zeros: `00` is no way to write 0, so it is no part of an exact round trip.
fn canonical(digits: &str) -> Option<u32> {
    if digits.len() > 1 && digits.starts_with('0') {
        return None;
    }
    number(digits)
}

#[cfg(test)]
mod tests {
    use super::{CANN, CUDA, Family, ROCM, STABLE_ABI, TORCH, TVM_FFI, Version, XPU};

    #[test]
    fn joined_digits_have_the_reading_of_their_family() {
        let cases: [(&Family, &str, u32, u32); 16] = [
            (&CUDA, "118", 11, 8),
            (&CUDA, "130", 13, 0),
            (&CUDA, "1210", 12, 10),
            (&TORCH, "213", 2, 13),
            (&TORCH, "29", 2, 9),
            (&TORCH, "210", 2, 10),
            (&STABLE_ABI, "211", 2, 11),
            (&TVM_FFI, "01", 0, 1),
            (&TVM_FFI, "012", 0, 12),
            (&ROCM, "63", 6, 3),
            (&ROCM, "714", 7, 14),
            (&ROCM, "100", 10, 0),
            (&XPU, "20253", 2025, 3),
            (&XPU, "20260", 2026, 0),
            (&CANN, "83", 8, 3),
            (&CANN, "810", 8, 10),
        ];
        for (family, digits, major, minor) in cases {
            assert_eq!(family.split(digits), Ok(Version::new(major, minor)), "{}{digits}", family.word);
        }
        for (family, digits) in [
            (&CUDA, ""),
            (&CUDA, "12"),
            (&CUDA, "1200"),
            (&CUDA, "92"),
            (&CUDA, "12x"),
            (&CUDA, "+128"),
            (&CUDA, "١٢٨"),
            (&CUDA, "99999999999999999999"),
            (&TORCH, "2"),
            (&TORCH, "213cxx"),
            (&TORCH, "200"),
            (&TVM_FFI, "1"),
            (&ROCM, "6"),
            (&XPU, "2026"),
            (&XPU, "260"),
        ] {
            assert!(family.split(digits).is_err(), "{}{digits}", family.word);
        }
    }

    #[test]
    fn no_text_of_up_to_five_digits_has_two_readings() {
        for family in [&CUDA, &TORCH, &STABLE_ABI, &TVM_FFI, &ROCM, &XPU, &CANN] {
            for number in 0..100_000_u32 {
                let text = number.to_string();
                let readings = (1..text.len())
                    .filter(|at| {
                        let (major, minor) = text.split_at(*at);
                        super::canonical(minor).is_some()
                            && super::canonical(major).is_some_and(|major| family.majors.contains(&major))
                    })
                    .count();
                assert!(readings <= 1, "{}{text}", family.word);
            }
        }
    }

    #[test]
    fn dotted_versions_are_exact_and_leading_numbers_are_found() {
        assert_eq!("12.10".parse(), Ok(Version::new(12, 10)));
        assert!(Version::new(12, 10) > Version::new(12, 9));
        for bad in ["", "12", "12.", ".1", "12.1.0", "+1.2", "1.-2", "a.b", "99999999999.0"] {
            let read = bad.parse::<Version>();
            assert!(read.is_err(), "{bad:?} was read as {read:?}");
        }
        assert_eq!(Version::leading("2.9.1+cu130"), Some(Version::new(2, 9)));
        assert_eq!(Version::leading("0.1.15.post2"), Some(Version::new(0, 1)));
        assert_eq!(Version::leading("13"), None);
    }
}
