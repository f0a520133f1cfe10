//! The C library's own version.
#![expect(unsafe_code, reason = "the version of glibc is told by a C function only")]

use std::ffi::{CStr, c_char};

/// The version of the glibc that this process runs on, such as `2.36`.
pub(in crate::system) fn glibc_version() -> Option<String> {
    // SAFETY: `const char *gnu_get_libc_version(void)` of <gnu/libc-version.h>, in glibc since 2.1, which the `gnu`
    // targets link.
    unsafe extern "C" {
        safe fn gnu_get_libc_version() -> *const c_char;
    }

    let text = gnu_get_libc_version();
    if text.is_null() {
        return None;
    }
    // SAFETY: not null, checked above; glibc returns a NUL-terminated string constant of its own, which stays for the
    // life of the process and is never written to.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().ok().map(str::to_owned)
}
