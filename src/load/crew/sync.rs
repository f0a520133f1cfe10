//! What the board is made of. `tests/model` has a module of the same face, whose parts try every order of events.
#![expect(unsafe_code, reason = "shares a cell between threads, which its users answer for")]

use std::cell::UnsafeCell;
use std::hint::spin_loop;
use std::time::{Duration, Instant};

pub(super) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
pub(super) use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// How long a thread that waits looks out before it sleeps: longer than what stands between two loops of a forward.
const LOOK_OUT: Duration = Duration::from_micros(50);
/// Looks between two looks at the clock.
const LOOKS: u32 = 64;

/// Waits a moment for `is_so` to be true; returns whether it became so.
pub(super) fn looked_out_for(is_so: impl Fn() -> bool) -> bool {
    // Most often it is so already, or in less time than a look at the clock takes.
    for _ in 0..LOOKS {
        if is_so() {
            return true;
        }
        spin_loop();
    }
    let start = Instant::now();
    loop {
        for _ in 0..LOOKS {
            if is_so() {
                return true;
            }
            spin_loop();
        }
        if start.elapsed() > LOOK_OUT {
            return false;
        }
    }
}

/// A place that several threads use in turn.
pub(super) struct Shared<T>(UnsafeCell<T>);

// SAFETY: whoever reads or writes what the pointers lead to answers for the order of it.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T> Shared<T> {
    pub(super) fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// For a read.
    pub(super) fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        read(self.0.get())
    }

    /// For a write.
    pub(super) fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        write(self.0.get())
    }
}
