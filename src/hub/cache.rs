//! Checking a whole cache.

use crate::fetch::{Cache, CacheEntry, FetchError};
use crate::verify::{VerifyError, inspect};

/// An entry of the cache, with what was found wrong with it.
#[derive(Debug)]
pub struct CheckedEntry {
    /// The entry.
    pub entry: CacheEntry,
    /// What is not as published. `None`: nothing, or the entry is no whole build and was not read.
    pub fault: Option<VerifyError>,
}

/// Reads and hashes every whole build in a cache, whoever published it. Changes nothing, and makes no request.
///
/// # Errors
/// [`FetchError::Io`] when the cache cannot be listed.
pub fn check_cache(cache: &Cache) -> Result<Vec<CheckedEntry>, FetchError> {
    let check = |entry: CacheEntry| {
        let fault = entry.snapshot.as_ref().and_then(|snapshot| inspect(snapshot).err());
        CheckedEntry { entry, fault }
    };
    Ok(cache.inventory()?.into_iter().map(check).collect())
}
