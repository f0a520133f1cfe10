//! A packed kernel, ready to be published.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::PackError;
use super::collect::io_error;
use crate::digest::Sha256Digest;
use crate::manifest::{Artifact, ArtifactUrl, KernelManifest, MAX_MANIFEST_BYTES, ManifestError};
use crate::regular;

/// A kernel manifest of this machine with its archives, each of which has the size and the digest that the manifest
/// states.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publication {
    manifest: KernelManifest,
    archives: Vec<PathBuf>,
}

impl Publication {
    /// Reads a manifest, such as [`write_manifest`](super::write_manifest) writes, and hashes every archive in it.
    ///
    /// # Errors
    /// [`PackError::Io`] for a file that cannot be read; [`PackError::Format`] for a text that is no manifest;
    /// [`PackError::NothingToPublish`] for a manifest without archives; [`PackError::NotLocal`] for an archive that is
    /// not on this machine; [`PackError::OtherArchive`] for one that is not the manifest's.
    pub fn open(manifest: &Path) -> Result<Self, PackError> {
        let path = manifest;
        let manifest = read_manifest(path)?;
        if manifest.artifacts.is_empty() {
            return Err(PackError::NothingToPublish { manifest: path.to_path_buf() });
        }
        let folder = path.parent().unwrap_or_else(|| Path::new(""));
        let mut archives = Vec::new();
        for artifact in &manifest.artifacts {
            let archive = local_path(artifact, folder)?;
            let file = regular::open(&archive).map_err(io_error("open", &archive))?;
            copy_checked(file, &archive, artifact, &mut io::sink(), Path::new(""))?;
            archives.push(archive);
        }
        Ok(Self { manifest, archives })
    }

    /// The manifest.
    #[must_use]
    pub fn manifest(&self) -> &KernelManifest {
        &self.manifest
    }

    /// The archives, in the order of the manifest's artifacts.
    #[must_use]
    pub fn archives(&self) -> &[PathBuf] {
        &self.archives
    }
}

/// Reads a manifest of this machine.
pub(super) fn read_manifest(path: &Path) -> Result<KernelManifest, PackError> {
    let origin = path.display().to_string();
    let invalid = |reason: String| PackError::Format {
        source: ManifestError::Invalid { origin: origin.clone(), field: "manifest".to_owned(), reason },
    };
    let text = regular::read(path, MAX_MANIFEST_BYTES).map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge => invalid(format!("longer than {MAX_MANIFEST_BYTES} bytes")),
        _ => io_error("read", path)(error),
    })?;
    let text = String::from_utf8(text)
        .map_err(|error| invalid(format!("not UTF-8 at byte {}", error.utf8_error().valid_up_to())))?;
    KernelManifest::parse(&text, &origin).map_err(|source| PackError::Format { source })
}

/// Where an archive is, given the folder of its manifest.
pub(super) fn local_path(artifact: &Artifact, folder: &Path) -> Result<PathBuf, PackError> {
    let path = match &artifact.url {
        ArtifactUrl::Relative(path) => Some(path.below(folder)),
        ArtifactUrl::Absolute(url) if url.scheme() == "file" => url.to_file_path().ok(),
        ArtifactUrl::Absolute(_) => None,
    };
    path.ok_or_else(|| PackError::NotLocal { variant: artifact.variant, url: artifact.url.to_string() })
}

/// Copies an archive while it is hashed. Other bytes than the manifest's are an error, after which `out` is to be
/// thrown away. `from` and `to` name the files in errors.
pub(super) fn copy_checked(
    archive: impl Read,
    from: &Path,
    artifact: &Artifact,
    out: &mut impl Write,
    to: &Path,
) -> Result<(), PackError> {
    // One byte more than there may be: a longer file is another file.
    let mut archive = archive.take(artifact.size.saturating_add(1));
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 256 << 10];
    let mut bytes = 0;
    loop {
        let read = match archive.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(io_error("read", from)(error)),
        };
        hasher.update(&buffer[..read]);
        out.write_all(&buffer[..read]).map_err(io_error("write", to))?;
        bytes += read as u64;
    }
    let actual = Sha256Digest::from_bytes(hasher.finalize().into());
    if bytes == artifact.size && actual == artifact.sha256 {
        return Ok(());
    }
    Err(PackError::OtherArchive {
        archive: from.to_path_buf(),
        expected: artifact.sha256,
        expected_bytes: artifact.size,
        actual,
        actual_bytes: bytes,
    })
}
