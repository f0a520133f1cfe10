//! The linker's cache, `/etc/ld.so.cache`, which `ldconfig` writes: which file has which name.
//!
//! Source: `sysdeps/generic/dl-cache.h` of glibc 2.36. A header (magic, the number of entries, 48 bytes in all), the
//! entries (24 bytes: flags, offset of the name, offset of the path, ...), then the texts. Offsets count from the
//! header, in front of which an older table may stand.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use super::known::{Known, SETTLED};

const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
const HEADER_BYTES: usize = 48;
const ENTRY_BYTES: usize = 24;
/// Largest cache that is read, in bytes; one of a full desktop has a hundredth of it.
const MAX_BYTES: u64 = 64 << 20;
/// A library for this C library.
const ELF_LIBC6: u32 = 3;

/// The caches that were read, and not changed since.
static READ: LazyLock<Known<LinkerCache>> = LazyLock::new(|| Known::new(SETTLED));

/// Names and their files.
#[derive(Debug, Clone, Default)]
pub(super) struct LinkerCache {
    paths: Arc<HashMap<String, PathBuf>>,
}

impl LinkerCache {
    /// The cache as it is now. Empty where there is none, or one of another format.
    pub(super) fn read(path: &Path) -> Self {
        let read = |file: &File| {
            let mut bytes = Vec::new();
            let read = file.take(MAX_BYTES).read_to_end(&mut bytes);
            read.map_or_else(|_| Self::default(), |_| Self::parse(&bytes))
        };
        READ.get(path, read).unwrap_or_default()
    }

    pub(super) fn parse(bytes: &[u8]) -> Self {
        let Some(start) = bytes.windows(MAGIC.len()).position(|window| window == MAGIC) else {
            return Self::default();
        };
        let table = &bytes[start..];
        let number = |at: usize| {
            let bytes = table.get(at..at.checked_add(4)?)?;
            Some(u32::from_le_bytes(bytes.try_into().ok()?))
        };
        let text = |at: u32| {
            let rest = table.get(at as usize..)?;
            let end = rest.iter().take(4096).position(|byte| *byte == 0)?;
            std::str::from_utf8(&rest[..end]).ok()
        };
        let count = number(MAGIC.len()).unwrap_or(0) as usize;
        let fits = table.len().saturating_sub(HEADER_BYTES) / ENTRY_BYTES;
        let mut paths = HashMap::new();
        for index in 0..count.min(fits) {
            let at = HEADER_BYTES + index * ENTRY_BYTES;
            let (Some(flags), Some(name), Some(path)) = (number(at), number(at + 4), number(at + 8)) else { break };
            if flags & 0xff != ELF_LIBC6 || !is_for_this_processor(flags) {
                continue;
            }
            if let (Some(name), Some(path)) = (text(name), text(path)) {
                // The first is the best one: the linker's order.
                paths.entry(name.to_owned()).or_insert_with(|| PathBuf::from(path));
            }
        }
        Self { paths: Arc::new(paths) }
    }

    pub(super) fn find(&self, name: &str) -> Option<PathBuf> {
        self.paths.get(name).cloned()
    }
}

/// The second byte of an entry's flags is the processor.
fn is_for_this_processor(flags: u32) -> bool {
    let required = flags & 0xff00;
    if cfg!(target_arch = "x86_64") {
        required == 0x0300
    } else if cfg!(target_arch = "aarch64") {
        required == 0x0a00
    } else {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::{LinkerCache, MAGIC};

    #[test]
    fn hostile_and_cut_caches_are_read_as_far_as_they_go() {
        let whole = std::fs::read("/etc/ld.so.cache").unwrap_or_default();
        for length in (0..whole.len()).step_by(97) {
            let _ = LinkerCache::parse(&whole[..length]);
        }
        let mut endless = MAGIC.to_vec();
        endless.extend([0xff; 4 + 24 + 200]);
        assert!(LinkerCache::parse(&endless).find("x").is_none());
        assert!(LinkerCache::parse(b"something else").find("x").is_none());
    }
}
