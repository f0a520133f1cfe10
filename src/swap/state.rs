//! What a model's planning goes by: its layers, its mode, and the kernels that are in force.

use std::sync::Arc;

use super::acquire::Kernels;
use super::group::Group;
use super::{KernelConfig, KernelProvider, Mode, Plan, Reason, SlotSpec, SwapError, Target};
use crate::variant::DeviceKey;

/// What planning needs; never touched by a forward.
#[derive(Debug, Default)]
pub(super) struct State {
    /// Layers and the wholes of groups, in the order in which they were built.
    pub(super) specs: Vec<SlotSpec>,
    pub(super) groups: Vec<Group>,
    pub(super) mode: Mode,
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
    On(Arc<Kernels>),
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
        match active {
            Active::On(kernels) => Plan::decide(&self.specs, &self.groups, kernels, device, self.mode),
            Active::Off(reason) => Plan::reference(&self.specs, &self.groups, device, self.mode, reason),
        }
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
        let (kernels, failure) = Kernels::acquire(&self.specs, provider, config, target)?;
        let only_disables = kernels.only_disables(&self.specs, self.mode);
        let active = Active::On(Arc::new(kernels));
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
