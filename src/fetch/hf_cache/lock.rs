//! Locks between processes of one machine.

use std::fs::{self, File, TryLockError};
use std::io::{Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::layout::RepoFolder;
use crate::digest::BlobId;
use crate::fetch::http::TagStore;
use crate::fetch::{FetchError, Session};
use crate::regular;

/// How often a lock is tried while another process holds it.
const POLL: Duration = Duration::from_millis(20);

/// A held lock. It ends with the value, or with the process.
#[derive(Debug)]
pub(in crate::fetch) struct FileLock {
    /// `None`: the file system has no locks. Then nothing keeps another process away.
    file: Option<File>,
}

impl FileLock {
    /// Waits until this process alone holds the lock, at most `patience`.
    pub(in crate::fetch) fn acquire(
        path: &Path,
        what: &str,
        patience: Duration,
        session: &Session<'_>,
    ) -> Result<Self, FetchError> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(FetchError::io("make the folder", folder))?;
        }
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        let file = regular::open_with(&mut options, path).map_err(FetchError::io("open", path))?;
        let start = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self { file: Some(file) }),
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) if error.kind() == std::io::ErrorKind::Unsupported => {
                    tracing::warn!(path = %path.display(), "the file system has no locks; downloads may be doubled");
                    return Ok(Self { file: None });
                }
                Err(TryLockError::Error(source)) => return Err(FetchError::io("lock", path)(source)),
            }
            let waited = start.elapsed();
            if waited >= patience {
                return Err(FetchError::LockTimeout { path: path.to_path_buf(), waited });
            }
            if waited < POLL {
                session.progress.note(&format!("another process fetches {what}; waiting for it"));
            }
            session.cancel.check()?;
            std::thread::sleep(POLL.min(patience.saturating_sub(waited)));
        }
    }

    /// Whether nothing keeps other processes away.
    pub(in crate::fetch) fn is_absent(&self) -> bool {
        self.file.is_none()
    }
}

/// Whether a process holds a lock at this moment. A lock that is not there, or cannot be looked at, is held by nobody.
pub(super) fn is_held(path: &Path) -> bool {
    regular::open_with(File::options().write(true), path)
        .is_ok_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
}

impl RepoFolder {
    /// The lock of a whole kernel: one process of ours lists and fetches it.
    pub(in crate::fetch) fn lock_path(&self) -> PathBuf {
        self.locks.join("kernelhub.lock")
    }

    /// The lock of one blob, which the Python tools take too.
    pub(in crate::fetch) fn blob_lock_path(&self, id: BlobId) -> PathBuf {
        self.locks.join(format!("{id}.lock"))
    }
}

/// Keeps a partial file's tag in the text of its lock file, where only the lock's holder writes.
#[derive(Debug)]
pub(in crate::fetch) struct LockTag(pub(in crate::fetch) FileLock);

/// Longest tag that is kept, in bytes.
const MAX_TAG_BYTES: u64 = 512;

impl TagStore for LockTag {
    fn load(&self) -> Option<String> {
        let mut file = self.0.file.as_ref()?;
        let mut text = String::new();
        file.rewind().ok()?;
        file.take(MAX_TAG_BYTES).read_to_string(&mut text).ok()?;
        let plain = text.len() > 2 && text.starts_with('"') && text.ends_with('"');
        plain.then_some(text)
    }

    fn store(&mut self, tag: Option<&str>) {
        let Some(mut file) = self.0.file.as_ref() else { return };
        let tag = tag.filter(|tag| tag.len() as u64 <= MAX_TAG_BYTES).unwrap_or_default();
        let written = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(tag.as_bytes()));
        if let Err(error) = written {
            // Without it a resumed download compares less and hashes the same.
            tracing::debug!(%error, "the tag of a partial file could not be kept");
        }
    }
}
