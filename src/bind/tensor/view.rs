//! What the checks and the calls see of a tensor: extents and strides as C's `int64_t`.
#![expect(unsafe_code, reason = "extents and strides are handed to C as they lie")]

use std::ffi::c_void;

use kernelhub_abi::{DLDataType, DLDevice, DLTensor, device_type, dtype_code};

use super::MAX_RANK;
use crate::dtype::DType;

/// Extents or strides, in elements. Those of the caller are borrowed; derived ones are kept here, without an allocation.
#[derive(Debug, Clone, Copy)]
enum Dims<'a> {
    Borrowed(&'a [i64]),
    Own { values: [i64; MAX_RANK], rank: usize },
}

impl<'a> Dims<'a> {
    /// The numbers were checked to fit `i64`.
    #[cfg(target_pointer_width = "64")]
    #[inline]
    fn of(values: &'a [usize]) -> Self {
        // SAFETY: on 64 bits `usize` and `i64` have one size and alignment, and every bit pattern is a number.
        Self::Borrowed(unsafe { std::slice::from_raw_parts(values.as_ptr().cast::<i64>(), values.len()) })
    }

    /// The numbers were checked to fit `i64`, and to be [`MAX_RANK`] at most.
    #[cfg(not(target_pointer_width = "64"))]
    fn of(numbers: &'a [usize]) -> Self {
        let mut values = [0; MAX_RANK];
        for (value, number) in values.iter_mut().zip(numbers) {
            *value = i64::try_from(*number).unwrap_or(i64::MAX);
        }
        Self::Own { values, rank: numbers.len() }
    }

    /// The strides of a row-major tensor, whose shape was checked.
    #[inline]
    fn row_major(shape: &[i64]) -> Self {
        let (mut values, mut stride) = ([0; MAX_RANK], 1);
        for (value, extent) in values[..shape.len()].iter_mut().zip(shape).rev() {
            *value = stride;
            stride *= (*extent).max(1);
        }
        Self::Own { values, rank: shape.len() }
    }

    #[inline]
    fn as_slice(&self) -> &[i64] {
        match self {
            Self::Borrowed(values) => values,
            Self::Own { values, rank } => &values[..*rank],
        }
    }

    /// A copy to be changed, and its rank.
    fn to_array(self) -> ([i64; MAX_RANK], usize) {
        let (mut array, values) = ([0; MAX_RANK], self.as_slice());
        array[..values.len()].copy_from_slice(values);
        (array, values.len())
    }

    fn with_last(self, last: i64) -> Self {
        let (mut values, rank) = self.to_array();
        if let Some(value) = values[..rank].last_mut() {
            *value = last;
        }
        Self::Own { values, rank }
    }

    fn with_middle_axes_swapped(self) -> Self {
        let (mut values, rank) = self.to_array();
        values.swap(1, 2);
        Self::Own { values, rank }
    }

    fn with_axis(self, at: usize, value: i64) -> Self {
        let (mut values, rank) = self.to_array();
        values.copy_within(at..MAX_RANK - 1, at + 1);
        values[at] = value;
        Self::Own { values, rank: rank + 1 }
    }
}

/// A checked view of a tensor.
#[derive(Debug, Clone, Copy)]
pub(in crate::bind) struct View<'a> {
    pub(super) data: *mut c_void,
    pub(super) dtype: DType,
    shape: Dims<'a>,
    strides: Dims<'a>,
}

impl<'a> View<'a> {
    /// A view of what was checked to lie in the data; without strides, row-major.
    #[inline]
    pub(super) fn new(data: *mut c_void, dtype: DType, shape: &'a [usize], strides: Option<&'a [usize]>) -> Self {
        let shape = Dims::of(shape);
        let strides = match strides {
            Some(strides) => Dims::of(strides),
            None => Dims::row_major(shape.as_slice()),
        };
        Self { data, dtype, shape, strides }
    }

    #[inline]
    pub(in crate::bind) fn dtype(&self) -> DType {
        self.dtype
    }

    #[inline]
    pub(in crate::bind) fn shape(&self) -> &[i64] {
        self.shape.as_slice()
    }

    #[inline]
    pub(in crate::bind) fn strides(&self) -> &[i64] {
        self.strides.as_slice()
    }

    pub(in crate::bind) fn address(&self) -> usize {
        self.data.addr()
    }

    /// The DLPack view; valid while `self` stands where it is.
    #[inline]
    pub(in crate::bind) fn dl_tensor(&self) -> DLTensor {
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
        let (shape, strides) = (self.shape(), self.strides());
        #[expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "at most MAX_RANK")]
        let ndim = shape.len() as i32;
        DLTensor {
            data: self.data,
            device: DLDevice { device_type: device_type::CPU, device_id: 0 },
            ndim,
            dtype: DLDataType { code, bits, lanes: 1 },
            shape: shape.as_ptr().cast_mut(),
            strides: strides.as_ptr().cast_mut(),
            byte_offset: 0,
        }
    }

    /// `[batch, heads, seq, head_dim]` read as `[batch, seq, heads, head_dim]`, or back: the same elements.
    ///
    /// # Panics
    /// When the rank is not four: callers check it first.
    pub(in crate::bind) fn with_heads_and_seq_swapped(&self) -> Self {
        assert_eq!(self.shape().len(), 4, "internal: only rank-4 views have heads");
        let (shape, strides) = (self.shape.with_middle_axes_swapped(), self.strides.with_middle_axes_swapped());
        Self { shape, strides, ..*self }
    }

    /// One half of the last axis: the first or second run of `d / 2` elements, or every other element.
    pub(in crate::bind) fn half(&self, interleaved: bool, second: bool) -> Self {
        let extent = self.shape().last().copied().unwrap_or(0) / 2;
        let stride = self.strides().last().copied().unwrap_or(1);
        let mut half = Self { shape: self.shape.with_last(extent), ..*self };
        if interleaved {
            half.strides = self.strides.with_last(stride * 2);
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
    pub(in crate::bind) fn broadcast(&self, at: usize, extent: i64) -> Self {
        Self { shape: self.shape.with_axis(at, extent), strides: self.strides.with_axis(at, 0), ..*self }
    }
}
