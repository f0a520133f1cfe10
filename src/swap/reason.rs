//! Why a layer runs its reference code.

use std::fmt;

use serde::Serialize;

use super::Mode;
use crate::dtype::DType;
use crate::variant::DeviceKey;

/// Why a layer runs its reference code.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Reason {
    /// Kernels are off for the whole model.
    KernelsOff,
    /// Kernels are off for the whole process.
    SwitchedOff {
        /// What switches them off, such as `USE_HUB_KERNELS says no`.
        switch: &'static str,
    },
    /// The layer was built after the current plan was made.
    NotPlanned,
    /// The configuration names no kernel for the layer on this device and in this mode.
    NotMapped {
        /// The model's device.
        device: DeviceKey,
        /// The mode that was planned for.
        mode: Mode,
    },
    /// The configuration goes by the device's capability, which is not known.
    CapabilityUnknown {
        /// The model's device.
        device: DeviceKey,
    },
    /// The default table's entry for the layer cannot be read.
    BadDefault {
        /// What is wrong with it.
        fault: String,
    },
    /// The kernel cannot be had, and nobody insists on it: it is one of a list, or of the default table.
    Unavailable {
        /// The kernel.
        kernel: String,
        /// Why it cannot be had.
        cause: String,
    },
    /// The kernel fulfils another contract than the layer's.
    Contract {
        /// The kernel.
        kernel: String,
        /// The layer's contract.
        expected: &'static str,
        /// The kernel's contract.
        actual: &'static str,
    },
    /// The configuration switches the layer's kernel off.
    Disabled,
    /// The word for the model's attention came to something that has no kernel for the layer.
    Attention {
        /// What it came to, such as `sdpa`.
        chosen: String,
    },
    /// The configuration switches the kernel of one of the group's layers off, which a fused kernel would undo.
    MemberDisabled {
        /// Where that layer stands in the model.
        path: String,
    },
    /// The application itself maps one of the group's layers to a kernel from elsewhere than the fused one, which only
    /// the default table names.
    MemberMapped {
        /// Where that layer stands in the model.
        path: String,
        /// What it is mapped to.
        kernel: String,
    },
    /// The kernel does not compute the layer's dtype.
    Dtype {
        /// The kernel.
        kernel: String,
        /// The layer's dtype.
        actual: DType,
        /// The kernel's dtypes.
        supported: Vec<DType>,
    },
    /// The kernel does not take the layer's width.
    Limit {
        /// The kernel.
        kernel: String,
        /// The limit and the value that breaks it.
        limit: String,
    },
    /// The layer passes a value for an optional parameter of the contract that the kernel does not take.
    Option {
        /// The kernel.
        kernel: String,
        /// The parameter.
        option: String,
        /// Whether it is the kernel's backward that does not take it.
        in_backward: bool,
    },
    /// A gradient is needed and the kernel has no backward.
    NoBackward {
        /// The kernel.
        kernel: String,
        /// Whether it is needed because a weight of the layer is a variable, whatever the mode.
        trainable: bool,
    },
    /// Forwards are recorded and replayed, and the kernel doesn't promise to bear it.
    NotCompilable {
        /// The kernel.
        kernel: String,
    },
}

impl Reason {
    /// Whether it is that a gradient is needed.
    pub(super) fn is_for_gradients(&self) -> bool {
        matches!(self, Self::NoBackward { .. } | Self::Option { in_backward: true, .. })
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KernelsOff => write!(f, "kernels are off"),
            Self::SwitchedOff { switch } => write!(f, "kernels are off: {switch}"),
            Self::CapabilityUnknown { device } => {
                write!(f, "its entries go by the capability of the {device} device, which is not known")
            }
            Self::BadDefault { fault } => write!(f, "the default mapping's entry is wrong: {fault}"),
            Self::Unavailable { kernel, cause } => write!(f, "{kernel} cannot be had: {cause}"),
            Self::Contract { kernel, expected, actual } => {
                write!(f, "{kernel} fulfils the contract {actual}; the layer needs {expected}")
            }
            Self::NotPlanned => write!(f, "it was built after kernels were planned; plan again"),
            Self::NotMapped { device, mode } => write!(f, "no kernel is mapped to it on {device} for {mode}"),
            Self::Disabled => write!(f, "disabled by the configuration"),
            Self::Attention { chosen } => write!(f, "the model's attention is {chosen}"),
            Self::MemberDisabled { path } => write!(f, "{path} is disabled by the configuration"),
            Self::MemberMapped { path, kernel } => write!(f, "the configuration maps {path} to {kernel}"),
            Self::Dtype { kernel, actual, supported } => {
                let supported: Vec<_> = supported.iter().map(|dtype| dtype.as_str()).collect();
                write!(f, "{kernel} computes {}, the layer is {actual}", supported.join(", "))
            }
            Self::Limit { kernel, limit } => write!(f, "{kernel}: {limit}"),
            Self::Option { kernel, option, in_backward } => {
                let pass = if *in_backward { "the backward of " } else { "" };
                write!(f, "{pass}{kernel} does not take {option}, which the layer passes")
            }
            Self::NoBackward { kernel, trainable: false } => {
                write!(f, "{kernel} has no backward, and training needs one")
            }
            Self::NoBackward { kernel, trainable: true } => {
                write!(f, "{kernel} has no backward, and the layer's weight is a variable")
            }
            Self::NotCompilable { kernel } => {
                write!(f, "{kernel} cannot be recorded and replayed, and a compiled model needs that")
            }
        }
    }
}
