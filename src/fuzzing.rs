//! What the fuzz targets reach and nobody else may: parsers of outside bytes that are no interface of this crate.
//!
//! Each gives a text that tells apart what happened, so that a runner without coverage sees new behaviour.

use std::path::Path;

use crate::variant::Variant;

/// Unpacks an archive into a folder that does not exist yet; the paths of its files, or what refuses it.
///
/// # Errors
/// What refuses the archive, in words.
pub fn unpack(archive: &Path, into: &Path, variant: &Variant) -> Result<Vec<String>, String> {
    crate::fetch::fuzz_unpack(archive, into, variant)
}

/// Unpacks a bundle of kernels; the paths of its files, or what refuses it.
///
/// # Errors
/// What refuses the bundle, in words.
pub fn unpack_bundle(archive: &Path, into: &Path) -> Result<Vec<String>, String> {
    let unpacked = crate::fetch::unpack_bundle(archive, into).map_err(|error| format!("{error:?}"))?;
    Ok(unpacked.keys().map(ToString::to_string).collect())
}

/// Reads an answer of the Hub about a tree or refs.
///
/// # Errors
/// What is wrong with it, in words.
pub fn listing(text: &[u8], variant: &Variant) -> Result<Vec<String>, String> {
    let files = crate::fetch::read_listing(text, variant)?;
    Ok(files.iter().map(|file| file.path.to_string()).collect())
}

/// Reads a linker's cache and looks a name up in it.
#[must_use]
pub fn linker_cache(bytes: &[u8], name: &str) -> Option<std::path::PathBuf> {
    crate::system::linker::fuzz_cache(bytes, name)
}
