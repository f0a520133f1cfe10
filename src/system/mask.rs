//! Settings that hide, order or split devices.

use serde::{Deserialize, Serialize};

use crate::variant::DeviceKey;

/// A setting, as it stands in the environment, and what it did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Mask {
    /// The key of the devices that it speaks of.
    pub key: DeviceKey,
    /// The environment variable.
    pub variable: String,
    /// Its value, as set.
    pub value: String,
    /// What it did, in a sentence: `hides 2 of 4`.
    pub effect: String,
    /// Why it cannot be read as it stands, when it cannot; `effect` then says what the driver makes of it.
    #[serde(default)]
    pub error: Option<String>,
}

impl Mask {
    /// A setting that is read without a fault.
    #[must_use]
    pub fn new(key: DeviceKey, variable: &str, value: &str, effect: impl Into<String>) -> Self {
        let (variable, value) = (variable.to_owned(), value.to_owned());
        Self { key, variable, value, effect: effect.into(), error: None }
    }
}
