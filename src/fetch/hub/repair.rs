//! Making room for a repair: what is wrong with a build goes, so that it counts as missing.

use std::fs;
use std::path::Path;

use super::build::Build;
use crate::fetch::hf_cache::{RepoFolder, TreeFile};
use crate::fetch::{FetchError, Session};

impl Build<'_> {
    /// Removes files of this build whose bytes are wrong, and what no build has, so that they are fetched again.
    pub(super) fn remove_damage(&self, session: &Session<'_>) -> Result<(), FetchError> {
        let root = self.root();
        let files = self.files(session)?;
        for file in &files {
            let place = file.path.below(&root);
            if place.symlink_metadata().is_ok() && !holds(&place, file)? {
                let blob = self.folder.blob(file.blob());
                for path in [&place, &blob] {
                    if path.symlink_metadata().is_ok() {
                        fs::remove_file(path).map_err(FetchError::io("remove", path))?;
                    }
                }
            }
        }
        let listed = |path: &str| files.iter().any(|file| file.path.as_str() == path);
        remove_strangers(&root, "", &listed)
    }
}

/// Whether a file in a snapshot has the bytes of its blob. A link that leads nowhere has none.
fn holds(place: &Path, file: &TreeFile) -> Result<bool, FetchError> {
    match RepoFolder::holds(place, file.blob(), file.lfs) {
        Err(FetchError::Io { .. }) if !place.is_file() => Ok(false),
        other => other,
    }
}

/// Removes what stands in a build's folder and is not listed.
fn remove_strangers(folder: &Path, prefix: &str, listed: &dyn Fn(&str) -> bool) -> Result<(), FetchError> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(FetchError::io("list", folder)(error)),
    };
    for entry in entries {
        let entry = entry.map_err(FetchError::io("list", folder))?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        let path = entry.path();
        if entry.file_type().map_err(FetchError::io("look at", &path))?.is_dir() {
            remove_strangers(&path, &format!("{name}/"), listed)?;
        } else if !listed(&name) {
            fs::remove_file(&path).map_err(FetchError::io("remove", &path))?;
        }
    }
    Ok(())
}
