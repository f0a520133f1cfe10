//! Nets under calls that may panic.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use super::GpuError;

/// Stack of the thread that compiles shaders, in bytes. Only what is touched takes memory.
///
/// naga and the drivers' compilers walk expressions by recursion, and a chain of operators in a hostile text is as deep
/// as it is long. An overflow would end the process, where no error can be returned.
const COMPILER_STACK_BYTES: usize = 512 << 20;

/// Runs `call` and turns a panic into [`GpuError::Panicked`].
pub(super) fn caught<T>(operation: &str, call: impl FnOnce() -> T) -> Result<T, GpuError> {
    // Unwind safety: the callers share nothing mutable with `call` that they use after a panic, other than wgpu's own
    // handles, whose locks do not poison; a panicking poll or submit also marks the device as lost.
    catch_unwind(AssertUnwindSafe(call))
        .map_err(|payload| GpuError::Panicked { operation: operation.to_owned(), message: text_of(payload.as_ref()) })
}

/// Runs `call` on a thread with a deep stack, and turns a panic into [`GpuError::Panicked`].
pub(super) fn on_deep_stack<T: Send>(operation: &str, call: impl FnOnce() -> T + Send) -> Result<T, GpuError> {
    thread::scope(|scope| {
        let thread = thread::Builder::new()
            .name("kernelhub-shader".to_owned())
            .stack_size(COMPILER_STACK_BYTES)
            .spawn_scoped(scope, call)
            .map_err(|source| GpuError::Internal {
                operation: operation.to_owned(),
                message: format!("the compiler's thread did not start: {source}"),
            })?;
        thread.join().map_err(|payload| GpuError::Panicked {
            operation: operation.to_owned(),
            message: text_of(payload.as_ref()),
        })
    })
}

fn text_of(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("no message").to_owned()
}
