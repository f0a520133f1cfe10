//! When nothing can be taken.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;

use super::backends::{BackendBuilds, BackendTable};
use super::reason::Reason;
use super::report::Resolution;
use super::{Candidate, Request, Target, resolve};
use crate::hint::Hint;
use crate::system::SystemInfo;
use crate::variant::{AnyVariant, DeviceKey, Variant};

/// A build that would fit another device of the same machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Alternative {
    /// The device's key.
    pub device: DeviceKey,
    /// The build that would be chosen for it.
    pub variant: Variant,
}

/// Why no build can be taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResolveError {
    /// There is nothing to choose from.
    #[error("there is no build to choose from")]
    NoCandidates,
    /// Every build is rejected.
    #[error("{}:\n{}\n{}", resolution.nothing_fits(), table(.resolution), table(&BackendTable(.backends)))]
    NothingFits {
        /// The whole trace, with a reason for every build.
        resolution: Box<Resolution>,
        /// The backends that there are builds for, in the order of their names.
        backends: Vec<BackendBuilds>,
        /// What would fit other devices of this machine.
        alternatives: Vec<Alternative>,
        /// Keys of devices that nobody has looked for yet and that there are builds for.
        unprobed: Vec<DeviceKey>,
    },
}

/// A table, without the end of its last line: what comes after an error's text is its printer's business.
fn table(table: &dyn fmt::Display) -> String {
    table.to_string().trim_end().to_owned()
}

/// Collects what the error has to say beyond the trace.
pub(super) fn nothing_fits(candidates: &[Candidate], system: &SystemInfo, resolution: Resolution) -> ResolveError {
    let backends = BackendBuilds::of(candidates);
    let mut keys = BTreeSet::new();
    for variant in candidates.iter().filter_map(|candidate| candidate.variant.known()) {
        match variant {
            Variant::Arch(build) => drop(keys.insert(build.backend().device_key())),
            // Adapters of every key are found by one look.
            Variant::Shader(_) => drop(keys.insert(DeviceKey::Wgpu)),
            // Python: there is nothing that this machine could be asked about.
            Variant::Noarch(_) => {}
        }
    }
    let mut alternatives: Vec<Alternative> = Vec::new();
    // Nothing fits any device when any would have done.
    if let Some(asked) = resolution.request.target.key() {
        for device in DeviceKey::all().filter(|key| *key != asked || resolution.request.target.index().is_some()) {
            let other = Request { target: Target::Key(device), ..resolution.request };
            let found = resolve(candidates, system, &other);
            let Some(AnyVariant::Known(variant)) = found.chosen_decision().map(|decision| &decision.variant) else {
                continue;
            };
            // An adapter with a key of its own is found as `wgpu` too: once is enough.
            if alternatives.iter().all(|known| known.variant != *variant) {
                alternatives.push(Alternative { device, variant: *variant });
            }
        }
    }
    ResolveError::NothingFits {
        resolution: Box::new(resolution),
        backends,
        alternatives,
        unprobed: keys.into_iter().filter(|key| system.unprobed.contains(key)).collect(),
    }
}

impl Hint for ResolveError {
    fn hint(&self) -> Option<String> {
        let Self::NothingFits { resolution, backends, alternatives, unprobed } = self else {
            return Some("check the kernel's name and version: its listing holds no build folder".to_owned());
        };
        let mut advice = Vec::new();
        for Alternative { device, variant } in alternatives {
            advice.push(format!("device {device} of this machine would take {variant}"));
        }
        let reasons = || resolution.decisions.iter().filter_map(|decision| decision.reason());
        if reasons().all(Reason::is_about_torch) {
            advice.push(
                "every build needs Torch or Python: look for a version of this kernel with a tvm-ffi or wgsl build"
                    .to_owned(),
            );
        }
        advice.extend(resolution.hints());
        if !unprobed.is_empty() {
            let keys: Vec<&str> = unprobed.iter().map(|key| key.as_str()).collect();
            advice.push(format!("devices not looked for: {}", keys.join(", ")));
        }
        let names: Vec<&str> = backends.iter().map(|backend| backend.backend.as_str()).collect();
        advice.push(match names.as_slice() {
            [] => "there is no build for any backend".to_owned(),
            names => format!("there are builds for {}", names.join(", ")),
        });
        Some(advice.join("; "))
    }
}
