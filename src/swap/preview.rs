//! What a configuration picks for every layer, without a kernel at hand: for a device that this machine lacks.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;

use super::acquire::{check, has_disabled_member, trust_note};
use super::config::LookUp;
use super::{Choice, KernelConfig, KernelRef, Mode, Reason, SlotSpec, Slots, SwapError, Target};
use crate::variant::DeviceKey;

/// What a configuration picks for one layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PreviewOutcome {
    /// These kernels, the first of them that can be had and fits. None was brought up: whether they exist, and whether
    /// they fit the layer, is not known here.
    Picks(Vec<String>),
    /// Its reference code.
    Reference(Reason),
}

/// One layer's line of a [`Preview`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LayerPreview {
    /// Where the layer stands in the model.
    pub path: String,
    /// The layer's name in the mapping.
    pub layer: String,
    /// What the configuration picks.
    pub outcome: PreviewOutcome,
}

/// What a configuration picks for every layer of a model, resolved by name alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Preview {
    /// The device that was asked about.
    pub device: DeviceKey,
    /// Its capability, where it was told.
    pub capability: Option<u32>,
    /// The mode that was asked about.
    pub mode: Mode,
    /// Every layer, in the order in which the model was built.
    pub layers: Vec<LayerPreview>,
    /// What else is to be known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The kernels that are picked, each once, as configured.
    #[serde(skip)]
    pub kernels: BTreeSet<KernelRef>,
}

impl Preview {
    /// Number of layers that a kernel is picked for.
    #[must_use]
    pub fn picked(&self) -> usize {
        self.layers.iter().filter(|layer| matches!(layer.outcome, PreviewOutcome::Picks(_))).count()
    }
}

impl Slots {
    /// What `config` picks for every layer on a device in a mode, whatever device the model is on. Asks nobody for a
    /// kernel, and changes nothing.
    ///
    /// # Errors
    /// [`SwapError::UnknownLayer`], [`SwapError::UnknownPath`] and [`SwapError::AmbiguousPath`], as
    /// [`Slots::use_kernels`].
    pub fn preview(&self, config: &KernelConfig, target: impl Into<Target>, mode: Mode) -> Result<Preview, SwapError> {
        let target = target.into();
        let Target { device, capability } = target;
        let state = self.shared.state();
        let fusions = check(&state.specs, &state.groups, config)?;
        let mut kernels = BTreeSet::new();
        let is_disabled = |spec: &SlotSpec| {
            let look_up = fusions.look_up(config, spec, target, mode);
            matches!(look_up, LookUp::Choice { choice: Choice::Disabled, .. })
        };
        let layers = state.specs.iter().enumerate().filter_map(|(index, spec)| {
            // As in a plan: what was switched off stays off, whatever a fused kernel could do.
            if has_disabled_member(index, &state.specs, &state.groups, is_disabled) {
                return None;
            }
            let group = state.groups.iter().find(|group| group.whole == index);
            if group.is_some_and(|group| fusions.overrule(config, (&state.specs, group), target, mode).is_some()) {
                return None;
            }
            let outcome = match fusions.look_up(config, spec, target, mode) {
                LookUp::NotMapped => PreviewOutcome::Reference(Reason::NotMapped { device, mode }),
                LookUp::NeedsCapability => PreviewOutcome::Reference(Reason::CapabilityUnknown { device }),
                LookUp::BadDefault(fault) => PreviewOutcome::Reference(Reason::BadDefault { fault: fault.to_owned() }),
                LookUp::Choice { choice: Choice::Disabled, .. } => PreviewOutcome::Reference(Reason::Disabled),
                LookUp::Choice { choice, .. } => {
                    kernels.extend(choice.kernels().iter().cloned());
                    PreviewOutcome::Picks(choice.kernels().iter().map(ToString::to_string).collect())
                }
            };
            // The whole of a group is no layer of its own: it stands here where a kernel is picked for its members together.
            let is_shown = group.is_none() || matches!(outcome, PreviewOutcome::Picks(_));
            is_shown.then(|| LayerPreview { path: spec.path.clone(), layer: spec.layer.clone(), outcome })
        });
        let layers = layers.collect();
        let trust = kernels.iter().filter(|kernel| kernel.trust_remote_code).map(trust_note);
        let attention = config.attn_implementation().map(|word| {
            format!("attn_implementation is {word}: what it comes to takes the place of the lines for attention layers")
        });
        let notes = trust.chain(attention).collect();
        Ok(Preview { device, capability, mode, layers, notes, kernels })
    }
}

impl fmt::Display for Preview {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut groups: BTreeMap<(&str, String), usize> = BTreeMap::new();
        for LayerPreview { layer, outcome, .. } in &self.layers {
            let what = match outcome {
                PreviewOutcome::Picks(kernels) => format!("picks {}", kernels.join(", else ")),
                PreviewOutcome::Reference(reason) => format!("reference: {reason}"),
            };
            *groups.entry((layer, what)).or_insert(0) += 1;
        }
        let width = groups.keys().map(|(layer, _)| layer.len()).max().unwrap_or(0);
        for ((layer, what), count) in &groups {
            writeln!(f, "{count:>5} x {layer:width$}  {what}")?;
        }
        for note in &self.notes {
            writeln!(f, "note: {note}")?;
        }
        let (picked, total) = (self.picked(), self.layers.len());
        write!(f, "{picked} of {total} layers are picked a kernel for {} on {}, by name alone", self.mode, self.device)
    }
}
