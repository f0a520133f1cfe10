//! Outputs that are allocated once and written once.
#![expect(unsafe_code, reason = "takes over memory that a kernel has initialised")]

use std::mem::MaybeUninit;

use super::{BindError, Element};

/// Allocates `len` elements, has `fill` write them all, and returns them: no zeroing before, no copy after.
///
/// `fill` returns `Ok` only when a kernel has written the whole slice, which is what every contract's
/// forward does when it succeeds.
///
/// # Errors
/// Whatever `fill` returns; the memory is then freed.
pub(super) fn collect_output<T: Element>(
    len: usize,
    fill: impl FnOnce(&mut [MaybeUninit<T>]) -> Result<(), BindError>,
) -> Result<Vec<T>, BindError> {
    let mut output = Vec::with_capacity(len);
    fill(&mut output.spare_capacity_mut()[..len])?;
    // SAFETY: the capacity is at least `len`, and a kernel that returned success has written every element. (Any bit
    // pattern is a valid `Element`.)
    unsafe { output.set_len(len) };
    Ok(output)
}
