//! What a program needs of its device.

use super::error::DeviceError;
use super::{Chosen, Device};
use crate::dtype::DType;
use crate::variant::DeviceKey;

/// Whether a type that the device only emulates will do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Emulation {
    /// It won't: the program counts on the type's speed.
    #[default]
    Refuse,
    /// It will: the program wants the type's rounding or size.
    Allow,
}

/// How a device has an element type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support {
    /// It computes in it.
    Native,
    /// Its driver or libraries take it and compute in another type.
    Emulated,
    /// Neither.
    None,
    /// Its driver doesn't tell.
    Unknown,
}

impl Device {
    /// How the device has an element type.
    #[must_use]
    pub fn support(&self, dtype: DType) -> Support {
        match &self.info.dtypes {
            Some(native) if native.contains(&dtype) => Support::Native,
            _ if self.info.emulated.contains(&dtype) => Support::Emulated,
            Some(_) => Support::None,
            None => Support::Unknown,
        }
    }

    /// Holds the device to an element type, as Transformers' `TrainingArguments` does for bf16.
    ///
    /// What the driver doesn't tell passes, with [`Support::Unknown`] as the answer. A processor that was asked for by
    /// name passes with a type that it emulates, as `use_cpu` does there; one that `auto` fell back to does not.
    ///
    /// # Errors
    /// [`DeviceError::DType`] when the device doesn't have the type, or emulates it and `emulation` refuses that.
    pub fn require(&self, dtype: DType, emulation: Emulation) -> Result<Support, DeviceError> {
        let support = self.support(dtype);
        let named_processor = self.info.key == DeviceKey::Cpu && self.chosen == Chosen::ByName;
        match support {
            Support::Native | Support::Unknown => Ok(support),
            Support::Emulated if emulation == Emulation::Allow || named_processor => Ok(support),
            Support::Emulated | Support::None => Err(DeviceError::DType {
                device: self.to_string(),
                name: self.info.name.clone(),
                dtype,
                emulated: support == Support::Emulated,
                native: self.info.dtypes.clone().unwrap_or_default(),
            }),
        }
    }
}
