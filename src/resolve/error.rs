//! When nothing can be taken.

use std::collections::BTreeSet;

use super::reason::Reason;
use super::report::Resolution;
use super::{Candidate, Request, Target, resolve};
use crate::hint::Hint;
use crate::system::SystemInfo;
use crate::variant::{AnyVariant, DeviceKey, FrameworkKind, Variant};

/// A build that would fit another device of the same machine.
#[derive(Debug, Clone, PartialEq, Eq)]
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
    #[error("none of {} fits {}:\n{}", count(.resolution.decisions.len()), asked(.resolution.request.target), table(.resolution))]
    NothingFits {
        /// The whole trace, with a reason for every build.
        resolution: Box<Resolution>,
        /// The names of the backends that there are builds for, in a stable order.
        backends: Vec<String>,
        /// What would fit other devices of this machine.
        alternatives: Vec<Alternative>,
        /// Keys of devices that nobody has looked for yet and that there are builds for.
        unprobed: Vec<DeviceKey>,
    },
}

fn count(builds: usize) -> String {
    if builds == 1 { "1 build".to_owned() } else { format!("{builds} builds") }
}

/// The trace, without the end of its last line: what comes after an error's text is its printer's business.
fn table(resolution: &Resolution) -> String {
    resolution.to_string().trim_end().to_owned()
}

fn asked(target: Target) -> String {
    match target {
        Target::Any => "this machine".to_owned(),
        Target::Key(_) | Target::One { .. } => format!("device {target}"),
    }
}

/// Collects what the error has to say beyond the trace.
pub(super) fn nothing_fits(candidates: &[Candidate], system: &SystemInfo, resolution: Resolution) -> ResolveError {
    let mut backends = BTreeSet::new();
    let mut keys = BTreeSet::new();
    for variant in candidates.iter().filter_map(|candidate| candidate.variant.known()) {
        match variant {
            Variant::Arch(build) => {
                backends.insert(build.backend().name().to_owned());
                keys.insert(build.backend().device_key());
            }
            Variant::Shader(_) => {
                backends.insert(variant.to_string());
                // Adapters of every key are found by one look.
                keys.insert(DeviceKey::Wgpu);
            }
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
        backends: backends.into_iter().collect(),
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
        let needs_tvm_ffi =
            reasons().any(|r| matches!(r, Reason::FrameworkMissing { framework: FrameworkKind::TvmFfi, .. }));
        if needs_tvm_ffi {
            advice.push(
                "install libtvm_ffi (in the Python wheel apache-tvm-ffi) or set KERNELHUB_TVM_FFI to its file"
                    .to_owned(),
            );
        }
        let torch = |reason: &Reason| match reason {
            Reason::FrameworkMissing { framework, .. } | Reason::FrameworkUnsupported { framework, .. } => {
                *framework != FrameworkKind::TvmFfi
            }
            Reason::NeedsPython | Reason::CxxAbi => true,
            _ => false,
        };
        if reasons().any(torch) {
            advice.push(if reasons().all(torch) {
                "every build needs Torch or Python: look for a version of this kernel with a tvm-ffi or wgsl build"
                    .to_owned()
            } else {
                "builds for Torch need libtorch (LIBTORCH names its folder) and a program that can load them".to_owned()
            });
        }
        if !unprobed.is_empty() {
            let keys: Vec<&str> = unprobed.iter().map(|key| key.as_str()).collect();
            advice.push(format!("devices not probed yet: {}", keys.join(", ")));
        }
        advice.push(match backends.as_slice() {
            [] => "there is no build for any backend".to_owned(),
            backends => format!("there are builds for {}", backends.join(", ")),
        });
        Some(advice.join("; "))
    }
}
