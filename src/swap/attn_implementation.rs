//! How a model attends: the word that Transformers calls `attn_implementation`.
//!
//! Without a word, a model's attention layers are layers like any other: the configuration maps them to kernels, and
//! those that get none run their reference code, which is `sdpa`. A word is for all of them:
//!
//! | word | what runs |
//! |---|---|
//! | `sdpa` | the reference code: grouped heads, keys and values not repeated; no kernel |
//! | `eager` | products in the model's own type over repeated keys and values, for comparisons; no kernel |
//! | `flash_attention_2`, `_3`, `_4` | the kernel that is known by this name on the device |
//! | `owner/name@v1:function` | this kernel |
//! | `auto` | the best of the known kernels that is there and can do it, else `sdpa` |
//!
//! All but `auto` are explicit: what was asked for runs, or it is an error with its cause. `auto` is the one word that
//! falls back, and the report says what it chose and why nothing better. In training, a kernel without a backward
//! leaves an attention layer to its differentiable reference code whatever the word is; the report says that, too.
//!
//! `paged|` before a word asks the same of a model whose keys and values stand in the blocks of a paged cache, and is
//! an error for a model that has no layer for it.

mod capability;
mod report;
mod rules;
mod select;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{KernelRef, KernelRefError};
use crate::hint::{Hint, nearest};

pub use capability::AttentionCapability;
pub use report::{AttentionReport, PassedOver};
pub(super) use select::{Selected, is_attention, select};

const PAGED: &str = "paged|";
const WORDS: [&str; 6] = ["auto", "eager", "flash_attention_2", "flash_attention_3", "flash_attention_4", "sdpa"];

/// How a model attends. Parsed from, and printed as, the word of a configuration.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AttnImplementation {
    /// What computes it.
    pub kind: AttnKind,
    /// Whether keys and values stand in the blocks of a paged cache.
    pub paged: bool,
}

/// What computes attention.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AttnKind {
    /// Reference code with repeated keys and values and products in the model's type.
    Eager,
    /// Reference code with grouped heads.
    Sdpa,
    /// The kernel known as `FlashAttention` of this generation on the model's device.
    Flash(FlashGeneration),
    /// The best that there is.
    Auto,
    /// One kernel.
    Kernel(KernelRef),
}

/// A generation of `FlashAttention`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FlashGeneration {
    /// `flash_attention_2`.
    Two,
    /// `flash_attention_3`.
    Three,
    /// `flash_attention_4`.
    Four,
}

/// Which reference code the attention layers of a plan run where no kernel takes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AttentionPath {
    /// Grouped heads, keys and values as they lie.
    #[default]
    Sdpa,
    /// Keys and values repeated for every head, products in the model's type.
    Eager,
}

/// A text that names no way to attend.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AttnImplementationError {
    /// No word that is known.
    #[error("unknown attention {text:?}; known: {}, owner/name@v1:function, each also after \"paged|\"", WORDS.join(", "))]
    Unknown {
        /// The text as given.
        text: String,
    },
    /// A kernel's name that is malformed.
    #[error("attention {text:?} names no kernel")]
    Kernel {
        /// The text as given.
        text: String,
        /// What is wrong with it.
        #[source]
        source: KernelRefError,
    },
}

impl AttnImplementationError {
    /// The word that was probably meant.
    pub(super) fn nearest(&self) -> Option<String> {
        let Self::Unknown { text } = self else { return None };
        let (prefix, word) = split(text);
        nearest(word, WORDS).map(|near| format!("{prefix}{near}"))
    }
}

impl Hint for AttnImplementationError {
    fn hint(&self) -> Option<String> {
        self.nearest().map(|near| format!("did you mean {near:?}?"))
    }
}

/// The prefix and the word.
fn split(text: &str) -> (&str, &str) {
    text.strip_prefix(PAGED).map_or(("", text), |word| (PAGED, word))
}

impl FlashGeneration {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Two => "flash_attention_2",
            Self::Three => "flash_attention_3",
            Self::Four => "flash_attention_4",
        }
    }
}

impl AttnImplementation {
    /// Whether it asks for reference code, and for no kernel.
    pub(super) fn is_reference(&self) -> bool {
        matches!(self.kind, AttnKind::Eager | AttnKind::Sdpa)
    }
}

impl From<AttnKind> for AttnImplementation {
    /// Over keys and values that are no paged cache's.
    fn from(kind: AttnKind) -> Self {
        Self { kind, paged: false }
    }
}

impl FromStr for AttnImplementation {
    type Err = AttnImplementationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (prefix, word) = split(text);
        let kind = match word {
            "eager" => AttnKind::Eager,
            "sdpa" => AttnKind::Sdpa,
            "auto" => AttnKind::Auto,
            "flash_attention_2" => AttnKind::Flash(FlashGeneration::Two),
            "flash_attention_3" => AttnKind::Flash(FlashGeneration::Three),
            "flash_attention_4" => AttnKind::Flash(FlashGeneration::Four),
            kernel if kernel.contains('/') => AttnKind::Kernel(
                kernel.parse().map_err(|source| AttnImplementationError::Kernel { text: text.to_owned(), source })?,
            ),
            _ => return Err(AttnImplementationError::Unknown { text: text.to_owned() }),
        };
        Ok(Self { kind, paged: !prefix.is_empty() })
    }
}

impl fmt::Display for AttnKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Eager => f.write_str("eager"),
            Self::Sdpa => f.write_str("sdpa"),
            Self::Flash(generation) => f.write_str(generation.as_str()),
            Self::Auto => f.write_str("auto"),
            Self::Kernel(kernel) => kernel.fmt(f),
        }
    }
}

impl fmt::Display for AttnImplementation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.paged { PAGED } else { "" }, self.kind)
    }
}

impl TryFrom<String> for AttnImplementation {
    type Error = AttnImplementationError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<AttnImplementation> for String {
    fn from(implementation: AttnImplementation) -> Self {
        implementation.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::{AttnImplementation, AttnImplementationError, AttnKind, FlashGeneration, WORDS};
    use crate::hint::Hint;

    fn parse(text: &str) -> Result<AttnImplementation, AttnImplementationError> {
        text.parse()
    }

    #[test]
    fn every_word_round_trips_with_and_without_pages() {
        let kernels = ["a/b", "a/b@v1", "kernels-community/flash-attn2@v3:FlashAttention", "a/b:fn"];
        for word in WORDS.into_iter().chain(kernels) {
            for (text, paged) in [(word.to_owned(), false), (format!("paged|{word}"), true)] {
                let parsed = parse(&text).unwrap();
                assert_eq!((parsed.to_string(), parsed.paged), (text.clone(), paged));
                let json = serde_json::to_string(&parsed).unwrap();
                assert_eq!(json, format!("\"{text}\""));
                assert_eq!(serde_json::from_str::<AttnImplementation>(&json).unwrap(), parsed);
            }
        }
        assert_eq!(parse("flash_attention_3").unwrap().kind, AttnKind::Flash(FlashGeneration::Three));
        assert!(matches!(parse("a/b@v1:fn").unwrap().kind, AttnKind::Kernel(_)));
    }

    #[test]
    fn a_word_that_is_not_known_is_an_error_with_the_near_one() {
        let hint = |text: &str| {
            let error = parse(text).unwrap_err();
            assert!(matches!(error, AttnImplementationError::Unknown { .. }), "{text}");
            error.hint()
        };
        assert_eq!(hint("flash_attention2").as_deref(), Some("did you mean \"flash_attention_2\"?"));
        assert_eq!(hint("SDPA").as_deref(), Some("did you mean \"sdpa\"?"));
        assert_eq!(hint("paged|egaer").as_deref(), Some("did you mean \"paged|eager\"?"));
        assert_eq!(hint("flex"), None);
        for text in ["", "paged|", "Auto ", "paged|paged|sdpa", "flash_attention_5"] {
            hint(text);
        }
        for text in ["a/b@", "a/b:", "a/b@v1:x y", "../b@v1:f", "paged|a//b"] {
            let error = parse(text).unwrap_err();
            assert!(matches!(error, AttnImplementationError::Kernel { .. }), "{text}: {error:?}");
        }
    }
}
