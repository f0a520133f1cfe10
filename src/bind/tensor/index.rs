//! Tensors of indices: token ids, targets, sequence bounds.
#![expect(unsafe_code, reason = "reads the indices behind a view")]

use super::{TensorRef, View, fits_row_major};
use crate::bind::BindError;
use crate::dtype::DType;

mod sealed {
    pub trait Sealed {}
    impl Sealed for u32 {}
    impl Sealed for i32 {}
    impl Sealed for i64 {}
}

/// A Rust type that kernels take as an index. Sealed: `u32`, `i32` and `i64`.
pub trait IndexElement: sealed::Sealed + Copy + Send + Sync + 'static {
    /// The type's name in manifests.
    const DTYPE: DType;
}

impl IndexElement for u32 {
    const DTYPE: DType = DType::U32;
}
impl IndexElement for i32 {
    const DTYPE: DType = DType::I32;
}
impl IndexElement for i64 {
    const DTYPE: DType = DType::I64;
}

impl<'a> TensorRef<'a> {
    /// A row-major view of a slice of indices.
    ///
    /// # Errors
    /// As [`TensorRef::new`].
    #[inline]
    pub fn indices<T: IndexElement>(data: &'a [T], shape: &'a [usize]) -> Result<Self, BindError> {
        if !fits_row_major(shape, data.len()) {
            return Err(BindError::row_major_view(data.len(), shape));
        }
        Ok(Self::checked(data.as_ptr().cast_mut().cast(), T::DTYPE, shape, None))
    }
}

impl View<'_> {
    /// The first answer of `find` for the position and value of an index, in row-major order. The view is row-major.
    ///
    /// # Panics
    /// When the view is not row-major, or its elements are no indices: callers check both first.
    pub(in crate::bind) fn indices<R>(&self, mut find: impl FnMut(usize, i64) -> Option<R>) -> Option<R> {
        assert!(self.is_row_major(), "internal: indices are read in row-major order");
        if self.shape().contains(&0) {
            return None;
        }
        // A view that is not empty lies in its slice, whose length is a `usize`.
        let len = self.shape().iter().product::<i64>();
        let len = usize::try_from(len).unwrap_or_default();
        match self.dtype {
            DType::U32 => {
                // SAFETY: the view borrows `len` elements of this type, one after another.
                let indices = unsafe { std::slice::from_raw_parts(self.data.cast::<u32>(), len) };
                indices.iter().enumerate().find_map(|(position, index)| find(position, i64::from(*index)))
            }
            DType::I32 => {
                // SAFETY: as above.
                let indices = unsafe { std::slice::from_raw_parts(self.data.cast::<i32>(), len) };
                indices.iter().enumerate().find_map(|(position, index)| find(position, i64::from(*index)))
            }
            DType::I64 => {
                // SAFETY: as above.
                let indices = unsafe { std::slice::from_raw_parts(self.data.cast::<i64>(), len) };
                indices.iter().enumerate().find_map(|(position, index)| find(position, *index))
            }
            other => panic!("internal: {other} is no index type"),
        }
    }

    /// The index at a place of a row-major view of one axis of `i32`; 0 outside of it.
    pub(in crate::bind) fn index_at(&self, position: usize) -> i64 {
        let inside =
            i64::try_from(position).is_ok_and(|position| self.shape().first().is_some_and(|len| position < *len));
        if !inside || self.dtype != DType::I32 || self.shape().len() != 1 {
            return 0;
        }
        // SAFETY: the view borrows its extent of elements of this type, one after another, and `position` is one of
        // them.
        let index = unsafe { self.data.cast::<i32>().add(position) };
        // SAFETY: as above.
        i64::from(unsafe { index.read() })
    }
}
