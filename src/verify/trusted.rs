//! Hashes that are believed without hashing again. Off unless a user asks for it.
//!
//! A record says that a file with this device, inode, size, and times of its last change (of its content, and of its
//! entry) had this digest. Whoever can set all of those, which takes the rights of the system's administrator or a
//! clock that is set back, gets other bytes past it: that is what the option gives up. See SECURITY.md.
//!
//! The records stand in a folder that only its owner can enter. One that is another user's, that others may write to,
//! or that is no folder is not believed, and neither is such a file in it: everything is then hashed as ever.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::digest::Sha256Digest;

/// Smaller files are hashed in no time, in bytes.
pub const TRUSTED_MIN_BYTES: u64 = 1 << 20;
/// A file must not have changed for so long when its hash is recorded: two changes within a file system's tick have one
/// time.
const SETTLED: Duration = Duration::from_secs(2);
/// The largest record, in bytes.
const MAX_RECORD_BYTES: u64 = 4096;

/// Where hashes are recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustedHashes {
    folder: PathBuf,
}

/// What tells a file's state without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    /// In bytes.
    pub(super) size: u64,
    /// In nanoseconds since 1970.
    modified: i128,
    changed: i128,
    owner: u32,
    mode: u32,
}

impl Stamp {
    #[cfg(unix)]
    pub(super) fn of(metadata: &fs::Metadata) -> Self {
        use std::os::unix::fs::MetadataExt as _;
        let time = |seconds: i64, nanoseconds: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds);
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.len(),
            modified: time(metadata.mtime(), metadata.mtime_nsec()),
            changed: time(metadata.ctime(), metadata.ctime_nsec()),
            owner: metadata.uid(),
            mode: metadata.mode(),
        }
    }

    #[cfg(not(unix))]
    pub(super) fn of(metadata: &fs::Metadata) -> Self {
        Self { device: 0, inode: 0, size: metadata.len(), modified: 0, changed: 0, owner: u32::MAX, mode: 0o777 }
    }

    /// Whether only this user can change the file.
    fn is_ours(&self) -> bool {
        self.owner == own_user() && self.mode & 0o022 == 0
    }

    fn is_settled(&self) -> bool {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let latest = i128::try_from(now.saturating_sub(SETTLED).as_nanos()).unwrap_or(0);
        self.modified < latest && self.changed < latest
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    stamp: Stamp,
    sha256: Sha256Digest,
}

impl TrustedHashes {
    /// Records below this folder, which is made when it is needed.
    #[must_use]
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// The recorded digest of a file in this very state. `None`: it has to be hashed.
    pub(super) fn digest(&self, stamp: &Stamp) -> Option<Sha256Digest> {
        if stamp.size < TRUSTED_MIN_BYTES || !stamp.is_ours() || !is_private(&self.folder, true) {
            return None;
        }
        let path = self.place(stamp);
        if !is_private(&path, false) {
            return None;
        }
        let mut text = Vec::new();
        open_record(&path)?.take(MAX_RECORD_BYTES).read_to_end(&mut text).ok()?;
        let record: Record = serde_json::from_slice(&text).ok()?;
        (record.stamp == *stamp).then_some(record.sha256)
    }

    /// Records a digest, as far as that can be done: where it can't, the file is hashed again next time.
    pub(super) fn record(&self, stamp: &Stamp, sha256: Sha256Digest) {
        if stamp.size < TRUSTED_MIN_BYTES || !stamp.is_ours() || !stamp.is_settled() {
            return;
        }
        if let Err(error) = self.write(stamp, sha256) {
            tracing::debug!(%error, folder = %self.folder.display(), "a hash was not recorded");
        }
    }

    fn write(&self, stamp: &Stamp, sha256: Sha256Digest) -> std::io::Result<()> {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        {
            use std::os::unix::fs::DirBuilderExt as _;
            builder.mode(0o700);
        }
        builder.create(&self.folder)?;
        if !is_private(&self.folder, true) {
            return Err(std::io::Error::other("others can write to the folder"));
        }
        // A temporary file is made for its owner alone.
        let mut file = tempfile::Builder::new().prefix(".record-").tempfile_in(&self.folder)?;
        file.write_all(&serde_json::to_vec(&Record { stamp: *stamp, sha256 })?)?;
        file.persist(self.place(stamp))?;
        Ok(())
    }

    fn place(&self, stamp: &Stamp) -> PathBuf {
        self.folder.join(format!("{:x}-{:x}.json", stamp.device, stamp.inode))
    }
}

#[cfg(unix)]
fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[cfg(not(unix))]
fn own_user() -> u32 {
    0
}

/// Whether something is this user's, nobody else's to write, and of the kind that is expected; links are not followed.
#[cfg(unix)]
fn is_private(path: &Path, is_folder: bool) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    path.symlink_metadata().is_ok_and(|metadata| {
        let kind = if is_folder { metadata.is_dir() } else { metadata.is_file() };
        // A folder is for its owner's eyes, too: what a user runs is nobody's business.
        let others = if is_folder { 0o077 } else { 0o022 };
        kind && metadata.uid() == own_user() && metadata.mode() & others == 0
    })
}

#[cfg(not(unix))]
fn is_private(_: &Path, _: bool) -> bool {
    false
}

/// Opens a record without following a link that took its place meanwhile.
fn open_record(path: &Path) -> Option<fs::File> {
    super::walk::open_regular(path).ok()?
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::{Stamp, TRUSTED_MIN_BYTES, TrustedHashes};
    use crate::digest::Sha256Digest;

    fn large() -> Stamp {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut stamp = Stamp::of(&file.as_file().metadata().unwrap());
        (stamp.size, stamp.modified, stamp.changed) = (TRUSTED_MIN_BYTES, 1, 1);
        stamp
    }

    #[test]
    fn a_record_is_of_one_state_of_one_file() {
        let folder = tempfile::tempdir().unwrap();
        let trusted = TrustedHashes::at(folder.path().join("verified"));
        let (stamp, digest) = (large(), Sha256Digest::of(b"x"));
        assert_eq!(trusted.digest(&stamp), None);
        trusted.record(&stamp, digest);
        assert_eq!(trusted.digest(&stamp), Some(digest));
        let others = [
            Stamp { inode: stamp.inode + 1, ..stamp },
            Stamp { device: stamp.device + 1, ..stamp },
            Stamp { size: stamp.size + 1, ..stamp },
            Stamp { modified: 2, ..stamp },
            Stamp { changed: 2, ..stamp },
            Stamp { owner: stamp.owner + 1, ..stamp },
            Stamp { mode: stamp.mode | 0o002, ..stamp },
        ];
        for other in others {
            assert_eq!(trusted.digest(&other), None, "{other:?}");
        }
        // What may still change within the clock's tick, is small, or is another user's is not recorded.
        let fresh = Stamp { inode: 1, modified: i128::MAX, ..stamp };
        let small = Stamp { inode: 2, size: 1, ..stamp };
        let foreign = Stamp { inode: 3, owner: stamp.owner + 1, ..stamp };
        for unfit in [fresh, small, foreign] {
            trusted.record(&unfit, digest);
            assert!(!trusted.place(&unfit).exists(), "{unfit:?}");
        }
    }

    #[test]
    fn a_folder_that_others_can_enter_or_write_to_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("verified");
        let trusted = TrustedHashes::at(&place);
        let (stamp, digest) = (large(), Sha256Digest::of(b"x"));
        trusted.record(&stamp, digest);
        let mode = |path: &std::path::Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        assert_eq!(std::fs::metadata(&place).unwrap().permissions().mode() & 0o777, 0o700);
        for open in [0o701, 0o710, 0o707, 0o777] {
            mode(&place, open);
            assert_eq!(trusted.digest(&stamp), None, "{open:o}");
            trusted.record(&Stamp { inode: 7, ..stamp }, digest);
        }
        mode(&place, 0o700);
        assert!(!trusted.place(&Stamp { inode: 7, ..stamp }).exists(), "nothing was written while others could");
        assert_eq!(trusted.digest(&stamp), Some(digest));
        let record = trusted.place(&stamp);
        mode(&record, 0o622);
        assert_eq!(trusted.digest(&stamp), None, "a record that others can write to");
        mode(&record, 0o600);
        // A link in a record's place, and a link in the folder's.
        std::fs::rename(&record, folder.path().join("elsewhere")).unwrap();
        std::os::unix::fs::symlink(folder.path().join("elsewhere"), &record).unwrap();
        assert_eq!(trusted.digest(&stamp), None);
        std::os::unix::fs::symlink(&place, folder.path().join("link")).unwrap();
        assert_eq!(TrustedHashes::at(folder.path().join("link")).digest(&stamp), None);
    }

    /// Needs the right to give files away, as an administrator has.
    #[test]
    fn a_folder_or_record_of_another_user_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("verified");
        let trusted = TrustedHashes::at(&place);
        let (stamp, digest) = (large(), Sha256Digest::of(b"x"));
        trusted.record(&stamp, digest);
        let record = trusted.place(&stamp);
        for given in [&place, &record] {
            if let Err(error) = std::os::unix::fs::chown(given, Some(12345), None) {
                eprintln!("skipped: {error}");
                return;
            }
            assert_eq!(trusted.digest(&stamp), None, "{}", given.display());
            std::os::unix::fs::chown(given, Some(super::own_user()), None).unwrap();
        }
        assert_eq!(trusted.digest(&stamp), Some(digest));
    }
}
