//! The verified build.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{VerifiedLibrary, VerifyError};
use crate::digest::Sha256Digest;
use crate::fetch::Snapshot;
use crate::manifest::{LayersFile, Metadata};
use crate::names::{RelativePath, RepoId};
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
    archive_sha256: Sha256Digest,
    metadata: Metadata,
    layers: LayersFile,
    texts: BTreeMap<RelativePath, String>,
    libraries: Vec<VerifiedLibrary>,
    files: usize,
    bytes: u64,
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

    /// The digest of the archive that it came by.
    #[must_use]
    pub fn archive_sha256(&self) -> Sha256Digest {
        self.archive_sha256
    }

    /// What the build says about itself.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The layers that it serves, from the verified bytes of its `layers.toml`.
    #[must_use]
    pub fn layers(&self) -> &LayersFile {
        &self.layers
    }

    /// The build's native library.
    ///
    /// # Errors
    /// [`VerifyError::LibraryCount`] unless the build has exactly one.
    pub fn library(&self) -> Result<&VerifiedLibrary, VerifyError> {
        match self.libraries.as_slice() {
            [library] => Ok(library),
            libraries => Err(VerifyError::LibraryCount {
                repo: self.repo.clone(),
                version: self.version,
                variant: self.variant.clone(),
                found: libraries.iter().map(|library| library.path().display().to_string()).collect(),
            }),
        }
    }

    /// The verified text of a `.toml`, `.wgsl`, `.json` or `.py` file. `None`: the digest lists no such file, or it is
    /// not UTF-8.
    #[must_use]
    pub fn text(&self, path: &RelativePath) -> Option<&str> {
        self.texts.get(path).map(String::as_str)
    }

    /// How many files were hashed, `metadata.json` not counted.
    #[must_use]
    pub fn files(&self) -> usize {
        self.files
    }

    /// The bytes of those files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// Reads and checks every file of a build.
///
/// # Errors
/// [`VerifyError::Violations`] with everything that is not as published: a `metadata.json` that is not the anchored one
/// or is about another kernel, files with other bytes, missing files, files that the digest does not list, links and
/// other things that are no regular file. [`VerifyError::Absent`], [`VerifyError::Io`] and the other variants when the
/// files cannot be read or the texts in them are outside their format.
pub fn verify(snapshot: &Snapshot) -> Result<VerifiedSnapshot, VerifyError> {
    let _ = snapshot;
    unimplemented!()
}
