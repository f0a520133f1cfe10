//! The environment variables that probing reads.

use std::ffi::OsString;
use std::path::PathBuf;

/// Environment variables as probing sees them, read once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Environment {
    /// `KERNELHUB_TVM_FFI`: the file of `libtvm_ffi`. When it is set, no other place is searched.
    pub tvm_ffi: Option<PathBuf>,
    /// `LIBTORCH`: the folder of a libtorch distribution, whose `lib/` holds the library. When it is set, no other
    /// place is searched.
    pub libtorch: Option<PathBuf>,
    /// `LD_LIBRARY_PATH` (`DYLD_LIBRARY_PATH` on macOS, `PATH` on Windows), split.
    pub library_path: Vec<PathBuf>,
    /// `VIRTUAL_ENV` and `CONDA_PREFIX`: Python environments, whose packages may hold libraries.
    pub python_prefixes: Vec<PathBuf>,
}

impl Environment {
    /// Reads the process's environment. The only function of this room that does.
    #[must_use]
    pub fn read() -> Self {
        // An empty variable is an unset one, as in a shell's ${NAME:-default}.
        let get = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let list = |value: OsString| std::env::split_paths(&value).collect();
        let library_path = match std::env::consts::OS {
            "macos" => "DYLD_LIBRARY_PATH",
            "windows" => "PATH",
            _ => "LD_LIBRARY_PATH",
        };
        Self {
            tvm_ffi: get("KERNELHUB_TVM_FFI").map(PathBuf::from),
            libtorch: get("LIBTORCH").map(PathBuf::from),
            library_path: get(library_path).map(list).unwrap_or_default(),
            python_prefixes: ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(get).map(PathBuf::from).collect(),
        }
    }
}
