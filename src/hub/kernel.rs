//! A kernel in the process.

use serde::Serialize;

use super::Prefetched;
use crate::bind::Code;
use crate::fetch::Fetched;
use crate::probe::ProbeReport;
use crate::resolve::Resolution;
use crate::verify::VerifiedSnapshot;

/// How long each stage of a kernel's path took, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct KernelTimes {
    /// Finding the manifest and choosing the build.
    #[serde(rename = "resolve")]
    pub resolve_ms: f64,
    /// Download, unpacking and the move into the cache; a look at the cache when warm.
    #[serde(rename = "fetch")]
    pub fetch_ms: f64,
    /// Reading and hashing every file.
    #[serde(rename = "verify")]
    pub verify_ms: f64,
    /// `dlopen` and the handshake, or opening the GPU.
    #[serde(rename = "load")]
    pub load_ms: f64,
}

/// A resolved, fetched, verified and loaded kernel.
#[derive(Debug)]
pub struct Kernel {
    pub(super) resolution: Resolution,
    pub(super) snapshot: VerifiedSnapshot,
    pub(super) fetched: Fetched,
    pub(super) repaired: bool,
    pub(super) code: Code,
    pub(super) times: KernelTimes,
    pub(super) dependencies: Vec<Prefetched>,
    pub(super) source: String,
    pub(super) notes: Vec<String>,
    pub(super) probe: Option<ProbeReport>,
}

impl Kernel {
    /// Why this build was chosen and the others were not.
    #[must_use]
    pub fn resolution(&self) -> &Resolution {
        &self.resolution
    }

    /// The verified files.
    #[must_use]
    pub fn snapshot(&self) -> &VerifiedSnapshot {
        &self.snapshot
    }

    /// Where the files came from.
    #[must_use]
    pub fn fetched(&self) -> &Fetched {
        &self.fetched
    }

    /// Whether the cached files were damaged and had to be fetched again.
    #[must_use]
    pub fn repaired(&self) -> bool {
        self.repaired
    }

    /// The loaded code.
    #[must_use]
    pub fn code(&self) -> &Code {
        &self.code
    }

    /// The kernels that it needs, fetched and verified; in the order in which they were met, each once.
    #[must_use]
    pub fn dependencies(&self) -> &[Prefetched] {
        &self.dependencies
    }

    /// The source that had it.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// What is worth reporting about how it was found: a local folder, a Hub that could not be asked.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// What the child process said that loaded it first. `None`: there was none.
    #[must_use]
    pub fn probe(&self) -> Option<&ProbeReport> {
        self.probe.as_ref()
    }

    /// How long each stage took.
    #[must_use]
    pub fn times(&self) -> KernelTimes {
        self.times
    }
}
