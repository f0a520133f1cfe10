//! A model's slots and the plan that fills them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::{ArcSwap, Guard};

use super::acquire::Kernels;
use super::report::{LayerReport, Outcome, Reason};
use super::{KernelConfig, KernelProvider, Mode, Plan, Report, SwapError, Target};
use crate::bind::Contract;
use crate::dtype::DType;
use crate::variant::DeviceKey;

/// What a layer tells the planner about itself when it is built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotSpec {
    /// Where the layer stands in the model, such as `model.layers.0.input_layernorm`.
    pub path: String,
    /// The layer's name in a kernel mapping, such as `RMSNorm`.
    pub layer: String,
    /// The contract by which the layer calls a kernel.
    pub contract: Contract,
    /// Element type of the layer's weights and activations.
    pub dtype: DType,
    /// Extent of the last axis that the kernel's width rules apply to, in elements.
    pub last_dim: usize,
    /// Whether a weight of the layer is a variable that an optimizer trains.
    pub trainable: bool,
}

/// One model's slots, and the plan that all of its layers read. A cheap handle: clones share the slots.
#[derive(Debug, Clone)]
pub struct Slots {
    pub(super) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) device: DeviceKey,
    state: Mutex<State>,
    plan: ArcSwap<Plan>,
}

/// What planning needs; never touched by a forward.
#[derive(Debug)]
pub(super) struct State {
    pub(super) specs: Vec<SlotSpec>,
    pub(super) mode: Mode,
    /// What is in force outside of every scope.
    base: Active,
    /// The scopes that were begun and have not ended, by their number, and what is in force in each.
    pub(super) scopes: Vec<(u64, Active)>,
    pub(super) next_scope: u64,
}

/// Whether layers take kernels, and which.
#[derive(Debug, Clone)]
pub(super) enum Active {
    /// Every layer runs its reference code, for this reason.
    Off(Reason),
    On(Arc<Kernels>),
}

/// A layer's place in the plan.
#[derive(Debug, Clone)]
pub struct Slot {
    index: usize,
    shared: Arc<Shared>,
}

/// A plan held for the length of one forward.
pub type PinnedPlan = Guard<Arc<Plan>>;

impl Shared {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        // A panic while planning leaves the old state or the new one, both whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn publish(&self, plan: Plan) -> Report {
        let report = plan.report().clone();
        self.plan.store(Arc::new(plan));
        report
    }
}

impl State {
    /// What is in force: in the scope that was begun last, or outside of every scope.
    pub(super) fn active(&self) -> &Active {
        self.scopes.last().map_or(&self.base, |(_, active)| active)
    }

    fn set_active(&mut self, active: Active) {
        match self.scopes.last_mut() {
            Some((_, innermost)) => *innermost = active,
            None => self.base = active,
        }
    }

    pub(super) fn plan(&self, active: &Active, device: DeviceKey) -> Plan {
        match active {
            Active::On(kernels) => Plan::decide(&self.specs, kernels, device, self.mode),
            Active::Off(reason) => Plan::reference(&self.specs, device, self.mode, reason),
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
            return Err(
                failure.unwrap_or_else(|| SwapError::NothingSwapped { device, reasons: plan.report().reasons() })
            );
        }
        Ok((active, plan))
    }
}

impl Slots {
    /// No slots yet, on one kind of device, in inference mode; every layer runs its reference code.
    #[must_use]
    pub fn new(device: DeviceKey) -> Self {
        let plan = Plan::reference(&[], device, Mode::default(), &Reason::KernelsOff);
        let state = State {
            specs: Vec::new(),
            mode: Mode::default(),
            base: Active::Off(Reason::KernelsOff),
            scopes: Vec::new(),
            next_scope: 0,
        };
        let shared = Shared { device, state: Mutex::new(state), plan: ArcSwap::from_pointee(plan) };
        Self { shared: Arc::new(shared) }
    }

    /// The device that the model's tensors live on.
    #[must_use]
    pub fn device(&self) -> DeviceKey {
        self.shared.device
    }

    /// Adds a slot; called once by each layer as it is built. A slot added after [`Self::use_kernels`] runs its
    /// reference code until the next plan.
    #[must_use]
    pub fn slot(&self, spec: SlotSpec) -> Slot {
        let mut state = self.shared.state();
        state.specs.push(spec);
        Slot { index: state.specs.len() - 1, shared: Arc::clone(&self.shared) }
    }

    /// Pins the current plan. A model does so once per forward and hands it to every layer.
    #[must_use]
    pub fn pin(&self) -> PinnedPlan {
        self.shared.plan.load()
    }

    /// Gives the model's layers the kernels of `config`, for the current mode and for later changes of mode, and
    /// returns what became of every layer. All or nothing: on an error the model keeps the plan that it had.
    ///
    /// # Errors
    /// [`SwapError::UnknownLayer`] and [`SwapError::UnknownPath`] for a configured layer that the model lacks,
    /// [`SwapError::Kernel`] and [`SwapError::NoneOf`] for a kernel that cannot be had, [`SwapError::ContractMismatch`],
    /// [`SwapError::AmbiguousPath`], and [`SwapError::NothingSwapped`] when the configuration is not
    /// empty, the mode is inference and no kernel took a layer; a configuration that only disables layers is met by that.
    pub fn use_kernels(&self, provider: &dyn KernelProvider, config: &KernelConfig) -> Result<Report, SwapError> {
        let device = self.shared.device;
        let mut state = self.shared.state();
        let (active, plan) = state.acquire(provider, config.clone(), device)?;
        state.set_active(active);
        Ok(self.shared.publish(plan))
    }

    /// Returns every layer to its reference code and forgets the kernels.
    #[expect(clippy::must_use_candidate, reason = "the report is for those who want it")]
    pub fn disable_kernels(&self) -> Report {
        let mut state = self.shared.state();
        state.set_active(Active::Off(Reason::KernelsOff));
        self.shared.publish(state.plan(state.active(), self.shared.device))
    }

    /// Plans again for `mode`. Nothing is loaded: the kernels of every mode were acquired by [`Self::use_kernels`].
    #[expect(clippy::must_use_candidate, reason = "the report is for those who want it")]
    pub fn set_mode(&self, mode: Mode) -> Report {
        self.change_mode(|_| mode)
    }

    /// Plans again for training: layers keep only kernels that have a backward. Whether the model is compiled stays.
    #[expect(clippy::must_use_candidate, reason = "the report is for those who want it")]
    pub fn train(&self) -> Report {
        self.change_mode(Mode::training)
    }

    /// Plans again for inference. Whether the model is compiled stays.
    #[expect(clippy::must_use_candidate, reason = "the report is for those who want it")]
    pub fn eval(&self) -> Report {
        self.change_mode(Mode::inference)
    }

    /// Plans again for forwards that are recorded and replayed, or for such as are run as they come. Whether gradients
    /// are needed stays.
    #[expect(clippy::must_use_candidate, reason = "the report is for those who want it")]
    pub fn compile(&self, compiled: bool) -> Report {
        self.change_mode(if compiled { Mode::compiled } else { Mode::eager })
    }

    /// One lock around reading the mode and replacing it, so that two threads' changes both count.
    fn change_mode(&self, change: impl FnOnce(Mode) -> Mode) -> Report {
        let mut state = self.shared.state();
        state.mode = change(state.mode);
        self.shared.publish(state.plan(state.active(), self.shared.device))
    }

    /// What runs every layer now: the report of the current plan, and the reference code of slots that were added after
    /// it was made.
    #[must_use]
    pub fn report(&self) -> Report {
        let state = self.shared.state();
        let mut report = self.pin().report().clone();
        let reason = match state.active() {
            Active::On(_) => Reason::NotPlanned,
            Active::Off(reason) => reason.clone(),
        };
        let added = state.specs.iter().skip(report.layers.len());
        report.layers.extend(added.map(|spec| LayerReport::new(spec, Outcome::Reference(reason.clone()))));
        report
    }
}

impl Slot {
    /// Pins the current plan, for a layer that is called alone.
    #[must_use]
    pub fn pin(&self) -> PinnedPlan {
        self.shared.plan.load()
    }

    /// The slot's index into its model's plan.
    #[must_use]
    pub(super) fn index(&self) -> usize {
        self.index
    }
}
