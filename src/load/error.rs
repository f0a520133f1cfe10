//! Why a verified library did not load.

use std::path::PathBuf;

use crate::digest::{Violation, ViolationKind};
use crate::hint::Hint;
use crate::verify::VerifyError;

/// A failure to load a library or to find a function in it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The library is not to be loaded, or does not fit this machine or this process, as its file says. No code of it
    /// ran.
    #[error("cannot load {}: {}", .path.display(), crate::digest::list(.violations))]
    Unfit {
        /// The library's file in the cache.
        path: PathBuf,
        /// Everything that does not fit, in a stable order.
        violations: Vec<Violation>,
    },
    /// The dynamic linker refused the library.
    #[error("cannot load {}: {reason}", .path.display())]
    Dlopen {
        /// The library's file in the cache.
        path: PathBuf,
        /// The linker's own words: which library or symbol is missing.
        reason: String,
    },
    /// The pack's handshake names another ABI version than this host speaks.
    #[error("{} speaks version {actual} of the pack ABI; this host speaks version {expected}", .path.display())]
    AbiVersion {
        /// The library's file in the cache.
        path: PathBuf,
        /// The version that this host speaks.
        expected: u32,
        /// The version that the pack answered.
        actual: u32,
    },
    /// The library has the handshake but lacks another symbol that the handshake promises.
    #[error("{} lacks the symbol {symbol}, which version {version} of the pack ABI promises", .path.display())]
    IncompletePack {
        /// The library's file in the cache.
        path: PathBuf,
        /// The symbol that is missing.
        symbol: &'static str,
        /// The ABI version that the pack declares.
        version: u32,
    },
    /// The library does not export a function that its `layers.toml` or manifest names.
    #[error("{} does not export the function {function} (symbol {symbol})", .path.display())]
    FunctionMissing {
        /// The library's file in the cache.
        path: PathBuf,
        /// The function's name in the binding.
        function: String,
        /// The symbol that was looked up.
        symbol: String,
    },
    /// The snapshot holds no library, or more than one.
    #[error("no library to load")]
    Library(#[from] VerifyError),
    /// This system has no way to load a library.
    #[error("loading native kernels is not supported on this system ({os})")]
    Unsupported {
        /// The operating system.
        os: &'static str,
    },
}

impl LoadError {
    /// What is not as published, not to be loaded, or does not fit. Empty for the other errors.
    #[must_use]
    pub fn violations(&self) -> &[Violation] {
        match self {
            Self::Unfit { violations, .. } => violations,
            Self::Library(source) => source.violations(),
            _ => &[],
        }
    }
}

impl Hint for LoadError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Unfit { violations, .. } => Some(unfit_hint(violations)),
            Self::Dlopen { reason, .. } => dlopen_hint(reason),
            Self::AbiVersion { expected, actual, .. } if actual > expected => {
                Some("update kernelhub, or choose an older version of the kernel".to_owned())
            }
            Self::AbiVersion { .. } => Some("choose a newer version of the kernel".to_owned()),
            Self::FunctionMissing { .. } | Self::IncompletePack { .. } => {
                Some("the kernel's build is broken; choose another version and tell its publisher".to_owned())
            }
            Self::Library(source) => source.hint(),
            Self::Unsupported { .. } => None,
        }
    }
}

/// Advice for what does not fit: the missing libraries in one sentence.
fn unfit_hint(violations: &[Violation]) -> String {
    let of = |kind| violations.iter().filter(move |violation| violation.kind == kind);
    let names = of(ViolationKind::LibraryMissing).filter_map(|violation| violation.expected.as_deref());
    let missing: Vec<&str> = names.map(|name| name.split([' ', ';']).next().unwrap_or(name)).collect();
    if let [one] = missing[..] {
        return format!("install the library {one}, or add its folder to LD_LIBRARY_PATH");
    }
    if !missing.is_empty() {
        return format!("install {}, or add the folder of each to LD_LIBRARY_PATH", missing.join(", "));
    }
    if of(ViolationKind::LibraryTooOld).next().is_some() {
        return "the build needs a newer C or C++ runtime than this system has; choose another build".to_owned();
    }
    "choose another build or version of the kernel, and tell its publisher".to_owned()
}

/// Advice for the dynamic linker's messages (glibc's and musl's).
fn dlopen_hint(reason: &str) -> Option<String> {
    if let Some((before, _)) = reason.split_once(": cannot open shared object file") {
        let library = before.rsplit(": ").next().unwrap_or(before);
        return Some(format!("install the library {library}, or add its folder to LD_LIBRARY_PATH"));
    }
    if reason.contains("undefined symbol: TVMFFI") {
        return Some("this build needs libtvm_ffi.so in the process; install the package apache-tvm-ffi".to_owned());
    }
    if let Some((_, symbol)) = reason.split_once("undefined symbol: ") {
        return Some(format!("no loaded library defines {symbol}; the build was made for another set of libraries"));
    }
    if reason.contains("version `GLIBC") || reason.contains("version `GLIBCXX") {
        return Some("the build needs a newer C or C++ runtime than this system has; choose another build".to_owned());
    }
    if reason.contains("failed to map segment") || reason.contains("Operation not permitted") {
        return Some(
            "this system forbids executable mappings of in-memory files (noexec or a security policy)".to_owned(),
        );
    }
    None
}

#[cfg(test)]
mod tests {
    use super::dlopen_hint;

    #[test]
    fn the_missing_library_or_symbol_is_named() {
        let missing = "libfoo.so.3: cannot open shared object file: No such file or directory";
        assert!(dlopen_hint(missing).unwrap().contains("libfoo.so.3"));
        assert!(dlopen_hint("x.so: undefined symbol: TVMFFIErrorSetRaised").unwrap().contains("apache-tvm-ffi"));
        assert!(dlopen_hint("x.so: undefined symbol: frobnicate").unwrap().contains("frobnicate"));
        assert_eq!(dlopen_hint("invalid ELF header"), None);
    }
}
