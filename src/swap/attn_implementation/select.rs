//! From a word to the kernels of a model's attention layers.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::rules::{self, Refusal};
use super::{AttentionCapability, AttentionPath, AttentionReport, AttnImplementation, AttnKind, PassedOver};
use crate::bind::{Contract, LayerKernel};
use crate::swap::plan::fits;
use crate::swap::{KernelProvider, KernelRef, Mode, Reason, SlotSpec, SwapError};
use crate::variant::DeviceKey;

/// The kernel that the application's own configuration names for an attention layer, where it does.
pub(in crate::swap) type Mapped<'a> = &'a dyn Fn(&SlotSpec) -> Option<KernelRef>;

/// What a word came to. Made once, and laid over every plan of the model.
#[derive(Debug)]
pub(in crate::swap) struct Selected {
    path: AttentionPath,
    /// By the name of the model's layer and its contract's.
    kernels: BTreeMap<(String, &'static str), Arc<LayerKernel>>,
    report: AttentionReport,
}

/// A model's attention layers, and where their kernels come from.
struct Search<'a> {
    specs: Vec<&'a SlotSpec>,
    implementation: &'a AttnImplementation,
    provider: &'a dyn KernelProvider,
    device: DeviceKey,
}

impl Selected {
    /// The reference code of attention layers that no kernel takes.
    pub(in crate::swap) fn path(&self) -> AttentionPath {
        self.path
    }

    /// Whether no kernel takes a layer.
    pub(in crate::swap) fn is_reference(&self) -> bool {
        self.kernels.is_empty()
    }

    /// For the plan's report.
    pub(in crate::swap) fn report(&self) -> &AttentionReport {
        &self.report
    }

    /// What takes a slot in a mode; `None`: the slot is no attention's.
    pub(in crate::swap) fn pick(&self, spec: &SlotSpec, mode: Mode) -> Option<Result<&Arc<LayerKernel>, Reason>> {
        if !is_attention(spec.contract) {
            return None;
        }
        let Some(kernel) = self.kernels.get(&(spec.layer.clone(), spec.contract.as_str())) else {
            return Some(Err(Reason::Attention { chosen: self.report.chosen.clone() }));
        };
        Some(fits(spec, kernel, mode).map_or(Ok(kernel), Err))
    }
}

pub(in crate::swap) fn is_attention(contract: Contract) -> bool {
    matches!(contract, Contract::Attention | Contract::AttentionVarlen | Contract::AttentionPaged)
}

/// What `implementation` comes to for a model on `device`.
///
/// `mapped` is asked for the words that name a generation, whose kernel an application's configuration may replace, and
/// for `auto`, which tries what is mapped first.
///
/// # Errors
/// [`SwapError::Attention`] when the model has no layer for it, an explicit word names no kernel on the device, or its
/// kernel cannot do what a layer needs; [`SwapError::AttentionKernel`] when its kernel cannot be had. `auto` fails for
/// the first of these alone.
pub(in crate::swap) fn select(
    implementation: &AttnImplementation,
    specs: &[SlotSpec],
    provider: &dyn KernelProvider,
    device: DeviceKey,
    mapped: Mapped<'_>,
) -> Result<Selected, SwapError> {
    let specs: Vec<_> = specs.iter().filter(|spec| is_attention(spec.contract)).collect();
    let search = Search { specs, implementation, provider, device };
    if search.specs.is_empty() {
        return Err(search.refuse("the model has no attention layer".to_owned(), None));
    }
    if implementation.paged && !search.specs.iter().any(|spec| spec.contract == Contract::AttentionPaged) {
        let hint = "leave \"paged|\" out, or build the model with a layer for a paged cache".to_owned();
        return Err(search.refuse("the model has no attention layer for a paged cache".to_owned(), Some(hint)));
    }
    if let Some(switch) = provider.switched_off() {
        match &implementation.kind {
            AttnKind::Kernel(_) | AttnKind::Flash(_) => return Err(search.refuse(switch.to_owned(), None)),
            AttnKind::Auto => {
                let off = PassedOver { candidate: "every kernel".to_owned(), reason: switch.to_owned() };
                return Ok(search.reference(AttentionPath::Sdpa, vec![off]));
            }
            AttnKind::Eager | AttnKind::Sdpa => {}
        }
    }
    match &implementation.kind {
        AttnKind::Eager => Ok(search.reference(AttentionPath::Eager, Vec::new())),
        AttnKind::Sdpa => Ok(search.reference(AttentionPath::Sdpa, Vec::new())),
        AttnKind::Kernel(kernel) => search.kernel(kernel, None, Vec::new()),
        AttnKind::Flash(generation) => {
            if let Some(kernel) = search.mapped(mapped) {
                return search.kernel(&kernel, None, Vec::new());
            }
            let name = rules::flash(*generation, device)
                .map_err(|Refusal { reason, hint }| search.refuse(reason, Some(hint)))?;
            search.kernel(&known(name)?, Some(&rules::advice(device)), Vec::new())
        }
        AttnKind::Auto => Ok(search.best(mapped)),
    }
}

/// A name out of the rules, which their test holds to be a kernel's.
fn known(name: &str) -> Result<KernelRef, SwapError> {
    name.parse().map_err(|error: crate::swap::KernelRefError| {
        SwapError::config("the table of attention kernels", name, error.to_string(), None)
    })
}

impl Search<'_> {
    fn refuse(&self, reason: String, hint: Option<String>) -> SwapError {
        SwapError::Attention { implementation: self.implementation.to_string(), reason, hint }
    }

    fn mapped(&self, mapped: Mapped<'_>) -> Option<KernelRef> {
        self.specs.iter().find_map(|spec| mapped(spec))
    }

    fn reference(&self, path: AttentionPath, passed_over: Vec<PassedOver>) -> Selected {
        let kind = if path == AttentionPath::Eager { AttnKind::Eager } else { AttnKind::Sdpa };
        let chosen = AttnImplementation { kind, paged: self.implementation.paged }.to_string();
        let report =
            AttentionReport { requested: self.implementation.clone(), chosen, passed_over, kernels: Vec::new() };
        Selected { path, kernels: BTreeMap::new(), report }
    }

    /// The best kernel that there is and that can do what every layer needs.
    fn best(&self, mapped: Mapped<'_>) -> Selected {
        let mut passed_over = Vec::new();
        let mapped = self.mapped(mapped).map(|kernel| (kernel.to_string(), Ok(kernel)));
        let mut candidates: Vec<_> = mapped.into_iter().collect();
        for (name, kernel) in rules::candidates(self.device) {
            candidates.push((name, kernel.map(known).map_or_else(Err, |kernel| kernel.map_err(|e| e.to_string()))));
        }
        for (candidate, kernel) in candidates {
            let reason = match kernel {
                Err(reason) => reason,
                Ok(kernel) => match self.kernel(&kernel, None, passed_over.clone()) {
                    Ok(selected) => return selected,
                    Err(error) => causes(&error),
                },
            };
            passed_over.push(PassedOver { candidate, reason });
        }
        self.reference(AttentionPath::Sdpa, passed_over)
    }

    /// `reference` for every attention layer. Its layer, where it names one, is for the layers of that contract, and
    /// the others keep their reference code; else the kernel serves each by the name that the model gives it.
    fn kernel(
        &self,
        reference: &KernelRef,
        advice: Option<&str>,
        passed_over: Vec<PassedOver>,
    ) -> Result<Selected, SwapError> {
        let mut kernels = BTreeMap::new();
        for spec in &self.specs {
            let key = (spec.layer.clone(), spec.contract.as_str());
            if kernels.contains_key(&key) {
                continue;
            }
            let wanted = reference.layer.as_deref().unwrap_or(&spec.layer);
            let kernel =
                self.provider.provide(reference, wanted, self.device).map_err(|source| SwapError::AttentionKernel {
                    implementation: self.implementation.to_string(),
                    kernel: format!("{reference}"),
                    advice: advice.map(str::to_owned),
                    source,
                })?;
            let actual = kernel.meta().contract;
            if actual == spec.contract {
                kernels.insert(key, kernel);
            } else if reference.layer.is_none() || !is_attention(actual) {
                let reason = format!(
                    "{} fulfils the contract {actual}; {} needs {}",
                    kernel.meta().identity,
                    spec.path,
                    spec.contract
                );
                return Err(self.refuse(reason, None));
            }
        }
        let paged = |(_, contract): &&(String, &str)| *contract == Contract::AttentionPaged.as_str();
        if kernels.is_empty() || (self.implementation.paged && !kernels.keys().any(|key| paged(&key))) {
            let what = if self.implementation.paged {
                "no layer of the model over a paged cache"
            } else {
                "none of the model's attention layers"
            };
            return Err(self.refuse(
                format!("{reference} is for {what}"),
                Some("leave the function out, so that each layer gets the one for it".to_owned()),
            ));
        }
        for spec in &self.specs {
            let Some(kernel) = kernels.get(&(spec.layer.clone(), spec.contract.as_str())) else { continue };
            // A gradient is no matter of the kernel's choice: where it has no backward, plans for training say so.
            if let Some(reason) = fits(spec, kernel, Mode::Inference).filter(|reason| !reason.is_for_gradients()) {
                return Err(self.refuse(
                    format!("{}: {reason}", spec.path),
                    Some("use auto or sdpa, or a kernel that can do this".to_owned()),
                ));
            }
        }
        let report = AttentionReport {
            requested: self.implementation.clone(),
            chosen: reference.to_string(),
            passed_over,
            kernels: kernels.values().filter_map(|kernel| AttentionCapability::of(kernel.meta())).collect(),
        };
        Ok(Selected { path: AttentionPath::Sdpa, kernels, report })
    }
}

/// An error with all of its causes in one line.
fn causes(error: &SwapError) -> String {
    let mut line = match error {
        SwapError::Attention { reason, .. } => reason.clone(),
        error => error.to_string(),
    };
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        let text = error.to_string();
        // A transparent wrapper repeats its cause's words.
        if !line.ends_with(&text) {
            line = format!("{line}: {text}");
        }
        cause = error.source();
    }
    line
}
