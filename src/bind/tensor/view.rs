//! What the checks and the calls see of a tensor: extents and strides as C's `int64_t`.
#![expect(unsafe_code, reason = "extents and strides are handed to C as they lie")]

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ops::Deref;

use kernelhub_abi::{DLDataType, DLDevice, DLTensor, TVMFFIAny, device_type, dtype_code};

use super::MAX_RANK;
use crate::dtype::DType;

/// Extents or strides, in elements. Those of the caller are borrowed; derived ones are kept here, without an
/// allocation.
#[derive(Debug, Clone, Copy)]
pub(in crate::bind) enum Dims<'a> {
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
    fn row_major(shape: &[i64]) -> Self {
        let mut values = [0; MAX_RANK];
        row_major_strides(shape, |axis, stride| values[axis] = stride);
        Self::Own { values, rank: shape.len() }
    }

    /// A copy to be changed, and its rank.
    fn to_array(self) -> ([i64; MAX_RANK], usize) {
        let mut array = [0; MAX_RANK];
        array[..self.len()].copy_from_slice(&self);
        (array, self.len())
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

impl Deref for Dims<'_> {
    type Target = [i64];

    #[inline]
    fn deref(&self) -> &[i64] {
        match self {
            Self::Borrowed(values) => values,
            Self::Own { values, rank } => &values[..*rank],
        }
    }
}

/// Gives `write` the stride of each axis of a row-major tensor.
#[inline]
fn row_major_strides(shape: &[i64], mut write: impl FnMut(usize, i64)) {
    let mut stride = 1;
    for (axis, extent) in shape.iter().enumerate().rev() {
        write(axis, stride);
        stride *= (*extent).max(1);
    }
}

#[derive(Debug, Clone, Copy)]
enum Strides<'a> {
    /// Written out only where C reads them: a copy of what was just written is what costs time.
    RowMajor,
    Given(Dims<'a>),
}

/// A checked view of a tensor.
#[derive(Debug, Clone, Copy)]
pub(in crate::bind) struct View<'a> {
    pub(super) data: *mut c_void,
    pub(super) dtype: DType,
    shape: Dims<'a>,
    strides: Strides<'a>,
}

impl<'a> View<'a> {
    /// A view of what was checked to lie in the data; without strides, row-major.
    #[inline]
    pub(super) fn new(data: *mut c_void, dtype: DType, shape: &'a [usize], strides: Option<&'a [usize]>) -> Self {
        let strides = strides.map_or(Strides::RowMajor, |strides| Strides::Given(Dims::of(strides)));
        Self { data, dtype, shape: Dims::of(shape), strides }
    }

    #[inline]
    pub(in crate::bind) fn dtype(&self) -> DType {
        self.dtype
    }

    #[inline]
    pub(in crate::bind) fn shape(&self) -> &[i64] {
        &self.shape
    }

    /// The strides, written out.
    pub(in crate::bind) fn strides(&self) -> Dims<'a> {
        match self.strides {
            Strides::RowMajor => Dims::row_major(&self.shape),
            Strides::Given(strides) => strides,
        }
    }

    /// Whether the elements stand one after another in row-major order.
    pub(in crate::bind) fn is_row_major(&self) -> bool {
        if matches!(self.strides, Strides::RowMajor) || self.shape().contains(&0) {
            return true;
        }
        let mut expected = 1;
        self.shape().iter().zip(&*self.strides()).rev().all(|(extent, stride)| {
            let fits = *extent == 1 || *stride == expected;
            expected *= *extent;
            fits
        })
    }

    /// The stride of the last axis; 1 without axes.
    #[inline]
    pub(in crate::bind) fn last_stride(&self) -> i64 {
        match &self.strides {
            Strides::RowMajor => 1,
            Strides::Given(strides) => strides.last().copied().unwrap_or(1),
        }
    }

    pub(in crate::bind) fn address(&self) -> usize {
        self.data.addr()
    }

    #[inline]
    fn dl_dtype(&self) -> DLDataType {
        let (code, bits) = match self.dtype {
            DType::Bf16 => (dtype_code::BFLOAT, 16),
            DType::F16 => (dtype_code::FLOAT, 16),
            DType::F32 => (dtype_code::FLOAT, 32),
            DType::F64 => (dtype_code::FLOAT, 64),
            DType::I64 => (dtype_code::INT, 64),
            DType::I32 => (dtype_code::INT, 32),
            DType::U32 => (dtype_code::UINT, 32),
            DType::I8 => (dtype_code::INT, 8),
            DType::U8 => (dtype_code::UINT, 8),
        };
        DLDataType { code, bits, lanes: 1 }
    }

    /// The view as an argument of a call.
    #[inline]
    pub(in crate::bind) fn dl_tensor(&self) -> TensorArgument<'_> {
        let shape = self.shape();
        let strides = match &self.strides {
            Strides::RowMajor => std::ptr::null_mut(),
            Strides::Given(strides) => strides.as_ptr().cast_mut(),
        };
        #[expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "at most MAX_RANK")]
        let ndim = shape.len() as i32;
        let raw = DLTensor {
            data: self.data,
            device: DLDevice { device_type: device_type::CPU, device_id: 0 },
            ndim,
            dtype: self.dl_dtype(),
            shape: shape.as_ptr().cast_mut(),
            strides,
            byte_offset: 0,
        };
        TensorArgument { raw, shape, row_major: [const { MaybeUninit::uninit() }; MAX_RANK] }
    }

    /// `[batch, heads, seq, head_dim]` read as `[batch, seq, heads, head_dim]`, or back: the same elements.
    ///
    /// # Panics
    /// When the rank is not four: callers check it first.
    pub(in crate::bind) fn with_heads_and_seq_swapped(&self) -> Self {
        assert_eq!(self.shape().len(), 4, "internal: only rank-4 views have heads");
        let (shape, strides) = (self.shape.with_middle_axes_swapped(), self.strides().with_middle_axes_swapped());
        Self { shape, strides: Strides::Given(strides), ..*self }
    }

    /// One half of the last axis: the first or second run of `d / 2` elements, or every other element.
    pub(in crate::bind) fn half(&self, interleaved: bool, second: bool) -> Self {
        let extent = self.shape().last().copied().unwrap_or(0) / 2;
        let stride = self.last_stride();
        let strides = if interleaved { self.strides().with_last(stride * 2) } else { self.strides() };
        let mut half = Self { shape: self.shape.with_last(extent), strides: Strides::Given(strides), ..*self };
        if second {
            let elements = if interleaved { stride } else { extent * stride };
            // Extents and strides were made from `usize`.
            let elements = usize::try_from(elements).unwrap_or_default();
            // Wrapping: for an empty view the offset is never used as an address.
            half.data = half.data.wrapping_byte_add(elements.wrapping_mul(self.dtype.size_in_bytes()));
        }
        half
    }

    /// The halves of `[batch, heads, seq, head_dim]` as `[batch, seq, heads, head_dim / 2]`: see [`Self::half`]. Both
    /// have the same extents and strides, which are written once.
    ///
    /// # Panics
    /// When the rank is not four: callers check it first.
    #[inline]
    pub(in crate::bind) fn halves_of_heads(&self, interleaved: bool) -> Halves {
        let [batch, heads, seq, head_dim] = *self.shape() else { panic!("internal: only rank-4 views have heads") };
        let mut strides = [0; 4];
        match &self.strides {
            Strides::RowMajor => row_major_strides(self.shape(), |axis, stride| strides[axis] = stride),
            Strides::Given(given) => strides.copy_from_slice(given),
        }
        let [of_batch, of_head, of_seq, last] = strides;
        let (half, step) = (head_dim / 2, if interleaved { 2 * last } else { last });
        // Extents and strides were made from `usize`.
        let second = usize::try_from(if interleaved { last } else { half * last }).unwrap_or_default();
        // Wrapping: for an empty view the offset is never used as an address.
        let second = self.data.wrapping_byte_add(second.wrapping_mul(self.dtype.size_in_bytes()));
        Halves {
            data: [self.data, second],
            dtype: self.dl_dtype(),
            shape: [batch, seq, heads, half],
            strides: [of_batch, of_seq, of_head, step],
        }
    }

    /// A stride-0 axis of extent `extent` put before axis `at`.
    pub(in crate::bind) fn broadcast(&self, at: usize, extent: i64) -> Self {
        let strides = Strides::Given(self.strides().with_axis(at, 0));
        Self { shape: self.shape.with_axis(at, extent), strides, ..*self }
    }
}

/// Both halves of the heads of a tensor.
#[derive(Debug)]
pub(in crate::bind) struct Halves {
    data: [*mut c_void; 2],
    dtype: DLDataType,
    shape: [i64; 4],
    strides: [i64; 4],
}

impl Halves {
    /// The halves as arguments of a call, whose values are valid while both stand where they are.
    #[inline]
    pub(in crate::bind) fn dl_tensors(&mut self) -> [DLTensor; 2] {
        let half = |data| DLTensor {
            data,
            device: DLDevice { device_type: device_type::CPU, device_id: 0 },
            ndim: 4,
            dtype: self.dtype,
            shape: self.shape.as_mut_ptr(),
            strides: self.strides.as_mut_ptr(),
            byte_offset: 0,
        };
        self.data.map(half)
    }
}

/// A tensor as an argument of a call. Row-major strides are written here, where C then reads them.
#[derive(Debug)]
pub(in crate::bind) struct TensorArgument<'a> {
    raw: DLTensor,
    shape: &'a [i64],
    row_major: [MaybeUninit<i64>; MAX_RANK],
}

impl TensorArgument<'_> {
    /// The argument's value; valid while `self` stands where it is.
    #[inline]
    pub(in crate::bind) fn value(&mut self) -> TVMFFIAny {
        if self.raw.strides.is_null() {
            row_major_strides(self.shape, |axis, stride| {
                self.row_major[axis].write(stride);
            });
            self.raw.strides = self.row_major.as_mut_ptr().cast::<i64>();
        }
        TVMFFIAny::tensor(&raw mut self.raw)
    }
}
