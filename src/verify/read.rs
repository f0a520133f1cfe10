//! Reading a build's files once: hashed, and kept where they will be used.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::path::Path;

use sha2::{Digest as _, Sha256};

use super::library::LibraryCopy;
use super::walk::{io_error, not_a_file, open_regular};
use super::{MAX_TEXT_BYTES, VerifiedLibrary, VerifyError};
use crate::digest::{Sha256Digest, Violation, ViolationKind};
use crate::fetch::MAX_FILE_BYTES;
use crate::manifest::{METADATA_FILE, Metadata};
use crate::names::RelativePath;

/// What was read of a build: a digest of each file, the texts and the libraries.
#[derive(Default)]
pub(super) struct ReadFiles {
    pub(super) digests: BTreeMap<RelativePath, Sha256Digest>,
    pub(super) texts: BTreeMap<RelativePath, String>,
    pub(super) libraries: Vec<VerifiedLibrary>,
    pub(super) bytes: u64,
}

impl ReadFiles {
    /// Hashes one file, and keeps the very bytes that were hashed where they will be used.
    pub(super) fn read(
        &mut self,
        path: &Path,
        relative: RelativePath,
        metadata: &Metadata,
    ) -> Result<Option<Violation>, VerifyError> {
        let Some(mut file) = open_regular(path)? else {
            return Ok(Some(not_a_file(relative.as_str(), "something else")));
        };
        // Without a digest the caller refuses the build, unless it is a local folder, which is taken as it is.
        let is_listed = metadata.digest.as_ref().is_none_or(|digest| digest.files.contains_key(&relative));
        let expected = metadata.digest.as_ref().and_then(|digest| digest.files.get(&relative));
        let too_large = |bytes: u64| Violation {
            kind: if is_listed { ViolationKind::DigestMismatch } else { ViolationKind::FileUnlisted },
            path: relative.to_string(),
            expected: expected.map(|expected| format!("sha256 {expected}")),
            actual: Some(format!("{bytes} bytes or more; no file of a kernel is larger than {MAX_FILE_BYTES}")),
        };
        // Before anything of it is copied: a file with holes is larger than what it takes on the disk.
        let length = file.metadata().map_err(io_error("look at", path))?.len();
        if length > MAX_FILE_BYTES {
            return Ok(Some(too_large(length)));
        }
        let mut library = (is_listed && is_library(&relative)).then(|| LibraryCopy::create(path)).transpose()?;
        let mut text = (is_listed && is_text(&relative)).then(Vec::new);
        let mut hasher = Sha256::new();
        let mut buffer = vec![0; 256 << 10];
        let mut bytes = 0;
        loop {
            let read = match file.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(io_error("read", path)(error)),
            };
            let piece = &buffer[..read];
            bytes += read as u64;
            if bytes > MAX_FILE_BYTES {
                return Ok(Some(too_large(bytes)));
            }
            hasher.update(piece);
            if let Some(library) = &mut library {
                library.write(piece)?;
            }
            if let Some(text) = text.as_mut().filter(|_| bytes <= MAX_TEXT_BYTES) {
                text.extend_from_slice(piece);
            }
        }
        let digest = Sha256Digest::from_bytes(hasher.finalize().into());
        // Of other bytes that they are others says more.
        if text.is_some() && bytes > MAX_TEXT_BYTES && expected.is_none_or(|expected| *expected == digest) {
            return Err(VerifyError::TextTooLarge { path: path.to_path_buf(), maximum: MAX_TEXT_BYTES });
        }
        if let Some(library) = library {
            self.libraries.push(library.seal(relative.clone(), digest)?);
        }
        if let Some(text) = text.and_then(|text| String::from_utf8(text).ok()) {
            self.texts.insert(relative.clone(), text);
        }
        if relative.as_str() != METADATA_FILE {
            self.bytes += bytes;
        }
        self.digests.insert(relative, digest);
        Ok(None)
    }
}

fn extension(path: &RelativePath) -> Option<String> {
    Path::new(path.as_str()).extension()?.to_str().map(str::to_ascii_lowercase)
}

fn is_text(path: &RelativePath) -> bool {
    extension(path).is_some_and(|extension| ["toml", "wgsl", "json", "py"].contains(&extension.as_str()))
}

/// A file that a system loader opens, `libx.so.1` included.
fn is_library(path: &RelativePath) -> bool {
    extension(path).is_some_and(|extension| ["so", "dylib", "dll"].contains(&extension.as_str()))
        || path.as_str().to_ascii_lowercase().rsplit('/').next().is_some_and(|name| name.contains(".so."))
}
