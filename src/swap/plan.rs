//! The pure decision: which kernel fills each slot.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::report::{LayerReport, Outcome, Reason, Report};
use super::{Mode, Slot, SlotSpec};
use crate::bind::{
    ActivationKernel, AddRmsNormKernel, AttentionKernel, AttentionPagedKernel, AttentionVarlenKernel,
    CrossEntropyKernel, EmbeddingKernel, GatedActivationKernel, LayerKernel, LayerNormKernel, LinearKernel,
    RmsNormKernel, RotaryKernel,
};
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
    mode: Mode,
    kernels: Box<[Option<Arc<LayerKernel>>]>,
    report: Report,
}

impl Plan {
    /// Every layer on its reference code.
    pub(super) fn reference(specs: &[SlotSpec], device: DeviceKey, mode: Mode) -> Self {
        let layers = specs.iter().map(|spec| LayerReport::new(spec, Outcome::Reference(Reason::KernelsOff))).collect();
        Self { mode, kernels: vec![None; specs.len()].into(), report: Report { device, mode, layers } }
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
        Self { mode, kernels: kernels.into(), report: Report { device, mode, layers } }
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
}

/// The kernels of slots by contract family.
macro_rules! faces {
    ($($method:ident: $variant:ident($face:ident), $slot:literal;)*) => {
        impl Plan {
            $(
                #[doc = concat!("The kernel of ", $slot, " slot; `None`: run the reference code.")]
                #[must_use]
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
    attention: Attention(AttentionKernel), "an attention";
    attention_varlen: AttentionVarlen(AttentionVarlenKernel), "a varlen attention";
    attention_paged: AttentionPaged(AttentionPagedKernel), "a paged attention";
    linear: Linear(LinearKernel), "a linear";
    embedding: Embedding(EmbeddingKernel), "an embedding";
    cross_entropy: CrossEntropy(CrossEntropyKernel), "a cross-entropy";
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
    if let Some(option) = meta.lacks(&spec.options) {
        return Some(Reason::Option { kernel, option: option.to_owned(), in_backward: false });
    }
    let needs_gradient = mode == Mode::Training || spec.trainable;
    if needs_gradient && !meta.has_backward {
        return Some(Reason::NoBackward { kernel, trainable: spec.trainable });
    }
    if let Some(option) = meta.backward_lacks(&spec.options).filter(|_| needs_gradient) {
        return Some(Reason::Option { kernel, option: option.to_owned(), in_backward: true });
    }
    if needs_gradient {
        // Hosts of this version differentiate through their reference code alone.
        return Some(Reason::BackwardNotCalled { kernel });
    }
    None
}
