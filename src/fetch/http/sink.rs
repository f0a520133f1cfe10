//! A file that is hashed while it grows.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use crate::digest::Sha256Digest;
use crate::fetch::FetchError;
use crate::regular;

/// From how many bytes on the hash is computed on a thread of its own, beside the transfer.
const BESIDE_FROM: u64 = 1 << 20;
/// Most pieces that wait for the hashing thread. With the client's pieces of at most half a mebibyte, this bounds the
/// memory.
const WAITING_PIECES: usize = 16;

/// Who hashes.
#[derive(Debug)]
enum Hashing {
    Here(Sha256),
    Beside { pieces: SyncSender<Bytes>, thread: JoinHandle<Sha256> },
}

/// A partial file with the hash of what is in it.
#[derive(Debug)]
pub(super) struct Sink {
    path: PathBuf,
    file: File,
    length: u64,
    hashing: Hashing,
}

impl Sink {
    /// Opens a partial file, or makes one. What is in it already is hashed again.
    pub(super) fn open(path: &Path) -> Result<Self, FetchError> {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        let mut file = regular::open_with(&mut options, path).map_err(FetchError::io("open", path))?;
        let mut hasher = Sha256::new();
        let mut length = 0;
        let mut buffer = vec![0; 256 << 10];
        loop {
            match file.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => {
                    hasher.update(&buffer[..read]);
                    length += read as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(FetchError::io("read", path)(error)),
            }
        }
        Ok(Self { path: path.to_path_buf(), file, length, hashing: Hashing::Here(hasher) })
    }

    pub(super) fn length(&self) -> u64 {
        self.length
    }

    pub(super) fn write(&mut self, piece: Bytes) -> Result<(), FetchError> {
        self.file.write_all(&piece).map_err(FetchError::io("write", &self.path))?;
        self.length += piece.len() as u64;
        match &mut self.hashing {
            Hashing::Here(hasher) => hasher.update(&piece),
            Hashing::Beside { pieces, .. } => {
                if pieces.send(piece).is_err() {
                    return Err(self.hasher_lost());
                }
            }
        }
        if self.length >= BESIDE_FROM
            && let Hashing::Here(hasher) = &self.hashing
        {
            let mut hasher = hasher.clone();
            let (pieces, waiting) = sync_channel::<Bytes>(WAITING_PIECES);
            let thread = std::thread::Builder::new()
                .name("kernelhub-hash".to_owned())
                .spawn(move || {
                    while let Ok(piece) = waiting.recv() {
                        hasher.update(&piece);
                    }
                    hasher
                })
                .map_err(|source| FetchError::Client { source })?;
            self.hashing = Hashing::Beside { pieces, thread };
        }
        Ok(())
    }

    /// The digest of everything in the file so far.
    pub(super) fn digest(&mut self) -> Result<Sha256Digest, FetchError> {
        if let Hashing::Beside { .. } = self.hashing
            && let Hashing::Beside { pieces, thread } =
                std::mem::replace(&mut self.hashing, Hashing::Here(Sha256::new()))
        {
            drop(pieces);
            let hasher = thread.join().map_err(|_| self.hasher_lost())?;
            self.hashing = Hashing::Here(hasher);
        }
        match &self.hashing {
            Hashing::Here(hasher) => Ok(Sha256Digest::from_bytes(hasher.clone().finalize().into())),
            Hashing::Beside { .. } => Err(self.hasher_lost()),
        }
    }

    /// Starts again from nothing.
    pub(super) fn restart(&mut self) -> Result<(), FetchError> {
        let fail = || FetchError::io("empty", &self.path);
        self.file.set_len(0).map_err(fail())?;
        self.file.rewind().map_err(fail())?;
        self.length = 0;
        self.hashing = Hashing::Here(Sha256::new());
        Ok(())
    }

    fn hasher_lost(&self) -> FetchError {
        FetchError::io("hash", &self.path)(io::Error::other("the hashing thread ended"))
    }
}
