//! The `.tar.zst` of one build.

use std::io;

use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use crate::names::RelativePath;
use crate::variant::Variant;

/// One file of a pack.
#[derive(Debug)]
pub(super) struct PackFile {
    /// Relative to the variant's folder.
    pub(super) path: RelativePath,
    pub(super) bytes: Vec<u8>,
    pub(super) is_executable: bool,
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
