//! Extended headers: entries that say something about the next one.

use std::io::Read;

use tar::EntryType;

use super::{ArchiveError, UnpackError, broken};
use crate::fetch::limits::MAX_HEADER_BYTES;

/// What pax may say about an entry without changing what we unpack. A `path` counts; everything else is refused.
const HARMLESS: [&str; 7] = ["mtime", "atime", "ctime", "uid", "gid", "uname", "gname"];

/// The name that extended headers gave to the entry that follows.
#[derive(Debug, Default)]
pub(super) struct Extended {
    name: Option<Vec<u8>>,
    pending: bool,
}

impl Extended {
    /// Reads the entry if it is an extended header. False: it is none.
    pub(super) fn read<R: Read>(&mut self, entry: &mut tar::Entry<'_, R>, index: u64) -> Result<bool, UnpackError> {
        let refuse = |key: &str| Err(ArchiveError::ExtendedHeader { index, key: key.to_owned() }.into());
        let stray = |reason| Err(ArchiveError::StrayHeader { index, reason }.into());
        match entry.header().entry_type() {
            EntryType::XHeader => {
                let content = content(entry, index)?;
                for record in tar::PaxExtensions::new(&content) {
                    let Ok(record) = record else { return stray("is damaged") };
                    match record.key() {
                        Ok("path") => self.set_name(record.value_bytes().to_vec(), index)?,
                        Ok(key) if HARMLESS.contains(&key) => {}
                        Ok(key) => return refuse(&key.escape_debug().to_string()),
                        Err(_) => return stray("has a key that is not UTF-8"),
                    }
                }
            }
            EntryType::GNULongName => {
                let mut name = content(entry, index)?;
                if name.last() == Some(&0) {
                    name.pop();
                }
                self.set_name(name, index)?;
            }
            EntryType::GNULongLink => return refuse("a long link name"),
            EntryType::XGlobalHeader => return refuse("defaults for all entries"),
            _ => return Ok(false),
        }
        self.pending = true;
        Ok(true)
    }

    /// The name for the entry that stands here, if one was given.
    pub(super) fn take_name(&mut self) -> Option<Vec<u8>> {
        self.pending = false;
        self.name.take()
    }

    /// Checks that no header is left without its entry.
    pub(super) fn finish(&self, count: u64) -> Result<(), ArchiveError> {
        if self.pending {
            return Err(ArchiveError::StrayHeader { index: count - 1, reason: "belongs to no entry" });
        }
        Ok(())
    }

    fn set_name(&mut self, name: Vec<u8>, index: u64) -> Result<(), ArchiveError> {
        if self.name.replace(name).is_some() {
            return Err(ArchiveError::StrayHeader { index, reason: "gives a second name to one entry" });
        }
        Ok(())
    }
}

/// The header's content, read up to its limit: its declared size is not believed.
fn content<R: Read>(entry: &mut tar::Entry<'_, R>, index: u64) -> Result<Vec<u8>, UnpackError> {
    let size = entry.size();
    if size > MAX_HEADER_BYTES {
        return Err(ArchiveError::StrayHeader { index, reason: "is longer than 16 KiB" }.into());
    }
    let mut content = Vec::new();
    entry.take(MAX_HEADER_BYTES).read_to_end(&mut content).map_err(|error| broken(error, index))?;
    if content.len() as u64 != size {
        return Err(ArchiveError::Truncated.into());
    }
    Ok(content)
}
