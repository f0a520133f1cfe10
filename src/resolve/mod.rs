//! Which build fits this machine, and why the others do not.
//!
//! Owns: [`resolve`], a pure function from candidates, a [`SystemInfo`] and a [`Request`] to a [`Resolution`]: the
//! chosen candidate and a decision for every candidate, with a typed reason. Refuses: I/O; what it needs to know about
//! the machine is in the `SystemInfo`, what it needs to know about a build is in the [`Candidate`].
//!
//! Invariant: the order of the candidates plays no part. Those that fit are ordered by [`Rank`], then by
//! variant, the caller's own number for the artifact and what is known of it: only candidates that are equal in
//! every field tie.
//!
//! The rules:
//! - System, processor and C library are those of the machine.
//! - CUDA builds need the machine's major version and at most its minor; other backends need exactly its version.
//! - A `tvm-ffi` build needs the interface version that this crate speaks, and `libtvm_ffi` only when it imports from
//!   it.
//! - Builds for Torch's own interfaces need libtorch, built for their backend, and a loader for them; noarch Torch builds
//!   are Python.
//! - Where architectures are known (`metadata.json`), the device's has to be among them.
//! - A shader pack needs an adapter of wgpu that its target serves.
//! - Preferred: the device that was asked for before the next one it can stand for (`xpu` before `wgpu`); native code
//!   before shaders; shaders for the device before universal ones; then the highest version.
//!
//! The rules, their reasons and the order of what fits are for readers in docs/resolution.md, which names the same.
//!
//! One reason is given for each rejected candidate: the first rule that it breaks, in the order above. The cost: a
//! build that breaks two rules shows the second only after the first is met. In exchange a trace reads in one glance.

mod archs;
mod backends;
mod check;
mod error;
mod list;
mod rank;
mod reason;
mod report;
mod target;

use crate::system::SystemInfo;
use crate::variant::{AnyVariant, DeviceKey, Version};

pub use backends::{BackendBuilds, BackendTable};
pub use error::{Alternative, ResolveError};
pub use list::{ListError, MAX_LIST_BYTES, MAX_LISTED};
pub use rank::{AUTO_ORDER, Place, Rank};
pub use reason::{Note, Reason};
pub use report::{Decision, DeviceRef, Resolution, Verdict};
pub use target::{Target, TargetError};

/// The version of the tvm-ffi interface that this crate speaks. Builds carry it as `tvm-ffi01`.
pub const TVM_FFI_VERSION: Version = Version::new(0, 1);

/// One build that could be taken.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Candidate {
    /// Its name.
    pub variant: AnyVariant,
    /// The caller's own number for it, such as its place among the manifest's artifacts. Decides between candidates of
    /// the same name and rank: the lower is taken.
    pub artifact: usize,
    /// Size of its download, in bytes, when known. Plays no part in the choice, unless all before it are equal.
    pub size_bytes: Option<u64>,
    /// `backend.archs` of its `metadata.json`; `None` before that was read.
    pub archs: Option<Vec<String>>,
    /// Whether its library imports a `TVMFFI*` symbol; `None` before that was read.
    pub imports_tvm_ffi: Option<bool>,
    /// Lowest glibc version that its library asks for; `None` before that was read.
    pub minimum_glibc: Option<Version>,
    /// Why its metadata cannot be used; `None` while nothing is known against it.
    pub metadata_fault: Option<String>,
}

impl Candidate {
    /// A build of which only the name is known.
    #[must_use]
    pub fn new(variant: AnyVariant, artifact: usize) -> Self {
        Self {
            variant,
            artifact,
            size_bytes: None,
            archs: None,
            imports_tvm_ffi: None,
            minimum_glibc: None,
            metadata_fault: None,
        }
    }

    /// Builds of which only the names are known, numbered from 0.
    pub fn from_names<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<Self> {
        names.into_iter().enumerate().map(|(artifact, name)| Self::new(AnyVariant::read(name), artifact)).collect()
    }
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Request {
    /// The devices to serve.
    pub target: Target,
    /// Whether this process can load builds for Torch's own interfaces.
    pub torch_loader: bool,
}

impl Request {
    /// Any device of a key.
    #[must_use]
    pub const fn device(key: DeviceKey) -> Self {
        Self { target: Target::Key(key), torch_loader: false }
    }

    /// These devices.
    #[must_use]
    pub const fn to(target: Target) -> Self {
        Self { target, torch_loader: false }
    }

    /// One device.
    #[must_use]
    pub const fn one(key: DeviceKey, index: u32) -> Self {
        Self { target: Target::One { key, index }, torch_loader: false }
    }

    /// The same request, of a process that can or cannot load builds for Torch's own interfaces.
    #[must_use]
    pub const fn with_torch_loader(self, torch_loader: bool) -> Self {
        Self { torch_loader, ..self }
    }

    /// The best device of the machine.
    #[must_use]
    pub const fn any() -> Self {
        Self { target: Target::Any, torch_loader: false }
    }
}

/// Decides for every candidate whether it fits, and which is taken.
#[must_use]
pub fn resolve(candidates: &[Candidate], system: &SystemInfo, request: &Request) -> Resolution {
    // Candidates are taken in an order of their own, so that reports of the same listing are equal; and a stable sort
    // by rank keeps that order among equals.
    let mut order: Vec<usize> = (0..candidates.len()).collect();
    order.sort_by(|a, b| candidates[*a].cmp(&candidates[*b]));
    let mut fits = Vec::new();
    let mut rejected = Vec::with_capacity(candidates.len());
    for index in order {
        let candidate = &candidates[index];
        match check::check(candidate, system, request) {
            Ok(fit) => fits.push((index, fit)),
            Err(reason) => rejected.push(Decision::new(index, candidate, Verdict::Rejected { reason })),
        }
    }
    fits.sort_by_key(|(_, fit)| fit.rank);
    // Only a known variant can fit.
    let winner = fits.first().and_then(|(index, _)| Some((*index, candidates[*index].variant.known()?)));
    let accepted = fits.into_iter().map(|(index, fit)| {
        let check::Fit { rank, device, notes } = fit;
        let verdict = match winner {
            Some((winner, by)) if winner != index => Verdict::Outranked { rank, device, notes, by },
            _ => Verdict::Chosen { rank, device, notes },
        };
        Decision::new(index, &candidates[index], verdict)
    });
    Resolution {
        request: *request,
        chosen: winner.map(|(index, _)| index),
        decisions: accepted.chain(rejected).collect(),
    }
}

/// [`resolve`], for a caller that cannot go on without a build.
///
/// # Errors
/// [`ResolveError::NoCandidates`] when there is nothing to choose from; [`ResolveError::NothingFits`], with the whole
/// trace and what would fit on other devices of this machine, when every candidate is rejected.
pub fn choose(
    candidates: &[Candidate],
    system: &SystemInfo,
    request: &Request,
) -> Result<(usize, Resolution), ResolveError> {
    if candidates.is_empty() {
        return Err(ResolveError::NoCandidates);
    }
    let resolution = resolve(candidates, system, request);
    match resolution.chosen {
        Some(chosen) => Ok((chosen, resolution)),
        None => Err(error::nothing_fits(candidates, system, resolution)),
    }
}
