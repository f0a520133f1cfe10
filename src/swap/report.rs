//! What a plan did to each layer, and why.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use serde::Serialize;

use super::group::Group;
use super::{AttentionReport, Mode, Reason, SlotSpec};
use crate::bind::{KernelIdentity, Rounding};
use crate::variant::DeviceKey;

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

/// A kernel of a list that did not take the layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Tried {
    /// The kernel as configured.
    pub kernel: String,
    /// Why the next one was tried.
    pub reason: String,
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

/// One layer's line of the report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LayerReport {
    /// Where the layer stands in the model.
    pub path: String,
    /// The layer's name in the mapping.
    pub layer: String,
    /// What runs it.
    pub outcome: Outcome,
    /// Kernels of a list that came before the outcome.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tried: Vec<Tried>,
    /// Where the kernel and the layer's reference code round differently, so that their results may, too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rounding: Option<RoundingDifference>,
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
    /// Whether a kernel took its members together.
    #[must_use]
    pub fn is_fused(&self) -> bool {
        matches!(self.outcome, GroupOutcome::Fused(_))
    }

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
        Self { path: spec.path.clone(), layer: spec.layer.clone(), outcome, tried: Vec::new(), rounding }
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
    /// What became of the word for the model's attention. Absent: none was given, and attention layers are mapped as
    /// any other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attention: Option<AttentionReport>,
    /// What else is to be known: kernels that a local folder takes the place of, entries that ask for trust.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

impl Report {
    /// Without layers.
    pub(super) fn new(device: DeviceKey, mode: Mode) -> Self {
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
        for LayerReport { layer, outcome, tried, rounding, .. } in &self.layers {
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
                let what = match members.len() {
                    1 => format!("not fused, its layer stands for itself: {reason}{tried}"),
                    count => format!("not fused, its {count} layers stand for themselves: {reason}{tried}"),
                };
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
