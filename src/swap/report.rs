//! What a plan did to each layer, and why.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::{Mode, SlotSpec};
use crate::bind::KernelIdentity;
use crate::dtype::DType;
use crate::variant::DeviceKey;

/// Why a layer runs its reference code.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Reason {
    /// Kernels are off for the whole model.
    KernelsOff,
    /// The layer was built after the current plan was made.
    NotPlanned,
    /// The configuration names no kernel for the layer on this device and in this mode.
    NotMapped {
        /// The model's device.
        device: DeviceKey,
    },
    /// The configuration switches the layer's kernel off.
    Disabled,
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
    /// A gradient is needed, and the host calls no kernel's backward.
    BackwardNotCalled {
        /// The kernel.
        kernel: String,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KernelsOff => write!(f, "kernels are off"),
            Self::NotPlanned => write!(f, "it was built after kernels were planned; plan again"),
            Self::NotMapped { device } => write!(f, "no kernel is mapped to it on {device}"),
            Self::Disabled => write!(f, "disabled by the configuration"),
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
            Self::BackwardNotCalled { kernel } => {
                write!(f, "{kernel} has a backward, but this host differentiates its reference code only")
            }
        }
    }
}

/// What runs a layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// A kernel took it.
    Kernel(KernelIdentity),
    /// Its reference code.
    Reference(Reason),
}

/// One layer's line of the report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LayerReport {
    /// Where the layer stands in the model.
    pub path: String,
    /// The layer's name in the mapping.
    pub layer: String,
    /// What runs it.
    pub outcome: Outcome,
}

impl LayerReport {
    pub(super) fn new(spec: &SlotSpec, outcome: Outcome) -> Self {
        Self { path: spec.path.clone(), layer: spec.layer.clone(), outcome }
    }
}

/// What a plan did to every layer of a model. [`fmt::Display`] gives a table by layer name, JSON every layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The model's device.
    pub device: DeviceKey,
    /// What the plan was made for.
    pub mode: Mode,
    /// Every layer, in the order in which the model was built.
    pub layers: Vec<LayerReport>,
}

impl Report {
    /// Number of layers with a slot.
    #[must_use]
    pub fn total(&self) -> usize {
        self.layers.len()
    }

    /// Number of layers that a kernel took.
    #[must_use]
    pub fn swapped(&self) -> usize {
        self.layers.iter().filter(|layer| matches!(layer.outcome, Outcome::Kernel(_))).count()
    }

    /// The kernels in use, each once, by name.
    #[must_use]
    pub fn kernels(&self) -> Vec<&KernelIdentity> {
        let mut kernels = BTreeMap::new();
        for layer in &self.layers {
            if let Outcome::Kernel(identity) = &layer.outcome {
                kernels.insert(identity.to_string(), identity);
            }
        }
        kernels.into_values().collect()
    }

    /// Layer names with what runs them and how many there are.
    fn groups(&self) -> BTreeMap<(&str, String), usize> {
        let mut groups = BTreeMap::new();
        for LayerReport { layer, outcome, .. } in &self.layers {
            let what = match outcome {
                Outcome::Kernel(identity) => {
                    let digest = identity.sha256.to_string();
                    format!("{identity}  {}  sha256 {}", identity.variant, &digest[..12])
                }
                Outcome::Reference(reason) => format!("reference: {reason}"),
            };
            *groups.entry((layer.as_str(), what)).or_insert(0) += 1;
        }
        groups
    }

    /// Why layers run their reference code, one line per layer name and reason.
    pub(super) fn reasons(&self) -> Vec<String> {
        let mut reasons: Vec<_> = self
            .layers
            .iter()
            .filter_map(|layer| match &layer.outcome {
                Outcome::Reference(reason) => Some(format!("{}: {reason}", layer.layer)),
                Outcome::Kernel(_) => None,
            })
            .collect();
        reasons.sort_unstable();
        reasons.dedup();
        if self.layers.is_empty() {
            reasons.push("it has no layer that a kernel could take".to_owned());
        }
        reasons
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups = self.groups();
        let width = groups.keys().map(|(layer, _)| layer.len()).max().unwrap_or(0);
        for ((layer, what), count) in &groups {
            writeln!(f, "{count:>5} x {layer:width$}  {what}")?;
        }
        write!(f, "{} of {} layers swapped for {} on {}", self.swapped(), self.total(), self.mode, self.device)
    }
}
