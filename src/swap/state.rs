//! What a model's planning goes by: its layers, its mode, and the kernels that are in force.

use std::sync::Arc;

use super::acquire::Kernels;
use super::attn_implementation::{Selected, select};
use super::group::Group;
use super::{AttnImplementation, KernelConfig, KernelProvider, Mode, Plan, Reason, SlotSpec, SwapError, Target};
use crate::variant::DeviceKey;

/// What planning needs; never touched by a forward.
#[derive(Debug, Default)]
pub(super) struct State {
    /// Layers and the wholes of groups, in the order in which they were built.
    pub(super) specs: Vec<SlotSpec>,
    pub(super) groups: Vec<Group>,
    pub(super) mode: Mode,
    /// What is in force outside of every override.
    base: InForce,
    /// The overrides that were begun and have not ended, by their number, and what is in force in each.
    pub(super) overrides: Vec<(u64, InForce)>,
    pub(super) next_override: u64,
}

/// What is in force in an override, or outside of every one. One value, so that the end of an override brings back the
/// model's attention as it brings back its kernels.
#[derive(Debug, Clone, Default)]
pub(super) struct InForce {
    pub(super) kernels: Active,
    /// What the configuration's own word for the model's attention came to.
    configured: Option<Arc<Selected>>,
    /// What the word that was said beside every configuration came to.
    said: Option<Arc<Selected>>,
}

impl InForce {
    /// Every layer on its reference code, and no word for the model's attention.
    pub(super) fn off(reason: Reason) -> Self {
        Self { kernels: Active::Off(reason), configured: None, said: None }
    }

    fn attention(&self) -> Option<&Arc<Selected>> {
        self.configured.as_ref().or(self.said.as_ref())
    }
}

/// Whether layers take kernels, and which.
#[derive(Debug, Clone)]
pub(super) enum Active {
    /// Every layer runs its reference code, for this reason.
    Off(Reason),
    /// These, where they fit.
    On(Arc<Kernels>),
}

impl Default for Active {
    fn default() -> Self {
        Self::Off(Reason::KernelsOff)
    }
}

impl State {
    /// What is in force: in the override that was begun last, or outside of every one.
    pub(super) fn in_force(&self) -> &InForce {
        self.overrides.last().map_or(&self.base, |(_, in_force)| in_force)
    }

    pub(super) fn set_in_force(&mut self, in_force: InForce) {
        match self.overrides.last_mut() {
            Some((_, innermost)) => *innermost = in_force,
            None => self.base = in_force,
        }
    }

    pub(super) fn plan(&self, in_force: &InForce, device: DeviceKey) -> Plan {
        let plan = match &in_force.kernels {
            Active::On(kernels) => Plan::decide(&self.specs, &self.groups, kernels, device, self.mode),
            Active::Off(reason) => Plan::reference(&self.specs, &self.groups, device, self.mode, reason),
        };
        match in_force.attention() {
            Some(selected) => plan.with_attention(selected, &self.specs),
            None => plan,
        }
    }

    /// Lets a word for the model's attention take the place of what was said before. Where the process's environment
    /// switches kernels off, a word that stands for kernels finds all of them off.
    pub(super) fn attend(
        &mut self,
        word: &AttnImplementation,
        provider: &dyn KernelProvider,
        device: DeviceKey,
    ) -> Result<(), SwapError> {
        let kernels = self.in_force().kernels.clone();
        if let (Some(switch), false) = (provider.switched_off(), word.is_reference()) {
            self.set_in_force(InForce::off(Reason::SwitchedOff { switch }));
            return Ok(());
        }
        let mapped = |spec: &SlotSpec| match &kernels {
            Active::On(kernels) => kernels.own_kernel(spec, Mode::Inference),
            Active::Off(_) => None,
        };
        let said = Some(Arc::new(select(word, &self.specs, provider, device, &mapped)?));
        self.set_in_force(InForce { kernels, configured: None, said });
        Ok(())
    }

    /// The kernels of a configuration and the plan with them.
    pub(super) fn acquire(
        &self,
        provider: &dyn KernelProvider,
        config: KernelConfig,
        device: DeviceKey,
    ) -> Result<(InForce, Plan), SwapError> {
        let before = self.in_force();
        if let Some(switch) = provider.switched_off() {
            let mut in_force = InForce::off(Reason::SwitchedOff { switch });
            // A word for reference code asks for no kernel, and holds whatever the switch says.
            match config.attn_implementation() {
                Some(word) if word.is_reference() => {
                    in_force.configured =
                        Some(Arc::new(select(word, &self.specs, provider, device, &|_: &SlotSpec| None)?));
                }
                Some(_) => {}
                None => in_force.said = before.said.clone().filter(|said| said.is_reference()),
            }
            let plan = self.plan(&in_force, device);
            return Ok((in_force, plan));
        }
        let target = Target { device, capability: provider.capability(device) };
        let asks = config.asks_for_kernels();
        let (kernels, failure) = Kernels::acquire(&self.specs, &self.groups, provider, config, target)?;
        let (configured, said) = match kernels.config().attn_implementation() {
            Some(word) => {
                let mapped = |spec: &SlotSpec| kernels.own_kernel(spec, Mode::Inference);
                (Some(Arc::new(select(word, &self.specs, provider, device, &mapped)?)), None)
            }
            // For a while, over what is in force: silent on attention, it leaves that as it is.
            None if kernels.config().is_override() && kernels.config().inherits() => {
                (before.configured.clone(), before.said.clone())
            }
            None => (None, before.said.clone()),
        };
        // A word alone is met by what it came to; what stands beside it is asked for all the same.
        let is_met = match &configured {
            Some(_) => !kernels.asks_beside_attention(&self.specs, self.mode),
            None => kernels.only_disables(&self.specs, &self.groups, self.mode),
        };
        let in_force = InForce { kernels: Active::On(Arc::new(kernels)), configured, said };
        let plan = self.plan(&in_force, device);
        if !self.mode.is_training() && asks && plan.report().swapped() == 0 && !is_met {
            let nothing = || SwapError::NothingSwapped { device, reasons: plan.report().reasons() };
            return Err(failure.unwrap_or_else(nothing));
        }
        Ok((in_force, plan))
    }

    /// The index of a new slot.
    pub(super) fn add(&mut self, spec: SlotSpec) -> usize {
        self.specs.push(spec);
        self.specs.len() - 1
    }
}
