//! Scratch memory on the stack.

use core::mem::MaybeUninit;

/// Room for `N` f32, cache-line aligned, so that vectors of a row never straddle lines.
#[repr(align(64))]
pub(super) struct Buffer<const N: usize>(MaybeUninit<[f32; N]>);

impl<const N: usize> Buffer<N> {
    pub(super) fn new() -> Self {
        Self(MaybeUninit::uninit())
    }
    pub(super) fn pointer(&mut self) -> *mut f32 {
        self.0.as_mut_ptr().cast()
    }
}
