//! Writing a bundle.

use std::cell::RefCell;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read as _, Seek as _, Write as _};
use std::path::Path;

use ruzstd::encoding::{CompressionLevel, compress};

use super::super::listing::variant_hash;
use super::super::{LockError, Locks, commit_id, named};
use super::{BUNDLE_SCHEMA, BundledBuild, Exported, INDEX_FILE, Index, listing_path, place};
use crate::digest::Sha256Digest;
use crate::fetch::{CacheEntry, Cancel, Cost, HubPlace, Session, Snapshot, TreeFile};
use crate::hub::{Hub, Selection};
use crate::manifest::{LOCK_FILE, METADATA_FILE, Pin, PinnedKernel, SIDECAR_FILE, SIGNATURE_FILES};
use crate::names::RelativePath;
use crate::regular;
use crate::variant::Variant;
use crate::verify::{VerifiedSnapshot, verify_with};

impl Hub {
    /// Writes locked kernels from the cache into one file. Makes no request for them; the Hub is asked about a
    /// publisher where its word counts and is not on record.
    ///
    /// The file appears under its name by one rename; it is a `.tar`, compressed where its name ends in `.zst`.
    ///
    /// # Errors
    /// [`LockError::NotCached`] for a locked build that is not in the cache, [`LockError::NoDigests`] for a kernel that
    /// only the Python tool locked, [`LockError::Hub`] for one that is damaged, [`LockError::Io`].
    pub fn export(&self, locks: &Locks, selection: Selection, file: &Path) -> Result<Exported, LockError> {
        let mut builds = Vec::new();
        let mut sources = Vec::new();
        for kernel in &locks.sidecar.kernels {
            for variant in self.locked_variants(kernel, selection)? {
                let verified = self.cached(kernel, variant)?;
                let listing = self.locked_listing(kernel, variant)?;
                sources.push(Carried { kernel, variant, verified, listing });
                builds.push(BundledBuild { repo: kernel.repo.clone(), version: kernel.version.clone(), variant });
            }
        }
        let covered =
            |lock: &&crate::manifest::KernelLock| !matches!(locks.sidecar.pinned(lock, LOCK_FILE), Ok(Some(_)));
        if let Some(bare) = locks.kernels.kernels.iter().find(covered) {
            return Err(LockError::NoDigests { kernel: bare.to_string() });
        }
        let folder = match file.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let temporary = || {
            tempfile::Builder::new()
                .prefix(".export-")
                .tempfile_in(folder)
                .map_err(LockError::io("make a file in", folder))
        };
        let mut plain = temporary()?;
        write_tar(plain.as_file_mut(), locks, &builds, &sources).map_err(|error| match error {
            Failed::Io(source) => LockError::io("write", file)(source),
            Failed::Typed(error) => *error,
        })?;
        if file.extension().is_some_and(|extension| extension == "zst") {
            let packed = temporary()?;
            plain.as_file_mut().rewind().map_err(LockError::io("read", plain.path()))?;
            pack(plain.as_file(), packed.as_file()).map_err(LockError::io("write", file))?;
            plain = packed;
        }
        let (sha256, bytes) = digest(plain.path())?;
        plain.as_file().sync_all().map_err(LockError::io("write", file))?;
        plain.persist(file).map_err(|error| LockError::io("write", file)(error.error))?;
        Ok(Exported { file: file.to_path_buf(), bytes, sha256, builds })
    }

    /// The verified files of a locked build in the cache.
    fn cached(&self, kernel: &PinnedKernel, variant: Variant) -> Result<VerifiedSnapshot, LockError> {
        let snapshot = self.locked_snapshot(kernel, variant)?.ok_or_else(|| LockError::NotCached {
            kernel: named(&kernel.repo, &kernel.version),
            variant: variant.to_string(),
        })?;
        let (cancel, cost) = (Cancel::default(), Cost::default());
        let admission = self.admit_locked(kernel, &Session::new(&*self.progress, &cancel, &cost))?;
        Ok(verify_with(&snapshot, &admission, &self.verify).map_err(crate::hub::HubError::from)?)
    }

    /// The cache's copy of a locked build.
    pub(super) fn locked_snapshot(
        &self,
        kernel: &PinnedKernel,
        variant: Variant,
    ) -> Result<Option<Snapshot>, LockError> {
        let Pin::Hub { commit, .. } = &kernel.pin else {
            let Some(manifest) = kernel.manifest() else { return Ok(None) };
            let artifact = manifest.artifact(&variant);
            return Ok(artifact.and_then(|artifact| self.cache().snapshot(&manifest, artifact)));
        };
        let is_it = |entry: &CacheEntry| {
            entry.repo.as_ref() == Some(&kernel.repo)
                && entry.revision.as_deref() == Some(commit.as_str())
                && entry.variant.as_ref().and_then(crate::variant::AnyVariant::known) == Some(variant)
        };
        let entries = self.cache().inventory()?;
        Ok(entries.into_iter().find(|entry| entry.snapshot.is_some() && is_it(entry)).and_then(|entry| entry.snapshot))
    }

    /// What the commit's tree says that the files of a locked build are, where that is known here.
    fn locked_listing(&self, kernel: &PinnedKernel, variant: Variant) -> Result<Option<Vec<TreeFile>>, LockError> {
        let Pin::Hub { commit, builds } = &kernel.pin else { return Ok(None) };
        let commit = commit_id(&named(&kernel.repo, &kernel.version), commit)?;
        let listing = self.cache().recorded_listing(HubPlace { repo: &kernel.repo, commit, variant: &variant });
        let locked = builds.iter().find(|build| build.variant == variant);
        // One that is not the locked one would be refused at the other end.
        Ok(listing.filter(|files| locked.is_some_and(|build| build.hash == variant_hash(files))))
    }
}

/// Compresses a file. The encoder panics where its source or its drain fails, so that neither does: the first error is
/// kept here, after which nothing more is read or written.
fn pack(from: &File, to: &File) -> io::Result<()> {
    let fault = RefCell::new(None);
    let mut drain = Kept { inner: BufWriter::new(to), fault: &fault };
    compress(Kept { inner: BufReader::new(from), fault: &fault }, &mut drain, CompressionLevel::Fastest);
    let flushed = drain.inner.flush();
    match fault.into_inner() {
        Some(error) => Err(error),
        None => flushed,
    }
}

struct Kept<'a, T> {
    inner: T,
    fault: &'a RefCell<Option<io::Error>>,
}

impl<R: io::Read> io::Read for Kept<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.fault.borrow().is_some() {
            return Ok(0);
        }
        loop {
            match self.inner.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.fault.replace(Some(error));
                    return Ok(0);
                }
                read => return read,
            }
        }
    }
}

impl<W: io::Write> io::Write for Kept<'_, W> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        if self.fault.borrow().is_none()
            && let Err(error) = self.inner.write_all(buffer)
        {
            self.fault.replace(Some(error));
        }
        Ok(buffer.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A build on its way into a bundle.
struct Carried<'a> {
    kernel: &'a PinnedKernel,
    variant: Variant,
    verified: VerifiedSnapshot,
    listing: Option<Vec<TreeFile>>,
}

enum Failed {
    Io(io::Error),
    Typed(Box<LockError>),
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<LockError> for Failed {
    fn from(error: LockError) -> Self {
        Self::Typed(Box::new(error))
    }
}

fn write_tar(file: &mut File, locks: &Locks, builds: &[BundledBuild], sources: &[Carried<'_>]) -> Result<(), Failed> {
    let mut builder = tar::Builder::new(BufWriter::new(file));
    let index = Index { schema: BUNDLE_SCHEMA, builds: builds.to_vec() };
    let index = serde_json::to_vec_pretty(&index).map_err(io::Error::other)?;
    append_text(&mut builder, INDEX_FILE, &index)?;
    if !locks.kernels.kernels.is_empty() {
        append_text(&mut builder, LOCK_FILE, locks.kernels.to_json().map_err(LockError::from)?.as_bytes())?;
    }
    append_text(&mut builder, SIDECAR_FILE, locks.sidecar.to_toml().map_err(LockError::from)?.as_bytes())?;
    for Carried { kernel, variant, verified, listing } in sources {
        let kernel_name = named(&kernel.repo, &kernel.version);
        let (folder, _) =
            place(kernel, *variant).ok_or_else(|| LockError::NoDigests { kernel: kernel_name.clone() })?;
        if let Some(files) = listing {
            append_text(&mut builder, &listing_path(&folder), &serde_json::to_vec(files).map_err(io::Error::other)?)?;
        }
        let listed = verified.metadata().digest.iter().flat_map(|digest| digest.files.keys().map(RelativePath::as_str));
        let root = verified.root();
        let signatures = SIGNATURE_FILES.into_iter().filter(|name| root.join(name).is_file());
        for name in [METADATA_FILE].into_iter().chain(signatures).chain(listed) {
            let path = root.join(name);
            let content = regular::open(&path).map_err(LockError::io("open", &path))?;
            let bytes = content.metadata().map_err(LockError::io("look at", &path))?.len();
            let full = format!("{folder}/{name}");
            // By the rules that the other end reads by, so that nothing is exported that cannot be imported.
            full.parse::<RelativePath>()
                .map_err(|error| LockError::Bundle { file: path.clone(), reason: error.to_string() })?;
            // A file that changes while it is read makes a bundle that no import takes.
            append(&mut builder, &full, content.take(bytes), bytes, is_executable(&path))?;
        }
    }
    builder.into_inner()?.flush()?;
    Ok(())
}

type Tar<'a> = tar::Builder<BufWriter<&'a mut File>>;

fn append_text(builder: &mut Tar<'_>, path: &str, content: &[u8]) -> io::Result<()> {
    append(builder, path, content, content.len() as u64, false)
}

fn append(builder: &mut Tar<'_>, path: &str, content: impl io::Read, bytes: u64, executable: bool) -> io::Result<()> {
    // Nothing of this machine: the same locks and files give the same bundle.
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Regular);
    header.set_mode(if executable { 0o755 } else { 0o644 });
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(bytes);
    builder.append_data(&mut header, path, content)
}

#[cfg(unix)]
fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o100 != 0)
}

#[cfg(not(unix))]
fn is_executable(_: &Path) -> bool {
    false
}

/// The digest and the length of a file.
pub(super) fn digest(path: &Path) -> Result<(Sha256Digest, u64), LockError> {
    let file = regular::open(path).map_err(LockError::io("open", path))?;
    Sha256Digest::of_reader(file).map_err(LockError::io("read", path))
}
