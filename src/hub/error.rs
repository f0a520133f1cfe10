//! Which stage of a kernel's path failed.

use std::sync::Arc;

use super::versions::{OtherVersions, spoken};
use crate::bind::{BindError, ParityError};
use crate::digest::Violation;
use crate::fetch::{FetchError, Revision};
use crate::hint::Hint;
use crate::load::LoadError;
use crate::names::RepoId;
use crate::policy::PolicyError;
use crate::probe::ProbeError;
use crate::resolve::ResolveError;
use crate::verify::VerifyError;

/// A kernel that could not be brought into the process.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    /// No source has this kernel.
    #[error("{repo}@{revision} is not known here; {}", known_versions(.known))]
    Unknown {
        /// The kernel.
        repo: RepoId,
        /// What was asked for.
        revision: Revision,
        /// The versions that are known, ascending.
        known: Vec<u32>,
    },
    /// A kernel depends on others in a way that cannot be met.
    #[error("{repo}: its dependency {dependency} cannot be met: {reason}")]
    Dependency {
        /// The kernel.
        repo: RepoId,
        /// The dependency, as the metadata names it.
        dependency: String,
        /// Why not: malformed, or a circle, with the kernels in it.
        reason: String,
    },
    /// A dependency could not be brought.
    #[error("{repo} needs {dependency}, which could not be brought")]
    DependencyFailed {
        /// The kernel.
        repo: RepoId,
        /// The dependency.
        dependency: String,
        /// What went wrong with it.
        #[source]
        source: Box<HubError>,
    },
    /// The cache has no such build.
    #[error("{repo}@{revision} is not in the cache{}", other_builds(*.others))]
    NotCached {
        /// The kernel.
        repo: RepoId,
        /// What was asked for.
        revision: Revision,
        /// How many builds of it the cache has that do not fit this machine.
        others: usize,
    },
    /// A kernel was named without a version, and the default table has none for it.
    #[error("{repo} is named without a version; {}", known_versions(.known))]
    NoVersion {
        /// The kernel.
        repo: RepoId,
        /// The versions that are known, ascending.
        known: Vec<u32>,
    },
    /// No build fits this machine.
    #[error("no build of {repo}@{revision} fits{}", other_fits(.others.as_deref()))]
    Resolve {
        /// The kernel.
        repo: RepoId,
        /// What was asked for.
        revision: Revision,
        /// The decision for every build.
        #[source]
        source: ResolveError,
        /// What other versions of the kernel have; `None` where nobody has looked.
        others: Option<Box<OtherVersions>>,
    },
    /// The policy does not admit the kernel, or cannot be used.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The build could not be fetched.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// The build is not what its publisher published.
    #[error(transparent)]
    Verify(#[from] VerifyError),
    /// The build's library could not be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A child process did not load the build well. Nothing of it ran in this one.
    #[error(transparent)]
    Probe(#[from] ProbeError),
    /// The build does not fit the layer that it was to serve.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The kernel does not compute what its contract says.
    #[error(transparent)]
    Parity(#[from] Arc<ParityError>),
    /// The device for a shader pack could not be opened.
    #[cfg(feature = "wgpu")]
    #[error(transparent)]
    Gpu(#[from] crate::gpu::GpuError),
    /// No adapter of the device key could be opened, though resolution saw one.
    #[cfg(feature = "wgpu")]
    #[error("no {key} adapter could be opened")]
    NoAdapter {
        /// The device key.
        key: crate::variant::DeviceKey,
    },
    /// The build needs a feature that this program was compiled without.
    #[error("the build {variant} needs the feature {feature}, which this program was compiled without")]
    FeatureOff {
        /// The build.
        variant: crate::variant::Variant,
        /// The Cargo feature.
        feature: &'static str,
    },
}

fn other_builds(others: usize) -> String {
    if others == 0 { String::new() } else { format!(" for this machine; it has {others} builds for others") }
}

fn other_fits(others: Option<&OtherVersions>) -> String {
    others.and_then(OtherVersions::spoken_fits).map_or_else(String::new, |fits| format!("; {fits}"))
}

/// What to do where no build of a version fits.
pub(super) fn resolve_hint(repo: &RepoId, source: &ResolveError, others: Option<&OtherVersions>) -> String {
    let mut advice: Vec<String> = source.hint().into_iter().collect();
    let fitting: Vec<u32> = others.into_iter().flat_map(OtherVersions::fitting).collect();
    match fitting.as_slice() {
        [] => {
            if let Some(others) = others {
                advice.extend(no_other(source, others));
            }
            advice.push(format!("`kernelhub versions {repo}` shows whether another version fits"));
        }
        fitting => {
            let names: Vec<String> = fitting.iter().rev().map(|version| format!("{repo}@v{version}")).collect();
            advice.push(format!("ask for {}, by the names of its builds", names.join(" or ")));
        }
    }
    advice.join("; ")
}

/// That no other version fits, as far as is known, and whether any could without Torch.
fn no_other(source: &ResolveError, others: &OtherVersions) -> Vec<String> {
    let ResolveError::NothingFits { resolution, .. } = source else { return Vec::new() };
    let mut said = Vec::new();
    let reasons = || resolution.decisions.iter().filter_map(|decision| decision.reason());
    if reasons().any(crate::resolve::Reason::is_about_torch) {
        match spoken(others.without_torch()).as_str() {
            "" if others.versions.is_empty() => {}
            "" => said.push("no other version has a tvm-ffi or wgsl build".to_owned()),
            versions => said.push(format!("of its other versions, only {versions} has a tvm-ffi or wgsl build")),
        }
    }
    if !others.versions.is_empty() {
        let looked = spoken(others.versions.iter().map(|version| version.version));
        said.push(format!("nothing in {looked} fits either"));
    }
    said.extend(others.not_looked_up.iter().map(|what| format!("not looked up: {what}")));
    said
}

fn known_versions(known: &[u32]) -> String {
    if known.is_empty() {
        return "no version of it is".to_owned();
    }
    let known: Vec<_> = known.iter().map(|version| format!("v{version}")).collect();
    format!("known: {}", known.join(", "))
}

/// This project's own kernels are those of the standard mapping.
fn own_kernel_hint(repo: &RepoId) -> String {
    let own = crate::swap::own_kernels();
    let run = "`cargo xtask fetch-kernels` builds and fetches the embedded kernels";
    match crate::hint::nearest(repo.name(), own.iter().map(String::as_str)) {
        Some(name) if name == repo.name() => {
            "run `cargo xtask fetch-kernels` once to build and fetch the embedded kernels".to_owned()
        }
        Some(name) => format!("did you mean kernelhub/{name}? {run}"),
        None => format!("{run}: {}", own.join(", ")),
    }
}

impl HubError {
    /// What is not as published, not to be loaded, or does not fit, whichever stage found it. Empty for the other
    /// errors.
    #[must_use]
    pub fn violations(&self) -> &[Violation] {
        match self {
            Self::Fetch(source) => source.violations(),
            Self::Verify(source) => source.violations(),
            Self::Load(source) => source.violations(),
            Self::Probe(source) => source.violations(),
            Self::DependencyFailed { source, .. } => source.violations(),
            _ => &[],
        }
    }
}

impl Hint for HubError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Dependency { .. } => Some("the publisher's build is wrong; another version may be right".to_owned()),
            Self::DependencyFailed { source, .. } => source.hint(),
            Self::Unknown { known, .. } if !known.is_empty() => Some("ask for one of the known versions".to_owned()),
            Self::Unknown { repo, .. } if repo.owner() == "kernelhub" => Some(own_kernel_hint(repo)),
            Self::Unknown { .. } => Some("name the kernel's manifest, a file or a URL, with --manifest".to_owned()),
            Self::NotCached { others: 0, repo, revision } => {
                Some(format!("`kernelhub get {repo}@{revision}` brings it"))
            }
            Self::NotCached { .. } => Some("--all-variants checks those, too".to_owned()),
            Self::NoVersion { repo, known } => Some(format!("write {repo}@v{}", known.last().copied().unwrap_or(1))),
            Self::Resolve { repo, source, others, .. } => Some(resolve_hint(repo, source, others.as_deref())),
            Self::Policy(source) => source.hint(),
            Self::Fetch(source) => source.hint(),
            Self::Verify(source) => source.hint(),
            Self::Load(source) => source.hint(),
            Self::Probe(source) => source.hint(),
            Self::Bind(source) => source.hint(),
            Self::Parity(source) => source.hint(),
            #[cfg(feature = "wgpu")]
            Self::Gpu(source) => source.hint(),
            #[cfg(feature = "wgpu")]
            Self::NoAdapter { .. } => Some("run `kernelhub devices` to see the adapters".to_owned()),
            Self::FeatureOff { feature, .. } => Some(format!("compile with --features {feature}")),
        }
    }
}
