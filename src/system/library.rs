//! Runtime libraries that we only find: where they lie, never what they do.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::environment::Environment;
use crate::regular;
use crate::variant::Version;

/// A library file that was found by its path. It was not loaded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LibraryFound {
    /// The file.
    pub path: PathBuf,
    /// Its version by the package around it, such as `2.9.1+cu130`; `None` when nothing around it tells.
    #[serde(default)]
    pub version: Option<String>,
}

impl LibraryFound {
    /// The first two numbers of the version.
    #[must_use]
    pub fn leading_version(&self) -> Option<Version> {
        Version::leading(self.version.as_deref()?)
    }
}

/// The most Python environments of one folder that are looked into.
const MAX_PYTHONS: usize = 16;
/// Largest file that tells a version, in bytes.
const MAX_VERSION_BYTES: u64 = 64 << 10;

/// A library's file name on this system.
fn file_name(stem: &str) -> String {
    format!("{}{stem}{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX)
}

/// Searches for `libtvm_ffi`: the named file, the library path, Python's packages, the system's folders.
pub(super) fn find_tvm_ffi(
    environment: &Environment,
    packages: &[PathBuf],
    notes: &mut Vec<String>,
) -> Option<LibraryFound> {
    if let Some(path) = &environment.tvm_ffi {
        return named("KERNELHUB_TVM_FFI", path, path, notes)
            .map(|path| LibraryFound { version: tvm_ffi_version(&path), path });
    }
    let name = file_name("tvm_ffi");
    let folders = environment
        .library_path
        .iter()
        .cloned()
        .chain(packages.iter().map(|packages| packages.join("tvm_ffi/lib")))
        .chain(system_folders());
    first_file(folders, &name).map(|path| LibraryFound { version: tvm_ffi_version(&path), path })
}

/// Searches for libtorch in the same order.
pub(super) fn find_torch(
    environment: &Environment,
    packages: &[PathBuf],
    notes: &mut Vec<String>,
) -> Option<LibraryFound> {
    let name = file_name("torch");
    if let Some(folder) = &environment.libtorch {
        return named("LIBTORCH", folder, &folder.join("lib").join(&name), notes)
            .map(|path| LibraryFound { version: torch_version(&path), path });
    }
    let folders = environment
        .library_path
        .iter()
        .cloned()
        .chain(packages.iter().map(|packages| packages.join("torch/lib")))
        .chain(system_folders());
    first_file(folders, &name).map(|path| LibraryFound { version: torch_version(&path), path })
}

/// The file that a variable names; a note when it is not there. An explicit name is never replaced by a search.
fn named(variable: &str, value: &Path, file: &Path, notes: &mut Vec<String>) -> Option<PathBuf> {
    if file.is_file() {
        // A relative name means the folder of now, not of when the library is loaded.
        return std::path::absolute(file).ok();
    }
    notes.push(format!("{variable}={} names no library: {} is not a file", value.display(), file.display()));
    None
}

fn first_file(folders: impl Iterator<Item = PathBuf>, name: &str) -> Option<PathBuf> {
    // A relative folder in the library path would make the answer depend on the working directory.
    folders.filter(|folder| folder.is_absolute()).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// Package folders of the Python environments: `lib/python3*/site-packages` and Debian's `dist-packages`.
pub(super) fn packages(environment: &Environment) -> Vec<PathBuf> {
    // `/usr/lib` is not listed: it holds thousands of entries on some systems.
    let local = if cfg!(windows) { vec![] } else { vec![PathBuf::from("/usr/local")] };
    let mut found = Vec::new();
    for prefix in environment.python_prefixes.iter().chain(&local) {
        let windows = prefix.join("Lib/site-packages");
        if windows.is_dir() {
            found.push(windows);
        }
        let lib = prefix.join("lib");
        let pythons = subfolders(&lib, |name| name.starts_with("python3"));
        for python in pythons.into_iter().rev() {
            found.extend(["site-packages", "dist-packages"].map(|packages| python.join(packages)));
        }
    }
    if !cfg!(windows) {
        found.push(PathBuf::from("/usr/lib/python3/dist-packages"));
    }
    found
}

/// At most [`MAX_PYTHONS`] entries of a folder whose names fit, in the order of their names.
fn subfolders(folder: &Path, fits: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut found: Vec<PathBuf> = entries
        .flatten()
        .filter(|entry| entry.file_name().to_str().is_some_and(&fits))
        .map(|entry| entry.path())
        .take(MAX_PYTHONS)
        .collect();
    found.sort();
    found
}

fn system_folders() -> impl Iterator<Item = PathBuf> {
    let multiarch = format!("{}-linux-gnu", std::env::consts::ARCH);
    let folders = if cfg!(windows) {
        vec![]
    } else {
        vec![
            PathBuf::from("/usr/local/lib"),
            PathBuf::from("/usr/lib").join(&multiarch),
            PathBuf::from("/usr/lib64"),
            PathBuf::from("/usr/lib"),
            PathBuf::from("/opt/homebrew/lib"),
        ]
    };
    folders.into_iter()
}

/// Version of `libtvm_ffi` by the wheel around it: `.../tvm_ffi/lib/libtvm_ffi.so` beside
/// `.../apache_tvm_ffi-0.1.15.dist-info`.
fn tvm_ffi_version(path: &Path) -> Option<String> {
    let packages = path.parent()?.parent()?.parent()?;
    let entries = std::fs::read_dir(packages).ok()?;
    entries.flatten().find_map(|entry| {
        let name = entry.file_name();
        Some(name.to_str()?.strip_prefix("apache_tvm_ffi-")?.strip_suffix(".dist-info")?.to_owned())
    })
}

/// Version of libtorch: `build-version` of a distribution, or `version.py` of a wheel.
fn torch_version(path: &Path) -> Option<String> {
    let root = path.parent()?.parent()?;
    if let Ok(text) = regular::read_text(&root.join("build-version"), MAX_VERSION_BYTES) {
        return Some(text.trim().to_owned());
    }
    let text = regular::read_text(&root.join("version.py"), MAX_VERSION_BYTES).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix("__version__ = "))?;
    Some(value.trim().trim_matches(['\'', '"']).to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{Environment, file_name, find_torch, find_tvm_ffi, packages};
    use crate::variant::Version;

    #[test]
    fn wheels_are_found_with_their_versions() {
        let prefix = tempfile::tempdir().unwrap();
        let site = prefix.path().join("lib/python3.12/site-packages");
        fs::create_dir_all(site.join("tvm_ffi/lib")).unwrap();
        fs::create_dir_all(site.join("torch/lib")).unwrap();
        fs::create_dir_all(site.join("apache_tvm_ffi-0.1.15.post2.dist-info")).unwrap();
        let tvm_ffi = site.join("tvm_ffi/lib").join(file_name("tvm_ffi"));
        let torch = site.join("torch/lib").join(file_name("torch"));
        fs::write(&tvm_ffi, "").unwrap();
        fs::write(&torch, "").unwrap();
        fs::write(site.join("torch/version.py"), "__version__ = '2.9.1+cu130'\n").unwrap();

        let environment = Environment { python_prefixes: vec![prefix.path().into()], ..Environment::default() };
        let mut notes = Vec::new();
        let found = find_tvm_ffi(&environment, &packages(&environment), &mut notes).unwrap();
        assert_eq!((found.path.as_path(), found.leading_version()), (tvm_ffi.as_path(), Some(Version::new(0, 1))));
        let found = find_torch(&environment, &packages(&environment), &mut notes).unwrap();
        assert_eq!((found.path.as_path(), found.leading_version()), (torch.as_path(), Some(Version::new(2, 9))));
        assert_eq!(notes, Vec::<String>::new());
    }

    #[test]
    fn a_named_file_is_taken_or_its_absence_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join(file_name("tvm_ffi"));
        let environment = Environment {
            tvm_ffi: Some(library.clone()),
            // Would be found by the search: the name wins, even when it is wrong.
            library_path: vec![folder.path().join("elsewhere")],
            ..Environment::default()
        };
        fs::create_dir(folder.path().join("elsewhere")).unwrap();
        fs::write(folder.path().join("elsewhere").join(file_name("tvm_ffi")), "").unwrap();

        let mut notes = Vec::new();
        assert_eq!(find_tvm_ffi(&environment, &[], &mut notes), None);
        assert!(notes[0].starts_with("KERNELHUB_TVM_FFI=") && notes[0].ends_with("is not a file"), "{notes:?}");
        fs::write(&library, "").unwrap();
        assert_eq!(find_tvm_ffi(&environment, &[], &mut notes).unwrap().path, library);
        assert_eq!(notes.len(), 1);
    }
}
