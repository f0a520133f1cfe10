//! A single file whose digest is known, such as a model's weights.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use sha2::{Digest as _, Sha256};

use super::http::NoTag;
use super::{Cancel, Cost, FetchError, Fetcher, Location, Progress, Session};
use crate::digest::Sha256Digest;

impl Fetcher {
    /// Downloads one file to `destination`, and only if it is `size` bytes with the digest `sha256`.
    ///
    /// The bytes go to a temporary file beside `destination` and are hashed on the way; the file appears under its name
    /// by one rename, once they are right. An existing file is replaced.
    ///
    /// # Errors
    /// [`FetchError::Offline`], the errors of a transfer, [`FetchError::TooShort`] and [`FetchError::ArchiveDigest`] for
    /// other bytes, [`FetchError::Io`] when the file cannot be written.
    pub fn fetch_file(
        &self,
        location: &Location,
        size: u64,
        sha256: Sha256Digest,
        destination: &Path,
        progress: &dyn Progress,
    ) -> Result<(), FetchError> {
        let folder = match destination.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        std::fs::create_dir_all(folder).map_err(FetchError::io("make the folder", folder))?;
        let work = tempfile::Builder::new()
            .prefix(".download-")
            .tempdir_in(folder)
            .map_err(FetchError::io("make a folder in", folder))?;
        let partial = work.path().join("file");
        let name = destination.file_name().map_or_else(|| location.to_string(), |n| n.to_string_lossy().into_owned());
        let (cancel, cost) = (Cancel::default(), Cost::default());
        let session = Session::new(progress, &cancel, &cost);
        progress.started(&name, Some(size));
        self.read_exactly(location, size, sha256, &partial, &mut NoTag, &name, &session)?;
        std::fs::rename(&partial, destination).map_err(FetchError::io("move into place", destination))?;
        progress.finished(&name);
        Ok(())
    }
}

/// Reads a small file of this machine, at most `limit` bytes of it.
pub(super) fn read_file(path: &Path, limit: u64) -> Result<Vec<u8>, FetchError> {
    let file = File::open(path).map_err(FetchError::io("open", path))?;
    let mut text = Vec::new();
    file.take(limit + 1).read_to_end(&mut text).map_err(FetchError::io("read", path))?;
    if text.len() as u64 > limit {
        return Err(FetchError::TooLong { url: path.display().to_string(), maximum: limit });
    }
    Ok(text)
}

/// Copies a file of this machine and compares the copy with its digest.
pub(super) fn copy_file(
    path: &Path,
    size: u64,
    sha256: Sha256Digest,
    to: &Path,
    name: &str,
    session: &Session<'_>,
) -> Result<u64, FetchError> {
    let url = || path.display().to_string();
    let mut from = File::open(path).map_err(FetchError::io("open", path))?;
    let mut copy = File::create(to).map_err(FetchError::io("make", to))?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 256 << 10];
    let mut bytes = 0;
    loop {
        session.cancel.check()?;
        let read = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(FetchError::io("read", path)(error)),
        };
        bytes += read as u64;
        if bytes > size {
            remove(to)?;
            return Err(FetchError::TooLong { url: url(), maximum: size });
        }
        hasher.update(&buffer[..read]);
        copy.write_all(&buffer[..read]).map_err(FetchError::io("write", to))?;
        session.cost.add_bytes(read as u64);
        session.progress.advanced(name, read as u64);
    }
    let actual = Sha256Digest::from_bytes(hasher.finalize().into());
    if bytes < size {
        remove(to)?;
        return Err(FetchError::TooShort { url: url(), expected: size, actual: bytes });
    }
    if actual != sha256 {
        remove(to)?;
        return Err(FetchError::ArchiveDigest { url: url(), expected: sha256, actual, bytes });
    }
    Ok(bytes)
}

fn remove(path: &Path) -> Result<(), FetchError> {
    std::fs::remove_file(path).map_err(FetchError::io("remove", path))
}
