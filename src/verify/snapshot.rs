//! The verified build.

mod check;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub use check::{inspect, inspect_with, verify, verify_with};

use super::elf::{Finding, ScanRules, fit};
use super::signature::SignatureStatus;
use super::{VerifiedLibrary, VerifyError};
use crate::fetch::Anchor;
use crate::manifest::{LayerSpec, LayersFile, Metadata};
use crate::names::{RelativePath, RepoId};
use crate::policy::Admission;
use crate::system::linker::Linker;
use crate::variant::Variant;

/// Most files and folders in a build.
pub const MAX_FILES: usize = 10_000;
/// Largest text file that is kept in memory, in bytes.
pub const MAX_TEXT_BYTES: u64 = 16 << 20;

/// A build whose every file had its digest when it was read.
#[derive(Debug)]
pub struct VerifiedSnapshot {
    repo: RepoId,
    version: u32,
    variant: Variant,
    root: PathBuf,
    anchor: Anchor,
    admission: Admission,
    signature: SignatureStatus,
    content: Content,
}

/// What was read of a build, every file of it as published.
#[derive(Debug)]
struct Content {
    has_digest: bool,
    metadata: Metadata,
    layers: LayersFile,
    texts: BTreeMap<RelativePath, String>,
    libraries: Vec<VerifiedLibrary>,
    rules: ScanRules,
    findings: Vec<Finding>,
    files: usize,
    bytes: u64,
}

/// A build whose files are as published, without a word on who published it. It is for reports: nothing loads it.
#[derive(Debug)]
pub struct IntactBuild {
    content: Content,
}

impl IntactBuild {
    /// What the build says about itself.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        &self.content.metadata
    }

    /// The layers that it serves, by its own word. Empty: it does not say.
    #[must_use]
    pub fn layers(&self) -> &LayersFile {
        &self.content.layers
    }

    /// As [`VerifiedSnapshot::findings`].
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.content.findings
    }

    /// As [`VerifiedSnapshot::fit`].
    #[must_use]
    pub fn fit(&self, linker: &Linker) -> Vec<Finding> {
        self.content.fit(linker)
    }

    /// How many files were hashed, `metadata.json` not counted.
    #[must_use]
    pub fn files(&self) -> usize {
        self.content.files
    }

    /// The bytes of those files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.content.bytes
    }
}

impl Content {
    fn fit(&self, linker: &Linker) -> Vec<Finding> {
        let facts = self.libraries.iter().filter_map(|library| Some((library.relative(), library.facts()?)));
        facts.flat_map(|(path, facts)| fit(path.as_str(), facts, linker, &self.rules)).collect()
    }
}

impl VerifiedSnapshot {
    /// The kernel's repo.
    #[must_use]
    pub fn repo(&self) -> &RepoId {
        &self.repo
    }

    /// The kernel's version.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The build.
    #[must_use]
    pub fn variant(&self) -> &Variant {
        &self.variant
    }

    /// The build's folder in the cache. For reports: what is loaded comes from [`Self::library`] and [`Self::text`].
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// What its metadata was compared with.
    #[must_use]
    pub fn anchor(&self) -> &Anchor {
        &self.anchor
    }

    /// Why its publisher was trusted, and what was asked of it.
    #[must_use]
    pub fn admission(&self) -> &Admission {
        &self.admission
    }

    /// Whether it is signed, and by whom.
    #[must_use]
    pub fn signature(&self) -> &SignatureStatus {
        &self.signature
    }

    /// Whether its files were compared with a digest in its metadata. No: it is a local folder whose metadata has none.
    #[must_use]
    pub fn has_digest(&self) -> bool {
        self.content.has_digest
    }

    /// What the build says about itself.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        &self.content.metadata
    }

    /// Says which layers the build serves, where it does not say so itself: kernels of the Hub have no `layers.toml`,
    /// and a kernel manifest is their binding. A build with a `layers.toml` keeps it.
    #[must_use]
    pub fn with_layers(mut self, layers: Vec<LayerSpec>) -> Self {
        if self.content.layers.layers.is_empty() {
            self.content.layers.layers = layers;
        }
        self
    }

    /// The layers that it serves, from the verified bytes of its `layers.toml`, else from [`Self::with_layers`]. Empty:
    /// nobody says.
    #[must_use]
    pub fn layers(&self) -> &LayersFile {
        &self.content.layers
    }

    /// The build's native library.
    ///
    /// # Errors
    /// [`VerifyError::LibraryCount`] unless the build has exactly one.
    pub fn library(&self) -> Result<&VerifiedLibrary, VerifyError> {
        match self.content.libraries.as_slice() {
            [library] => Ok(library),
            libraries => Err(VerifyError::LibraryCount {
                repo: self.repo.clone(),
                version: self.version,
                variant: self.variant,
                found: libraries.iter().map(|library| library.path().display().to_string()).collect(),
            }),
        }
    }

    /// The verified text of a `.toml`, `.wgsl`, `.json` or `.py` file. `None`: the digest lists no such file, or it is
    /// not UTF-8.
    #[must_use]
    pub fn text(&self, path: &RelativePath) -> Option<&str> {
        self.content.texts.get(path).map(String::as_str)
    }

    /// What the scan of its libraries found, from their files alone. What it refuses does not load:
    /// [`crate::load::KernelLibrary::open`] holds to it.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.content.findings
    }

    /// The rules that its libraries were scanned by.
    #[must_use]
    pub fn rules(&self) -> &ScanRules {
        &self.content.rules
    }

    /// What a machine and a process say to its libraries: those that they need and that are not there, or are too old.
    /// Both what is refused and what is warned of.
    #[must_use]
    pub fn fit(&self, linker: &Linker) -> Vec<Finding> {
        self.content.fit(linker)
    }

    /// How many files were held to their digest: `metadata.json` and its signatures are not counted.
    #[must_use]
    pub fn files(&self) -> usize {
        self.content.files
    }

    /// The bytes of those files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.content.bytes
    }
}
