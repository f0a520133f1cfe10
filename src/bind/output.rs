//! Outputs that are allocated once and written once.
#![expect(unsafe_code, reason = "takes over memory that a kernel has initialised")]

use std::mem::MaybeUninit;

use super::{BindError, Element};

/// Allocates the elements of `shape`, has `fill` write them all, and returns them: no zeroing before, no copy after.
///
/// `fill` returns `Ok` only when a kernel has written the whole slice, which is what every contract's
/// forward does when it succeeds.
///
/// # Errors
/// [`BindError::OutputTooLarge`] when this process cannot hold the output, else whatever `fill` returns; the memory is
/// then freed.
pub(super) fn collect_output<T: Element>(
    shape: &[usize],
    fill: impl FnOnce(&mut [MaybeUninit<T>]) -> Result<(), BindError>,
) -> Result<Vec<T>, BindError> {
    let too_large = || BindError::OutputTooLarge { dtype: T::DTYPE, shape: shape.to_vec() };
    // No element when an axis is empty, however large the others are.
    let len =
        if shape.contains(&0) { Some(0) } else { shape.iter().try_fold(1, |len: usize, axis| len.checked_mul(*axis)) };
    let len = len.ok_or_else(too_large)?;
    let mut output = Vec::new();
    output.try_reserve_exact(len).map_err(|_| too_large())?;
    fill(&mut output.spare_capacity_mut()[..len])?;
    // SAFETY: the capacity is at least `len`, and a kernel that returned success has written every element. (Any bit
    // pattern is a valid `Element`.)
    unsafe { output.set_len(len) };
    Ok(output)
}

/// [`collect_output`] for a function with two outputs.
///
/// # Errors
/// As [`collect_output`].
pub(super) fn collect_outputs<T: Element>(
    first: &[usize],
    second: &[usize],
    fill: impl FnOnce(&mut [MaybeUninit<T>], &mut [MaybeUninit<T>]) -> Result<(), BindError>,
) -> Result<(Vec<T>, Vec<T>), BindError> {
    let mut other = Vec::new();
    let output = collect_output(first, |first| {
        other = collect_output(second, |second| fill(first, second))?;
        Ok(())
    })?;
    Ok((output, other))
}
