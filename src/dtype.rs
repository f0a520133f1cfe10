//! Element types, by the names that manifests, configurations and reports use.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The type of a tensor's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum DType {
    /// IEEE double precision.
    F64,
    /// IEEE single precision.
    F32,
    /// bfloat16: the upper half of an `f32`.
    Bf16,
    /// IEEE half precision.
    F16,
    /// 64-bit signed integer.
    I64,
    /// 32-bit signed integer.
    I32,
    /// 32-bit unsigned integer.
    U32,
    /// 8-bit signed integer.
    I8,
    /// 8-bit unsigned integer.
    U8,
}

impl DType {
    /// Every type, in the order of the documentation.
    pub const ALL: [Self; 9] =
        [Self::F64, Self::F32, Self::Bf16, Self::F16, Self::I64, Self::I32, Self::U32, Self::I8, Self::U8];

    /// The name in manifests and reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::F64 => "f64",
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
            Self::I64 => "i64",
            Self::I32 => "i32",
            Self::U32 => "u32",
            Self::I8 => "i8",
            Self::U8 => "u8",
        }
    }

    /// Size of one element, in bytes.
    #[must_use]
    pub const fn size_in_bytes(self) -> usize {
        match self {
            Self::F64 | Self::I64 => 8,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::Bf16 | Self::F16 => 2,
            Self::I8 | Self::U8 => 1,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A name that is no element type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown dtype {name:?}; known: f64, f32, bf16, f16, i64, i32, u32, i8, u8")]
pub struct UnknownDType {
    /// The name as given.
    pub name: String,
}

impl FromStr for DType {
    type Err = UnknownDType;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|dtype| dtype.as_str() == name).ok_or_else(|| UnknownDType { name: name.to_owned() })
    }
}
