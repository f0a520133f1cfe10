//! The name of a build, as a checked text. The parsed type takes this one's place.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::names::{NameError, check_component};

/// One build of a kernel, such as `tvm-ffi01-cpu-x86_64-linux`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Variant(String);

impl FromStr for Variant {
    type Err = NameError;

    fn from_str(value: &str) -> Result<Self, Self::Err> {
        check_component("variant", value)?;
        Ok(Self(value.to_owned()))
    }
}

impl TryFrom<String> for Variant {
    type Error = NameError;

    fn try_from(value: String) -> Result<Self, Self::Error> {
        value.parse()
    }
}

impl From<Variant> for String {
    fn from(variant: Variant) -> Self {
        variant.0
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}
