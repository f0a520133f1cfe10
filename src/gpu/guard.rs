//! Nets under calls that may panic.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use super::GpuError;

/// Stack of the compiler's thread per byte of the shader's text, in bytes. Only what is touched takes memory.
///
/// naga and the drivers' compilers walk expressions by recursion, and a chain of operators in a hostile text is as deep
/// as it is long. An overflow would end the process, where no error can be returned. A text of one unary operator, the
/// most levels that a byte can make, was measured to take 4 to 8 KiB per byte in a debug build, where frames are
/// largest.
const STACK_PER_SOURCE_BYTE: usize = 16 << 10;
/// Stack of the compiler's thread for the shortest text, in bytes.
const MIN_STACK_BYTES: usize = 16 << 20;

/// Runs `call` and turns a panic into [`GpuError::Panicked`].
pub(super) fn caught<T>(operation: &str, call: impl FnOnce() -> T) -> Result<T, GpuError> {
    // Unwind safety: the callers share nothing mutable with `call` that they use after a panic, other than wgpu's own
    // handles, whose locks do not poison; a panicking poll or submit also marks the device as lost.
    catch_unwind(AssertUnwindSafe(call))
        .map_err(|payload| GpuError::Panicked { operation: operation.to_owned(), message: text_of(payload.as_ref()) })
}

/// Runs `call` on a thread whose stack is deep enough to compile a text of this length, and turns a panic into
/// [`GpuError::Panicked`].
pub(super) fn on_deep_stack<T: Send>(
    operation: &str,
    source_bytes: usize,
    call: impl FnOnce() -> T + Send,
) -> Result<T, GpuError> {
    let stack = source_bytes.saturating_mul(STACK_PER_SOURCE_BYTE).max(MIN_STACK_BYTES);
    thread::scope(|scope| {
        let thread = thread::Builder::new()
            .name("kernelhub-shader".to_owned())
            .stack_size(stack)
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

#[cfg(test)]
mod tests {
    use super::{caught, on_deep_stack};
    use crate::gpu::GpuError;

    fn message<T: std::fmt::Debug>(outcome: Result<T, GpuError>) -> String {
        match outcome {
            Err(GpuError::Panicked { operation, message }) => format!("{operation}: {message}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_panic_comes_back_with_its_message() {
        assert_eq!(message(caught("polling", || panic!("slot {}", 7))), "polling: slot 7");
        assert_eq!(message(on_deep_stack("compiling", 100, || panic!("no such type"))), "compiling: no such type");
        assert_eq!(caught("adding", || 1 + 1).unwrap(), 2);
        assert_eq!(on_deep_stack("adding", 100, || 1 + 1).unwrap(), 2);
    }

    #[test]
    fn the_stack_grows_with_the_text() {
        /// Takes a kilobyte of stack for each level.
        fn descend(levels: usize) -> usize {
            let frame = std::hint::black_box([levels; 128]);
            if levels == 0 { 0 } else { 1 + descend(levels - 1) + std::hint::black_box(frame)[0] - levels }
        }
        assert_eq!(on_deep_stack("descending", 32 << 10, || descend(100_000)).unwrap(), 100_000);
    }
}
