//! What goes wrong between a layer and a kernel.

use crate::dtype::DType;
use crate::hint::{Hint, nearest};
use crate::load::LoadError;

/// A kernel that does not fit its contract, or a call that does not fit the kernel.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// The kernel serves no layer of this name.
    #[error("{kernel} serves no layer {layer}; it serves {}", .available.join(", "))]
    LayerMissing {
        /// The kernel, as `owner/name@v1`.
        kernel: String,
        /// The layer that was asked for.
        layer: String,
        /// The layers that the kernel serves.
        available: Vec<String>,
    },
    /// A layer names a contract that this version does not know.
    #[error("{kernel}: the contract {contract:?} is not known; known: {}", .known.join(", "))]
    UnknownContract {
        /// The kernel and layer, as `owner/name@v1:Layer`.
        kernel: String,
        /// The contract as declared.
        contract: String,
        /// The contracts of this version.
        known: Vec<&'static str>,
    },
    /// A function's arguments are not those of its contract.
    #[error("{kernel}: the arguments of {function} do not fit the contract {contract}: {reason}; the contract has {}{}", .parameters.join(", "), and_may_have(.optional))]
    Arguments {
        /// The kernel and layer.
        kernel: String,
        /// The function as declared.
        function: String,
        /// The contract.
        contract: &'static str,
        /// Which argument is missing, doubled or unknown.
        reason: String,
        /// The contract's mandatory parameters.
        parameters: Vec<&'static str>,
        /// The contract's optional parameters.
        optional: Vec<&'static str>,
        /// The parameter that an unknown name comes near to.
        suggestion: Option<&'static str>,
    },
    /// A layer declares a rounding order that its contract does not have.
    #[error("{kernel}: the contract {contract} has no rounding {rounding:?}; it has {}", .allowed.join(", "))]
    Rounding {
        /// The kernel and layer.
        kernel: String,
        /// The contract.
        contract: &'static str,
        /// The order as declared.
        rounding: String,
        /// The contract's orders, the default first.
        allowed: Vec<&'static str>,
        /// The order that the declared one comes near to.
        suggestion: Option<&'static str>,
    },
    /// A layer declares a backward function and its contract has none.
    #[error("{kernel}: the backward function {function} has no place in the contract {contract}{}", if *.is_own { ", whose forward function computes the gradient, too" } else { "" })]
    BackwardRefused {
        /// The kernel and layer.
        kernel: String,
        /// The function as declared.
        function: String,
        /// The contract.
        contract: &'static str,
        /// Whether the forward function is the backward function.
        is_own: bool,
    },
    /// A backward was asked of a kernel that has none.
    #[error("{kernel} has no backward")]
    NoBackward {
        /// The kernel and layer.
        kernel: String,
    },
    /// A call passes a value for an optional parameter that the kernel's function does not take.
    #[error("{kernel} does not take {option}; it computes only with {default}")]
    Option {
        /// The kernel and layer.
        kernel: String,
        /// The contract's parameter.
        option: &'static str,
        /// What the kernel computes with.
        default: String,
    },
    /// A number that the contract does not allow.
    #[error("{kernel}: {argument} {reason}")]
    Scalar {
        /// The kernel and layer.
        kernel: String,
        /// The contract's parameter.
        argument: &'static str,
        /// What is wrong, expected and actual.
        reason: String,
    },
    /// An index that points outside the tensor that it is for.
    #[error("{kernel}: element {position} of {argument} is {actual}; expected {expected}")]
    Index {
        /// The kernel and layer.
        kernel: String,
        /// The contract's parameter.
        argument: &'static str,
        /// Which element, in row-major order.
        position: usize,
        /// What it is.
        actual: i64,
        /// What it may be.
        expected: String,
    },
    /// The kernel has no function or shader for the memory that the call's tensors are in.
    #[error("{kernel} is a {code} kernel and cannot run on tensors in {memory} memory")]
    Memory {
        /// The kernel and layer.
        kernel: String,
        /// "native" or "shader".
        code: &'static str,
        /// "host" or "wgpu".
        memory: &'static str,
    },
    /// A view that reaches beyond its data, or has too many axes.
    #[error("a view of shape {shape:?} and strides {strides:?} does not fit {len} elements and at most 8 axes")]
    View {
        /// Elements that the data has.
        len: usize,
        /// The view's extents, in elements.
        shape: Vec<usize>,
        /// The view's strides, in elements.
        strides: Vec<usize>,
    },
    /// A result that is larger than this process can hold.
    #[error("cannot allocate an output of shape {shape:?} and dtype {dtype}")]
    OutputTooLarge {
        /// The output's dtype.
        dtype: DType,
        /// Its extents, in elements.
        shape: Vec<usize>,
    },
    /// An argument of a dtype that the kernel or its contract does not take.
    #[error("{kernel}: {argument} has dtype {actual}; expected {expected}")]
    Dtype {
        /// The kernel and layer.
        kernel: String,
        /// The contract's parameter.
        argument: &'static str,
        /// What the kernel takes.
        expected: String,
        /// What it was given.
        actual: DType,
    },
    /// An argument of a wrong shape.
    #[error("{kernel}: {argument} has shape {actual:?}; expected {expected}")]
    Shape {
        /// The kernel and layer.
        kernel: String,
        /// The contract's parameter.
        argument: &'static str,
        /// What the contract asks for, with the axes named.
        expected: String,
        /// What it was given, in elements.
        actual: Vec<i64>,
    },
    /// An argument whose strides or address the kernel does not take.
    #[error("{kernel}: {argument} {reason}")]
    Layout {
        /// The kernel and layer.
        kernel: String,
        /// The contract's parameter.
        argument: &'static str,
        /// What is wrong, expected and actual.
        reason: String,
    },
    /// A shape that the kernel's own limits exclude.
    #[error("{kernel}: {argument}: {limit}")]
    Limit {
        /// The kernel and layer.
        kernel: String,
        /// The contract's parameter.
        argument: &'static str,
        /// The limit and the value that breaks it.
        limit: String,
    },
    /// The kernel ran and reported an error.
    #[error("{kernel}: {function} failed: {message}")]
    Kernel {
        /// The kernel and layer.
        kernel: String,
        /// The function that was called.
        function: String,
        /// The kernel's own words.
        message: String,
    },
    /// The kernel's code could not be loaded, or lacks a function.
    #[error("{kernel} cannot be bound")]
    Load {
        /// The kernel and layer.
        kernel: String,
        /// The cause.
        #[source]
        source: Box<LoadError>,
    },
    /// The kernel's shader could not be compiled or run.
    #[cfg(feature = "wgpu")]
    #[error("{kernel}: the shader failed")]
    Shader {
        /// The kernel and layer.
        kernel: String,
        /// The cause.
        #[source]
        source: Box<crate::gpu::GpuError>,
    },
    /// The kernel's snapshot lacks something that its `layers.toml` names.
    #[error("{kernel}: {reason}")]
    Incomplete {
        /// The kernel and layer.
        kernel: String,
        /// What is missing.
        reason: String,
    },
}

/// The end of the sentence that lists a contract's parameters.
fn and_may_have(optional: &[&str]) -> String {
    if optional.is_empty() { String::new() } else { format!(" and may have {}", optional.join(", ")) }
}

impl BindError {
    #[cold]
    pub(super) fn view(len: usize, shape: &[usize], strides: &[usize]) -> Self {
        Self::View { len, shape: shape.to_vec(), strides: strides.to_vec() }
    }

    /// [`Self::view`] with the strides of a row-major view.
    #[cold]
    pub(super) fn row_major_view(len: usize, shape: &[usize]) -> Self {
        let mut strides = vec![0; shape.len()];
        let mut stride = 1_usize;
        for (slot, extent) in strides.iter_mut().zip(shape).rev() {
            *slot = stride;
            stride = stride.saturating_mul((*extent).max(1));
        }
        Self::view(len, shape, &strides)
    }
}

impl Hint for BindError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::LayerMissing { layer, available, .. } => {
                nearest(layer, available.iter().map(String::as_str)).map(|near| format!("did you mean {near}?"))
            }
            Self::UnknownContract { contract, known, .. } => {
                Some(nearest(contract, known.iter().copied()).map_or_else(
                    || "a newer version of kernelhub may know it".to_owned(),
                    |near| format!("did you mean {near:?}?"),
                ))
            }
            Self::Arguments { suggestion, .. } | Self::Rounding { suggestion, .. } => {
                suggestion.map(|near| format!("did you mean {near}?"))
            }
            Self::BackwardRefused { .. } => Some("leave `backward` out of the layer's table".to_owned()),
            Self::NoBackward { .. } => {
                Some("map the layer to a kernel with a backward, or train with its reference code".to_owned())
            }
            Self::Option { .. } => {
                Some("map the layer to a kernel that takes it, or leave this layer to its reference code".to_owned())
            }
            Self::Layout { .. } => Some("make the tensor contiguous first".to_owned()),
            Self::Dtype { .. } => Some("convert the tensor, or leave this layer to its reference code".to_owned()),
            Self::Memory { .. } => Some("map the layer to a kernel for the device that its tensors are on".to_owned()),
            Self::Load { source, .. } => source.hint(),
            #[cfg(feature = "wgpu")]
            Self::Shader { source, .. } => source.hint(),
            _ => None,
        }
    }
}
