//! A driver's library, opened at run time: nothing of it is needed at build time, and its absence is an answer.
#![expect(unsafe_code, reason = "opening a library and taking functions from it is unsafe by nature")]

use std::ffi::CStr;
use std::mem::ManuallyDrop;
use std::path::PathBuf;

use libloading::Library;

use crate::system::environment::Environment;

/// A library that stays open until the process ends: drivers start threads and register handlers that must not lose
/// their code.
#[derive(Debug)]
pub(in crate::system) struct Driver {
    library: ManuallyDrop<Library>,
}

/// Why there is no library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::system) enum OpenError {
    /// It is nowhere.
    Absent,
    /// It is there and cannot be opened; what the dynamic linker says.
    Broken(String),
}

impl Driver {
    /// Opens the first of these names that is there: in the environment's library path, then where the dynamic linker
    /// looks. The latter is left out when the environment has a root, which describes another machine.
    ///
    /// # Errors
    /// [`OpenError::Broken`] when one was found and none could be opened, else [`OpenError::Absent`].
    pub(in crate::system) fn open(environment: &Environment, names: &[&str]) -> Result<Self, OpenError> {
        let mut broken = None;
        // A relative folder would let the working directory choose the driver.
        let folders = environment.library_path.iter().filter(|folder| folder.is_absolute());
        let listed = folders.flat_map(|folder| names.iter().map(|name| folder.join(name)));
        let found = listed.filter(|path| path.is_file());
        let by_linker = names.iter().filter(|_| environment.root.is_none()).map(PathBuf::from);
        for name in found.chain(by_linker) {
            // SAFETY: opening runs the library's initialisers. It is a driver of this machine, found where its dynamic
            // linker finds it or in a folder that the caller named: the system's own code, trusted as libc is, and what
            // any program that uses the device runs too.
            match unsafe { Library::new(&name) } {
                Ok(library) => return Ok(Self { library: ManuallyDrop::new(library) }),
                Err(error) if is_absence(&error, &name) => {}
                Err(error) => broken = broken.or(Some(text(&error))),
            }
        }
        Err(broken.map_or(OpenError::Absent, OpenError::Broken))
    }

    /// A function of the library; `None` when it has none of this name.
    ///
    /// # Safety
    /// `F` is a function pointer, of the type by which the library's header declares that function.
    pub(super) unsafe fn function<F: Copy>(&self, name: &CStr) -> Option<F> {
        // SAFETY: the caller answers for the type. The copy outlives the symbol, which is sound because the library
        // is never closed.
        unsafe { self.library.get::<F>(name) }.ok().map(|symbol| *symbol)
    }
}

/// Whether the library itself was not found, as opposed to one that it needs.
fn is_absence(error: &libloading::Error, name: &std::path::Path) -> bool {
    let name = name.to_string_lossy();
    let text = text(error);
    // glibc: "libx.so.1: cannot open shared object file: No such file or directory"; musl: "Error loading shared
    // library libx.so.1: No such file or directory", with "(needed by ...)" after it for another one.
    let first = text.starts_with(&*name) || text.starts_with(&format!("Error loading shared library {name}:"));
    let absent = text.ends_with("No such file or directory");
    // Windows names the error alone: 126, the module was not found.
    (first && absent) || (cfg!(windows) && text.contains("126"))
}

/// What the dynamic linker says: libloading's own texts name only the call that failed.
fn text(error: &libloading::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = cause.to_string();
        source = cause.source();
    }
    text
}

/// The text in a buffer that a driver filled: up to the first NUL, or all of it when there is none.
pub(super) fn buffer_text(buffer: &[u8]) -> String {
    let end = buffer.iter().position(|byte| *byte == 0).unwrap_or(buffer.len());
    String::from_utf8_lossy(&buffer[..end]).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::{Driver, Environment, OpenError, buffer_text};

    #[test]
    fn absent_and_broken_libraries_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let mut environment = Environment::default();
        let names = ["libkernelhub-none.so.1"];
        assert_eq!(Driver::open(&environment, &names).unwrap_err(), OpenError::Absent);
        environment.library_path = vec![folder.path().to_owned()];
        assert_eq!(Driver::open(&environment, &names).unwrap_err(), OpenError::Absent);
        std::fs::write(folder.path().join(names[0]), "no library").unwrap();
        let error = Driver::open(&environment, &names).unwrap_err();
        assert!(matches!(&error, OpenError::Broken(text) if text.contains(names[0])), "{error:?}");
        environment.library_path = vec!["relative".into()];
        assert_eq!(Driver::open(&environment, &names).unwrap_err(), OpenError::Absent);
    }

    #[test]
    fn a_buffer_without_an_end_is_read_to_its_own() {
        assert_eq!(buffer_text(b"NVIDIA H200\0rest"), "NVIDIA H200");
        assert_eq!(buffer_text(b"abc"), "abc");
        assert_eq!(buffer_text(b"a\xff\0"), "a\u{fffd}");
        assert_eq!(buffer_text(b""), "");
    }
}
