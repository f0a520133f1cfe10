//! What a plan did to each layer, and why.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use serde::Serialize;

use super::group::Group;
use super::{AttentionReport, Mode, SlotSpec};
use crate::bind::{KernelIdentity, Rounding};
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
            Self::NotMapped { device } => write!(f, "no kernel is mapped to it on {device}"),
            Self::Disabled => write!(f, "disabled by the configuration"),
            Self::Attention { chosen } => write!(f, "the model's attention is {chosen}"),
            Self::MemberDisabled { path } => write!(f, "{path} is disabled by the configuration"),
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

/// What runs a layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// A kernel took it.
    Kernel(KernelIdentity),
    /// A kernel took it together with the other members of its group.
    Fused {
        /// Where the group stands in the model.
        into: String,
        /// The kernel.
        kernel: KernelIdentity,
    },
    /// Its reference code.
    Reference(Reason),
}

impl Outcome {
    /// The kernel that took the layer, alone or with others.
    #[must_use]
    pub fn kernel(&self) -> Option<&KernelIdentity> {
        match self {
            Self::Kernel(kernel) | Self::Fused { kernel, .. } => Some(kernel),
            Self::Reference(_) => None,
        }
    }
}

/// A kernel of a list that did not take the layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Tried {
    /// The kernel as configured.
    pub kernel: String,
    /// Why the next one was tried.
    pub reason: String,
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
    /// Where the kernel and the layer's reference code round differently, so that their results may, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rounding: Option<RoundingDifference>,
    /// Kernels of a list that came before the outcome.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tried: Vec<Tried>,
}

/// Two rounding orders of one layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct RoundingDifference {
    /// The kernel's order.
    pub kernel: Rounding,
    /// The reference code's order, in inference.
    pub reference: Rounding,
}

/// What became of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum GroupOutcome {
    /// This kernel took all of its members.
    Fused(KernelIdentity),
    /// Its members were planned alone.
    Apart(Reason),
}

/// One group's line of the report. Its members have lines of their own among the layers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GroupReport {
    /// Where the group stands in the model.
    pub path: String,
    /// The fused layer's name in the mapping.
    pub layer: String,
    /// Where its members stand in the model.
    pub members: Vec<String>,
    /// What became of it.
    pub outcome: GroupOutcome,
    /// The kernels of a list that were tried before, and why they did not take it. Empty: there were none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tried: Vec<Tried>,
}

impl GroupReport {
    pub(super) fn new(specs: &[SlotSpec], group: &Group, outcome: GroupOutcome) -> Self {
        let whole = &specs[group.whole];
        let members = group.members.iter().map(|member| specs[*member].path.clone()).collect();
        Self { path: whole.path.clone(), layer: whole.layer.clone(), members, outcome, tried: Vec::new() }
    }
}

impl LayerReport {
    pub(super) fn new(spec: &SlotSpec, outcome: Outcome) -> Self {
        let rounding = outcome.kernel().and_then(|identity| {
            let (kernel, reference) = (identity.rounding, spec.rounding);
            kernel.differs_from(reference, spec.dtype).then_some(RoundingDifference { kernel, reference })
        });
        Self { path: spec.path.clone(), layer: spec.layer.clone(), outcome, rounding, tried: Vec::new() }
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
    /// Every group of layers that one kernel may take together, in the order in which they were declared.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupReport>,
    /// What became of the word for the model's attention. Absent: none was given, and attention layers are mapped as any
    /// other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attention: Option<AttentionReport>,
    /// What else is to be known: kernels that a local folder takes the place of, entries that ask for trust.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl Report {
    /// A report without a line.
    pub(super) fn empty(device: DeviceKey, mode: Mode) -> Self {
        Self { device, mode, layers: Vec::new(), groups: Vec::new(), attention: None, notes: Vec::new() }
    }

    /// Number of layers with a slot.
    #[must_use]
    pub fn total(&self) -> usize {
        self.layers.len()
    }

    /// Number of layers that a kernel took, alone or with others: each layer of a group counts once.
    #[must_use]
    pub fn swapped(&self) -> usize {
        self.layers.iter().filter(|layer| layer.outcome.kernel().is_some()).count()
    }

    /// The kernels in use, each once, by name.
    #[must_use]
    pub fn kernels(&self) -> Vec<&KernelIdentity> {
        let mut kernels = BTreeMap::new();
        for layer in &self.layers {
            if let Some(identity) = layer.outcome.kernel() {
                kernels.insert(identity.to_string(), identity);
            }
        }
        kernels.into_values().collect()
    }

    /// Appends what was added to the model since its plan was made, for `slots` slots: it runs its reference code.
    pub(super) fn add_unplanned(&mut self, specs: &[SlotSpec], groups: &[Group], slots: usize, reason: &Reason) {
        for (index, spec) in specs.iter().enumerate().skip(slots) {
            match groups.iter().find(|group| group.whole == index) {
                Some(group) => self.groups.push(GroupReport::new(specs, group, GroupOutcome::Apart(reason.clone()))),
                None => self.layers.push(LayerReport::new(spec, Outcome::Reference(reason.clone()))),
            }
        }
    }

    /// Layer names with what runs them and how many there are.
    fn lines(&self) -> BTreeMap<(&str, String), usize> {
        let by_path = |path: &str| self.groups.iter().find(|group| group.path == path);
        let mut lines = BTreeMap::new();
        for LayerReport { layer, outcome, rounding, tried, .. } in &self.layers {
            let mut what = match outcome {
                Outcome::Kernel(identity) => line_of(identity),
                Outcome::Fused { into, kernel } => {
                    let group = by_path(into);
                    let layer = group.map_or("a group", |group| &group.layer);
                    let tried = group.map_or_else(String::new, |group| tried_before(&group.tried));
                    format!("in {layer}: {}{tried}", line_of(kernel))
                }
                Outcome::Reference(reason) => format!("reference: {reason}"),
            };
            if let Some(RoundingDifference { kernel, reference }) = rounding {
                let _ = write!(what, "  (rounds {kernel}, its reference {reference})");
            }
            what += &tried_before(tried);
            *lines.entry((layer.as_str(), what)).or_insert(0) += 1;
        }
        for GroupReport { layer, outcome, members, tried, .. } in &self.groups {
            if let GroupOutcome::Apart(reason) = outcome {
                let tried = tried_before(tried);
                let what = format!("not fused, its {} layers stand above: {reason}{tried}", members.len());
                *lines.entry((layer.as_str(), what)).or_insert(0) += 1;
            }
        }
        lines
    }

    /// Why layers run their reference code, one line per layer name and reason.
    pub(super) fn reasons(&self) -> Vec<String> {
        let mut reasons: Vec<_> = self
            .layers
            .iter()
            .filter_map(|layer| match &layer.outcome {
                Outcome::Reference(reason) => Some(format!("{}: {reason}", layer.layer)),
                Outcome::Kernel(_) | Outcome::Fused { .. } => None,
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

/// The kernels of a list that came before the outcome, as the table shows them.
fn tried_before(tried: &[Tried]) -> String {
    let mut text = String::new();
    for Tried { kernel, reason } in tried {
        // The reason names the kernel as it was found.
        let _ = write!(text, "; before it {kernel}: {reason}");
    }
    text
}

/// A kernel as the table shows it.
fn line_of(identity: &KernelIdentity) -> String {
    let digest = identity.sha256.to_string();
    format!("{identity}  {}  sha256 {}", identity.variant, &digest[..12])
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = self.lines();
        let width = lines.keys().map(|(layer, _)| layer.len()).max().unwrap_or(0);
        for ((layer, what), count) in &lines {
            writeln!(f, "{count:>5} x {layer:width$}  {what}")?;
        }
        if let Some(attention) = &self.attention {
            writeln!(f, "{attention}")?;
        }
        for note in &self.notes {
            writeln!(f, "note: {note}")?;
        }
        write!(f, "{} of {} layers swapped for {} on {}", self.swapped(), self.total(), self.mode, self.device)
    }
}
