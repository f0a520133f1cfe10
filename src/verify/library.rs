//! A native library whose bytes can no longer change.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::VerifyError;
use super::elf::{Finding, FindingKind, ScanRules, Severity, inspect};
use super::walk::io_error;
use crate::digest::Sha256Digest;
use crate::elf::{Depth, ElfFacts};
use crate::names::RelativePath;
use crate::variant::Variant;

/// A native library, ready to be opened by path. See the room's documentation.
#[derive(Debug, Clone)]
pub struct VerifiedLibrary {
    path: PathBuf,
    relative: RelativePath,
    sha256: Sha256Digest,
    /// What its bytes say about themselves. `None`: it was not scanned, being for another system.
    facts: Option<Arc<ElfFacts>>,
    copy: Arc<Copy>,
}

/// The bytes to load: what the path in the cache held when it was hashed.
#[derive(Debug)]
struct Copy {
    load_path: PathBuf,
    /// Keeps `load_path` valid.
    _keeper: Keeper,
}

/// A sealed anonymous file: `/proc/self/fd/<n>` names it as long as it is open.
#[cfg(target_os = "linux")]
type Keeper = File;
/// A private folder, removed with the value.
#[cfg(not(target_os = "linux"))]
type Keeper = tempfile::TempDir;

impl VerifiedLibrary {
    /// Where the library stands in the cache. For reports; never load this path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where it stands in the build.
    #[must_use]
    pub fn relative(&self) -> &RelativePath {
        &self.relative
    }

    /// What its bytes say about themselves. `None`: it is for a system whose libraries are not ELF files.
    #[must_use]
    pub fn facts(&self) -> Option<&ElfFacts> {
        self.facts.as_deref()
    }

    /// Reads the sealed bytes as the linker will, and says what is wrong with them.
    pub(super) fn scan(&mut self, variant: &Variant, rules: &ScanRules) -> Result<Vec<Finding>, VerifyError> {
        let file = File::open(self.load_path()).map_err(io_error("open the copy of", &self.path))?;
        match ElfFacts::from_file(file, Depth::Whole) {
            Ok(facts) => {
                let findings = inspect(self.relative.as_str(), &facts, variant, rules);
                self.facts = Some(Arc::new(facts));
                Ok(findings)
            }
            Err(error) => {
                let kind = FindingKind::Malformed { reason: error.to_string() };
                Ok(vec![Finding { path: self.relative.to_string(), kind, severity: Severity::Refuse }])
            }
        }
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

/// A copy in the making.
#[derive(Debug)]
pub(super) struct LibraryCopy {
    path: PathBuf,
    file: File,
    #[cfg(not(target_os = "linux"))]
    folder: tempfile::TempDir,
}

#[cfg(target_os = "linux")]
impl LibraryCopy {
    /// An empty copy of the library at `path`.
    pub(super) fn create(path: &Path) -> Result<Self, VerifyError> {
        use rustix::fs::{MemfdFlags, memfd_create};
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        // The name shows in the process's maps. It holds no NUL: it comes from a checked path.
        let name = path.file_name().unwrap_or_default();
        let file = memfd_create(name, flags)
            // A system may demand this flag (`vm.memfd_noexec = 2`); it forbids to execute the file, not to map it.
            .or_else(|error| match error {
                rustix::io::Errno::ACCESS => memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL),
                error => Err(error),
            })
            .map_err(|error| io_error("make an anonymous copy of", path)(error.into()))?;
        Ok(Self { path: path.to_path_buf(), file: file.into() })
    }

    /// Ends the copy: from here on nobody can change it, this process included.
    pub(super) fn seal(self, relative: RelativePath, sha256: Sha256Digest) -> Result<VerifiedLibrary, VerifyError> {
        use std::os::fd::AsRawFd as _;

        use rustix::fs::{SealFlags, fcntl_add_seals};
        fcntl_add_seals(&self.file, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)
            .map_err(|error| io_error("seal the copy of", &self.path)(error.into()))?;
        let load_path = PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()));
        let copy = Arc::new(Copy { load_path, _keeper: self.file });
        Ok(VerifiedLibrary { path: self.path, relative, sha256, facts: None, copy })
    }
}

#[cfg(not(target_os = "linux"))]
impl LibraryCopy {
    /// An empty copy of the library at `path`, in a folder that only this user can enter.
    pub(super) fn create(path: &Path) -> Result<Self, VerifyError> {
        let folder = tempfile::Builder::new()
            .prefix("kernelhub-")
            .tempdir()
            .map_err(io_error("make a private folder for the copy of", path))?;
        let copy = folder.path().join(path.file_name().unwrap_or_default());
        let file = File::create_new(&copy).map_err(io_error("make", &copy))?;
        Ok(Self { path: path.to_path_buf(), file, folder })
    }

    /// Ends the copy.
    pub(super) fn seal(self, relative: RelativePath, sha256: Sha256Digest) -> Result<VerifiedLibrary, VerifyError> {
        let load_path = self.folder.path().join(self.path.file_name().unwrap_or_default());
        let copy = Arc::new(Copy { load_path, _keeper: self.folder });
        Ok(VerifiedLibrary { path: self.path, relative, sha256, facts: None, copy })
    }
}

impl LibraryCopy {
    pub(super) fn write(&mut self, piece: &[u8]) -> Result<(), VerifyError> {
        self.file.write_all(piece).map_err(io_error("copy", &self.path))
    }

    /// Writes a whole file, from where it stands to its end, in the system's own way where it has one.
    pub(super) fn write_all_of(&mut self, file: &mut File) -> Result<(), VerifyError> {
        std::io::copy(file, &mut self.file).map(drop).map_err(io_error("copy", &self.path))
    }
}
