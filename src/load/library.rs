//! A loaded library and its functions.
#![expect(unsafe_code, reason = "dlopen, dlsym and calls by the tvm-ffi convention")]

use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_void};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, PoisonError};

use kernelhub_abi::{
    AbiVersionFn, LastErrorFn, PACK_ABI_VERSION, PackedFn, SetParallelForFn, TVMFFIAny, symbols, type_index,
};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use serde::Serialize;

use super::LoadError;
use super::threads::parallel_for;
use crate::digest::Sha256Digest;
use crate::digest::Violation;
use crate::system::linker::Linker;
use crate::verify::elf::{Finding, Severity, shared_symbols};
use crate::verify::{VerifiedLibrary, VerifiedSnapshot};

/// How the host made sure that it and the library speak the same ABI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Handshake {
    /// The library answered `kernelhub_abi_version` with the host's own version.
    Pack,
    /// A third-party tvm-ffi build has no handshake: the variant's version tag is all there is.
    VariantTag,
}

/// The most of a kernel's error text that is kept, in bytes.
const MAX_ERROR_BYTES: usize = 16 << 10;

/// A library that stays loaded until the process ends.
pub struct KernelLibrary {
    library: Library,
    path: PathBuf,
    sha256: Sha256Digest,
    handshake: Handshake,
    last_error: Option<LastErrorFn>,
    /// What the scan warned of when it was loaded.
    findings: Vec<Finding>,
    /// Keeps the verified bytes, and with them the path that the dynamic linker knows the library by, from being
    /// reused for another library.
    bytes: VerifiedLibrary,
}

impl fmt::Debug for KernelLibrary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KernelLibrary")
            .field("path", &self.path)
            .field("sha256", &self.sha256)
            .field("handshake", &self.handshake)
            .finish_non_exhaustive()
    }
}

/// Why a library that was mapped is not used.
#[derive(Debug, Clone, Copy)]
enum HandshakeFault {
    Version(u32),
    Missing(&'static str),
}

impl HandshakeFault {
    fn of(self, path: &Path) -> LoadError {
        let path = path.to_owned();
        match self {
            Self::Version(actual) => LoadError::AbiVersion { path, expected: PACK_ABI_VERSION, actual },
            Self::Missing(symbol) => LoadError::IncompletePack { path, symbol, version: PACK_ABI_VERSION },
        }
    }
}

type Mapped = Result<&'static KernelLibrary, HandshakeFault>;

/// What this process has mapped, by the digest of the bytes. Entries are never removed: nothing is ever unloaded, and a
/// library that failed its handshake is not mapped once more for each time that it is asked for.
static MAPPED: LazyLock<Mutex<HashMap<Sha256Digest, Mapped>>> = LazyLock::new(Mutex::default);

impl KernelLibrary {
    /// Loads the one library of a verified snapshot, or returns it if this process has loaded these bytes before.
    ///
    /// Loading runs the library's initialisers. That this is acceptable is what `snapshot` stands for: its publisher
    /// was trusted and its bytes are the published ones.
    ///
    /// # Errors
    /// [`LoadError::Library`] when the snapshot has no single library, [`LoadError::Unfit`] with everything that this
    /// machine or this process lacks for it, [`LoadError::Dlopen`] with the dynamic linker's
    /// reason, [`LoadError::AbiVersion`] or [`LoadError::IncompletePack`] when the handshake fails. A library that
    /// loaded but failed its handshake stays mapped, and nothing of it is called again.
    pub fn open(snapshot: &VerifiedSnapshot) -> Result<&'static Self, LoadError> {
        let bytes = snapshot.library()?;
        // The lock is held while loading, so that two threads never load the same bytes twice.
        let mut mapped = MAPPED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = mapped.get(&bytes.sha256()) {
            // Whoever had it loaded may have been asked for less.
            Self::refuse(bytes, snapshot.findings())?;
            return known.map_err(|fault| fault.of(bytes.path()));
        }
        let findings = Self::scan(snapshot, bytes, &mapped)?;
        let library = Box::leak(Box::new(Self::load(bytes, findings)?));
        let outcome = library.shake_hands();
        let outcome: Mapped = outcome.map(|()| &*library);
        mapped.insert(bytes.sha256(), outcome);
        outcome.map_err(|fault| fault.of(bytes.path()))
    }

    /// Holds the library to what its file says, and looks for all that it needs, before any code of it runs. Gives what
    /// is warned of.
    fn scan(
        snapshot: &VerifiedSnapshot,
        bytes: &VerifiedLibrary,
        mapped: &HashMap<Sha256Digest, Mapped>,
    ) -> Result<Vec<Finding>, LoadError> {
        let mut findings = snapshot.findings().to_vec();
        findings.extend(snapshot.fit(&Linker::of_this_process()));
        let name = bytes.relative().as_str();
        let mut others: Vec<&KernelLibrary> = mapped.values().filter_map(|known| known.ok()).collect();
        others.sort_by(|a, b| a.path.cmp(&b.path));
        for (facts, other) in bytes.facts().into_iter().flat_map(|facts| others.iter().map(move |other| (facts, other)))
        {
            let theirs = other.bytes.facts();
            findings
                .extend(theirs.and_then(|theirs| shared_symbols(name, facts, theirs, &other.path, snapshot.rules())));
        }
        Self::refuse(bytes, &findings)?;
        Ok(findings)
    }

    /// An error with every finding that is refused.
    fn refuse(bytes: &VerifiedLibrary, findings: &[Finding]) -> Result<(), LoadError> {
        let refused = findings.iter().filter(|finding| finding.severity == Severity::Refuse);
        let violations: Vec<Violation> = refused.map(Finding::violation).collect();
        if violations.is_empty() {
            return Ok(());
        }
        Err(LoadError::Unfit { path: bytes.path().to_owned(), violations })
    }

    fn load(bytes: &VerifiedLibrary, findings: Vec<Finding>) -> Result<Self, LoadError> {
        let load_path = bytes.load_path();
        // SAFETY: initialisers run. The bytes behind `load_path` are sealed and were verified, and the caller decided
        // by the policy to run them.
        let library = unsafe { Library::open(Some(load_path), RTLD_NOW | RTLD_LOCAL) }
            .map_err(|error| LoadError::Dlopen { path: bytes.path().to_owned(), reason: reason(&error, bytes) })?;
        Ok(Self {
            library,
            path: bytes.path().to_owned(),
            sha256: bytes.sha256(),
            handshake: Handshake::VariantTag,
            last_error: None,
            findings,
            bytes: bytes.clone(),
        })
    }

    fn shake_hands(&mut self) -> Result<(), HandshakeFault> {
        // SAFETY: the pack ABI fixes this symbol's type.
        let Some(version) = (unsafe { self.symbol::<AbiVersionFn>(symbols::ABI_VERSION) }) else {
            return Ok(());
        };
        // SAFETY: takes nothing and only returns a number.
        let actual = unsafe { version() };
        if actual != PACK_ABI_VERSION {
            return Err(HandshakeFault::Version(actual));
        }
        // SAFETY: version 1 of the pack ABI, answered above, fixes this symbol's type.
        let last_error = unsafe { self.symbol::<LastErrorFn>(symbols::LAST_ERROR) };
        let last_error = last_error.ok_or(HandshakeFault::Missing(symbols::LAST_ERROR))?;
        // SAFETY: as above.
        let set_parallel_for = unsafe { self.symbol::<SetParallelForFn>(symbols::SET_PARALLEL_FOR) };
        let set_parallel_for = set_parallel_for.ok_or(HandshakeFault::Missing(symbols::SET_PARALLEL_FOR))?;
        // SAFETY: `parallel_for` lives as long as the process and ignores its context.
        unsafe { set_parallel_for(Some(parallel_for), std::ptr::null_mut()) };
        self.last_error = Some(last_error);
        self.handshake = Handshake::Pack;
        Ok(())
    }

    /// Looks a symbol up and copies the pointer out.
    ///
    /// # Safety
    /// `T` is a pointer-sized type that fits the symbol.
    unsafe fn symbol<T: Copy>(&self, name: &str) -> Option<T> {
        // SAFETY: the caller's contract on `T`.
        let symbol = unsafe { self.library.get::<T>(name) };
        symbol.ok().map(|symbol| *symbol)
    }

    /// Finds an exported function by its name without the ABI's prefix. Do this once and keep the result: a look-up
    /// costs more than a call.
    ///
    /// # Errors
    /// [`LoadError::FunctionMissing`].
    pub fn function(&'static self, name: &str) -> Result<NativeFunction, LoadError> {
        let symbol = format!("{}{name}", symbols::FUNCTION_PREFIX);
        // SAFETY: every symbol with this prefix has this type by the tvm-ffi convention.
        let entry = unsafe { self.symbol::<PackedFn>(&symbol) };
        let entry = entry.ok_or_else(|| LoadError::FunctionMissing {
            path: self.path.clone(),
            function: name.to_owned(),
            symbol,
        })?;
        Ok(NativeFunction { entry, library: self })
    }

    /// The library's file in the cache. What is mapped is a sealed copy of its verified bytes.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The digest of the mapped bytes.
    #[must_use]
    pub fn sha256(&self) -> Sha256Digest {
        self.sha256
    }

    /// How the ABI was checked.
    #[must_use]
    pub fn handshake(&self) -> Handshake {
        self.handshake
    }

    /// What the scan warned of when it was loaded: what its file says, this machine, and the kernels loaded before it.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// The calling thread's last error text from this library.
    fn last_error_text(&self) -> String {
        let Some(last_error) = self.last_error else {
            return "the library gives no error text".to_owned();
        };
        // SAFETY: a null buffer with length 0 asks for the length alone.
        let whole = unsafe { last_error(std::ptr::null_mut(), 0) };
        let mut text = vec![0_u8; whole.min(MAX_ERROR_BYTES)];
        // SAFETY: `text` has room for the length passed, and the function writes at most that many bytes.
        let length = unsafe { last_error(text.as_mut_ptr().cast::<c_char>(), text.len()) };
        text.truncate(length);
        if whole <= MAX_ERROR_BYTES {
            return String::from_utf8_lossy(&text).into_owned();
        }
        // The cut may have gone through a character, which then is left out.
        let valid = text.utf8_chunks().map(|chunk| chunk.valid()).collect::<String>();
        format!("{valid}... (cut; the whole text has {whole} bytes)")
    }
}

/// The dynamic linker's reason, with the sealed copy's path replaced by the file that the user knows.
fn reason(error: &libloading::Error, bytes: &VerifiedLibrary) -> String {
    let source = std::error::Error::source(error);
    let text = source.map_or_else(|| error.to_string(), ToString::to_string);
    let load_path = bytes.load_path();
    let text = text.replace(&*load_path.to_string_lossy(), &bytes.path().to_string_lossy());
    // glibc starts its message with the object's path, which the error shows already.
    let prefix = format!("{}: ", bytes.path().display());
    text.strip_prefix(&prefix).unwrap_or(&text).to_owned()
}

/// An exported function of a library that stays loaded.
#[derive(Clone, Copy)]
pub struct NativeFunction {
    entry: PackedFn,
    library: &'static KernelLibrary,
}

impl fmt::Debug for NativeFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NativeFunction").field("library", &self.library.path).finish_non_exhaustive()
    }
}

/// A call that the kernel refused or that broke its convention.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CallFailure {
    /// The function returned an error, with its text.
    Refused(String),
    /// The function returned a value where the destination-passing convention has none.
    UnexpectedResult(i32),
}

impl NativeFunction {
    /// Calls the function with `args` in its own order.
    ///
    /// Allocates nothing and takes no lock unless the call fails.
    ///
    /// # Errors
    /// [`CallFailure`] when the function returns non-zero, or a value.
    ///
    /// # Safety
    /// `args` has the number, order and types of values that the function takes; every tensor among them is described
    /// truthfully and lives until the call returns; outputs overlap nothing that another thread uses.
    #[inline]
    pub(crate) unsafe fn call(&self, args: &[TVMFFIAny]) -> Result<(), CallFailure> {
        let mut result = TVMFFIAny::none();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_possible_wrap,
            reason = "contracts have a few arguments"
        )]
        let count = args.len() as i32;
        // SAFETY: the entry has this type by its symbol's name; the caller vouches for the arguments, and `result` is
        // None as the convention asks.
        let status: c_int =
            unsafe { (self.entry)(std::ptr::null_mut::<c_void>(), args.as_ptr(), count, &raw mut result) };
        if status == 0 && result.type_index == type_index::NONE {
            return Ok(());
        }
        Err(self.failure(status, result.type_index))
    }

    #[cold]
    fn failure(&self, status: c_int, result_type: i32) -> CallFailure {
        if status == 0 {
            return CallFailure::UnexpectedResult(result_type);
        }
        CallFailure::Refused(self.library.last_error_text())
    }

    /// The library that the function belongs to.
    #[must_use]
    pub fn library(&self) -> &'static KernelLibrary {
        self.library
    }
}
