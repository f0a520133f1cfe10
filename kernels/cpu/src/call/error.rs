//! The error channel: a per-thread text, and `libtvm_ffi`'s where that library is in the process.

#![expect(unsafe_code, reason = "exported symbol, thread's buffer, optional C function of libtvm_ffi")]

use core::cell::RefCell;
use core::ffi::{c_char, c_int};
use core::fmt::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Longest error text, in bytes.
const CAPACITY: usize = 512;

/// The proof that an error's text stands in this thread's buffer.
#[derive(Debug)]
pub(crate) struct Failed(());

/// The error kinds of the tvm-ffi convention, named after Python's.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    /// An argument of the wrong type, or too few of them.
    Type,
    /// An argument with a value outside the contract.
    Value,
    /// A fault of this library.
    Runtime,
}

struct Text {
    /// Always room for a NUL after the text.
    bytes: [u8; CAPACITY + 1],
    length: usize,
}

impl Write for Text {
    /// Cuts what does not fit, at a character's boundary, and never fails.
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut take = text.len().min(CAPACITY - self.length);
        while !text.is_char_boundary(take) {
            take -= 1;
        }
        self.bytes[self.length..self.length + take].copy_from_slice(&text.as_bytes()[..take]);
        self.length += take;
        Ok(())
    }
}

thread_local! {
    // Constant and without a destructor: nothing of this library runs when a thread ends.
    static LAST: RefCell<Text> = const { RefCell::new(Text { bytes: [0; CAPACITY + 1], length: 0 }) };
}

/// Keeps an error's text for the host.
#[cold]
pub(crate) fn fail(kind: Kind, text: fmt::Arguments<'_>) -> Failed {
    LAST.with_borrow_mut(|last| {
        last.length = 0;
        // Cannot fail: `write_str` above never does, and the arguments are plain values.
        let _ = last.write_fmt(text);
        last.bytes[last.length] = 0;
        raise(kind, &last.bytes[..=last.length]);
    });
    Failed(())
}

/// Runs an exported function's body behind the panic barrier. Returns the C status: 0, or -1 with a text set.
pub(crate) fn guard(function: &'static str, body: impl FnOnce() -> Result<(), Failed>) -> c_int {
    // Unwind safe: the body owns nothing that outlives it except the error buffer, which stays a valid text.
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => 0,
        Ok(Err(Failed(()))) => -1,
        Err(payload) => {
            // Dropping a payload may panic in turn; leaking it may not.
            core::mem::forget(payload);
            fail(Kind::Runtime, format_args!("{function}: internal error (a panic); the output is incomplete"));
            -1
        }
    }
}

/// `size_t kernelhub_last_error(char* buf, size_t len)`, see [`kernelhub_abi::LastErrorFn`].
///
/// # Safety
/// `buf` is null, or `len` bytes are writable there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kernelhub_last_error(buf: *mut c_char, len: usize) -> usize {
    LAST.with_borrow(|last| {
        if !buf.is_null() {
            let count = last.length.min(len);
            // SAFETY: `len` bytes are writable by the caller's contract, and the buffer is this library's own.
            unsafe { core::ptr::copy_nonoverlapping(last.bytes.as_ptr(), buf.cast::<u8>(), count) };
        }
        last.length
    })
}

/// Hands the text to `libtvm_ffi` where that library is in the process. `text` ends with a NUL.
#[cfg(unix)]
fn raise(kind: Kind, text: &[u8]) {
    use core::ffi::c_void;
    use core::sync::atomic::{AtomicPtr, Ordering};

    type SetRaised = unsafe extern "C" fn(kind: *const c_char, message: *const c_char);
    unsafe extern "C" {
        fn dlsym(handle: *mut c_void, symbol: *const c_char) -> *mut c_void;
    }
    /// Found once and kept. While it is absent each error looks again: the library may come later.
    static FOUND: AtomicPtr<c_void> = AtomicPtr::new(core::ptr::null_mut());

    let mut found = FOUND.load(Ordering::Acquire);
    if found.is_null() {
        #[cfg(target_vendor = "apple")]
        let everywhere = core::ptr::without_provenance_mut::<c_void>(-2_isize as usize);
        #[cfg(not(target_vendor = "apple"))]
        let everywhere = core::ptr::null_mut();
        // SAFETY: the handle is RTLD_DEFAULT and the name ends with a NUL.
        found = unsafe { dlsym(everywhere, c"TVMFFIErrorSetRaisedFromCStr".as_ptr()) };
        if found.is_null() {
            return;
        }
        FOUND.store(found, Ordering::Release);
    }
    // SAFETY: the symbol of that name has this type in every release of tvm-ffi 0.1.
    let set_raised = unsafe { core::mem::transmute::<*mut c_void, SetRaised>(found) };
    let kind = match kind {
        Kind::Type => c"TypeError",
        Kind::Value => c"ValueError",
        Kind::Runtime => c"RuntimeError",
    };
    // SAFETY: both texts end with a NUL and live through the call, which copies them.
    unsafe { set_raised(kind.as_ptr(), text.as_ptr().cast::<c_char>()) };
}

#[cfg(not(unix))]
fn raise(_kind: Kind, _text: &[u8]) {}

#[cfg(test)]
mod tests {
    use super::{CAPACITY, Kind, fail, guard, kernelhub_last_error};

    fn last() -> String {
        let mut bytes = [0_u8; CAPACITY];
        // SAFETY: `CAPACITY` bytes are writable.
        let length = unsafe { kernelhub_last_error(bytes.as_mut_ptr().cast(), bytes.len()) };
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    }

    #[test]
    fn a_panic_becomes_an_error() {
        assert_eq!(guard("f", || panic!("on purpose")), -1);
        assert_eq!(last(), "f: internal error (a panic); the output is incomplete");
        assert_eq!(guard("f", || Ok(())), 0);
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let text = "\u{e4}".repeat(CAPACITY);
        assert_eq!(guard("f", || Err(fail(Kind::Value, format_args!("x{text}")))), -1);
        assert_eq!(last(), format!("x{}", "\u{e4}".repeat((CAPACITY - 1) / 2)));
    }
}
