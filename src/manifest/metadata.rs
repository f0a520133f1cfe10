//! `metadata.json`: what a build says about itself, and the digest of every file of it.
//!
//! Written by the publisher's builder into `build/<variant>/`. It is attacker-controlled until its own bytes were
//! compared with an anchor (the manifest's `metadata_sha256`, later the commit's tree), so that this file keeps what is
//! wrong with a digest table as violations instead of failing on the first: [`crate::verify`] reports all at once.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::digest::{Sha256Digest, Violation, ViolationKind};
use crate::names::{RelativePath, RepoId};
use crate::variant::{DeviceKey, Variant};

/// The file's name.
pub const METADATA_FILE: &str = "metadata.json";
/// The name of the Sigstore bundle beside it.
pub const SIGNATURE_FILE: &str = "metadata.json.sigstore";
/// The name of the minisign signature beside it.
pub const MINISIGN_FILE: &str = "metadata.json.minisig";
/// The signatures that may stand beside it. Like the metadata itself they are not listed in the digest.
pub const SIGNATURE_FILES: [&str; 2] = [SIGNATURE_FILE, MINISIGN_FILE];
/// Largest `metadata.json` that is read, in bytes.
pub const MAX_METADATA_BYTES: u64 = 4 << 20;

/// A parsed `metadata.json`.
#[derive(Debug, Clone, PartialEq)]
pub struct Metadata {
    /// The kernel's name: the repo's own name, without the publisher.
    pub name: String,
    /// The unique id of this build, as its builder chose it.
    pub id: String,
    /// The kernel's version: the integer of the branch `v<N>`.
    pub version: u32,
    /// SPDX expression. Absent: the publisher states none.
    pub license: Option<String>,
    /// Python packages that the build's Python files import. They matter to Python hosts only.
    pub python_depends: Vec<String>,
    /// Kernels that this kernel calls, as the builder wrote them. Absent: none.
    pub kernel_depends: Vec<Value>,
    /// What the build runs on.
    pub backend: BackendInfo,
    /// The digest of every file. Absent: the build cannot be verified, which [`crate::verify`] reports.
    pub digest: Option<DigestTable>,
    /// Who built it, from what. Kept as it was; absent means unknown.
    pub provenance: Option<Value>,
}

/// The backend of a build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackendInfo {
    /// The backend's name in the Hub's words, such as `cpu`, `cuda`, `xpu`, `universal`.
    pub kind: String,
    /// Device architectures that the build has code for, such as `9.0a`. Empty: the backend knows none, or the builder
    /// states none.
    pub archs: Vec<String>,
}

/// The digest of every file of a build.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DigestTable {
    /// The digest of each file, by its path in the variant's folder. Without [`METADATA_FILE`] and [`SIGNATURE_FILES`].
    pub files: BTreeMap<RelativePath, Sha256Digest>,
    /// What is wrong with the table itself: a foreign algorithm, unsafe paths, values that are no digest.
    pub faults: Vec<Violation>,
}

/// Whether a file of a build is no part of its digest: the metadata, and what signs it.
pub(crate) fn is_outside_digest(path: &RelativePath) -> bool {
    path.as_str() == METADATA_FILE || SIGNATURE_FILES.contains(&path.as_str())
}

impl Metadata {
    /// What is not as the digest says, given the digest of every file that was found, in a stable order.
    ///
    /// [`METADATA_FILE`] and [`SIGNATURE_FILES`] are no part of the digest and are ignored in `found`. Empty: every
    /// listed file is there with its bytes, and nothing else is.
    #[must_use]
    pub fn violations(&self, found: &BTreeMap<RelativePath, Sha256Digest>) -> Vec<Violation> {
        let Some(digest) = &self.digest else {
            return vec![Violation {
                kind: ViolationKind::DigestAbsent,
                path: METADATA_FILE.to_owned(),
                expected: None,
                actual: None,
            }];
        };
        let mut violations = digest.faults.clone();
        for (path, expected) in &digest.files {
            let violation = |kind, actual| Violation {
                kind,
                path: path.to_string(),
                expected: Some(format!("sha256 {expected}")),
                actual,
            };
            match found.get(path) {
                Some(actual) if actual == expected => {}
                Some(actual) => {
                    violations.push(violation(ViolationKind::DigestMismatch, Some(format!("sha256 {actual}"))));
                }
                None => violations.push(violation(ViolationKind::FileMissing, None)),
            }
        }
        let listed_badly = |path: &RelativePath| digest.faults.iter().any(|fault| fault.path == path.as_str());
        violations.extend(
            found
                .iter()
                .filter(|(path, _)| !is_outside_digest(path))
                .filter(|(path, _)| !digest.files.contains_key(path) && !listed_badly(path))
                .map(|(path, actual)| Violation {
                    kind: ViolationKind::FileUnlisted,
                    path: path.to_string(),
                    expected: None,
                    actual: Some(format!("sha256 {actual}")),
                }),
        );
        violations.sort();
        violations.dedup();
        violations
    }

    /// In what this build is not the kernel that was asked for: name, version, backend.
    ///
    /// A `_` in a name counts as `-`, because older builders wrote the Python module's name.
    #[must_use]
    pub fn identity_violations(&self, repo: &RepoId, version: u32, variant: &Variant) -> Vec<Violation> {
        let mismatch = |expected: String, actual: String| Violation {
            kind: ViolationKind::IdentityMismatch,
            path: METADATA_FILE.to_owned(),
            expected: Some(expected),
            actual: Some(actual),
        };
        let mut violations = Vec::new();
        if self.name.replace('_', "-") != repo.name().replace('_', "-") {
            violations.push(mismatch(format!("name {}", repo.name()), format!("name {}", self.name)));
        }
        if self.version != version {
            violations.push(mismatch(format!("version {version}"), format!("version {}", self.version)));
        }
        if !self.backend.is_of(variant) {
            violations.push(mismatch(format!("the backend of {variant}"), format!("backend {}", self.backend.kind)));
        }
        violations
    }
}

impl BackendInfo {
    /// The backend that a variant's name states, in the Hub's words, with no architectures.
    #[must_use]
    pub fn of(variant: &Variant) -> Self {
        let kind = match variant {
            Variant::Arch(build) => build.backend().name().to_owned(),
            Variant::Noarch(target) => target.to_string(),
            Variant::Shader(target) => target.to_string(),
        };
        Self { kind, archs: Vec::new() }
    }

    /// Whether this is the backend that the variant's name states, by its name or by a device key's other name.
    fn is_of(&self, variant: &Variant) -> bool {
        let stated = Self::of(variant).kind;
        let keys = (self.kind.parse::<DeviceKey>(), stated.parse::<DeviceKey>());
        self.kind == stated || matches!(keys, (Ok(own), Ok(stated)) if own == stated)
    }
}
