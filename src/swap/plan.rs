//! The pure decision: which kernel fills each slot.

use std::sync::Arc;

use super::acquire::Kernels;
use super::attn_implementation::Selected;
use super::group::Group;
use super::report::{GroupOutcome, GroupReport, LayerReport, Outcome, Report};
use super::scope::{self, Held, ModelNumber};
use super::{AttentionPath, Mode, Reason, Slot, SlotSpec};
use crate::bind::{
    ActivationKernel, AddRmsNormKernel, AttentionKernel, AttentionPagedKernel, AttentionVarlenKernel,
    CrossEntropyKernel, EmbeddingKernel, GatedActivationKernel, GatedLinearKernel, LayerKernel, LayerNormKernel,
    LinearKernel, RmsNormKernel, RotaryKernel, SoftmaxKernel,
};
use crate::variant::DeviceKey;

/// What fills each slot. Immutable once published.
#[derive(Debug)]
pub struct Plan {
    /// The model that it was published for.
    model: Option<ModelNumber>,
    mode: Mode,
    kernels: Box<[Option<Arc<LayerKernel>>]>,
    attention: AttentionPath,
    report: Report,
}

impl Plan {
    /// Every layer on its reference code, for one reason.
    pub(super) fn reference(
        specs: &[SlotSpec],
        groups: &[Group],
        device: DeviceKey,
        mode: Mode,
        reason: &Reason,
    ) -> Self {
        let mut report = Report::new(device, mode);
        report.add_unplanned(specs, groups, 0, reason);
        Self { model: None, mode, kernels: vec![None; specs.len()].into(), attention: AttentionPath::Sdpa, report }
    }

    /// Decides for every slot. Pure: equal arguments give equal plans.
    pub(super) fn decide(
        specs: &[SlotSpec],
        groups: &[Group],
        kernels: &Kernels,
        device: DeviceKey,
        mode: Mode,
    ) -> Self {
        let picks = specs.iter().map(|spec| kernels.pick(spec, mode));
        let (mut decisions, mut tried): (Vec<_>, Vec<_>) = picks.map(|pick| (pick.kernel, pick.tried)).unzip();
        let mut report = Report::new(device, mode);
        report.notes = kernels.notes().to_vec();
        // What the report says of a slot that its group decided for: of the whole nothing, of a member where it went.
        let mut by_group: Vec<Option<Option<Outcome>>> = vec![None; specs.len()];
        for group in groups {
            // What was switched off stays off, whatever a fused kernel could do.
            let disabled = group.members.iter().find(|member| matches!(decisions[**member], Err(Reason::Disabled)));
            if let Some(member) = disabled {
                decisions[group.whole] = Err(Reason::MemberDisabled { path: specs[*member].path.clone() });
            }
            if decisions[group.whole].is_ok()
                && let Some(reason) = kernels.overrule(specs, group, mode)
            {
                decisions[group.whole] = Err(reason);
            }
            let outcome = match &decisions[group.whole] {
                Ok(kernel) => {
                    let (into, kernel) = (&specs[group.whole].path, &kernel.meta().identity);
                    for member in &group.members {
                        let outcome = Outcome::Fused { into: into.clone(), kernel: kernel.clone() };
                        by_group[*member] = Some(Some(outcome));
                    }
                    GroupOutcome::Fused(kernel.clone())
                }
                Err(reason) => GroupOutcome::Apart(reason.clone()),
            };
            by_group[group.whole] = Some(None);
            let tried = std::mem::take(&mut tried[group.whole]);
            report.groups.push(GroupReport { tried, ..GroupReport::new(specs, group, outcome) });
        }
        let mut taken = Vec::with_capacity(specs.len());
        for (((spec, decision), tried), by_group) in specs.iter().zip(decisions).zip(tried).zip(by_group) {
            let is_member = matches!(by_group, Some(Some(_)));
            let outcome = by_group.unwrap_or_else(|| {
                Some(match &decision {
                    Ok(kernel) => Outcome::Kernel(kernel.meta().identity.clone()),
                    Err(reason) => Outcome::Reference(reason.clone()),
                })
            });
            taken.push(decision.ok().filter(|_| !is_member));
            report.layers.extend(outcome.map(|outcome| LayerReport { tried, ..LayerReport::new(spec, outcome) }));
        }
        Self { model: None, mode, kernels: taken.into(), attention: AttentionPath::Sdpa, report }
    }

    /// The plan with what the word for the model's attention came to in place of what it had for those layers.
    pub(super) fn with_attention(mut self, selected: &Selected, specs: &[SlotSpec]) -> Self {
        // The report has a line for each slot but the wholes of groups, in the same order.
        let mut lines = self.report.layers.iter_mut().peekable();
        for (spec, slot) in specs.iter().zip(&mut self.kernels) {
            let line = lines.next_if(|line| line.path == spec.path && line.layer == spec.layer);
            let Some(decision) = selected.pick(spec, self.mode) else { continue };
            let Some(line) = line.filter(|line| !matches!(line.outcome, Outcome::Fused { .. })) else { continue };
            // What the mapping's kernel was tried after, and where it rounds, went with it.
            let outcome = match &decision {
                Ok(kernel) => Outcome::Kernel(kernel.meta().identity.clone()),
                Err(reason) => Outcome::Reference(reason.clone()),
            };
            *line = LayerReport::new(spec, outcome);
            *slot = decision.ok().cloned();
        }
        self.attention = selected.path();
        self.report.attention = Some(selected.report().clone());
        self
    }

    /// Which reference code attention layers run that have no kernel.
    #[must_use]
    pub fn attention_path(&self) -> AttentionPath {
        self.attention
    }

    /// The plan as one of the model's.
    pub(super) fn of_model(self, model: ModelNumber) -> Self {
        Self { model: Some(model), ..self }
    }

    /// Runs `work` on this thread under this plan: each layer of its model that is called inside without a plan runs
    /// under it. For the threads that a forward hands work to, which see nothing of the scope that it runs in; without
    /// this, or the plan as an argument, a layer there runs under the plan that is current when it is called.
    ///
    /// # Examples
    /// ```
    /// use std::sync::Arc;
    /// use kernelhub::swap::{Plan, Slots};
    /// use kernelhub::variant::DeviceKey;
    /// use rayon::iter::{IntoParallelIterator as _, ParallelIterator as _};
    ///
    /// let slots = Slots::new(DeviceKey::Cpu);
    /// let same = slots.scope(|plan| {
    ///     let worker = |_| plan.scope(|| slots.scope(|inner| Arc::ptr_eq(plan, inner)));
    ///     (0..8).into_par_iter().all(worker)
    /// });
    /// assert!(same);
    /// ```
    pub fn scope<R>(self: &Arc<Self>, work: impl FnOnce() -> R) -> R {
        match self.model {
            Some(model) => scope::enter(model, Held::Handed(Arc::clone(self)), |_| work()),
            // Never published: no layer is planned by it.
            None => work(),
        }
    }

    /// What the plan was made for.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Which kernel took each layer, or why none did.
    #[must_use]
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Number of slots that it decides for.
    pub(super) fn slots(&self) -> usize {
        self.kernels.len()
    }

    /// Whether the slot is one of the model that the plan was published for. Another model's slot has no kernel here: a
    /// host refuses a forward that was handed the plan of another model.
    #[must_use]
    #[inline]
    pub fn is_for(&self, slot: &Slot) -> bool {
        self.model == Some(slot.model())
    }

    /// The kernel of a slot, whatever its contract; `None`: run the reference code. The slot of a group has one only
    /// where the plan gives its members to it, and its members then have none.
    #[must_use]
    #[inline]
    pub fn kernel(&self, slot: &Slot) -> Option<&LayerKernel> {
        self.shared_kernel(slot).map(Arc::as_ref)
    }

    /// As [`Self::kernel`], for a call that outlives the forward, such as an operation whose backward comes later.
    #[must_use]
    #[inline]
    pub fn shared_kernel(&self, slot: &Slot) -> Option<&Arc<LayerKernel>> {
        if !self.is_for(slot) {
            return None;
        }
        self.kernels.get(slot.index())?.as_ref()
    }
}

/// The kernels of slots by contract family.
macro_rules! faces {
    ($($method:ident: $variant:ident($face:ident), $slot:literal;)*) => {
        impl Plan {
            $(
                #[doc = concat!("The kernel of ", $slot, " slot; `None`: run the reference code.")]
                #[must_use]
                #[inline]
                pub fn $method(&self, slot: &Slot) -> Option<&$face> {
                    match self.kernel(slot)? {
                        LayerKernel::$variant(kernel) => Some(kernel),
                        _ => None,
                    }
                }
            )*
        }
    };
}

faces! {
    rms_norm: RmsNorm(RmsNormKernel), "an RMSNorm";
    add_rms_norm: AddRmsNorm(AddRmsNormKernel), "a fused residual add and RMSNorm";
    layer_norm: LayerNorm(LayerNormKernel), "a LayerNorm";
    rotary: Rotary(RotaryKernel), "a rotary";
    activation: Activation(ActivationKernel), "an activation";
    gated_activation: GatedActivation(GatedActivationKernel), "a gated activation";
    softmax: Softmax(SoftmaxKernel), "a softmax";
    attention: Attention(AttentionKernel), "an attention";
    attention_varlen: AttentionVarlen(AttentionVarlenKernel), "a varlen attention";
    attention_paged: AttentionPaged(AttentionPagedKernel), "a paged attention";
    linear: Linear(LinearKernel), "a linear";
    gated_linear: GatedLinear(GatedLinearKernel), "a gated linear";
    embedding: Embedding(EmbeddingKernel), "an embedding";
    cross_entropy: CrossEntropy(CrossEntropyKernel), "a cross-entropy";
}

/// Why `kernel` cannot take the slot, or `None`.
///
/// What the kernel says of itself beats the mapping: one that was registered for training and has no backward takes no
/// layer in training.
pub(super) fn fits(spec: &SlotSpec, kernel: &LayerKernel, mode: Mode) -> Option<Reason> {
    let meta = kernel.meta();
    let kernel = meta.identity.to_string();
    if meta.contract != spec.contract {
        return Some(Reason::Contract { kernel, expected: spec.contract.as_str(), actual: meta.contract.as_str() });
    }
    if !meta.dtypes.contains(&spec.dtype) {
        return Some(Reason::Dtype { kernel, actual: spec.dtype, supported: meta.dtypes.clone() });
    }
    if let Some(limit) = meta.width_limit(spec.last_dim) {
        return Some(Reason::Limit { kernel, limit });
    }
    if mode.is_compiled() && !meta.can_compile {
        return Some(Reason::NotCompilable { kernel });
    }
    if let Some(option) = meta.lacks(&spec.options) {
        return Some(Reason::Option { kernel, option: option.to_owned(), in_backward: false });
    }
    let needs_gradient = mode.is_training() || spec.trainable;
    if needs_gradient && !meta.has_backward {
        return Some(Reason::NoBackward { kernel, trainable: spec.trainable });
    }
    if let Some(option) = meta.backward_lacks(&spec.options).filter(|_| needs_gradient) {
        return Some(Reason::Option { kernel, option: option.to_owned(), in_backward: true });
    }
    None
}
