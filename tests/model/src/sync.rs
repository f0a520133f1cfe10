//! The face of `src/load/crew/sync.rs`, made of loom's parts.

use loom::cell::UnsafeCell;

pub(super) use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
pub(super) use loom::sync::{Condvar, Mutex, MutexGuard};
pub(super) use std::sync::PoisonError;

/// One look. Whether something becomes so while a thread looks or after it gave up is the same to the model, which
/// tries both.
pub(super) fn looked_out_for(is_so: impl Fn() -> bool) -> bool {
    is_so()
}

/// A place that several threads use in turn; loom watches that they do.
pub(super) struct Shared<T>(UnsafeCell<T>);

// SAFETY: loom fails the model where two threads are at it at once.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T> Shared<T> {
    pub(super) fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// For a read.
    pub(super) fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
        self.0.with(read)
    }

    /// For a write.
    pub(super) fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
        self.0.with_mut(write)
    }
}
