//! Every kernel that a configuration names for a model's layers, brought up before anything is planned.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::config::LookUp;
use super::fusion::Fusions;
use super::group::Group;
use super::plan::fits;
use super::report::Tried;
use super::{
    Choice, KernelConfig, KernelProvider, KernelRef, Mode, PathPattern, ProvideError, Reason, SlotSpec, SwapError,
    Target,
};
use crate::bind::LayerKernel;
use crate::hint::Hint as _;

/// A configuration with its kernels: all that planning needs.
#[derive(Debug)]
pub(super) struct Kernels {
    config: Arc<KernelConfig>,
    fusions: Arc<Fusions>,
    target: Target,
    /// By kernel and by the layer in it; the text says why it cannot be had.
    had: BTreeMap<KernelRef, BTreeMap<String, Result<Arc<LayerKernel>, String>>>,
    notes: Vec<String>,
}

/// What became of one slot's look-up.
pub(super) struct Pick {
    pub(super) kernel: Result<Arc<LayerKernel>, Reason>,
    /// The kernels of a list that came before, and why they did not take the layer.
    pub(super) tried: Vec<Tried>,
}

/// The kernel of the default table that could not be had first, for an application that got none at all.
pub(super) type FirstFailure = Option<SwapError>;

impl Kernels {
    /// Asks the provider for the kernels of every mode, so that a change of mode loads nothing.
    pub(super) fn acquire(
        specs: &[SlotSpec],
        groups: &[Group],
        provider: &dyn KernelProvider,
        config: KernelConfig,
        target: Target,
    ) -> Result<(Self, FirstFailure), SwapError> {
        let fusions = Arc::new(check(specs, groups, &config)?);
        let config = Arc::new(config);
        let store = BTreeMap::new();
        let kernels =
            Self { config: Arc::clone(&config), fusions: Arc::clone(&fusions), target, had: store, notes: Vec::new() };
        let mut acquiring = Acquiring { provider, kernels, first_failure: None };
        let by_path = config.goes_by_path();
        // Most layers of a model are alike.
        let mut kinds = BTreeSet::new();
        for spec in specs {
            let path = (by_path || fusions.is_for(spec)).then_some(spec.path.as_str());
            let kind = (
                &spec.layer,
                path,
                spec.contract.as_str(),
                spec.dtype.as_str(),
                spec.last_dim,
                spec.trainable,
                &spec.options,
            );
            if !kinds.insert(kind) {
                continue;
            }
            for mode in Mode::ALL {
                acquiring.look_up(spec, mode)?;
            }
        }
        let Acquiring { mut kernels, first_failure, .. } = acquiring;
        kernels.notes = notes(&kernels, provider);
        Ok((kernels, first_failure))
    }

    /// What a report of a plan with these kernels must say beside its layers.
    pub(super) fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The configuration.
    pub(super) fn config(&self) -> &Arc<KernelConfig> {
        &self.config
    }

    /// The kernel that the application's own configuration names for a layer, not the default table; of a list the first.
    pub(super) fn own_kernel(&self, spec: &SlotSpec, mode: Mode) -> Option<KernelRef> {
        match self.config.look_up(&spec.layer, Some(&spec.path), self.target, mode) {
            LookUp::Choice { choice, is_default: false } => choice.kernels().first().cloned(),
            _ => None,
        }
    }

    /// Whether all that is configured for these layers in this mode is that they take no kernel.
    pub(super) fn only_disables(&self, specs: &[SlotSpec], mode: Mode) -> bool {
        let mut disables = false;
        for spec in specs {
            match self.fusions.look_up(&self.config, spec, self.target, mode) {
                LookUp::Choice { choice: Choice::Disabled, .. } => disables = true,
                LookUp::NotMapped => {}
                _ => return false,
            }
        }
        disables
    }

    /// What takes a slot in a mode. Pure.
    pub(super) fn pick(&self, spec: &SlotSpec, mode: Mode) -> Pick {
        let device = self.target.device;
        let reference = |reason| Pick { kernel: Err(reason), tried: Vec::new() };
        let choice = match self.fusions.look_up(&self.config, spec, self.target, mode) {
            LookUp::NotMapped => return reference(Reason::NotMapped { device }),
            LookUp::NeedsCapability => return reference(Reason::CapabilityUnknown { device }),
            LookUp::BadDefault(fault) => return reference(Reason::BadDefault { fault: fault.to_owned() }),
            LookUp::Choice { choice, .. } => choice,
        };
        let (mut tried, mut last) = (Vec::new(), Reason::Disabled);
        for (at, reference) in choice.kernels().iter().enumerate() {
            if at > 0 {
                tried.push(Tried { kernel: choice.kernels()[at - 1].to_string(), reason: last.to_string() });
            }
            last = match self.get(reference, spec) {
                // A slot that was added later, of a kind that was not there.
                None => Reason::NotPlanned,
                Some(Err(cause)) => Reason::Unavailable { kernel: reference.to_string(), cause: cause.clone() },
                Some(Ok(kernel)) => match fits(spec, kernel, mode) {
                    None => return Pick { kernel: Ok(Arc::clone(kernel)), tried },
                    Some(reason) => reason,
                },
            };
        }
        Pick { kernel: Err(last), tried }
    }

    fn get(&self, reference: &KernelRef, spec: &SlotSpec) -> Option<&Result<Arc<LayerKernel>, String>> {
        self.had.get(reference)?.get(wanted(reference, spec))
    }
}

/// The layer in the kernel.
fn wanted<'a>(reference: &'a KernelRef, spec: &'a SlotSpec) -> &'a str {
    reference.layer.as_deref().unwrap_or(&spec.layer)
}

struct Acquiring<'a> {
    provider: &'a dyn KernelProvider,
    kernels: Kernels,
    first_failure: FirstFailure,
}

impl Acquiring<'_> {
    /// Brings up what one kind of slot may take in one mode. What an application configured must be had; of a list, one.
    fn look_up(&mut self, spec: &SlotSpec, mode: Mode) -> Result<(), SwapError> {
        let (config, fusions) = (Arc::clone(&self.kernels.config), Arc::clone(&self.kernels.fusions));
        let look_up = fusions.look_up(&config, spec, self.kernels.target, mode);
        let LookUp::Choice { choice, is_default } = look_up else { return Ok(()) };
        let mut failed = Vec::new();
        for reference in choice.kernels() {
            let is_had = self.is_had(reference, spec);
            let error = match is_had {
                Err(source) => {
                    let (layer, kernel) = (spec.layer.clone(), reference.to_string());
                    let cause = source.in_one_line();
                    let store = self.kernels.had.entry(reference.clone()).or_default();
                    store.insert(wanted(reference, spec).to_owned(), Err(cause));
                    SwapError::Kernel { layer, kernel, source }
                }
                Ok(kernel) if kernel.meta().contract != spec.contract => SwapError::ContractMismatch {
                    layer: spec.layer.clone(),
                    kernel: kernel.meta().identity.to_string(),
                    expected: spec.contract,
                    actual: kernel.meta().contract,
                },
                Ok(kernel) => {
                    // The rest of a list is for those that this one does not fit.
                    if fits(spec, &kernel, mode).is_none() {
                        return Ok(());
                    }
                    // It was had: what it does not fit stands in the report.
                    failed.push(None);
                    continue;
                }
            };
            if is_default {
                self.first_failure.get_or_insert(error);
            } else {
                failed.push(Some(error));
            }
        }
        if is_default || failed.iter().any(Option::is_none) {
            return Ok(());
        }
        let mut failed: Vec<_> = failed.into_iter().flatten().collect();
        match failed.len() {
            0 => Ok(()),
            1 => Err(failed.remove(0)),
            _ => Err(SwapError::NoneOf { layer: spec.layer.clone(), failed }),
        }
    }

    fn is_had(&mut self, reference: &KernelRef, spec: &SlotSpec) -> Result<Arc<LayerKernel>, ProvideError> {
        if let Some(Ok(kernel)) = self.kernels.get(reference, spec) {
            return Ok(Arc::clone(kernel));
        }
        let layer = wanted(reference, spec);
        let kernel = self.provider.provide(reference, layer, self.kernels.target.device)?;
        if self.kernels.config.asks_for_parity() {
            kernel.parity().map_err(|error| ProvideError { hint: error.hint(), source: Box::new(error) })?;
        }
        let store = self.kernels.had.entry(reference.clone()).or_default();
        store.insert(layer.to_owned(), Ok(Arc::clone(&kernel)));
        Ok(kernel)
    }
}

/// Refuses what the model has no layer for, and what is ambiguous for one of its layers; returns which groups the
/// fusions are for.
pub(super) fn check(specs: &[SlotSpec], groups: &[Group], config: &KernelConfig) -> Result<Fusions, SwapError> {
    let names: BTreeSet<&str> = specs.iter().map(|spec| spec.layer.as_str()).collect();
    if let Some(unknown) = config.layers().find(|layer| !names.contains(layer)) {
        return Err(SwapError::UnknownLayer {
            layer: unknown.to_owned(),
            available: names.into_iter().map(str::to_owned).collect(),
        });
    }
    let patterns: Vec<&PathPattern> = config.patterns().collect();
    for pattern in &patterns {
        let mut matched = specs.iter().filter(|spec| pattern.matches(&spec.path)).peekable();
        if matched.peek().is_none() {
            return Err(SwapError::unknown_path(pattern, specs.iter().map(|spec| spec.path.as_str())));
        }
        let rivals = |spec: &SlotSpec| {
            let rival = |other: &&&PathPattern| {
                other != &pattern && other.matches(&spec.path) && other.closeness() == pattern.closeness()
            };
            patterns.iter().find(rival).map(|other| (spec.path.clone(), (*other).clone()))
        };
        if let Some((path, other)) = matched.find_map(rivals) {
            return Err(SwapError::AmbiguousPath { path, first: (*pattern).clone(), second: other });
        }
    }
    Fusions::of(specs, groups, config)
}

/// What is worth saying of the kernels that were asked for, each once.
fn notes(kernels: &Kernels, provider: &dyn KernelProvider) -> Vec<String> {
    let mut notes = BTreeSet::new();
    for reference in kernels.had.keys() {
        notes.extend(provider.note(reference));
        if reference.trust_remote_code {
            notes.insert(trust_note(reference));
        }
    }
    notes.into_iter().collect()
}

/// What a report says of an entry that vouches for its own publisher.
pub(super) fn trust_note(reference: &KernelRef) -> String {
    format!(
        "the entry for {reference} has trust_remote_code: a mapping gives no trust here, whoever runs the program does"
    )
}
