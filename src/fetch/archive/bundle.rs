//! A bundle of locked kernels: a tar of many builds, under the rules of an archive of one.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufReader, Read as _, Seek as _};
use std::path::Path;

use super::super::limits::ArchiveLimits;
use super::stream::{Plain, Unpacking};
use super::{Job, UnpackError, Unpacked, machine};
use crate::digest::Sha256Digest;
use crate::fetch::archive::tree::Tree;
use crate::names::RelativePath;
use crate::regular;

/// The first bytes of a zstd frame.
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// The first bytes of a gzip member.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Unpacks a bundle, compressed or not, into a folder that does not exist yet. Returns the digest of every file.
pub(crate) fn unpack_bundle(bundle: &Path, into: &Path) -> Result<BTreeMap<RelativePath, Sha256Digest>, UnpackError> {
    let mut file = regular::open(bundle).map_err(machine("open", bundle))?;
    let mut magic = Vec::new();
    file.by_ref().take(4).read_to_end(&mut magic).map_err(machine("read", bundle))?;
    file.rewind().map_err(machine("read", bundle))?;
    fs::create_dir(into).map_err(machine("make the folder", into))?;
    let mut job = Job {
        into,
        prefix: None,
        limits: ArchiveLimits::BUNDLE,
        tree: Tree::default(),
        total: 0,
        unpacked: Unpacked { metadata: Vec::new(), files: BTreeMap::new() },
        has_metadata: false,
    };
    let file = BufReader::with_capacity(256 << 10, file);
    if magic == ZSTD_MAGIC || magic.starts_with(&GZIP_MAGIC) {
        let mut stream = Unpacking::new(file)?;
        job.run(&mut stream)?;
        stream.finish()?;
    } else {
        let mut stream = Plain::new(file);
        job.run(&mut stream)?;
        stream.finish()?;
    }
    Ok(job.unpacked.files)
}
