//! How a kernel fails its check.

use crate::bind::BindError;
use crate::dtype::DType;
use crate::hint::Hint;

/// A kernel that does not compute what its contract says.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ParityError {
    /// A result is not the formula's.
    #[error(
        "{kernel} is not at parity with {contract} in {dtype}: {case}: element {element} of {output} is {actual}, \
         expected {expected} (error {error:.3e}, allowed {allowed:.3e}; {wrong} of {total} elements are outside){}",
        .explanation.as_ref().map_or_else(String::new, |explanation| format!("; {explanation}"))
    )]
    Mismatch {
        /// The kernel and layer.
        kernel: String,
        /// The contract.
        contract: &'static str,
        /// The element type of the inputs.
        dtype: DType,
        /// The pass, the layout and the options.
        case: String,
        /// The contract's output.
        output: &'static str,
        /// The element that is the farthest outside its tolerance, in row-major order.
        element: usize,
        /// What the formula gives.
        expected: f64,
        /// What the kernel gave; NaN also for an element that it never wrote.
        actual: f64,
        /// The distance between both.
        error: f64,
        /// The largest distance that the tolerance allows there.
        allowed: f64,
        /// How many elements are outside their tolerance.
        wrong: usize,
        /// How many elements there are.
        total: usize,
        /// What the kernel computes instead, where that is known: another rounding, an option that it ignores.
        explanation: Option<String>,
    },
    /// The kernel wrote beyond its output.
    #[error("{kernel} is not at parity with {contract} in {dtype}: {case}: it writes outside of {output}")]
    Outside {
        /// The kernel and layer.
        kernel: String,
        /// The contract.
        contract: &'static str,
        /// The element type of the inputs.
        dtype: DType,
        /// The pass, the layout and the options.
        case: String,
        /// The contract's output.
        output: &'static str,
    },
    /// The kernel refused a call that its contract and its limits allow.
    #[error("{kernel} is not at parity with {contract} in {dtype}: {case}: the call failed")]
    Call {
        /// The kernel and layer.
        kernel: String,
        /// The contract.
        contract: &'static str,
        /// The element type of the inputs.
        dtype: DType,
        /// The pass, the layout and the options.
        case: String,
        /// The cause.
        #[source]
        source: Box<BindError>,
    },
    /// Nothing of the kernel could be checked.
    #[error("{kernel} cannot be checked against {contract}: {}", .reasons.join("; "))]
    NoCase {
        /// The kernel and layer.
        kernel: String,
        /// The contract.
        contract: &'static str,
        /// Why not.
        reasons: Vec<String>,
    },
}

impl Hint for ParityError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Call { source, .. } => source.hint(),
            Self::NoCase { .. } => None,
            Self::Mismatch { .. } | Self::Outside { .. } => {
                Some("the kernel or its `layers.toml` is wrong; leave the layer to its reference code".to_owned())
            }
        }
    }
}
