//! The archive rules: what an archive may hold, and how it is unpacked.
//!
//! An archive is one zstd frame or one gzip member with one tar: regular files and folders below `build/<variant>/`,
//! plain names, no name twice even where case is ignored, no set-id bits, one end mark, padding after it and nothing
//! else. Long names may come by a pax `path` or a GNU long name; every other extended header that changes an entry is
//! refused, because tar readers disagree about them. The [limits](super::limits) hold whatever the archive declares.
//!
//! Whatever breaks a rule refuses the whole archive. It is unpacked into a temporary folder, so that what came before
//! the offence never reaches a final place.

mod bundle;
mod error;
mod headers;
mod stream;
mod tree;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufReader, Read, Write as _};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use tar::EntryType;

pub(crate) use bundle::unpack_bundle;
pub use error::ArchiveError;
pub(crate) use error::UnpackError;
use headers::Extended;
use stream::Unpacking;
use tree::Tree;

use super::limits::ArchiveLimits;
use crate::digest::Sha256Digest;
use crate::manifest::{MAX_METADATA_BYTES, METADATA_FILE};
use crate::names::{NameError, RelativePath};
use crate::regular;
use crate::variant::Variant;

/// What was unpacked.
#[derive(Debug)]
pub(super) struct Unpacked {
    /// The bytes of `metadata.json`.
    pub(super) metadata: Vec<u8>,
    /// The digest of every file, relative to the variant's folder.
    pub(super) files: BTreeMap<RelativePath, Sha256Digest>,
}

/// Unpacks an archive into a folder that does not exist yet.
pub(super) fn unpack(archive: &Path, into: &Path, variant: &Variant) -> Result<Unpacked, UnpackError> {
    unpack_within(archive, into, variant, ArchiveLimits::DEFAULT)
}

/// For the fuzz targets: the paths of the files, or what refuses the archive, in words.
#[cfg(feature = "fuzzing")]
pub(crate) fn fuzz_unpack(archive: &Path, into: &Path, variant: &Variant) -> Result<Vec<String>, String> {
    let unpacked = unpack(archive, into, variant).map_err(|error| format!("{error:?}"))?;
    Ok(unpacked.files.keys().map(ToString::to_string).collect())
}

fn unpack_within(
    archive: &Path,
    into: &Path,
    variant: &Variant,
    limits: ArchiveLimits,
) -> Result<Unpacked, UnpackError> {
    let file = regular::open(archive).map_err(machine("open", archive))?;
    let mut stream = Unpacking::new(BufReader::with_capacity(64 << 10, file))?;
    fs::create_dir(into).map_err(machine("make the folder", into))?;
    let mut job = Job {
        into,
        prefix: Some(format!("build/{variant}")),
        limits,
        tree: Tree::default(),
        total: 0,
        unpacked: Unpacked { metadata: Vec::new(), files: BTreeMap::new() },
        has_metadata: false,
    };
    job.run(&mut stream)?;
    stream.finish()?;
    if !job.has_metadata {
        return Err(ArchiveError::NoMetadata { path: format!("build/{variant}/{METADATA_FILE}") }.into());
    }
    Ok(job.unpacked)
}

struct Job<'a> {
    into: &'a Path,
    /// The folder that every entry must be in, without a slash at its end. `None`: anywhere, as in a bundle.
    prefix: Option<String>,
    limits: ArchiveLimits,
    tree: Tree,
    total: u64,
    unpacked: Unpacked,
    has_metadata: bool,
}

impl Job<'_> {
    fn run<R: Read>(&mut self, stream: &mut R) -> Result<(), UnpackError> {
        let mut archive = tar::Archive::new(stream);
        let mut extended = Extended::default();
        let mut count = 0;
        let entries = archive.entries().map_err(|error| broken(error, 0))?.raw(true);
        for (index, entry) in (0..).zip(entries) {
            count = index + 1;
            if count > self.limits.entries {
                return Err(ArchiveError::TooManyEntries { maximum: self.limits.entries }.into());
            }
            let mut entry = entry.map_err(|error| broken(error, index))?;
            if !extended.read(&mut entry, index)? {
                let name = extended.take_name().unwrap_or_else(|| entry.header().path_bytes().into_owned());
                self.entry(&mut entry, &name, index)?;
            }
        }
        extended.finish(count)?;
        Ok(())
    }

    /// Checks one entry, then writes it.
    fn entry<R: Read>(&mut self, entry: &mut tar::Entry<'_, R>, name: &[u8], index: u64) -> Result<(), UnpackError> {
        let header = entry.header().clone();
        let shown = String::from_utf8_lossy(name).escape_debug().to_string();
        let is_folder = check_type(header.entry_type(), &shown)?;
        let mode = header.mode().map_err(|source| ArchiveError::Header { index, source })?;
        if mode & 0o7000 != 0 {
            return Err(ArchiveError::SpecialBits { path: shown, mode: mode & 0o7777 }.into());
        }
        let path = parse_name(name, is_folder)?;
        let inside = self.inside(&path, is_folder)?;
        self.tree.claim(&path, is_folder)?;
        let size = entry.size();
        if is_folder {
            if size != 0 {
                return Err(ArchiveError::FolderWithContent { path: shown, bytes: size }.into());
            }
            let folder = path.below(self.into);
            return fs::create_dir_all(&folder).map_err(machine("make the folder", &folder));
        }
        let is_metadata = self.prefix.is_some() && inside.as_ref().is_some_and(|path| path.as_str() == METADATA_FILE);
        let maximum = if is_metadata { MAX_METADATA_BYTES } else { self.limits.file_bytes };
        if size > maximum {
            return Err(ArchiveError::FileTooLarge { path: shown, maximum }.into());
        }
        self.total += size;
        if self.total > self.limits.total_bytes {
            return Err(ArchiveError::TotalTooLarge { path: shown, maximum: self.limits.total_bytes }.into());
        }
        let mut kept = is_metadata.then_some(&mut self.unpacked.metadata);
        let digest = write_file(entry, &path.below(self.into), size, mode, index, &mut kept)?;
        self.has_metadata |= is_metadata;
        if let Some(inside) = inside {
            self.unpacked.files.insert(inside, digest);
        }
        Ok(())
    }

    /// The path relative to the variant's folder. `None` for that folder itself and the one above.
    fn inside(&self, path: &RelativePath, is_folder: bool) -> Result<Option<RelativePath>, ArchiveError> {
        let Some(prefix) = &self.prefix else { return Ok(Some(path.clone())) };
        if is_folder && (path.as_str() == "build" || path.as_str() == prefix) {
            return Ok(None);
        }
        path.as_str()
            .strip_prefix(prefix.as_str())
            .and_then(|rest| rest.strip_prefix('/'))
            .and_then(|rest| rest.parse().ok())
            .map(Some)
            .ok_or_else(|| ArchiveError::Outside { path: path.to_string(), expected: format!("{prefix}/") })
    }
}

/// Whether the entry is a folder; anything but a file and a folder is refused.
fn check_type(kind: EntryType, path: &str) -> Result<bool, ArchiveError> {
    let path = path.to_owned();
    Err(match kind {
        EntryType::Regular => return Ok(false),
        EntryType::Directory => return Ok(true),
        EntryType::Symlink => ArchiveError::SymbolicLink { path },
        EntryType::Link => ArchiveError::HardLink { path },
        EntryType::Char | EntryType::Block => ArchiveError::Device { path },
        EntryType::Fifo => ArchiveError::Fifo { path },
        EntryType::GNUSparse => ArchiveError::Sparse { path },
        other => ArchiveError::EntryType { path, kind: other.as_byte() },
    })
}

fn parse_name(name: &[u8], is_folder: bool) -> Result<RelativePath, ArchiveError> {
    let Ok(text) = std::str::from_utf8(name) else {
        return Err(ArchiveError::NotUtf8 { path: String::from_utf8_lossy(name).escape_debug().to_string() });
    };
    let plain = if is_folder { text.strip_suffix('/').unwrap_or(text) } else { text };
    plain.parse().map_err(|source: NameError| ArchiveError::UnsafePath { source })
}

/// Writes one file while it is hashed, and gives its bytes to `kept` too.
fn write_file<R: Read>(
    entry: &mut tar::Entry<'_, R>,
    path: &Path,
    size: u64,
    mode: u32,
    index: u64,
    kept: &mut Option<&mut Vec<u8>>,
) -> Result<Sha256Digest, UnpackError> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(machine("make the folder", folder))?;
    }
    let mut file = File::create_new(path).map_err(machine("make", path))?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 64 << 10];
    let mut written = 0;
    loop {
        let read = entry.read(&mut buffer).map_err(|error| broken(error, index))?;
        if read == 0 {
            break;
        }
        let piece = &buffer[..read];
        hasher.update(piece);
        file.write_all(piece).map_err(machine("write", path))?;
        if let Some(kept) = kept {
            kept.extend_from_slice(piece);
        }
        written += read as u64;
    }
    if written != size {
        return Err(ArchiveError::Truncated.into());
    }
    set_mode(&file, mode).map_err(machine("set the mode of", path))?;
    Ok(Sha256Digest::from_bytes(hasher.finalize().into()))
}

/// Keeps from the archive's mode only whether the file is executable.
#[cfg(unix)]
fn set_mode(file: &File, mode: u32) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    file.set_permissions(fs::Permissions::from_mode(if mode & 0o100 == 0 { 0o644 } else { 0o755 }))
}

#[cfg(not(unix))]
fn set_mode(_: &File, _: u32) -> io::Result<()> {
    Ok(())
}

/// An error while reading the archive: a rule of ours that the stream found broken, the end of it, or a bad header.
fn broken(error: io::Error, index: u64) -> UnpackError {
    UnpackError::Refused(match error.downcast::<ArchiveError>() {
        Ok(rule) => rule,
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => ArchiveError::Truncated,
        Err(source) => ArchiveError::Header { index, source },
    })
}

fn machine(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> UnpackError {
    let path: PathBuf = path.to_path_buf();
    move |source| UnpackError::Io { action, path, source }
}

#[cfg(test)]
mod tests {
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::{ArchiveError, ArchiveLimits, UnpackError, unpack_within};

    /// Unpacks `metadata.json` and two files of 10 bytes within these limits.
    fn unpack(entries: u64, file_bytes: u64, total_bytes: u64) -> Result<usize, ArchiveError> {
        let limits = ArchiveLimits { entries, file_bytes, total_bytes };
        unpack_packed(&compress_to_vec(tar().as_slice(), CompressionLevel::Fastest), limits)
    }

    fn tar() -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (name, content) in [("metadata.json", "{}"), ("a", "0123456789"), ("b", "0123456789")] {
            let mut header = tar::Header::new_gnu();
            header.set_mode(0o644);
            header.set_size(content.len() as u64);
            builder.append_data(&mut header, format!("build/torch-cuda/{name}"), content.as_bytes()).unwrap();
        }
        builder.into_inner().unwrap()
    }

    fn unpack_packed(packed: &[u8], limits: ArchiveLimits) -> Result<usize, ArchiveError> {
        let folder = tempfile::tempdir().unwrap();
        let archive = folder.path().join("archive");
        std::fs::write(&archive, packed).unwrap();
        match unpack_within(&archive, &folder.path().join("x"), &"torch-cuda".parse().unwrap(), limits) {
            Ok(unpacked) => Ok(unpacked.files.len()),
            Err(UnpackError::Refused(error)) => Err(error),
            Err(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn gzip_is_read_by_the_same_rules() {
        use std::io::Write as _;
        let pack = |content: &[u8]| {
            let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            packer.write_all(content).unwrap();
            packer.finish().unwrap()
        };
        let unpack = |packed: &[u8]| unpack_packed(packed, ArchiveLimits::DEFAULT);
        let packed = pack(&tar());
        assert_eq!(unpack(&packed).unwrap(), 3);
        let mut damaged = packed.clone();
        let checksum = damaged.len() - 6;
        damaged[checksum] ^= 1;
        for bad in [
            &damaged,
            &[packed.clone(), b"more".to_vec()].concat(),
            &[packed.clone(), packed.clone()].concat(),
            &packed[..packed.len() / 2].to_vec(),
            &packed[..packed.len() - 1].to_vec(),
            &pack(&tar()[..1024]),
            &pack(b"no tar"),
            &b"\x1f\x8b".to_vec(),
            &Vec::new(),
        ] {
            assert!(unpack(bad).is_err(), "{} bytes", bad.len());
        }
        let bomb = [tar(), vec![0; 8 << 20]].concat();
        assert!(matches!(unpack(&pack(&bomb)), Err(ArchiveError::Ratio { .. } | ArchiveError::TrailingData)));
    }

    #[test]
    fn each_limit_holds_exactly() {
        assert_eq!(unpack(3, 10, 22).unwrap(), 3);
        assert!(matches!(unpack(2, 10, 22), Err(ArchiveError::TooManyEntries { maximum: 2 })));
        assert!(
            matches!(unpack(3, 9, 22), Err(ArchiveError::FileTooLarge { path, maximum: 9 }) if path.ends_with("/a"))
        );
        assert!(
            matches!(unpack(3, 10, 21), Err(ArchiveError::TotalTooLarge { path, maximum: 21 }) if path.ends_with("/b"))
        );
    }
}
