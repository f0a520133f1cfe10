//! The pure decision: which kernel fills each slot.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::report::{LayerReport, Outcome, Reason, Report};
use super::scope::{self, Held, ModelNumber};
use super::{Mode, Slot, SlotSpec};
use crate::bind::{AttentionKernel, GatedActivationKernel, LayerKernel, RmsNormKernel, RotaryKernel};
use crate::variant::DeviceKey;

/// What the configuration and the provider gave for one layer name in one mode.
#[derive(Debug, Clone)]
pub(super) enum Pick {
    Kernel(Arc<LayerKernel>),
    Disabled,
    NotMapped,
}

/// Every kernel that the configuration names for the model's device, by layer name and mode.
#[derive(Debug, Default)]
pub(super) struct Picks {
    pub(super) by_layer: BTreeMap<(String, Mode), Pick>,
}

impl Picks {
    /// Whether the configuration switches layers off for `mode`, and asks for no kernel.
    pub(super) fn only_disables(&self, mode: Mode) -> bool {
        let of_mode = || self.by_layer.iter().filter(|((_, of), _)| *of == mode).map(|(_, pick)| pick);
        of_mode().any(|pick| matches!(pick, Pick::Disabled)) && !of_mode().any(|pick| matches!(pick, Pick::Kernel(_)))
    }
}

/// What fills each slot. Immutable once published.
#[derive(Debug)]
pub struct Plan {
    /// The model that it was published for.
    model: Option<ModelNumber>,
    mode: Mode,
    kernels: Box<[Option<Arc<LayerKernel>>]>,
    report: Report,
}

impl Plan {
    /// Every layer on its reference code.
    pub(super) fn reference(specs: &[SlotSpec], device: DeviceKey, mode: Mode) -> Self {
        let layers = specs.iter().map(|spec| LayerReport::new(spec, Outcome::Reference(Reason::KernelsOff))).collect();
        Self { model: None, mode, kernels: vec![None; specs.len()].into(), report: Report { device, mode, layers } }
    }

    /// Decides for every slot. Pure: equal arguments give equal plans.
    pub(super) fn decide(specs: &[SlotSpec], picks: &Picks, device: DeviceKey, mode: Mode) -> Self {
        let mut kernels = Vec::with_capacity(specs.len());
        let mut layers = Vec::with_capacity(specs.len());
        for spec in specs {
            let pick = picks.by_layer.get(&(spec.layer.clone(), mode)).unwrap_or(&Pick::NotMapped);
            let decision = match pick {
                Pick::NotMapped => Err(Reason::NotMapped { device }),
                Pick::Disabled => Err(Reason::Disabled),
                Pick::Kernel(kernel) => fits(spec, kernel, mode).map_or_else(|| Ok(Arc::clone(kernel)), Err),
            };
            let outcome = match &decision {
                Ok(kernel) => Outcome::Kernel(kernel.meta().identity.clone()),
                Err(reason) => Outcome::Reference(reason.clone()),
            };
            kernels.push(decision.ok());
            layers.push(LayerReport::new(spec, outcome));
        }
        Self { model: None, mode, kernels: kernels.into(), report: Report { device, mode, layers } }
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

    fn kernel(&self, slot: &Slot) -> Option<&LayerKernel> {
        self.kernels.get(slot.index())?.as_deref()
    }

    /// The kernel of an RMSNorm slot; `None`: run the reference code.
    #[must_use]
    pub fn rms_norm(&self, slot: &Slot) -> Option<&RmsNormKernel> {
        match self.kernel(slot)? {
            LayerKernel::RmsNorm(kernel) => Some(kernel),
            _ => None,
        }
    }

    /// The kernel of a rotary slot; `None`: run the reference code.
    #[must_use]
    pub fn rotary(&self, slot: &Slot) -> Option<&RotaryKernel> {
        match self.kernel(slot)? {
            LayerKernel::Rotary(kernel) => Some(kernel),
            _ => None,
        }
    }

    /// The kernel of a gated activation slot; `None`: run the reference code.
    #[must_use]
    pub fn gated_activation(&self, slot: &Slot) -> Option<&GatedActivationKernel> {
        match self.kernel(slot)? {
            LayerKernel::GatedActivation(kernel) => Some(kernel),
            _ => None,
        }
    }

    /// The kernel of an attention slot; `None`: run the reference code.
    #[must_use]
    pub fn attention(&self, slot: &Slot) -> Option<&AttentionKernel> {
        match self.kernel(slot)? {
            LayerKernel::Attention(kernel) => Some(kernel),
            _ => None,
        }
    }
}

/// Why `kernel` cannot take the slot, or `None`.
fn fits(spec: &SlotSpec, kernel: &LayerKernel, mode: Mode) -> Option<Reason> {
    let meta = kernel.meta();
    let kernel = meta.identity.to_string();
    if !meta.dtypes.contains(&spec.dtype) {
        return Some(Reason::Dtype { kernel, actual: spec.dtype, supported: meta.dtypes.clone() });
    }
    if let Some(limit) = meta.width_limit(spec.last_dim) {
        return Some(Reason::Limit { kernel, limit });
    }
    if mode.is_compiled() && !meta.can_compile {
        return Some(Reason::NotCompilable { kernel });
    }
    let needs_gradient = mode.is_training() || spec.trainable;
    if needs_gradient && !meta.has_backward {
        return Some(Reason::NoBackward { kernel, trainable: spec.trainable });
    }
    if needs_gradient {
        // Hosts of this version differentiate through their reference code alone.
        return Some(Reason::BackwardNotCalled { kernel });
    }
    None
}
