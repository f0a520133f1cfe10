//! What a forward is for.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::hint::{Hint, nearest};

/// What the model is being run for. Decides which kernels may take a layer.
///
/// The words are those of the Python package `kernels`. There a mode is a set of flags, of which some sets mean nothing
/// (inference and training at once); here there are the four that mean something and no others. Printed and parsed as
/// `inference`, `inference+compile`, `training` and `training+compile`; `|` is read for `+`, `torch_compile` for
/// `compile`, `Mode.INFERENCE` for `inference`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Mode {
    /// Forward passes only. A layer may use a kernel that has no backward.
    #[default]
    Inference,
    /// As [`Self::Inference`], recorded once and replayed: a layer uses only kernels that can be recorded.
    InferenceCompile,
    /// Forward and backward. A layer uses only kernels that have a backward, else its differentiable reference code.
    Training,
    /// As [`Self::Training`], recorded once and replayed: a layer uses only kernels that can be recorded.
    TrainingCompile,
}

/// A text that names no mode.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModeError {
    /// A word of it is not known.
    #[error("unknown mode {word:?} in {text:?}; known: inference, inference+compile, training, training+compile")]
    Unknown {
        /// The text as given.
        text: String,
        /// The word that is not known.
        word: String,
    },
    /// The words are known and together mean no mode.
    #[error("{text:?} is no mode: it must name exactly one of inference and training")]
    Union {
        /// The text as given.
        text: String,
    },
}

impl Hint for ModeError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Unknown { word, .. } => {
                nearest(word, ["inference", "training", "compile"]).map(|near| format!("did you mean {near:?}?"))
            }
            Self::Union { .. } => {
                Some("\"compile\" is added to one of the two, as in \"inference+compile\"".to_owned())
            }
        }
    }
}

impl Mode {
    /// Every mode.
    pub const ALL: [Self; 4] = [Self::Inference, Self::InferenceCompile, Self::Training, Self::TrainingCompile];

    /// Whether a gradient is needed.
    #[must_use]
    pub const fn is_training(self) -> bool {
        matches!(self, Self::Training | Self::TrainingCompile)
    }

    /// Whether forwards are recorded and replayed.
    #[must_use]
    pub const fn is_compiled(self) -> bool {
        matches!(self, Self::InferenceCompile | Self::TrainingCompile)
    }

    /// The same, recorded and replayed.
    #[must_use]
    pub const fn compiled(self) -> Self {
        if self.is_training() { Self::TrainingCompile } else { Self::InferenceCompile }
    }

    /// The same, every forward run as it comes.
    #[must_use]
    pub const fn eager(self) -> Self {
        if self.is_training() { Self::Training } else { Self::Inference }
    }

    /// The same with a gradient.
    #[must_use]
    pub const fn training(self) -> Self {
        if self.is_compiled() { Self::TrainingCompile } else { Self::Training }
    }

    /// The same without a gradient.
    #[must_use]
    pub const fn inference(self) -> Self {
        if self.is_compiled() { Self::InferenceCompile } else { Self::Inference }
    }

    /// The name in configurations and reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Inference => "inference",
            Self::InferenceCompile => "inference+compile",
            Self::Training => "training",
            Self::TrainingCompile => "training+compile",
        }
    }
}

impl FromStr for Mode {
    type Err = ModeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (mut inference, mut training, mut compile) = (false, false, false);
        for word in text.split(['+', '|']).map(str::trim) {
            let lower = word.to_ascii_lowercase();
            let seen = match lower.strip_prefix("mode.").unwrap_or(&lower) {
                "inference" => &mut inference,
                "training" => &mut training,
                "compile" | "torch_compile" => &mut compile,
                _ => return Err(ModeError::Unknown { text: text.to_owned(), word: word.to_owned() }),
            };
            *seen = true;
        }
        let mode = match (inference, training) {
            (true, false) => Self::Inference,
            (false, true) => Self::Training,
            _ => return Err(ModeError::Union { text: text.to_owned() }),
        };
        Ok(if compile { mode.compiled() } else { mode })
    }
}

impl TryFrom<String> for Mode {
    type Error = ModeError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Mode> for String {
    fn from(mode: Mode) -> Self {
        mode.as_str().to_owned()
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::{Mode, ModeError};

    #[test]
    fn every_spelling_names_its_mode_and_every_mode_round_trips() {
        for mode in Mode::ALL {
            assert_eq!(mode.as_str().parse(), Ok(mode));
            let json = serde_json::to_string(&mode).unwrap();
            assert_eq!(json, format!("\"{mode}\""));
            assert_eq!(serde_json::from_str::<Mode>(&json).unwrap(), mode);
            assert_eq!((mode.compiled().is_compiled(), mode.eager().is_compiled()), (true, false));
            assert_eq!(
                (mode.compiled().is_training(), mode.eager().is_training()),
                (mode.is_training(), mode.is_training())
            );
            assert_eq!((mode.training().is_training(), mode.inference().is_training()), (true, false));
            assert_eq!(mode.training().is_compiled(), mode.is_compiled());
        }
        for text in
            ["inference|compile", "compile+inference", "Mode.INFERENCE | Mode.TORCH_COMPILE", "INFERENCE|TORCH_COMPILE"]
        {
            assert_eq!(text.parse(), Ok(Mode::InferenceCompile), "{text}");
        }
        assert_eq!("TRAINING".parse(), Ok(Mode::Training));
    }

    #[test]
    fn f39_conflicting_unions_are_no_modes() {
        for text in ["inference+training", "training|inference|compile", "compile", "torch_compile"] {
            assert!(matches!(text.parse::<Mode>(), Err(ModeError::Union { .. })), "{text}");
        }
        for text in ["", "infer", "inference+", "inference,compile", "fallback", "inference+fallback"] {
            assert!(matches!(text.parse::<Mode>(), Err(ModeError::Unknown { .. })), "{text}");
        }
    }
}
