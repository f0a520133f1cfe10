//! Borrowed views of tensors in host memory.
#![expect(unsafe_code, reason = "views carry raw addresses across the C ABI")]

use std::ffi::c_void;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

use half::{bf16, f16};
use kernelhub_abi::{DLDataType, DLDevice, DLTensor, device_type, dtype_code};

use super::BindError;
use crate::dtype::DType;

mod index;

pub use index::IndexElement;

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

/// Extents or strides, in elements, without a heap allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Dims {
    values: [i64; MAX_RANK],
    rank: u8,
}

impl Dims {
    #[inline]
    fn new(values: &[usize]) -> Option<Self> {
        let mut dims = Self { values: [0; MAX_RANK], rank: u8::try_from(values.len()).ok()? };
        for (slot, value) in dims.values.get_mut(..values.len())?.iter_mut().zip(values) {
            *slot = i64::try_from(*value).ok()?;
        }
        Some(dims)
    }

    pub(super) fn as_slice(&self) -> &[i64] {
        &self.values[..usize::from(self.rank)]
    }

    fn last_mut(&mut self) -> Option<&mut i64> {
        self.values[..usize::from(self.rank)].last_mut()
    }

    fn with_middle_axes_swapped(&self) -> Self {
        let mut swapped = *self;
        swapped.values.swap(1, 2);
        swapped
    }
}

/// What views of both kinds share.
#[derive(Debug, Clone, Copy)]
pub(super) struct View {
    data: *mut c_void,
    dtype: DType,
    shape: Dims,
    strides: Dims,
}

impl View {
    /// A view of `len` elements at `data`; `None` when the shape and strides reach beyond them.
    // Inlined, with what calls it: a view is large, and copying it from one frame to the next costs more than the checks.
    #[inline]
    fn new(data: *mut c_void, len: usize, dtype: DType, shape: &[usize], strides: &[usize]) -> Option<Self> {
        if shape.len() != strides.len() {
            return None;
        }
        let mut last = 0_usize;
        for (extent, stride) in shape.iter().zip(strides) {
            last = last.checked_add(extent.saturating_sub(1).checked_mul(*stride)?)?;
        }
        if !shape.contains(&0) && last >= len {
            return None;
        }
        Some(Self { data, dtype, shape: Dims::new(shape)?, strides: Dims::new(strides)? })
    }

    pub(super) fn dtype(&self) -> DType {
        self.dtype
    }

    pub(super) fn shape(&self) -> &[i64] {
        self.shape.as_slice()
    }

    pub(super) fn strides(&self) -> &[i64] {
        self.strides.as_slice()
    }

    pub(super) fn address(&self) -> usize {
        self.data.addr()
    }

    /// The DLPack view; valid while `self` stands where it is.
    pub(super) fn dl_tensor(&self) -> DLTensor {
        let (code, bits) = match self.dtype {
            DType::Bf16 => (dtype_code::BFLOAT, 16),
            DType::F16 => (dtype_code::FLOAT, 16),
            DType::F32 => (dtype_code::FLOAT, 32),
            DType::F64 => (dtype_code::FLOAT, 64),
            DType::I64 => (dtype_code::INT, 64),
            DType::I32 => (dtype_code::INT, 32),
            DType::U32 => (dtype_code::UINT, 32),
            DType::U8 => (dtype_code::UINT, 8),
        };
        DLTensor {
            data: self.data,
            device: DLDevice { device_type: device_type::CPU, device_id: 0 },
            ndim: i32::from(self.shape.rank),
            dtype: DLDataType { code, bits, lanes: 1 },
            shape: self.shape.values.as_ptr().cast_mut(),
            strides: self.strides.values.as_ptr().cast_mut(),
            byte_offset: 0,
        }
    }

    /// `[batch, heads, seq, head_dim]` read as `[batch, seq, heads, head_dim]`, or back: the same elements.
    ///
    /// # Panics
    /// When the rank is not four: callers check it first.
    pub(super) fn with_heads_and_seq_swapped(&self) -> Self {
        assert_eq!(self.shape.rank, 4, "internal: only rank-4 views have heads");
        let (shape, strides) = (self.shape.with_middle_axes_swapped(), self.strides.with_middle_axes_swapped());
        Self { shape, strides, ..*self }
    }

    /// One half of the last axis: the first or second run of `d / 2` elements, or every other element.
    pub(super) fn half(&self, interleaved: bool, second: bool) -> Self {
        let mut half = *self;
        let extent = self.shape().last().copied().unwrap_or(0) / 2;
        let stride = self.strides().last().copied().unwrap_or(1);
        if let Some(last) = half.shape.last_mut() {
            *last = extent;
        }
        if interleaved && let Some(last) = half.strides.last_mut() {
            *last = stride * 2;
        }
        if second {
            let elements = if interleaved { stride } else { extent * stride };
            // Extents and strides were made from `usize`.
            let elements = usize::try_from(elements).unwrap_or_default();
            // Wrapping: for an empty view the offset is never used as an address.
            half.data = half.data.wrapping_byte_add(elements.wrapping_mul(self.dtype.size_in_bytes()));
        }
        half
    }

    /// A stride-0 axis of extent `extent` put before axis `at`.
    pub(super) fn broadcast(&self, at: usize, extent: i64) -> Self {
        let mut wide = *self;
        for dims in [&mut wide.shape, &mut wide.strides] {
            dims.values.copy_within(at..MAX_RANK - 1, at + 1);
            dims.rank += 1;
        }
        wide.shape.values[at] = extent;
        wide.strides.values[at] = 0;
        wide
    }
}

/// A tensor that a kernel reads.
#[derive(Debug, Clone, Copy)]
pub struct TensorRef<'a> {
    view: View,
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
    pub fn new<T: Element>(data: &'a [T], shape: &[usize], strides: &[usize]) -> Result<Self, BindError> {
        let base = data.as_ptr().cast_mut().cast::<c_void>();
        View::new(base, data.len(), T::DTYPE, shape, strides)
            .map(|view| Self { view, _data: PhantomData })
            .ok_or_else(|| BindError::view(data.len(), shape, strides))
    }

    /// A row-major view of the whole slice.
    ///
    /// # Errors
    /// As [`TensorRef::new`].
    #[inline]
    pub fn contiguous<T: Element>(data: &'a [T], shape: &[usize]) -> Result<Self, BindError> {
        let (strides, rank) = contiguous_strides(shape);
        Self::new(data, shape, &strides[..rank])
    }

    #[inline]
    pub(super) fn view(&self) -> &View {
        &self.view
    }
}

/// A tensor that a kernel writes: row-major, and not read before it is written.
#[derive(Debug)]
pub struct TensorMut<'a> {
    view: View,
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
    pub fn uninit<T: Element>(data: &'a mut [MaybeUninit<T>], shape: &[usize]) -> Result<Self, BindError> {
        let len = data.len();
        let (strides, rank) = contiguous_strides(shape);
        View::new(data.as_mut_ptr().cast::<c_void>(), len, T::DTYPE, shape, &strides[..rank])
            .map(|view| Self { view, _data: PhantomData })
            .ok_or_else(|| BindError::view(len, shape, &strides[..rank]))
    }

    /// A row-major view of the whole slice.
    ///
    /// # Errors
    /// As [`TensorRef::new`].
    #[inline]
    pub fn contiguous<T: Element>(data: &'a mut [T], shape: &[usize]) -> Result<Self, BindError> {
        let len = data.len();
        let (strides, rank) = contiguous_strides(shape);
        View::new(data.as_mut_ptr().cast::<c_void>(), len, T::DTYPE, shape, &strides[..rank])
            .map(|view| Self { view, _data: PhantomData })
            .ok_or_else(|| BindError::view(len, shape, &strides[..rank]))
    }

    #[inline]
    pub(super) fn view(&self) -> &View {
        &self.view
    }
}

/// Row-major strides; the rank is cut at [`MAX_RANK`], where [`View::new`] then finds the ranks unequal.
#[inline]
fn contiguous_strides(shape: &[usize]) -> ([usize; MAX_RANK], usize) {
    let rank = shape.len().min(MAX_RANK);
    let mut strides = [0; MAX_RANK];
    let mut stride = 1_usize;
    for axis in (0..rank).rev() {
        strides[axis] = stride;
        stride = stride.saturating_mul(shape[axis].max(1));
    }
    (strides, rank)
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
        let tensor = TensorRef::contiguous(&data, &[2, 4]).unwrap();
        let view = tensor.view();
        let bytes = |half: super::View| half.address() - view.address();
        let second = view.half(false, true);
        assert_eq!((second.shape(), second.strides(), bytes(second)), (&[2, 2][..], &[4, 1][..], 8));
        let second = view.half(true, true);
        assert_eq!((second.shape(), second.strides(), bytes(second)), (&[2, 2][..], &[4, 2][..], 4));
    }
}
