//! A model's slots and the plan that fills them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::{ArcSwap, Guard};

use super::group::Group;
use super::scope::{self, Held, ModelNumber};
use super::state::{Active, InForce, State};
use super::{AttnImplementation, GroupSpec, KernelConfig, KernelProvider, Mode, Plan, Reason, Report, SwapError};
use crate::bind::{Contract, Rounding};
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
    /// Optional parameters of the contract, such as `offset`, that the layer passes other values for than their
    /// defaults. A kernel that does not take one of them cannot take the layer.
    pub options: Vec<&'static str>,
    /// Where the layer's reference code rounds in inference. The report tells where a kernel rounds elsewhere.
    pub rounding: Rounding,
}

/// One model's slots, and the plan that all of its layers read. A cheap handle: clones share the slots.
#[derive(Debug, Clone)]
pub struct Slots {
    pub(super) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(super) struct Shared {
    number: ModelNumber,
    pub(super) device: DeviceKey,
    state: Mutex<State>,
    plan: ArcSwap<Plan>,
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

    /// The slot at an index of [`State::specs`].
    pub(super) fn slot(self: &Arc<Self>, index: usize) -> Slot {
        Slot { index, shared: Arc::clone(self) }
    }

    pub(super) fn publish(&self, plan: Plan) -> Report {
        let plan = plan.of_model(self.number);
        let report = plan.report().clone();
        self.plan.store(Arc::new(plan));
        report
    }
}

impl Slots {
    /// No slots yet, on one kind of device, in inference mode; every layer runs its reference code.
    #[must_use]
    pub fn new(device: DeviceKey) -> Self {
        let number = ModelNumber::new();
        let plan = Plan::reference(&[], &[], device, Mode::default(), &Reason::KernelsOff).of_model(number);
        let shared = Shared { number, device, state: Mutex::default(), plan: ArcSwap::from_pointee(plan) };
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
        let index = self.shared.state().add(spec);
        self.shared.slot(index)
    }

    /// Adds the slot of a group: layers that one kernel may take together. Called once by the host layer that spans
    /// them, after their own slots were claimed. Under a plan that gives this slot a kernel, the members have none.
    ///
    /// # Errors
    /// [`SwapError::Group`] when there is no member, or one is of another model, stands twice or is in another group.
    pub fn group(&self, spec: GroupSpec) -> Result<Slot, SwapError> {
        Group::claim(&self.shared, spec)
    }

    /// Pins the current plan. A model does so once per forward and hands it to every layer.
    #[must_use]
    pub fn pin(&self) -> PinnedPlan {
        self.shared.plan.load()
    }

    /// Pins the current plan for everything that this thread runs inside `forward`: each layer of this model that is
    /// called there without a plan runs under the one that `forward` is given. Inside a scope of this model already,
    /// `forward` runs under that scope's plan, so that a forward inside a forward is part of it.
    ///
    /// A scope is this thread's alone. A layer that `forward` runs on another thread, such as a rayon worker, pins for
    /// itself there, unless it is given the plan or run inside [`Plan::scope`].
    ///
    /// # Examples
    /// ```
    /// use kernelhub::swap::{Mode, Slots};
    /// use kernelhub::variant::DeviceKey;
    ///
    /// let slots = Slots::new(DeviceKey::Cpu);
    /// let modes = slots.scope(|plan| {
    ///     // Published now, and in force from the next forward on.
    ///     slots.set_mode(Mode::Training);
    ///     (plan.mode(), slots.scope(|plan| plan.mode()))
    /// });
    /// assert_eq!(modes, (Mode::Inference, Mode::Inference));
    /// assert_eq!(slots.scope(|plan| plan.mode()), Mode::Training);
    /// ```
    pub fn scope<R>(&self, forward: impl FnOnce(&Arc<Plan>) -> R) -> R {
        let number = self.shared.number;
        scope::with_current(number, forward)
            .unwrap_or_else(|forward| scope::enter(number, Held::Pinned(self.pin()), forward))
    }

    /// Gives the model's layers the kernels of `config`, for the current mode and for later changes of mode, and
    /// returns what became of every layer. All or nothing: on an error the model keeps the plan that it had.
    ///
    /// # Errors
    /// [`SwapError::UnknownLayer`] and [`SwapError::UnknownPath`] for a configured layer that the model lacks,
    /// [`SwapError::Kernel`] and [`SwapError::NoneOf`] for a kernel that cannot be had,
    /// [`SwapError::ContractMismatch`], [`SwapError::AmbiguousPath`], and [`SwapError::NothingSwapped`] when the
    /// configuration is not empty, the mode is inference and no kernel took a layer; a configuration that only disables
    /// layers is met by that.
    pub fn use_kernels(&self, provider: &dyn KernelProvider, config: &KernelConfig) -> Result<Report, SwapError> {
        let device = self.shared.device;
        let mut state = self.shared.state();
        let (in_force, plan) = state.acquire(provider, config.clone(), device)?;
        state.set_in_force(in_force);
        Ok(self.shared.publish(plan))
    }

    /// Decides how the model's attention layers attend, for the current mode and for later changes of mode, and returns
    /// what became of every layer. It takes the place of what a mapping says for those layers, until it is called
    /// again, [`Self::use_kernels`] is given a configuration with a word of its own, or kernels are disabled; the words
    /// are told at [`AttnImplementation`]. All or nothing: on an error the model keeps the plan that it had.
    ///
    /// # Errors
    /// [`SwapError::Attention`] when the model has no attention layer, when the word names no kernel for the model's
    /// device, or when its kernel cannot do what a layer needs (head size, element type, window, softcap, packed
    /// sequences, a paged cache); [`SwapError::AttentionKernel`] when its kernel cannot be had. `auto` passes over what
    /// fails so, and the report says why.
    pub fn use_attention(
        &self,
        implementation: &AttnImplementation,
        provider: &dyn KernelProvider,
    ) -> Result<Report, SwapError> {
        let mut state = self.shared.state();
        state.attend(implementation, provider, self.shared.device)?;
        Ok(self.shared.publish(state.plan(state.in_force(), self.shared.device)))
    }

    /// Returns every layer to its reference code and forgets the kernels, and how the model was to attend.
    #[expect(clippy::must_use_candidate, reason = "the report is for those who want it")]
    pub fn disable_kernels(&self) -> Report {
        let mut state = self.shared.state();
        state.set_in_force(InForce::off(Reason::KernelsOff));
        self.shared.publish(state.plan(state.in_force(), self.shared.device))
    }

    /// Plans again for `mode`. Nothing is loaded: the kernels of every mode were acquired by [`Self::use_kernels`].
    #[expect(clippy::must_use_candidate, reason = "the report is for those who want it")]
    pub fn set_mode(&self, mode: Mode) -> Report {
        self.change_mode(|_| mode)
    }

    /// Plans again for training: layers keep only kernels that have a backward. Whether the model is compiled stays.
    pub fn train(&self) -> Report {
        self.change_mode(Mode::training)
    }

    /// Plans again for inference. Whether the model is compiled stays.
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
        self.shared.publish(state.plan(state.in_force(), self.shared.device))
    }

    /// What runs every layer now: the report of the current plan, and the reference code of slots that were added after
    /// it was made.
    #[must_use]
    pub fn report(&self) -> Report {
        let state = self.shared.state();
        let plan = self.pin();
        let mut report = plan.report().clone();
        let reason = match &state.in_force().kernels {
            Active::On(_) => Reason::NotPlanned,
            Active::Off(reason) => reason.clone(),
        };
        report.add_unplanned(&state.specs, &state.groups, plan.slots(), &reason);
        report
    }
}

impl Slot {
    /// Pins the current plan, whatever scope the thread is in.
    #[must_use]
    #[inline]
    pub fn pin(&self) -> PinnedPlan {
        self.shared.plan.load()
    }

    /// Runs `forward` under the plan of the thread's scope of this model ([`Slots::scope`]), or where there is none,
    /// under the one that is current now. What a layer that takes no plan runs its forward in.
    #[inline]
    pub fn with_plan<R>(&self, forward: impl FnOnce(&Plan) -> R) -> R {
        let forward = |plan: &Arc<Plan>| forward(plan);
        scope::with_current(self.shared.number, forward).unwrap_or_else(|forward| forward(&self.pin()))
    }

    /// Whether it is a slot of this model.
    pub(super) fn is_of(&self, model: &Arc<Shared>) -> bool {
        Arc::ptr_eq(&self.shared, model)
    }

    /// The number of its model.
    #[inline]
    pub(super) fn model(&self) -> ModelNumber {
        self.shared.number
    }

    /// The slot's index into its model's plan.
    #[must_use]
    #[inline]
    pub(super) fn index(&self) -> usize {
        self.index
    }
}
