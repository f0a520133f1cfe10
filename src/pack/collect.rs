//! The files of a folder, in memory.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::PackError;
use super::archive::PackFile;
use crate::fetch::MAX_FILE_BYTES;
use crate::names::RelativePath;
use crate::regular;

/// Reads every file below a folder. Links are refused: what is packed is what stands there.
pub(super) fn collect(folder: &Path) -> Result<Vec<PackFile>, PackError> {
    let mut files = Vec::new();
    let mut used = HashMap::new();
    let mut folders = vec![(folder.to_path_buf(), String::new())];
    while let Some((folder, prefix)) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(io_error("list", &folder))? {
            let entry = entry.map_err(io_error("list", &folder))?;
            let path = entry.path();
            let name = entry.file_name();
            let Some(name) = name.to_str() else {
                return Err(PackError::NotAFile { path, reason: "its name is not UTF-8" });
            };
            let relative: RelativePath =
                format!("{prefix}{name}").parse().map_err(|source| PackError::Name { path: path.clone(), source })?;
            if let Some(earlier) = used.insert(relative.case_folded(), path.clone()) {
                return Err(PackError::CaseCollision { path, earlier });
            }
            let kind = entry.file_type().map_err(io_error("look at", &path))?;
            if kind.is_dir() {
                folders.push((path, format!("{relative}/")));
            } else if kind.is_file() {
                let bytes = regular::read(&path, MAX_FILE_BYTES).map_err(io_error("read", &path))?;
                let is_executable = is_executable(&path).map_err(io_error("look at", &path))?;
                files.push(PackFile { path: relative, bytes, is_executable });
            } else {
                return Err(PackError::NotAFile { path, reason: "it is a link or a special file" });
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

#[cfg(unix)]
fn is_executable(path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::PermissionsExt as _;
    Ok(fs::metadata(path)?.permissions().mode() & 0o100 != 0)
}

#[cfg(not(unix))]
fn is_executable(_: &Path) -> io::Result<bool> {
    Ok(false)
}

pub(super) fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> PackError {
    let path: PathBuf = path.to_path_buf();
    move |source| PackError::Io { action, path, source }
}
