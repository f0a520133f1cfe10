//! Why a model's kernels could not be planned. Whatever the error, the model keeps the plan that it had.

use crate::bind::Contract;
use crate::hint::{Hint, nearest};
use crate::swap::{PathPattern, ProvideError};
use crate::variant::DeviceKey;

/// A configuration that cannot be met.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SwapError {
    /// The configuration is not TOML, or a value in it has the wrong type.
    #[error("{origin}: not a valid kernel configuration")]
    ConfigToml {
        /// The file that the text came from.
        origin: String,
        /// Line, column and cause.
        #[source]
        source: Box<toml::de::Error>,
    },
    /// The configuration is not JSON, or a value in it has the wrong type.
    #[error("{origin}: not a valid kernel configuration")]
    ConfigJson {
        /// The file that the text came from.
        origin: String,
        /// Line, column and cause.
        #[source]
        source: serde_json::Error,
    },
    /// A key or a value of the configuration is not known.
    #[error("{origin}: {key}: {reason}")]
    Config {
        /// The file that the text came from.
        origin: String,
        /// The entry, such as `RMSNorm.cuda.inference`.
        key: String,
        /// What is wrong with it.
        reason: String,
        /// The nearest known word.
        suggestion: Option<String>,
    },
    /// The configuration names a layer that the model does not have.
    #[error("the model has no layer {layer}; its layers are {}", .available.join(", "))]
    UnknownLayer {
        /// The layer as configured.
        layer: String,
        /// The layers of the model.
        available: Vec<String>,
    },
    /// The configuration has a path, or a pattern of paths, at which the model has no layer.
    #[error("the model has no layer at {pattern}{}", near_text(.near.as_deref()))]
    UnknownPath {
        /// The pattern as configured.
        pattern: PathPattern,
        /// The near path, with stars for numbers where the pattern has stars.
        near: Option<String>,
    },
    /// Two patterns describe one layer equally closely.
    #[error("{path}: the patterns {first} and {second} describe it equally closely, so that neither decides")]
    AmbiguousPath {
        /// Where the layer stands.
        path: String,
        /// One pattern.
        first: PathPattern,
        /// The other.
        second: PathPattern,
    },
    /// The configuration has a fusion, and the model no group of such layers.
    #[error("no layers of the model can be fused as {}; its groups are: {}", .members.join(" + "), list(.groups))]
    FusionUnmatched {
        /// The members' names and patterns.
        members: Vec<String>,
        /// The members' paths in each group of the model.
        groups: Vec<String>,
    },
    /// Two fusions of the configuration are for one group.
    #[error("{path}: two fusions are for it, {} and {}", .first.join(" + "), .second.join(" + "))]
    FusionTwice {
        /// Where the group stands.
        path: String,
        /// The members' names and patterns of one.
        first: Vec<String>,
        /// Those of the other.
        second: Vec<String>,
    },
    /// None of a list of kernels could be had.
    #[error("{layer}: none of its kernels can be used: {}", chains(.failed))]
    NoneOf {
        /// The layer that one of them was to take.
        layer: String,
        /// What is wrong with each, in the list's order.
        failed: Vec<SwapError>,
    },
    /// A configured kernel could not be had.
    #[error("{layer}: the kernel {kernel} cannot be used")]
    Kernel {
        /// The layer that it was to take.
        layer: String,
        /// The kernel as configured.
        kernel: String,
        /// The cause.
        #[source]
        source: ProvideError,
    },
    /// A configured kernel fulfils another contract than the layer's.
    #[error("{layer}: the kernel {kernel} fulfils the contract {actual}; the layer needs {expected}")]
    ContractMismatch {
        /// The layer that it was to take.
        layer: String,
        /// The kernel as bound.
        kernel: String,
        /// The layer's contract.
        expected: Contract,
        /// The kernel's contract.
        actual: Contract,
    },
    /// Layers that cannot be a group.
    #[error("{path}: no group {layer}: {reason}")]
    Group {
        /// Where the group was to stand in the model.
        path: String,
        /// The fused layer's name.
        layer: String,
        /// What is wrong with its members.
        reason: String,
    },
    /// The word for the model's attention cannot be met.
    #[error("attention {implementation}: {reason}")]
    Attention {
        /// The word as configured.
        implementation: String,
        /// Why not.
        reason: String,
        /// What to use instead.
        hint: Option<String>,
    },
    /// The kernel that the word for the model's attention names could not be had.
    #[error("attention {implementation}: the kernel {kernel} cannot be used")]
    AttentionKernel {
        /// The word as configured.
        implementation: String,
        /// The kernel that it names on the model's device.
        kernel: String,
        /// What to use instead, where there is a word for it.
        advice: Option<String>,
        /// The cause.
        #[source]
        source: ProvideError,
    },
    /// Kernels were asked for and none took a layer.
    #[error("no layer of the model was swapped for inference on {device}: {}", .reasons.join("; "))]
    NothingSwapped {
        /// The model's device.
        device: DeviceKey,
        /// Why, by layer name.
        reasons: Vec<String>,
    },
}

fn near_text(near: Option<&str>) -> String {
    near.map_or_else(String::new, |near| format!("; the nearest is {near}"))
}

/// Each error with its causes, for errors that have no one cause.
fn chains(errors: &[SwapError]) -> String {
    let chain = |error: &SwapError| match error {
        SwapError::Kernel { kernel, source, .. } => format!("{kernel}: {}", source.in_one_line()),
        other => other.to_string(),
    };
    errors.iter().map(chain).collect::<Vec<_>>().join("; ")
}

/// The groups of a model, a few of them, or that there are none.
fn list(groups: &[String]) -> String {
    const SHOWN: usize = 4;
    match groups {
        [] => "none".to_owned(),
        [..] if groups.len() <= SHOWN => groups.join(", "),
        [..] => format!("{} and {} more", groups[..SHOWN].join(", "), groups.len() - SHOWN),
    }
}

impl SwapError {
    pub(super) fn unknown_path<'a>(pattern: &PathPattern, paths: impl Iterator<Item = &'a str>) -> Self {
        let has_stars = pattern.as_str().contains('*');
        let like_the_pattern = |path: &str| {
            let star = |part: &'_ str| {
                if has_stars && part.bytes().all(|byte| byte.is_ascii_digit()) { "*" } else { part }.to_owned()
            };
            path.split('.').map(star).collect::<Vec<_>>().join(".")
        };
        let paths: std::collections::BTreeSet<String> = paths.map(like_the_pattern).collect();
        let near = nearest(pattern.as_str(), paths.iter().map(String::as_str)).map(str::to_owned);
        Self::UnknownPath { pattern: pattern.clone(), near }
    }

    pub(super) fn config(origin: &str, key: &str, reason: String, suggestion: Option<&str>) -> Self {
        Self::Config {
            origin: origin.to_owned(),
            key: key.to_owned(),
            reason,
            suggestion: suggestion.map(str::to_owned),
        }
    }

    /// The fault of a configuration's value, with a near word for its key where there is none for the value.
    pub(super) fn or_near_key(mut self, near: Option<&str>) -> Self {
        if let Self::Config { suggestion: suggestion @ None, .. } = &mut self {
            *suggestion = near.map(str::to_owned);
        }
        self
    }
}

impl Hint for SwapError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Config { suggestion, .. } => suggestion.as_ref().map(|word| format!("did you mean {word:?}?")),
            Self::UnknownLayer { layer, available } => {
                nearest(layer, available.iter().map(String::as_str)).map(|near| format!("did you mean {near}?"))
            }
            Self::UnknownPath { near, .. } => near.as_ref().map(|near| format!("did you mean {near:?}?")),
            Self::AmbiguousPath { path, .. } => Some(format!("give {path:?} an entry of its own, which decides")),
            Self::FusionUnmatched { groups, .. } if groups.is_empty() => Some(
                "a model says which of its layers can be fused by Slots::group; this one has no such layers".to_owned(),
            ),
            Self::FusionUnmatched { .. } => {
                Some("give every member's layer and its whole path, with `*` for a part of it".to_owned())
            }
            Self::FusionTwice { .. } => Some("take one of the two out of the configuration".to_owned()),
            Self::NoneOf { failed, .. } => failed.iter().find_map(Hint::hint),
            Self::Kernel { source, .. } => source.hint.clone(),
            Self::Attention { hint, .. } => hint.clone(),
            Self::AttentionKernel { advice, source, .. } => advice.clone().or_else(|| source.hint.clone()),
            Self::NothingSwapped { device, .. } => {
                Some(format!("map at least one of the model's layers to a kernel for {device}, or leave kernels off"))
            }
            _ => None,
        }
    }
}
