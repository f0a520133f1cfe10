//! What was read of files before. A file that has not changed since is not read again: bringing up a kernel looks at
//! the same few libraries, every time.

use crate::regular;
use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// The most files that are known; a process maps a few dozen.
const MAX_KNOWN: usize = 1024;
/// A file must not have changed for so long when it is read to be known afterwards: two changes within a file system's
/// tick have one time.
pub(super) const SETTLED: Duration = Duration::from_secs(2);

/// What tells a file's state without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct State {
    device: u64,
    inode: u64,
    bytes: u64,
    /// Since 1970.
    modified: Duration,
    changed: Duration,
}

impl State {
    #[cfg(unix)]
    fn of(metadata: &Metadata) -> Option<Self> {
        use std::os::unix::fs::MetadataExt as _;
        // Times before 1970 are nobody's: such a file is read each time.
        let time = |seconds: i64, nanoseconds: i64| {
            Some(Duration::new(u64::try_from(seconds).ok()?, u32::try_from(nanoseconds).ok()?))
        };
        Some(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            modified: time(metadata.mtime(), metadata.mtime_nsec())?,
            changed: time(metadata.ctime(), metadata.ctime_nsec())?,
        })
    }

    /// Nothing tells it there: every file is read each time.
    #[cfg(not(unix))]
    fn of(_: &Metadata) -> Option<Self> {
        None
    }

    fn is_settled(&self, for_at_least: Duration) -> bool {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        now.checked_sub(for_at_least).is_some_and(|latest| self.modified.max(self.changed) <= latest)
    }
}

/// What was read of each file, and the state that it was in. For any thread; nothing is read under the lock.
#[derive(Debug)]
pub(super) struct Known<T> {
    files: Mutex<HashMap<PathBuf, (State, T)>>,
    settled: Duration,
}

impl<T: Clone> Known<T> {
    pub(super) fn new(settled: Duration) -> Self {
        Self { files: Mutex::default(), settled }
    }

    /// What `read` makes of the file as it is now. `None`: it is no file, or cannot be opened.
    pub(super) fn get(&self, path: &Path, read: impl FnOnce(&File) -> T) -> Option<T> {
        let is_file = |metadata: &Metadata| metadata.is_file();
        let now = State::of(&path.metadata().ok().filter(is_file)?);
        if let Some((known, value)) = self.files.lock().unwrap_or_else(PoisonError::into_inner).get(path)
            && Some(*known) == now
        {
            return Some(value.clone());
        }
        let file = regular::open(path).ok()?;
        let before = State::of(&file.metadata().ok().filter(is_file)?);
        let value = read(&file);
        // What was written to meanwhile may have been read in parts.
        let after = file.metadata().ok().and_then(|metadata| State::of(&metadata));
        if let (Some(state), true) = (before, before == after)
            && state.is_settled(self.settled)
        {
            let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
            if files.len() >= MAX_KNOWN {
                files.clear();
            }
            files.insert(path.to_path_buf(), (state, value.clone()));
        }
        Some(value)
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::cell::Cell;
    use std::fs::File;
    use std::io::Read as _;
    use std::time::Duration;

    use super::Known;

    #[test]
    fn a_file_is_read_again_when_it_changed_and_only_then() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let reads = Cell::new(0);
        let read = |mut file: &File| {
            reads.set(reads.get() + 1);
            let mut text = String::new();
            file.read_to_string(&mut text).unwrap();
            text
        };
        let known = Known::new(Duration::ZERO);
        assert_eq!(known.get(&path, read), None, "there is none");
        std::fs::write(&path, "first").unwrap();
        for _ in 0..3 {
            assert_eq!(known.get(&path, read).unwrap(), "first");
        }
        assert_eq!(reads.get(), 1);
        std::fs::write(&path, "longer").unwrap();
        assert_eq!(known.get(&path, read).unwrap(), "longer");
        // Another file of the same length and time of its content in its place.
        let times = path.metadata().unwrap().modified().unwrap();
        let other = folder.path().join("y");
        std::fs::write(&other, "LONGER").unwrap();
        File::options().write(true).open(&other).unwrap().set_modified(times).unwrap();
        std::fs::rename(&other, &path).unwrap();
        assert_eq!(known.get(&path, read).unwrap(), "LONGER");
        assert_eq!(reads.get(), 3);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(known.get(&path, read), None, "it is gone");
        std::fs::create_dir(&path).unwrap();
        assert_eq!(known.get(&path, read), None, "a folder is no file");
    }

    #[test]
    fn what_changed_a_moment_ago_is_not_kept() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let known = Known::new(Duration::from_hours(1));
        let reads = Cell::new(0);
        for _ in 0..2 {
            known.get(file.path(), |_| reads.set(reads.get() + 1)).unwrap();
        }
        assert_eq!(reads.get(), 2, "two changes within a tick have one time");
    }
}
