//! What a layer refuses.

use crate::bind::BindError;
use crate::hint::Hint;
use crate::swap::{Plan, Slot};

/// An array that is none, a layer that cannot be built, or an input that it cannot take.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SliceError {
    /// A slice of another length than its shape has elements.
    #[error("{len} elements do not fill the shape {shape:?}")]
    Length {
        /// The slice's length.
        len: usize,
        /// The shape.
        shape: Vec<usize>,
    },
    /// An array of another shape than the layer takes.
    #[error("{layer}: {array} must be {expected}, got {actual:?}")]
    Shape {
        /// The layer's name, such as `RMSNorm`.
        layer: &'static str,
        /// Which array.
        array: &'static str,
        /// The shape it needs, axes named.
        expected: String,
        /// The shape it has.
        actual: Vec<usize>,
    },
    /// An index outside the table that it chooses from.
    #[error("{layer}: index {index} at position {position} is outside a table of {rows} rows")]
    Index {
        /// The layer's name.
        layer: &'static str,
        /// The index.
        index: u32,
        /// Where it stands among the indices.
        position: usize,
        /// Rows of the table.
        rows: usize,
    },
    /// A layer was handed the plan of another model.
    #[error("{layer}: the plan is not one of the model that the layer belongs to")]
    OtherModel {
        /// The layer's name.
        layer: &'static str,
    },
    /// The kernel refused the call, or failed.
    #[error("{layer}: the kernel call failed")]
    Kernel {
        /// The layer's name.
        layer: &'static str,
        /// The cause.
        #[source]
        source: Box<BindError>,
    },
}

/// Refuses a plan of another model, whose slots stand for other layers.
#[inline]
pub(super) fn check_plan(plan: &Plan, slot: &Slot, layer: &'static str) -> Result<(), SliceError> {
    if plan.is_for(slot) { Ok(()) } else { Err(SliceError::OtherModel { layer }) }
}

impl SliceError {
    #[cold]
    pub(super) fn shape(layer: &'static str, array: &'static str, expected: String, actual: &[usize]) -> Self {
        Self::Shape { layer, array, expected, actual: actual.to_vec() }
    }

    #[cold]
    pub(super) fn kernel(layer: &'static str, source: BindError) -> Self {
        Self::Kernel { layer, source: Box::new(source) }
    }
}

impl Hint for SliceError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Kernel { source, .. } => source.hint(),
            Self::OtherModel { .. } => Some(
                "pin the plan of the slots that the layer was built with, or call `forward` without one".to_owned(),
            ),
            Self::Length { .. } | Self::Shape { .. } | Self::Index { .. } => None,
        }
    }
}
