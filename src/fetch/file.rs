//! A single file whose digest is known, such as a model's weights.

use std::path::Path;

use super::download::Download;
use super::{FetchError, Fetcher, Location, Progress};
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
        let mut download = Download::create(&partial)?;
        let name = destination.file_name().map_or_else(|| location.to_string(), |n| n.to_string_lossy().into_owned());
        progress.started(&name, Some(size));
        self.read(location, "the file", size, &mut |piece| {
            progress.advanced(&name, piece.len() as u64);
            download.write(piece)
        })?;
        let (actual, bytes) = download.finish();
        let url = location.to_string();
        if bytes < size {
            return Err(FetchError::TooShort { url, expected: size, actual: bytes });
        }
        if actual != sha256 {
            return Err(FetchError::ArchiveDigest { url, expected: sha256, actual, bytes });
        }
        std::fs::rename(&partial, destination).map_err(FetchError::io("move into place", destination))?;
        progress.finished(&name);
        Ok(())
    }
}
