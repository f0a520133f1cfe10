//! Settings of the C library's malloc, and advice to the system about memory.
#![expect(unsafe_code, reason = "both are C functions only")]

use std::ffi::{c_int, c_void};

/// Sets the size, in bytes, from which malloc gives a block pages of its own. Whether it was taken.
///
/// For a process of one thread: the setting is read by every allocation, without a lock.
pub(in crate::system) fn set_mmap_threshold(bytes: c_int) -> bool {
    mallopt(-3, bytes)
}

/// Sets how many free bytes malloc keeps at the end of its heap. Whether it was taken.
///
/// For a process of one thread, as [`set_mmap_threshold`].
pub(in crate::system) fn set_trim_threshold(bytes: c_int) -> bool {
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
pub(in crate::system) fn collapse(address: usize, bytes: usize) -> bool {
    const MADV_COLLAPSE: c_int = 25;

    // SAFETY: `int madvise(void *, size_t, int)` of <sys/mman.h>, which the `gnu` targets link.
    unsafe extern "C" {
        fn madvise(address: *mut c_void, length: usize, advice: c_int) -> c_int;
    }

    // SAFETY: this advice changes which pages hold the memory, and nothing that a program can read in it; what is not
    // mapped, or not the process's own, is refused with an error.
    unsafe { madvise(std::ptr::without_provenance_mut(address), bytes, MADV_COLLAPSE) == 0 }
}
