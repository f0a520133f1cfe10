//! Calls into the C library that have no safe wrapper among our dependencies.
#![expect(unsafe_code, reason = "glibc's version and malloc's settings are a C function's only")]

use std::ffi::{CStr, c_char, c_int, c_void};

/// The version of the glibc that this process runs on, such as `2.36`.
pub(super) fn glibc_version() -> Option<String> {
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

/// Sets the size, in bytes, from which malloc gives a block pages of its own. Whether it was taken.
///
/// For a process of one thread: the setting is read by every allocation, without a lock.
pub(super) fn set_mmap_threshold(bytes: c_int) -> bool {
    mallopt(-3, bytes)
}

/// Sets how many free bytes malloc keeps at the end of its heap. Whether it was taken.
///
/// For a process of one thread, as [`set_mmap_threshold`].
pub(super) fn set_trim_threshold(bytes: c_int) -> bool {
    mallopt(-1, bytes)
}

fn mallopt(parameter: c_int, value: c_int) -> bool {
    // SAFETY: `int mallopt(int, int)` of <malloc.h>, in glibc since 2.0, which the `gnu` targets link.
    unsafe extern "C" {
        #[link_name = "mallopt"]
        fn c_mallopt(parameter: c_int, value: c_int) -> c_int;
    }

    // SAFETY: any two numbers may be passed; what glibc does not know or take it answers with 0. What its manual says
    // of threads ("MT-Unsafe init const:mallopt": other threads read the settings as they are written) does not come
    // about: `retain_freed_memory`, the only caller, has seen that this is the process's only thread, and no other can
    // begin but by this one.
    unsafe { c_mallopt(parameter, value) == 1 }
}

/// Has the system put the pages from `address` on, `bytes` of them, into one huge page. Whether it did.
pub(super) fn collapse(address: usize, bytes: usize) -> bool {
    const MADV_COLLAPSE: c_int = 25;

    // SAFETY: `int madvise(void *, size_t, int)` of <sys/mman.h>, which the `gnu` targets link.
    unsafe extern "C" {
        fn madvise(address: *mut c_void, length: usize, advice: c_int) -> c_int;
    }

    // SAFETY: this advice changes which pages hold the memory, and nothing that a program can read in it; what is not
    // mapped, or not the process's own, is refused with an error.
    unsafe { madvise(std::ptr::without_provenance_mut(address), bytes, MADV_COLLAPSE) == 0 }
}
