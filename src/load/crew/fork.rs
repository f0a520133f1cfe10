//! Whether this process was forked off one that had helpers: it has their memory, and not them.
#![expect(unsafe_code, reason = "the C library tells of a fork by a C function only")]

use std::ffi::c_int;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

static IS_CHILD: AtomicBool = AtomicBool::new(false);

/// Whether the process was forked after [`is_told`] was first called.
pub(super) fn is_child() -> bool {
    IS_CHILD.load(Ordering::Relaxed)
}

/// Has the C library tell of forks from now on; whether it does.
pub(super) fn is_told() -> bool {
    type Handler = extern "C" fn();

    // SAFETY: `int pthread_atfork(void (*)(void), void (*)(void), void (*)(void))` of POSIX, a null function being none.
    #[cfg(unix)]
    unsafe extern "C" {
        safe fn pthread_atfork(prepare: Option<Handler>, parent: Option<Handler>, child: Option<Handler>) -> c_int;
    }
    // Without forks nothing is to be told.
    #[cfg(not(unix))]
    fn pthread_atfork(_: Option<Handler>, _: Option<Handler>, _: Option<Handler>) -> c_int {
        0
    }

    /// Runs in the child, before `fork` returns there.
    extern "C" fn in_child() {
        IS_CHILD.store(true, Ordering::Relaxed);
    }

    static IS_TOLD: OnceLock<bool> = OnceLock::new();
    *IS_TOLD.get_or_init(|| pthread_atfork(None, None, Some(in_child)) == 0)
}
