//! Reading a build's files once: hashed, and kept where they will be used.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{channel, sync_channel};

use rayon::prelude::*;
use sha2::{Digest as _, Sha256};

use super::library::LibraryCopy;
use super::trusted::{Stamp, TrustedHashes};
use super::walk::{io_error, not_a_file, open_regular};
use super::{MAX_TEXT_BYTES, VerifiedLibrary, VerifyError};
use crate::digest::{Sha256Digest, Violation, ViolationKind};
use crate::fetch::MAX_FILE_BYTES;
use crate::manifest::{METADATA_FILE, Metadata};
use crate::names::RelativePath;

/// The largest piece in which files are read, in bytes: it stays in a processor's own cache while it is hashed.
const PIECE: usize = 256 << 10;
/// The smallest, for a file that grows while it is read.
const MIN_PIECE: usize = 4 << 10;
/// Work for a second thread, in bytes of files beside the largest one. Below it, starting the pool of threads takes
/// longer than they save; a pack with one library and a few texts is read by the calling thread.
const PARALLEL_BYTES: u64 = 512 << 10;
/// From this size on, in bytes, a second thread makes the copy while this one hashes.
const OVERLAP_BYTES: u64 = 4 << 20;
/// The most pieces that wait for the copy.
const WAITING: usize = 8;

/// What was read of a build: a digest of each file, the texts and the libraries.
#[derive(Default)]
pub(super) struct ReadFiles {
    pub(super) digests: BTreeMap<RelativePath, Sha256Digest>,
    pub(super) texts: BTreeMap<RelativePath, String>,
    pub(super) libraries: Vec<VerifiedLibrary>,
    pub(super) bytes: u64,
    pub(super) violations: Vec<Violation>,
}

/// What was read of one file.
enum Outcome {
    Read { digest: Sha256Digest, bytes: u64, text: Option<String>, library: Option<VerifiedLibrary> },
    Violates(Violation),
}

impl ReadFiles {
    /// Hashes files, several at a time where that pays, and keeps the very bytes that were hashed where they will be
    /// used. The result does not depend on which of them was read first.
    pub(super) fn read(
        files: Vec<(RelativePath, PathBuf)>,
        metadata: &Metadata,
        trusted: Option<&TrustedHashes>,
    ) -> Result<Self, VerifyError> {
        let read = |(relative, path): (RelativePath, PathBuf)| {
            let outcome = read_file(&path, &relative, metadata, trusted)?;
            Ok((relative, outcome))
        };
        let outcomes: Vec<Result<_, VerifyError>> = if has_work_beside_the_largest(&files) {
            files.into_par_iter().map(read).collect()
        } else {
            files.into_iter().map(read).collect()
        };
        let mut all = Self::default();
        for outcome in outcomes {
            match outcome? {
                (_, Outcome::Violates(violation)) => all.violations.push(violation),
                (relative, Outcome::Read { digest, bytes, text, library }) => {
                    if relative.as_str() != METADATA_FILE {
                        all.bytes += bytes;
                    }
                    all.libraries.extend(library);
                    all.texts.extend(text.map(|text| (relative.clone(), text)));
                    all.digests.insert(relative, digest);
                }
            }
        }
        Ok(all)
    }
}

/// Whether a second thread would have enough to do. Sizes are only guessed by here: each file is measured again where it
/// is read.
fn has_work_beside_the_largest(files: &[(RelativePath, PathBuf)]) -> bool {
    let (mut all, mut largest) = (0_u64, 0);
    files.iter().any(|(_, path)| {
        let size = path.symlink_metadata().map_or(0, |metadata| metadata.len());
        (all, largest) = (all.saturating_add(size), size.max(largest));
        all - largest >= PARALLEL_BYTES
    })
}

fn read_file(
    path: &Path,
    relative: &RelativePath,
    metadata: &Metadata,
    trusted: Option<&TrustedHashes>,
) -> Result<Outcome, VerifyError> {
    let Some(mut file) = open_regular(path)? else {
        return Ok(Outcome::Violates(not_a_file(relative.as_str(), "something else")));
    };
    // Without a digest the caller refuses the build, unless it is a local folder, which is taken as it is.
    let is_listed = metadata.digest.as_ref().is_none_or(|digest| digest.files.contains_key(relative));
    let expected = metadata.digest.as_ref().and_then(|digest| digest.files.get(relative));
    let too_large = |bytes: u64| {
        Outcome::Violates(Violation {
            kind: if is_listed { ViolationKind::DigestMismatch } else { ViolationKind::FileUnlisted },
            path: relative.to_string(),
            expected: expected.map(|expected| format!("sha256 {expected}")),
            actual: Some(format!("{bytes} bytes or more; no file of a kernel is larger than {MAX_FILE_BYTES}")),
        })
    };
    let stamp = |file: &File| file.metadata().map(|found| Stamp::of(&found)).map_err(io_error("look at", path));
    // Before anything of it is copied: a file with holes is larger than what it takes on the disk.
    let before = stamp(&file)?;
    if before.size > MAX_FILE_BYTES {
        return Ok(too_large(before.size));
    }
    let mut library = (is_listed && is_library(relative)).then(|| LibraryCopy::create(path)).transpose()?;
    let mut text = (is_listed && is_text(relative)).then(Vec::new);
    let known = trusted.filter(|_| text.is_none()).and_then(|trusted| trusted.digest(&before));
    if let Some(digest) = known {
        if let Some(library) = &mut library {
            library.write_all_of(&mut file)?;
        }
        // A file that was written to meanwhile has another stamp, and is hashed as if nothing was known of it.
        if stamp(&file)? == before {
            let library = library.map(|library| library.seal(relative.clone(), digest)).transpose()?;
            return Ok(Outcome::Read { digest, bytes: before.size, text: None, library });
        }
        return read_file(path, relative, metadata, None);
    }
    let mut hasher = Sha256::new();
    let mut bytes = 0;
    let is_whole = each_piece(&mut file, path, before.size, library.as_mut(), &mut |piece| {
        bytes += piece.len() as u64;
        hasher.update(piece);
        if let Some(text) = text.as_mut().filter(|_| bytes <= MAX_TEXT_BYTES) {
            text.extend_from_slice(piece);
        }
        bytes <= MAX_FILE_BYTES
    })?;
    if !is_whole {
        return Ok(too_large(bytes));
    }
    let digest = Sha256Digest::from_bytes(hasher.finalize().into());
    // Of other bytes that they are others says more.
    if text.is_some() && bytes > MAX_TEXT_BYTES && expected.is_none_or(|expected| *expected == digest) {
        return Err(VerifyError::TextTooLarge { path: path.to_path_buf(), maximum: MAX_TEXT_BYTES });
    }
    if let Some(trusted) = trusted
        && stamp(&file)? == before
    {
        trusted.record(&before, digest);
    }
    let library = library.map(|library| library.seal(relative.clone(), digest)).transpose()?;
    let text = text.and_then(|text| String::from_utf8(text).ok());
    Ok(Outcome::Read { digest, bytes, text, library })
}

/// The size of a piece that takes a whole file of `length` bytes, up to [`PIECE`].
fn piece_of(length: u64) -> usize {
    usize::try_from(length).map_or(PIECE, |length| length.clamp(MIN_PIECE, PIECE))
}

/// Hands each piece of a file to `take`, and writes it into the copy. `false`: `take` wanted no more.
fn each_piece(
    file: &mut File,
    path: &Path,
    length: u64,
    copy: Option<&mut LibraryCopy>,
    take: &mut dyn FnMut(&[u8]) -> bool,
) -> Result<bool, VerifyError> {
    match copy {
        Some(copy) if length >= OVERLAP_BYTES => overlapped(file, path, copy, take),
        mut copy => {
            let mut piece = vec![0; piece_of(length)];
            loop {
                let read = read_piece(file, path, &mut piece)?;
                if read == 0 {
                    return Ok(true);
                }
                if !take(&piece[..read]) {
                    return Ok(false);
                }
                if let Some(copy) = &mut copy {
                    copy.write(&piece[..read])?;
                }
            }
        }
    }
}

/// The same with a second thread that writes the copy: it takes about as long as hashing does. What is written is the
/// memory that was hashed.
fn overlapped(
    file: &mut File,
    path: &Path,
    copy: &mut LibraryCopy,
    take: &mut dyn FnMut(&[u8]) -> bool,
) -> Result<bool, VerifyError> {
    let (full, filled) = sync_channel::<(Vec<u8>, usize)>(WAITING);
    let (empty, emptied) = channel::<Vec<u8>>();
    std::thread::scope(|scope| {
        let writer = scope.spawn(move || -> Result<(), VerifyError> {
            for (piece, length) in filled {
                copy.write(&piece[..length])?;
                // The reader has ended when this fails.
                let _ = empty.send(piece);
            }
            Ok(())
        });
        let outcome = loop {
            let mut piece = emptied.try_recv().unwrap_or_else(|_| vec![0; PIECE]);
            match read_piece(file, path, &mut piece) {
                Ok(0) => break Ok(true),
                Ok(read) if !take(&piece[..read]) => break Ok(false),
                // The writer failed when this does, and says why below.
                Ok(read) if full.send((piece, read)).is_err() => break Ok(false),
                Ok(_) => {}
                Err(error) => break Err(error),
            }
        };
        drop(full);
        let written = writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let is_whole = outcome?;
        written?;
        Ok(is_whole)
    })
}

fn read_piece(file: &mut File, path: &Path, piece: &mut [u8]) -> Result<usize, VerifyError> {
    loop {
        match file.read(piece) {
            Ok(read) => return Ok(read),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(io_error("read", path)(error)),
        }
    }
}

fn extension(path: &RelativePath) -> Option<String> {
    Path::new(path.as_str()).extension()?.to_str().map(str::to_ascii_lowercase)
}

fn is_text(path: &RelativePath) -> bool {
    extension(path).is_some_and(|extension| ["toml", "wgsl", "json", "py"].contains(&extension.as_str()))
}

/// A file that a system loader opens, `libx.so.1` included.
fn is_library(path: &RelativePath) -> bool {
    extension(path).is_some_and(|extension| ["so", "dylib", "dll"].contains(&extension.as_str()))
        || path.as_str().to_ascii_lowercase().rsplit('/').next().is_some_and(|name| name.contains(".so."))
}
