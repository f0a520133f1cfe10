//! What a layer refuses.

use crate::bind::Contract;
use crate::hint::Hint;
use crate::swap::SwapError;

/// A layer that cannot be built, or an input that it cannot take.
///
/// Reaches the caller inside a [`candle_core::Error`], which is what candle's own layers return.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayerError {
    /// A tensor has the wrong shape.
    #[error("{layer}: {tensor} must be {expected}, got {actual:?}")]
    Shape {
        /// The layer's name, such as `RMSNorm`.
        layer: &'static str,
        /// Which tensor.
        tensor: &'static str,
        /// The shape it needs, axes named.
        expected: String,
        /// The shape it has.
        actual: Vec<usize>,
    },
    /// A tensor has the wrong element type.
    #[error("{layer}: {tensor} must be {expected}, got {actual}")]
    DType {
        /// The layer's name.
        layer: &'static str,
        /// Which tensor.
        tensor: &'static str,
        /// The element types it may have.
        expected: String,
        /// The element type it has, by candle's name.
        actual: String,
    },
    /// Positions beyond the end of the rotary tables.
    #[error("{layer}: positions {start}..{end} do not fit tables of {maximum} positions")]
    Positions {
        /// The layer's name.
        layer: &'static str,
        /// First position of the input.
        start: usize,
        /// One past its last position.
        end: usize,
        /// Positions that the tables hold.
        maximum: usize,
    },
    /// Heads that cannot be grouped evenly.
    #[error("{layer}: {heads} query heads cannot be divided among {kv_heads} key-value heads")]
    Heads {
        /// The layer's name.
        layer: &'static str,
        /// Query heads.
        heads: usize,
        /// Key-value heads.
        kv_heads: usize,
    },
    /// An activation that needs a threshold was made without one.
    #[error("{layer}: the activation needs a threshold")]
    Threshold {
        /// The layer's name.
        layer: &'static str,
    },
    /// An activation that no contract describes.
    #[error("no contract describes the activation {activation}")]
    Activation {
        /// candle's name for it.
        activation: String,
    },
    /// A function of [`call`](super::call) was given a slot whose kernel serves another contract.
    #[error("call::{called}: {kernel} serves the contract {actual}")]
    Contract {
        /// The function.
        called: &'static str,
        /// The kernel.
        kernel: String,
        /// The contract that the slot was claimed for.
        actual: Contract,
    },
    /// A layer was handed the plan of another model.
    #[error("the plan is not one of the model that the layer belongs to")]
    OtherModel,
    /// A group of layers that cannot be one.
    #[error("the layers cannot form a group: {reason}")]
    Group {
        /// Why, as the planner says it.
        reason: String,
    },
    /// A number of the layer is outside of its range.
    #[error("{layer}: {name} must be {expected}, got {actual}")]
    Number {
        /// The layer's name.
        layer: &'static str,
        /// Which number.
        name: &'static str,
        /// What it may be.
        expected: String,
        /// What it is.
        actual: String,
    },
    /// Sequences that do not fit the rows of a tensor, or each other.
    #[error("{layer}: {reason}")]
    Sequences {
        /// The layer's name.
        layer: &'static str,
        /// What does not fit.
        reason: String,
    },
    /// A sequence that a paged cache does not hold.
    #[error("paged key-value cache: it holds no sequence {sequence}")]
    NoSequence {
        /// The sequence's number.
        sequence: u64,
    },
    /// More positions than the cache was made for.
    #[error("key-value cache: {requested} positions requested, {maximum} is its capacity")]
    CacheFull {
        /// Positions after the append.
        requested: usize,
        /// The capacity, in positions.
        maximum: usize,
    },
    /// Keys or values that carry a gradient were appended to a cache.
    #[error("key-value cache: {tensor} tracks gradients, and the cache writes in place and would lose them")]
    CacheGradient {
        /// `keys` or `values`.
        tensor: &'static str,
    },
}

impl Hint for LayerError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::CacheFull { .. } => Some("make the cache with a larger capacity, or reset it".to_owned()),
            Self::CacheGradient { .. } => {
                Some("run training forwards without a cache, or detach the tensors for inference".to_owned())
            }
            Self::Positions { .. } => {
                Some("build the rotary tables for the model's full context, or shorten the input".to_owned())
            }
            Self::Threshold { .. } => Some("make it with `fatrelu`".to_owned()),
            Self::Activation { .. } => Some("call candle's own: `candle_nn::Activation` is a module".to_owned()),
            Self::Contract { .. } => {
                Some("claim the slot for the contract of the function that the layer calls".to_owned())
            }
            Self::OtherModel => Some(
                "pin the plan of the slots that the layer was built with, or call `forward` without one".to_owned(),
            ),
            Self::NoSequence { .. } => Some("begin the sequence first, and end it only when it is done".to_owned()),
            Self::Shape { .. }
            | Self::DType { .. }
            | Self::Heads { .. }
            | Self::Number { .. }
            | Self::Sequences { .. }
            | Self::Group { .. } => None,
        }
    }
}

impl From<SwapError> for LayerError {
    fn from(error: SwapError) -> Self {
        Self::Group { reason: error.to_string() }
    }
}

impl From<LayerError> for candle_core::Error {
    fn from(error: LayerError) -> Self {
        // Not `Error::wrap`, which puts a backtrace into the message where RUST_BACKTRACE is set.
        Self::Wrapped(Box::new(error))
    }
}
