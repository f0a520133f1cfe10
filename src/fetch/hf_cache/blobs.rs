//! Blobs, and the files of snapshots that stand for them.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::layout::RepoFolder;
use crate::digest::{BlobId, GitOid, Sha256Digest};
use crate::fetch::FetchError;
use crate::regular;

impl RepoFolder {
    /// Whether a file's bytes are those of the blob, and have this sha256 where one is known.
    pub(in crate::fetch) fn holds(path: &Path, id: BlobId, sha256: Option<Sha256Digest>) -> Result<bool, FetchError> {
        let file = match regular::open(path) {
            Ok(file) => file,
            Err(error) if [io::ErrorKind::NotFound, io::ErrorKind::InvalidInput].contains(&error.kind()) => {
                return Ok(false);
            }
            Err(error) => return Err(FetchError::io("open", path)(error)),
        };
        let read = FetchError::io("read", path);
        let is_blob = match id {
            BlobId::Sha256(expected) => return Ok(sha256_of(file).map_err(read)? == expected),
            BlobId::Git(expected) => {
                let length = file.metadata().map_err(FetchError::io("look at", path))?.len();
                GitOid::of_reader(length, file).map_err(read)? == expected
            }
        };
        match sha256.filter(|_| is_blob) {
            None => Ok(is_blob),
            Some(expected) => {
                let file = regular::open(path).map_err(FetchError::io("open", path))?;
                Ok(sha256_of(file).map_err(FetchError::io("read", path))? == expected)
            }
        }
    }

    /// Makes a blob appear in a snapshot: by a relative link, or where there are no links by the file itself. `last`:
    /// no other place needs this blob now, so that it may be moved.
    pub(in crate::fetch) fn place(&self, id: BlobId, pointer: &Path, last: bool) -> Result<(), FetchError> {
        let folder = pointer.parent().unwrap_or(&self.path);
        fs::create_dir_all(folder).map_err(FetchError::io("make the folder", folder))?;
        if pointer.symlink_metadata().is_ok() {
            fs::remove_file(pointer).map_err(FetchError::io("remove", pointer))?;
        }
        if self.links && link(&self.relative_blob(id, pointer), pointer)? {
            return Ok(());
        }
        let blob = self.blob(id);
        if last {
            return fs::rename(&blob, pointer).map_err(FetchError::io("move into place", pointer));
        }
        // Beside the blobs, because a kill must not leave a stranger in the build's folder.
        let copy = self.blobs().join(format!("{id}.{}.incomplete", std::process::id()));
        fs::copy(&blob, &copy).map_err(FetchError::io("copy", &blob))?;
        fs::rename(&copy, pointer).map_err(FetchError::io("move into place", pointer))
    }

    /// The way from a file in a snapshot to a blob.
    fn relative_blob(&self, id: BlobId, pointer: &Path) -> PathBuf {
        let depth = pointer.parent().and_then(|folder| folder.strip_prefix(&self.path).ok());
        let up = depth.map_or(0, |folder| folder.components().count());
        let mut way: PathBuf = std::iter::repeat_n("..", up).collect();
        way.push("blobs");
        way.push(id.to_string());
        way
    }
}

fn sha256_of(file: File) -> io::Result<Sha256Digest> {
    Sha256Digest::of_reader(file).map(|(digest, _)| digest)
}

/// Makes a link. `false`: this file system or this user has none.
#[cfg(unix)]
fn link(target: &Path, pointer: &Path) -> Result<bool, FetchError> {
    use rustix::io::Errno;
    match std::os::unix::fs::symlink(target, pointer) {
        Ok(()) => Ok(true),
        Err(error) => {
            let none = [Errno::PERM, Errno::OPNOTSUPP, Errno::NOSYS, Errno::INVAL].map(Errno::raw_os_error);
            if error.raw_os_error().is_some_and(|code| none.contains(&code)) {
                return Ok(false);
            }
            Err(FetchError::io("make the link", pointer)(error))
        }
    }
}

#[cfg(not(unix))]
fn link(_: &Path, _: &Path) -> Result<bool, FetchError> {
    Ok(false)
}
