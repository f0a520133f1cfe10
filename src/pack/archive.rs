//! The `.tar.zst` of one build.

use std::io::{self, Read as _};
use std::path::Path;

use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use crate::names::RelativePath;
use crate::regular;
use crate::variant::Variant;

/// One file of a pack.
#[derive(Debug)]
pub(super) struct PackFile {
    /// Relative to the variant's folder.
    pub(super) path: RelativePath,
    pub(super) bytes: Vec<u8>,
    pub(super) is_executable: bool,
}

/// Longest text that [`read_text`] reads, in bytes.
const MAX_TEXT_BYTES: u64 = 64 << 10;

/// A small text in an archive that was built here. `None`: there is no such archive, or no such text in it.
pub(super) fn read_text(archive: &Path, name: &str) -> Option<String> {
    let file = io::BufReader::new(regular::open(archive).ok()?);
    let mut tar = tar::Archive::new(ruzstd::decoding::StreamingDecoder::new(file).ok()?);
    let found = tar.entries().ok()?.filter_map(Result::ok).find(|entry| entry.path_bytes() == name.as_bytes())?;
    let mut text = String::new();
    found.take(MAX_TEXT_BYTES).read_to_string(&mut text).ok()?;
    Some(text)
}

/// The bytes of the archive: `build/<variant>/...`, the files in the order given.
pub(super) fn build(files: &[PackFile], variant: &Variant) -> io::Result<Vec<u8>> {
    let mut builder = tar::Builder::new(Vec::new());
    for file in files {
        // GNU headers carry names of any length, by an entry of their own where they must.
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Regular);
        header.set_mode(if file.is_executable { 0o755 } else { 0o644 });
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(file.bytes.len() as u64);
        builder.append_data(&mut header, format!("build/{variant}/{}", file.path), file.bytes.as_slice())?;
    }
    Ok(compress_to_vec(builder.into_inner()?.as_slice(), CompressionLevel::Fastest))
}
