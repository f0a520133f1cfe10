//! Writing to the cache: one process at a time for each archive, and whole archives only.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::cache::{Cache, make_folder};
use super::hf_cache::{FileLock, LockTag};
use super::{FetchError, Session};
use crate::digest::Sha256Digest;

impl Cache {
    /// Waits until this process alone works on an archive, on this machine, at most `patience`. The lock ends with the
    /// value, or with the process.
    ///
    /// # Errors
    /// [`FetchError::Io`] when the lock file cannot be made or locked, [`FetchError::LockTimeout`].
    pub(super) fn lock(
        &self,
        archive: Sha256Digest,
        what: &str,
        patience: Duration,
        session: &Session<'_>,
    ) -> Result<ArchiveLock, FetchError> {
        let path = self.root().join("locks").join(format!("{archive}.lock"));
        let file = FileLock::acquire(&path, what, patience, session)?;
        let lock = ArchiveLock { file, place: Workplace { archive, temporary: self.root().join("tmp") } };
        lock.place.sweep()?;
        Ok(lock)
    }

    /// Puts a whole unpacked archive in its final place by one rename, in exchange for what is there.
    pub(super) fn install(&self, unpacked: &Path, archive: Sha256Digest) -> Result<(), FetchError> {
        let archives = self.root().join("archives");
        make_folder(&archives)?;
        let place = self.archive_folder(archive);
        if place.symlink_metadata().is_err() {
            return fs::rename(unpacked, &place).map_err(FetchError::io("move into place", &place));
        }
        exchange(unpacked, &place).map_err(FetchError::io("replace", &place))
    }
}

/// The right to write one archive's entries in the cache.
#[derive(Debug)]
pub(super) struct ArchiveLock {
    file: FileLock,
    place: Workplace,
}

impl ArchiveLock {
    /// The place to work in, and the lock with the tag of a partial download in it. Both are to live as long as the
    /// work does.
    pub(super) fn split(self) -> (Workplace, LockTag) {
        (self.place, LockTag(self.file))
    }
}

/// Where one archive's work in progress stands.
#[derive(Debug)]
pub(super) struct Workplace {
    archive: Sha256Digest,
    temporary: PathBuf,
}

impl Workplace {
    /// The path of the download, which may hold the start of one.
    pub(super) fn partial(&self) -> Result<PathBuf, FetchError> {
        make_folder(&self.temporary)?;
        Ok(self.temporary.join(format!("{}.incomplete", self.archive)))
    }

    /// A new folder for work in progress. It is removed with the value.
    pub(super) fn work_folder(&self) -> Result<tempfile::TempDir, FetchError> {
        make_folder(&self.temporary)?;
        tempfile::Builder::new()
            .prefix(&format!("{}-", self.archive))
            .tempdir_in(&self.temporary)
            .map_err(FetchError::io("make a folder in", &self.temporary))
    }

    /// Removes what a killed process left of this archive: whoever holds the lock has no rival.
    fn sweep(&self) -> Result<(), FetchError> {
        let Ok(entries) = fs::read_dir(&self.temporary) else { return Ok(()) };
        let prefix = format!("{}-", self.archive);
        for entry in entries.flatten() {
            if entry.file_name().to_str().is_some_and(|name| name.starts_with(&prefix)) {
                fs::remove_dir_all(entry.path()).map_err(FetchError::io("remove", entry.path()))?;
            }
        }
        Ok(())
    }
}

/// Exchanges two folders, so that a kill leaves one or the other in place.
pub(super) fn exchange(new: &Path, place: &Path) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        match renameat_with(CWD, new, CWD, place, RenameFlags::EXCHANGE) {
            Ok(()) => return Ok(()),
            // File systems without this call take the way below.
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS | rustix::io::Errno::OPNOTSUPP) => {}
            Err(error) => return Err(error.into()),
        }
    }
    exchange_by_renames(new, place)
}

/// The same in two steps. A kill between them leaves no entry, which the next fetch fills.
fn exchange_by_renames(new: &Path, place: &Path) -> io::Result<()> {
    let aside = new.with_extension("old");
    fs::rename(place, &aside)?;
    fs::rename(new, place).inspect_err(|_| {
        if let Err(error) = fs::rename(&aside, place) {
            tracing::warn!(%error, place = %place.display(), "the replaced archive could not be put back");
        }
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io;
    use std::path::Path;

    use super::{exchange, exchange_by_renames};

    #[test]
    fn a_replacement_takes_the_place_and_a_failed_one_leaves_it() {
        let ways: [fn(&Path, &Path) -> io::Result<()>; 2] = [exchange, exchange_by_renames];
        for replace in ways {
            let folder = tempfile::tempdir().unwrap();
            let (new, place) = (folder.path().join("new"), folder.path().join("place"));
            for (path, text) in [(&new, "new"), (&place, "old")] {
                fs::create_dir(path).unwrap();
                fs::write(path.join("file"), text).unwrap();
            }
            replace(&new, &place).unwrap();
            assert_eq!(fs::read_to_string(place.join("file")).unwrap(), "new");
            replace(&folder.path().join("absent"), &place).unwrap_err();
            assert_eq!(fs::read_to_string(place.join("file")).unwrap(), "new");
        }
    }
}
