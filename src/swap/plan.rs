//! The pure decision: which kernel fills each slot.

use std::sync::Arc;

use super::acquire::{Kernels, Pick};
use super::report::{LayerReport, Outcome, Reason, Report};
use super::{Mode, Slot, SlotSpec};
use crate::bind::{AttentionKernel, GatedActivationKernel, LayerKernel, RmsNormKernel, RotaryKernel};
use crate::variant::DeviceKey;

/// What fills each slot. Immutable once published.
#[derive(Debug)]
pub struct Plan {
    mode: Mode,
    kernels: Box<[Option<Arc<LayerKernel>>]>,
    report: Report,
}

impl Plan {
    /// Every layer on its reference code, for one reason.
    pub(super) fn reference(specs: &[SlotSpec], device: DeviceKey, mode: Mode, reason: &Reason) -> Self {
        let layers = specs.iter().map(|spec| LayerReport::new(spec, Outcome::Reference(reason.clone()))).collect();
        let report = Report { device, mode, layers, notes: Vec::new() };
        Self { mode, kernels: vec![None; specs.len()].into(), report }
    }

    /// Decides for every slot. Pure: equal arguments give equal plans.
    pub(super) fn decide(specs: &[SlotSpec], kernels: &Kernels, device: DeviceKey, mode: Mode) -> Self {
        let mut taken = Vec::with_capacity(specs.len());
        let mut layers = Vec::with_capacity(specs.len());
        for spec in specs {
            let Pick { kernel, tried } = kernels.pick(spec, mode);
            let outcome = match &kernel {
                Ok(kernel) => Outcome::Kernel(kernel.meta().identity.clone()),
                Err(reason) => Outcome::Reference(reason.clone()),
            };
            taken.push(kernel.ok());
            layers.push(LayerReport { tried, ..LayerReport::new(spec, outcome) });
        }
        let report = Report { device, mode, layers, notes: kernels.notes().to_vec() };
        Self { mode, kernels: taken.into(), report }
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
