//! Names as they stand in a listing, known or not.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Variant, VariantError, VariantFault};

/// A name from a listing. Read from a text and written as the same text; reading never fails. Ordered: known names before
/// unknown ones, those by their texts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum AnyVariant {
    /// A name that the grammar knows.
    Known(Variant),
    /// A name that it does not know: kept, so that reports can show it.
    Unknown {
        /// The name as it arrived: untrusted, of any length, with any characters.
        text: String,
        /// The rule that it breaks.
        reason: VariantFault,
    },
}

impl AnyVariant {
    /// Reads a name.
    #[must_use]
    pub fn read(text: &str) -> Self {
        match text.parse() {
            Ok(variant) => Self::Known(variant),
            Err(VariantError { text, reason }) => Self::Unknown { text, reason },
        }
    }

    /// The parsed name, when the grammar knows it.
    #[must_use]
    pub const fn known(&self) -> Option<Variant> {
        match self {
            Self::Known(variant) => Some(*variant),
            Self::Unknown { .. } => None,
        }
    }
}

impl From<Variant> for AnyVariant {
    fn from(variant: Variant) -> Self {
        Self::Known(variant)
    }
}

impl From<String> for AnyVariant {
    fn from(text: String) -> Self {
        Self::read(&text)
    }
}

impl From<AnyVariant> for String {
    fn from(variant: AnyVariant) -> Self {
        match variant {
            AnyVariant::Known(variant) => variant.to_string(),
            AnyVariant::Unknown { text, .. } => text,
        }
    }
}

impl fmt::Display for AnyVariant {
    /// The name as it arrived, byte for byte. For a terminal, see the tables of [`crate::resolve`].
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(variant) => variant.fmt(f),
            Self::Unknown { text, .. } => f.write_str(text),
        }
    }
}
