//! Whether a program's kernels would work on this machine: the whole path of each, before anybody needs it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;

use serde::Serialize;

use super::{Hub, HubError, OWN_OWNER, check_cache};
use crate::hint::{Hint, with_causes};
use crate::names::RepoId;
use crate::swap::{KernelConfig, MappedKernel, Target};
use crate::system::SystemInfo;
use crate::variant::DeviceKey;

/// What a check is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Area {
    /// A variable that is read, or all of them.
    Environment,
    /// The builds that are kept on this machine.
    Cache,
    /// Where kernels come from.
    Source,
    /// What kernels run on.
    Device,
    /// A mapped kernel.
    Kernel,
}

impl Area {
    /// The word in tables and JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Environment => "environment",
            Self::Cache => "cache",
            Self::Source => "source",
            Self::Device => "device",
            Self::Kernel => "kernel",
        }
    }
}

/// How a check went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "lowercase")]
pub enum Finding {
    /// It is as it should be.
    Ok {
        /// What was found.
        detail: String,
    },
    /// It was not checked.
    Skipped {
        /// Why not.
        reason: String,
    },
    /// It is not as it should be.
    Failed {
        /// The stage of a kernel's path that failed, such as `resolve` or `parity`; absent outside of such a path.
        #[serde(skip_serializing_if = "Option::is_none")]
        stage: Option<&'static str>,
        /// What failed, with its causes.
        error: String,
        /// What to do about it, where that is known.
        hint: Option<String>,
    },
}

impl Finding {
    /// A failure of an error, with its causes and its advice.
    pub fn failed(stage: Option<&'static str>, error: &(impl Hint + 'static)) -> Self {
        Self::Failed { stage, error: with_causes(error), hint: error.hint() }
    }
}

/// One line of a diagnosis.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What it is about.
    pub area: Area,
    /// Which one.
    pub subject: String,
    /// How it went.
    #[serde(flatten)]
    pub finding: Finding,
}

impl Check {
    /// A line of a diagnosis.
    #[must_use]
    pub fn new(area: Area, subject: impl Into<String>, finding: Finding) -> Self {
        Self { area, subject: subject.into(), finding }
    }

    /// Whether it is a failure.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        matches!(self.finding, Finding::Failed { .. })
    }
}

/// The stage that an error comes from.
fn stage(error: &HubError) -> &'static str {
    match error {
        HubError::Unknown { .. }
        | HubError::NoVersion { .. }
        | HubError::Resolve { .. }
        | HubError::Dependency { .. } => "resolve",
        HubError::Policy(_) => "policy",
        HubError::Fetch(_) => "fetch",
        HubError::Verify(_) => "verify",
        HubError::Bind(_) => "bind",
        HubError::Parity(_) => "parity",
        HubError::DependencyFailed { source, .. } => stage(source),
        _ => "load",
    }
}

impl Hub {
    /// Checks the cache, the sources, the devices and every kernel that `config` maps for a device of this machine: it
    /// is resolved, fetched if need be, verified, loaded, bound and held to its contract's formula (see
    /// [`crate::bind::LayerKernel::parity`]). Nothing that fails ends the diagnosis.
    #[must_use]
    pub fn diagnose(&self, config: &KernelConfig) -> Vec<Check> {
        let mut checks = self.cache_checks();
        let system = self.machine.lock().unwrap_or_else(PoisonError::into_inner).with_all().clone();
        checks.extend(device_checks(&system));
        let keys = keys_of(&system);
        let target = |device: DeviceKey| Target { device, capability: self.capability(device) };
        let mapped: Vec<(DeviceKey, MappedKernel)> =
            keys.iter().flat_map(|key| config.mapped(target(*key)).into_iter().map(|mapped| (*key, mapped))).collect();
        let repos = mapped.iter().filter_map(|(_, mapped)| Some((mapped.kernel.repo()?, mapped.is_default)));
        // What the application maps itself must be there, whatever else maps it.
        let mut demanded: BTreeMap<&RepoId, bool> = BTreeMap::new();
        for (repo, is_default) in repos {
            *demanded.entry(repo).or_default() |= !is_default;
        }
        checks.extend(demanded.into_iter().map(|(repo, is_demanded)| self.source_check(repo, is_demanded)));
        checks.extend(mapped.iter().map(|(device, mapped)| self.kernel_check(*device, mapped)));
        let absent = DeviceKey::all().filter(|key| !keys.contains(key));
        for device in absent {
            let kernels = config.mapped(device).len();
            if kernels > 0 {
                let reason = format!("this machine has no such device; {kernels} kernels are mapped for it");
                checks.push(Check::new(Area::Kernel, device.as_str(), Finding::Skipped { reason }));
            }
        }
        checks
    }

    fn cache_checks(&self) -> Vec<Check> {
        let root = self.cache.root().display().to_string();
        let checked = match check_cache(&self.cache) {
            Ok(checked) => checked,
            Err(error) => return vec![Check::new(Area::Cache, root, Finding::failed(None, &error))],
        };
        let whole =
            checked.iter().filter(|checked| checked.entry.snapshot.is_some() && checked.fault.is_none()).count();
        let faulty = checked.iter().filter_map(|checked| {
            let fault = checked.fault.as_ref()?;
            let path = checked.entry.path.display().to_string();
            Some(Check::new(Area::Cache, path, Finding::failed(Some("verify"), fault)))
        });
        let faulty: Vec<Check> = faulty.collect();
        let detail = format!("{whole} builds are whole and as published");
        let summary = Check::new(Area::Cache, root, Finding::Ok { detail });
        [summary].into_iter().chain(faulty).collect()
    }

    fn source_check(&self, repo: &RepoId, is_demanded: bool) -> Check {
        let finding = match self.versions(repo) {
            Ok((source, versions)) if !versions.is_empty() => {
                let versions: Vec<String> = versions.iter().map(|version| format!("v{}", version.version)).collect();
                Finding::Ok { detail: format!("{} from {source}", versions.join(", ")) }
            }
            Ok((source, _)) if !is_demanded && repo.owner() != OWN_OWNER => {
                Finding::Skipped { reason: format!("{source} has no version of it; only the default table maps it") }
            }
            Ok((source, _)) => Finding::Failed {
                stage: None,
                error: format!("no source has a version of it; the last that was asked is {source}"),
                hint: Some("name the kernel's manifest, a file or a URL, with --manifest".to_owned()),
            },
            Err(error) if !is_demanded && self.options.offline => Finding::Skipped { reason: with_causes(&error) },
            Err(error) => Finding::failed(None, &error),
        };
        Check::new(Area::Source, repo.to_string(), finding)
    }

    fn kernel_check(&self, device: DeviceKey, mapped: &MappedKernel) -> Check {
        let MappedKernel { layer, kernel, is_default } = mapped;
        let wanted = kernel.layer.as_deref().unwrap_or(layer);
        // What only the default table maps need not be had: without it a layer keeps its reference code. This project's
        // own kernels are for every machine that has their device.
        let is_own = kernel.repo().is_some_and(|repo| repo.owner() == OWN_OWNER);
        let may_lack = |error: &HubError| {
            let is_absent = matches!(stage(error), "resolve" | "fetch") && self.options.offline;
            *is_default && !is_own && (is_absent || matches!(error, HubError::Resolve { .. }))
        };
        let finding = match self.layer(kernel, wanted, device) {
            Err(error) if may_lack(&error) => {
                Finding::Skipped { reason: format!("only the default table maps it: {}", with_causes(&error)) }
            }
            Err(error) => Finding::failed(Some(stage(&error)), &error),
            Ok(bound) => match bound.parity() {
                Err(error) => Finding::failed(Some("parity"), &HubError::Parity(error)),
                Ok(report) => {
                    let dtypes: Vec<&str> = report.dtypes.iter().map(|dtype| dtype.as_str()).collect();
                    let skipped = match &report.skipped[..] {
                        [] => String::new(),
                        skipped => format!("; not tried: {}", skipped.join(", ")),
                    };
                    let (variant, calls) = (&bound.meta().identity.variant, report.calls);
                    let part = (report.worst * 100.0).ceil();
                    let detail = format!(
                        "{variant}, {} at parity in {calls} calls, the worst at {part} % of its tolerance{skipped}",
                        dtypes.join(", ")
                    );
                    Finding::Ok { detail }
                }
            },
        };
        Check::new(Area::Kernel, format!("{layer} on {device}: {kernel}"), finding)
    }
}

/// The device keys that kernels can be looked up by here: the processor, what is visible, and `wgpu` for any adapter.
fn keys_of(system: &SystemInfo) -> BTreeSet<DeviceKey> {
    let visible = system.devices.iter().filter(|device| device.masked_by.is_none());
    let mut keys: BTreeSet<DeviceKey> = visible.map(|device| device.key).collect();
    keys.insert(DeviceKey::Cpu);
    if system.devices.iter().any(|device| device.route == crate::system::Route::Adapter && device.masked_by.is_none()) {
        keys.insert(DeviceKey::Wgpu);
    }
    keys
}

fn device_checks(system: &SystemInfo) -> Vec<Check> {
    let processor = Finding::Ok { detail: "the processor".to_owned() };
    let mut checks = vec![Check::new(Area::Device, DeviceKey::Cpu.as_str(), processor)];
    for device in &system.devices {
        let finding = match &device.masked_by {
            Some(mask) => Finding::Skipped { reason: format!("{} is hidden by {mask}", device.name) },
            None if device.software => {
                Finding::Ok { detail: format!("{}, which computes on the processor", device.name) }
            }
            None => Finding::Ok { detail: device.name.clone() },
        };
        checks.push(Check::new(Area::Device, format!("{}:{}", device.key, device.index), finding));
    }
    let notes = system.notes.iter();
    checks.extend(notes.map(|note| Check::new(Area::Device, "a note", Finding::Skipped { reason: note.clone() })));
    checks
}
