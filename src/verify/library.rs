//! A native library whose bytes can no longer change.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::digest::Sha256Digest;

/// A native library, ready to be opened by path. See the room's documentation.
#[derive(Debug, Clone)]
pub struct VerifiedLibrary {
    path: PathBuf,
    sha256: Sha256Digest,
    copy: Arc<Copy>,
}

/// The bytes to load: what the path in the cache held when it was hashed.
#[derive(Debug)]
pub(super) struct Copy {
    load_path: PathBuf,
    /// Keeps `load_path` valid: a sealed anonymous file, or a private folder.
    _keeper: Keeper,
}

#[derive(Debug)]
#[expect(dead_code, reason = "held for their drop only")]
enum Keeper {
    Sealed(File),
    Folder(tempfile::TempDir),
}

impl VerifiedLibrary {
    /// Where the library stands in the cache. For reports; never load this path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The digest of the bytes that [`Self::load_path`] gives.
    #[must_use]
    pub fn sha256(&self) -> Sha256Digest {
        self.sha256
    }

    /// The absolute path to open, such as `/proc/self/fd/7`. Valid while this value, a clone of it or
    /// [`Self::keep_open`] keeps it so.
    #[must_use]
    pub fn load_path(&self) -> &Path {
        &self.copy.load_path
    }

    /// Keeps [`Self::load_path`] valid for the rest of the process, so that no later file gets the same path: a loader
    /// knows a library by its path, and a kernel is never unloaded.
    pub fn keep_open(&self) {
        std::mem::forget(Arc::clone(&self.copy));
    }
}
