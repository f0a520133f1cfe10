//! What stands in a folder.

use std::fs;
use std::path::Path;

/// Every entry below a folder, relative and sorted, links not followed.
pub(crate) fn list(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries {
            let entry = entry.unwrap();
            found.push(entry.path().strip_prefix(root).unwrap().display().to_string());
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            }
        }
    }
    found.sort();
    found
}

/// Gives a file of a cache other bytes.
pub(crate) fn overwrite(path: &Path, bytes: &[u8]) {
    // Unpacked files may be read-only, and a hard link of another place must not change with this one.
    fs::remove_file(path).ok();
    fs::write(path, bytes).unwrap();
}

/// What is in a cache beside its lock files: files only.
pub(crate) fn cached(root: &Path) -> Vec<String> {
    list(root).into_iter().filter(|path| !path.starts_with("locks") && !root.join(path).is_dir()).collect()
}
