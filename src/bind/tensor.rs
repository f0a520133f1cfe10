//! Borrowed tensors in host memory.
#![expect(unsafe_code, reason = "tensors carry raw addresses across threads")]

use std::ffi::c_void;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

use half::{bf16, f16};

use super::BindError;
use crate::dtype::DType;

mod index;
mod view;

pub use index::IndexElement;
pub(super) use view::{TensorArgument, View};

/// The largest number of axes of a view.
pub const MAX_RANK: usize = 8;

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for half::bf16 {}
    impl Sealed for half::f16 {}
}

/// A Rust type that kernels compute with. Sealed: `f32`, `bf16` and `f16`.
pub trait Element: sealed::Sealed + Copy + Send + Sync + 'static {
    /// The type's name in manifests.
    const DTYPE: DType;
}

impl Element for f32 {
    const DTYPE: DType = DType::F32;
}
impl Element for bf16 {
    const DTYPE: DType = DType::Bf16;
}
impl Element for f16 {
    const DTYPE: DType = DType::F16;
}

/// A tensor that a kernel reads. It borrows its data and its shape, and nothing is copied before a call.
#[derive(Debug, Clone, Copy)]
pub struct TensorRef<'a> {
    data: *mut c_void,
    dtype: DType,
    shape: &'a [usize],
    /// `None`: row-major.
    strides: Option<&'a [usize]>,
    _data: PhantomData<&'a [u8]>,
}

// SAFETY: a `TensorRef` is a shared borrow of plain numbers.
unsafe impl Send for TensorRef<'_> {}
// SAFETY: as above; nothing is mutable behind it.
unsafe impl Sync for TensorRef<'_> {}

impl<'a> TensorRef<'a> {
    /// A view with `shape` and `strides`, both in elements; the first element is `data[0]`. A stride may be 0.
    ///
    /// # Errors
    /// [`BindError::View`] when the ranks differ or are above [`MAX_RANK`], or the view reaches beyond `data`.
    #[inline]
    pub fn new<T: Element>(data: &'a [T], shape: &'a [usize], strides: &'a [usize]) -> Result<Self, BindError> {
        if !reaches_within(shape, strides, data.len()) {
            return Err(BindError::view(data.len(), shape, strides));
        }
        Ok(Self::checked(data.as_ptr().cast_mut().cast(), T::DTYPE, shape, Some(strides)))
    }

    /// A row-major view of the whole slice.
    ///
    /// # Errors
    /// As [`TensorRef::new`].
    #[inline]
    pub fn contiguous<T: Element>(data: &'a [T], shape: &'a [usize]) -> Result<Self, BindError> {
        if !fits_row_major(shape, data.len()) {
            return Err(BindError::row_major_view(data.len(), shape));
        }
        Ok(Self::checked(data.as_ptr().cast_mut().cast(), T::DTYPE, shape, None))
    }

    #[inline]
    fn checked(data: *mut c_void, dtype: DType, shape: &'a [usize], strides: Option<&'a [usize]>) -> Self {
        Self { data, dtype, shape, strides, _data: PhantomData }
    }

    /// The view that the checks and the call work on. Large: made where it stays.
    #[inline]
    pub(super) fn view(&self) -> View<'a> {
        View::new(self.data, self.dtype, self.shape, self.strides)
    }
}

/// A tensor that a kernel writes: row-major, and not read before it is written.
#[derive(Debug)]
pub struct TensorMut<'a> {
    data: *mut c_void,
    dtype: DType,
    shape: &'a [usize],
    _data: PhantomData<&'a mut [u8]>,
}

// SAFETY: a `TensorMut` is a unique borrow of plain numbers.
unsafe impl Send for TensorMut<'_> {}

impl<'a> TensorMut<'a> {
    /// A row-major view of the whole slice, which may be uninitialised.
    ///
    /// # Errors
    /// As [`TensorRef::new`].
    #[inline]
    pub fn uninit<T: Element>(data: &'a mut [MaybeUninit<T>], shape: &'a [usize]) -> Result<Self, BindError> {
        if !fits_row_major(shape, data.len()) {
            return Err(BindError::row_major_view(data.len(), shape));
        }
        Ok(Self { data: data.as_mut_ptr().cast(), dtype: T::DTYPE, shape, _data: PhantomData })
    }

    /// A row-major view of the whole slice.
    ///
    /// # Errors
    /// As [`TensorRef::new`].
    #[inline]
    pub fn contiguous<T: Element>(data: &'a mut [T], shape: &'a [usize]) -> Result<Self, BindError> {
        if !fits_row_major(shape, data.len()) {
            return Err(BindError::row_major_view(data.len(), shape));
        }
        Ok(Self { data: data.as_mut_ptr().cast(), dtype: T::DTYPE, shape, _data: PhantomData })
    }

    /// As [`TensorRef::view`].
    #[inline]
    pub(super) fn view(&self) -> View<'_> {
        View::new(self.data, self.dtype, self.shape, None)
    }
}

/// Whether a view of these extents and strides stays within `len` elements, with numbers that C's `int64_t` holds.
#[inline]
fn reaches_within(shape: &[usize], strides: &[usize], len: usize) -> bool {
    if shape.len() != strides.len() || shape.len() > MAX_RANK {
        return false;
    }
    let (mut last, mut all, mut is_empty) = (0_usize, 0, false);
    for (extent, stride) in shape.iter().zip(strides) {
        all |= extent | stride;
        is_empty |= *extent == 0;
        let reach = extent.saturating_sub(1).checked_mul(*stride).and_then(|reach| last.checked_add(reach));
        let Some(reach) = reach else { return false };
        last = reach;
    }
    (is_empty || last < len) && i64::try_from(all).is_ok()
}

/// [`reaches_within`] for row-major strides.
#[inline]
fn fits_row_major(shape: &[usize], len: usize) -> bool {
    if shape.len() > MAX_RANK {
        return false;
    }
    // The number of elements, were no axis empty: no stride is larger.
    let (mut count, mut is_empty) = (1_usize, false);
    for extent in shape {
        is_empty |= *extent == 0;
        let Some(more) = count.checked_mul((*extent).max(1)) else { return false };
        count = more;
    }
    if is_empty { i64::try_from(count).is_ok() } else { count <= len }
}

#[cfg(test)]
mod tests {
    use super::{TensorMut, TensorRef};

    #[test]
    fn a_view_never_reaches_beyond_its_slice() {
        let data = [0.0_f32; 12];
        assert!(TensorRef::contiguous(&data, &[3, 4]).is_ok());
        assert!(TensorRef::contiguous(&data, &[3, 5]).is_err());
        assert!(TensorRef::new(&data, &[4, 3], &[1, 4]).is_ok());
        assert!(TensorRef::new(&data, &[4, 3], &[2, 4]).is_err());
        assert!(TensorRef::new(&data, &[100, 4], &[0, 1]).is_ok(), "a broadcast axis costs nothing");
        assert!(TensorRef::new(&data, &[5, 1 << 62], &[1 << 62, 1]).is_err(), "an overflow is refused");
        assert!(TensorRef::new(&data, &[0, 1 << 60], &[1 << 60, 1]).is_ok(), "an empty view reaches nowhere");
        assert!(TensorRef::new(&data[..0], &[0, 4], &[4, 1]).is_ok(), "an empty view needs no data");
        assert!(TensorRef::new(&data[..0], &[], &[]).is_err(), "a scalar needs one element");
        assert!(TensorRef::contiguous(&data, &[1; 9]).is_err(), "nine axes");
        assert!(TensorMut::contiguous(&mut [0.0_f32; 3], &[2, 2]).is_err());
    }

    #[test]
    fn halves_address_the_elements_of_each_convention() {
        let data = [0.0_f32; 8];
        let view = TensorRef::contiguous(&data, &[2, 4]).unwrap().view();
        let bytes = |half: super::View<'_>| half.address() - view.address();
        let second = view.half(false, true);
        assert_eq!((second.shape(), &*second.strides(), bytes(second)), (&[2, 2][..], &[4, 1][..], 8));
        let second = view.half(true, true);
        assert_eq!((second.shape(), &*second.strides(), bytes(second)), (&[2, 2][..], &[4, 2][..], 4));
    }
}
