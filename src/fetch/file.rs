//! A single file whose digest is known, such as a model's weights.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::Path;

use sha2::{Digest as _, Sha256};

use super::http::NoTag;
use super::{Cancel, Cost, FetchError, Fetcher, Location, Progress, Session};
use crate::digest::Sha256Digest;
use crate::regular;

impl Fetcher {
    /// Downloads one file to `destination`, and only if it is `size` bytes with the digest `sha256`.
    ///
    /// The bytes go to a temporary file beside `destination` and are hashed on the way; the file appears under its name
    /// by one rename, once they are right. An existing file is replaced.
    ///
    /// # Errors
    /// [`FetchError::Offline`], the errors of a transfer, [`FetchError::TooShort`] and [`FetchError::ArchiveDigest`]
    /// for other bytes, [`FetchError::Io`] when the file cannot be written.
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
    regular::read(path, limit).map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge => FetchError::TooLong { url: path.display().to_string(), maximum: limit },
        _ => FetchError::io("read", path)(error),
    })
}

/// A file that comes in pieces, and is kept only if it is the one expected.
pub(super) struct Incoming<'a> {
    url: String,
    size: u64,
    to: &'a Path,
    name: &'a str,
    session: &'a Session<'a>,
    file: File,
    hasher: Sha256,
    bytes: u64,
}

impl<'a> Incoming<'a> {
    /// Makes the file `to` for what comes from `url`. `name` is what its progress is told by.
    pub(super) fn create(
        url: String,
        size: u64,
        to: &'a Path,
        name: &'a str,
        session: &'a Session<'a>,
    ) -> Result<Self, FetchError> {
        let file = File::create(to).map_err(FetchError::io("make", to))?;
        Ok(Self { url, size, to, name, session, file, hasher: Sha256::new(), bytes: 0 })
    }

    pub(super) fn push(&mut self, piece: &[u8]) -> Result<(), FetchError> {
        self.session.cancel.check()?;
        self.bytes += piece.len() as u64;
        if self.bytes > self.size {
            remove(self.to)?;
            return Err(FetchError::TooLong { url: self.url.clone(), maximum: self.size });
        }
        self.hasher.update(piece);
        self.file.write_all(piece).map_err(FetchError::io("write", self.to))?;
        self.session.cost.add_bytes(piece.len() as u64);
        self.session.progress.advanced(self.name, piece.len() as u64);
        Ok(())
    }

    /// Compares what came with what was expected.
    pub(super) fn finish(self, sha256: Sha256Digest) -> Result<u64, FetchError> {
        let Self { url, size, to, hasher, bytes, .. } = self;
        let actual = Sha256Digest::from_bytes(hasher.finalize().into());
        if bytes < size {
            remove(to)?;
            return Err(FetchError::TooShort { url, expected: size, actual: bytes });
        }
        if actual != sha256 {
            remove(to)?;
            return Err(FetchError::ArchiveDigest { url, expected: sha256, actual, bytes });
        }
        Ok(bytes)
    }
}

/// Copies a file of this machine into `incoming`.
pub(super) fn copy_file(path: &Path, incoming: &mut Incoming<'_>) -> Result<(), FetchError> {
    let mut from = regular::open(path).map_err(FetchError::io("open", path))?;
    let mut buffer = vec![0; 256 << 10];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(read) => incoming.push(&buffer[..read])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(FetchError::io("read", path)(error)),
        }
    }
}

fn remove(path: &Path) -> Result<(), FetchError> {
    std::fs::remove_file(path).map_err(FetchError::io("remove", path))
}
