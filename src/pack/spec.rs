//! What a pack is, and how it is made.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::PackError;
use crate::digest::Sha256Digest;
use crate::manifest::{BackendInfo, KernelManifest};
use crate::names::RepoId;
use crate::variant::Variant;

/// What a pack says about itself.
#[derive(Debug, Clone, PartialEq)]
pub struct PackSpec {
    /// The publisher's repo, such as `kernelhub/rmsnorm`.
    pub repo: RepoId,
    /// The kernel's version.
    pub version: u32,
    /// SPDX expression.
    pub license: String,
    /// One line for the manifest. Absent: none.
    pub description: Option<String>,
    /// The build.
    pub variant: Variant,
    /// What the build runs on; its kind is the variant's backend.
    pub backend: BackendInfo,
    /// Who built it, from what. Absent: unknown.
    pub provenance: Option<Value>,
}

/// A pack on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed {
    /// The archive.
    pub archive: PathBuf,
    /// The build in it.
    pub variant: Variant,
    /// The archive's size, in bytes.
    pub size: u64,
    /// The archive's digest.
    pub sha256: Sha256Digest,
    /// The digest of the `metadata.json` inside.
    pub metadata_sha256: Sha256Digest,
}

/// Packs the files of a folder as one build: `<out>/<owner>--<name>-v<version>-<variant>.tar.zst`.
///
/// # Errors
/// [`PackError`] for a folder that cannot be read, or that holds what a fetch would refuse.
pub fn pack_variant(folder: &Path, spec: &PackSpec, out: &Path) -> Result<Packed, PackError> {
    let _ = (folder, spec, out);
    unimplemented!()
}

/// The manifest of one version's packs, with URLs relative to `folder`, where the manifest will stand.
///
/// # Errors
/// [`PackError::Format`] when the packs make no valid manifest.
pub fn manifest(spec: &PackSpec, packs: &[Packed], folder: &Path) -> Result<KernelManifest, PackError> {
    let _ = (spec, packs, folder);
    unimplemented!()
}
