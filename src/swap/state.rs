//! What a model's planning goes by: its layers, its mode, and the kernels that are in force.

use std::sync::Arc;

use super::acquire::Kernels;
use super::attn_implementation::{Selected, select};
use super::group::Group;
use super::{
    AttnImplementation, AttnKind, KernelConfig, KernelProvider, Mode, Plan, Reason, SlotSpec, SwapError, Target,
};
use crate::variant::DeviceKey;

/// What planning needs; never touched by a forward.
#[derive(Debug, Default)]
pub(super) struct State {
    /// Layers and the wholes of groups, in the order in which they were built.
    pub(super) specs: Vec<SlotSpec>,
    pub(super) groups: Vec<Group>,
    pub(super) mode: Mode,
    /// What the word for the model's attention came to, where there is one.
    pub(super) attention: Option<Arc<Selected>>,
    /// What is in force outside of every override.
    base: Active,
    /// The overrides that were begun and have not ended, by their number, and what is in force in each.
    pub(super) overrides: Vec<(u64, Active)>,
    pub(super) next_override: u64,
}

/// Whether layers take kernels, and which.
#[derive(Debug, Clone)]
pub(super) enum Active {
    /// Every layer runs its reference code, for this reason.
    Off(Reason),
    /// With what the configuration's own word for the model's attention came to.
    On(Arc<Kernels>, Option<Arc<Selected>>),
}

impl Default for Active {
    fn default() -> Self {
        Self::Off(Reason::KernelsOff)
    }
}

impl State {
    /// What is in force: in the override that was begun last, or outside of every one.
    pub(super) fn active(&self) -> &Active {
        self.overrides.last().map_or(&self.base, |(_, active)| active)
    }

    pub(super) fn set_active(&mut self, active: Active) {
        match self.overrides.last_mut() {
            Some((_, innermost)) => *innermost = active,
            None => self.base = active,
        }
    }

    pub(super) fn plan(&self, active: &Active, device: DeviceKey) -> Plan {
        let plan = match active {
            Active::On(kernels, _) => Plan::decide(&self.specs, &self.groups, kernels, device, self.mode),
            Active::Off(reason) => Plan::reference(&self.specs, &self.groups, device, self.mode, reason),
        };
        let own = match active {
            Active::On(_, own) => own.as_ref(),
            Active::Off(_) => None,
        };
        match own.or(self.attention.as_ref()) {
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
        if let (Some(switch), false) = (provider.switched_off(), matches!(word.kind, AttnKind::Eager | AttnKind::Sdpa))
        {
            self.set_active(Active::Off(Reason::SwitchedOff { switch }));
            self.attention = None;
            return Ok(());
        }
        let mapped = |spec: &SlotSpec| match self.active() {
            Active::On(kernels, _) => kernels.own_kernel(spec, Mode::Inference),
            Active::Off(_) => None,
        };
        let selected = select(word, &self.specs, provider, device, &mapped)?;
        if let Active::On(kernels, _) = self.active() {
            let active = Active::On(Arc::clone(kernels), None);
            self.set_active(active);
        }
        self.attention = Some(Arc::new(selected));
        Ok(())
    }

    /// The kernels of a configuration and the plan with them.
    pub(super) fn acquire(
        &self,
        provider: &dyn KernelProvider,
        config: KernelConfig,
        device: DeviceKey,
    ) -> Result<(Active, Plan), SwapError> {
        if let Some(switch) = provider.switched_off() {
            let active = Active::Off(Reason::SwitchedOff { switch });
            let plan = self.plan(&active, device);
            return Ok((active, plan));
        }
        let target = Target { device, capability: provider.capability(device) };
        let asks = config.asks_for_kernels();
        let (kernels, failure) = Kernels::acquire(&self.specs, &self.groups, provider, config, target)?;
        let attention = match kernels.config().attn_implementation() {
            Some(word) => {
                let mapped = |spec: &SlotSpec| kernels.own_kernel(spec, Mode::Inference);
                Some(Arc::new(select(word, &self.specs, provider, device, &mapped)?))
            }
            // For a while, over what is in force: silent on attention, it leaves that as it is.
            None => match self.active() {
                Active::On(_, own) if kernels.config().is_override() && kernels.config().inherits() => own.clone(),
                _ => None,
            },
        };
        // A word alone is met by what it came to.
        let only_disables = attention.is_some() || kernels.only_disables(&self.specs, self.mode);
        let active = Active::On(Arc::new(kernels), attention);
        let plan = self.plan(&active, device);
        if !self.mode.is_training() && asks && plan.report().swapped() == 0 && !only_disables {
            let nothing = || SwapError::NothingSwapped { device, reasons: plan.report().reasons() };
            return Err(failure.unwrap_or_else(nothing));
        }
        Ok((active, plan))
    }

    /// The index of a new slot.
    pub(super) fn add(&mut self, spec: SlotSpec) -> usize {
        self.specs.push(spec);
        self.specs.len() - 1
    }
}
