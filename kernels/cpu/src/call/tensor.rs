//! A checked view of a `DLTensor`.

#![expect(unsafe_code, reason = "reads C structures that the host passes")]
#![expect(clippy::cast_possible_wrap, reason = "extents came from i64, sizes are 2 and 4")]
#![expect(clippy::cast_sign_loss, reason = "extents below 0 are refused behind the pass that stores them")]
#![expect(clippy::cast_possible_truncation, reason = "a reach fits isize: checked before")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "an access and the pointer arithmetic to it share a note")]

use core::fmt;
use core::mem::MaybeUninit;

use kernelhub_abi::{DLDataType, DLTensor, device_type, dtype_code};

use super::error::{Failed, Kind, fail};

/// The highest rank that any kernel takes.
pub(crate) const MAX_RANK: usize = 8;

/// Numbers below this have products of two, and sums of eight of those, in the range of `i64`.
const SMALL: i64 = 1 << 29;

/// The element types of the kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DType {
    /// IEEE single precision.
    F32,
    /// bfloat16.
    Bf16,
    /// IEEE half precision.
    F16,
}

/// The element types of tensors that hold positions and lengths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IndexType {
    /// 32-bit integers with a sign.
    I32,
}

/// A family of element types, of which an argument takes any.
pub(crate) trait ElementType: Copy + PartialEq + fmt::Display {
    /// The members in words.
    const WORDS: &'static str;

    /// The member that DLPack describes so.
    fn from_dl(dtype: DLDataType) -> Option<Self>;
    /// Bytes of an element.
    fn size(self) -> usize;
}

impl ElementType for DType {
    const WORDS: &'static str = "f32, bf16 or f16";

    fn from_dl(dtype: DLDataType) -> Option<Self> {
        match (dtype.code, dtype.bits, dtype.lanes) {
            (dtype_code::FLOAT, 32, 1) => Some(Self::F32),
            (dtype_code::BFLOAT, 16, 1) => Some(Self::Bf16),
            (dtype_code::FLOAT, 16, 1) => Some(Self::F16),
            _ => None,
        }
    }

    fn size(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 | Self::F16 => 2,
        }
    }
}

impl ElementType for IndexType {
    const WORDS: &'static str = "i32";

    fn from_dl(dtype: DLDataType) -> Option<Self> {
        ((dtype.code, dtype.bits, dtype.lanes) == (dtype_code::INT, 32, 1)).then_some(Self::I32)
    }

    fn size(self) -> usize {
        size_of::<i32>()
    }
}

impl fmt::Display for IndexType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("i32")
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
        })
    }
}

/// A checked view: on the CPU, of a known dtype, aligned to its elements, every offset representable in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tensor<D = DType> {
    function: &'static str,
    name: &'static str,
    /// The first element; dangling where the tensor is empty.
    data: *mut u8,
    /// The element type.
    pub(crate) dtype: D,
    /// At most [`MAX_RANK`].
    rank: usize,
    /// Initialised for each axis, as are the strides: to fill the rest would take as long as all checks.
    shape: [MaybeUninit<usize>; MAX_RANK],
    strides: [MaybeUninit<isize>; MAX_RANK],
    /// Addresses of the lowest byte and behind the highest one; equal where the tensor is empty.
    span: (usize, usize),
    /// Whether the elements, if they lie apart, fill the span.
    full: bool,
    /// Whether the elements lie in row-major order without gaps.
    dense: bool,
}

/// Room for a description, see [`Tensor::EMPTY`].
pub(crate) type Slot<D = DType> = MaybeUninit<Tensor<D>>;

/// A shape or strides as text: `[2, 3]`.
pub(super) struct List<'a, T>(pub(super) &'a [T]);

impl<T: fmt::Display> fmt::Display for List<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (index, value) in self.0.iter().enumerate() {
            write!(f, "{}{value}", if index == 0 { "" } else { ", " })?;
        }
        f.write_str("]")
    }
}

impl<D: ElementType> Tensor<D> {
    /// Room for a description, which is written where it stays: to move descriptions about costs more than to check
    /// them.
    pub(crate) const EMPTY: Slot<D> = MaybeUninit::uninit();

    /// Describes `raw` in `slot`.
    ///
    /// # Safety
    /// `shape` and `strides` point to `ndim` values each, where `ndim` is positive and they are not null.
    pub(super) unsafe fn read<'t>(
        slot: &'t mut Slot<D>,
        function: &'static str,
        name: &'static str,
        raw: &DLTensor,
    ) -> Result<&'t Self, Failed> {
        let invalid =
            |text: fmt::Arguments<'_>| fail(Kind::Value, format_args!("{function}: argument `{name}`: {text}"));
        if raw.device.device_type != device_type::CPU {
            let actual = raw.device.device_type;
            return Err(invalid(format_args!(
                "expected a tensor on the CPU (device type 1), got device type {actual}"
            )));
        }
        let Some(dtype) = D::from_dl(raw.dtype) else {
            let DLDataType { code, bits, lanes } = raw.dtype;
            return Err(invalid(format_args!(
                "expected dtype {}, got code {code}, {bits} bits, {lanes} lanes",
                D::WORDS
            )));
        };
        let Some(rank) = usize::try_from(raw.ndim).ok().filter(|&rank| rank <= MAX_RANK) else {
            return Err(invalid(format_args!("expected rank 0..={MAX_RANK}, got {}", raw.ndim)));
        };
        if rank > 0 && raw.shape.is_null() {
            return Err(invalid(format_args!("expected {rank} extents, got a null shape")));
        }
        // Field by field: a whole description would be made elsewhere and copied, with the room of all axes.
        let place = slot.as_mut_ptr();
        let nowhere = core::ptr::NonNull::<u64>::dangling().as_ptr().cast::<u8>();
        // SAFETY: fields of a slot that is borrowed to be written. The arrays' elements need no value.
        let tensor = unsafe {
            (&raw mut (*place).function).write(function);
            (&raw mut (*place).name).write(name);
            (&raw mut (*place).data).write(nowhere);
            (&raw mut (*place).dtype).write(dtype);
            (&raw mut (*place).rank).write(rank);
            (&raw mut (*place).span).write((0, 0));
            (&raw mut (*place).full).write(false);
            (&raw mut (*place).dense).write(true);
            &mut *place
        };
        // Null strides mean row-major in DLPack. What nearly every tensor is comes first: numbers so small that no product
        // or sum of them leaves its type, and none below 0. `next` is the number of elements so far, `low` and `high` the
        // reach in elements before and behind the first one, that included.
        let (mut next, mut low, mut high, mut fits, mut dense, mut all) = (1_i64, 0_i64, 1_i64, true, true, 1_i64);
        for axis in (0..rank).rev() {
            // SAFETY: `ndim` extents stand there by the caller's contract.
            let extent = unsafe { raw.shape.add(axis).read_unaligned() };
            let given = if raw.strides.is_null() {
                next
            } else {
                // SAFETY: `ndim` strides stand there by the caller's contract.
                unsafe { raw.strides.add(axis).read_unaligned() }
            };
            dense &= extent == 1 || given == next;
            // That of one element is never used, whatever stands there.
            let stride = if extent == 1 { 0 } else { given };
            high = high.wrapping_add(extent.wrapping_sub(1).wrapping_mul(stride));
            next = next.wrapping_mul(extent);
            all |= extent | stride | next;
            tensor.shape[axis].write(extent as usize);
            tensor.strides[axis].write(stride as isize);
        }
        if !(0..SMALL).contains(&all) || next == 0 {
            let mut least = 1;
            (next, low, high, fits, dense) = (1, 0, 1, true, true);
            for axis in (0..rank).rev() {
                // SAFETY: `ndim` extents stand there by the caller's contract.
                let extent = unsafe { raw.shape.add(axis).read_unaligned() };
                let given = if raw.strides.is_null() {
                    next
                } else {
                    // SAFETY: `ndim` strides stand there by the caller's contract.
                    unsafe { raw.strides.add(axis).read_unaligned() }
                };
                least = least.min(extent);
                dense &= extent == 1 || given == next;
                let stride = if extent == 1 { 0 } else { given };
                let (product, overflow) = next.overflowing_mul(extent);
                (next, fits) = (product, fits && !overflow);
                let (step, overflow) = extent.wrapping_sub(1).overflowing_mul(stride.wrapping_abs());
                fits &= !overflow && stride != i64::MIN && isize::try_from(stride).is_ok();
                let reach = if stride < 0 { &mut low } else { &mut high };
                let (sum, overflow) = reach.overflowing_add(step);
                (*reach, fits) = (sum, fits && !overflow);
            }
            if least < 1 {
                return Self::read_empty(tensor, raw);
            }
        }
        tensor.dense = dense;
        let (size, largest) = (dtype.size(), isize::MAX as i64 / dtype.size() as i64);
        let reach = low.checked_add(high).filter(|&reach| fits && reach <= largest && next <= isize::MAX as i64);
        let Some(reach) = reach else {
            let shape = List(tensor.shape());
            return Err(invalid(format_args!("shape {shape} with its strides exceeds the address space")));
        };
        if raw.data.is_null() {
            return Err(invalid(format_args!("expected data, got a null address for shape {}", List(tensor.shape()))));
        }
        let address = usize::try_from(raw.byte_offset).ok().and_then(|offset| raw.data.addr().checked_add(offset));
        let Some(address) = address else {
            return Err(invalid(format_args!("byte offset {} exceeds the address space", raw.byte_offset)));
        };
        if !address.is_multiple_of(size) {
            return Err(invalid(format_args!(
                "expected an address that is a multiple of {size} bytes for {dtype}, got 0x{address:x}"
            )));
        }
        tensor.data = raw.data.cast::<u8>().with_addr(address);
        tensor.full = reach == next;
        // Both fit: at least 0, and together at most `largest`. A view whose span would wrap is a lie about memory; it
        // then overlaps nothing.
        let bytes = |elements: i64| elements.unsigned_abs() as usize * size;
        tensor.span = (address.wrapping_sub(bytes(low)), address.wrapping_add(bytes(high)));
        Ok(tensor)
    }

    /// The rest of [`Self::read`] for a tensor without elements, or with an extent that is none.
    #[cold]
    fn read_empty<'t>(tensor: &'t mut Self, raw: &DLTensor) -> Result<&'t Self, Failed> {
        for axis in 0..tensor.rank {
            // SAFETY: `ndim` extents stand there by the caller's contract.
            let extent = unsafe { raw.shape.add(axis).read_unaligned() };
            if usize::try_from(extent).is_err() {
                return Err(tensor.invalid(format_args!("expected extents of at least 0, got {extent} in axis {axis}")));
            }
            tensor.strides[axis].write(0);
        }
        Ok(tensor)
    }

    /// The extents, outermost first.
    pub(crate) fn shape(&self) -> &[usize] {
        // SAFETY: `rank <= MAX_RANK` extents were written, and room for one is laid out as one.
        unsafe { core::slice::from_raw_parts(self.shape.as_ptr().cast(), self.rank) }
    }

    /// The strides in elements; 0 for axes with one element.
    pub(crate) fn strides(&self) -> &[isize] {
        // SAFETY: `rank <= MAX_RANK` strides were written, and room for one is laid out as one.
        unsafe { core::slice::from_raw_parts(self.strides.as_ptr().cast(), self.rank) }
    }

    /// The extent of the last axis; 1 for rank 0.
    pub(crate) fn last(&self) -> usize {
        self.shape().last().copied().unwrap_or(1)
    }

    /// The extent of an axis.
    pub(crate) fn len_of_axis(&self, axis: usize) -> usize {
        self.shape()[axis]
    }

    /// Whether there is no element.
    pub(crate) fn is_empty(&self) -> bool {
        self.shape().contains(&0)
    }

    /// The number of elements of a tensor that is not empty.
    pub(crate) fn len(&self) -> usize {
        // Fits: `new` checked it.
        self.shape().iter().product()
    }

    /// The first element. `T` must be the type of [`Self::dtype`].
    pub(crate) fn data<T>(&self) -> *mut T {
        debug_assert_eq!(size_of::<T>(), self.dtype.size());
        self.data.cast()
    }

    /// An error about this tensor.
    pub(crate) fn invalid(&self, text: fmt::Arguments<'_>) -> Failed {
        let (function, name) = (self.function, self.name);
        fail(Kind::Value, format_args!("{function}: argument `{name}`: {text}"))
    }

    /// An error about this tensor's shape.
    pub(crate) fn invalid_shape(&self, expected: fmt::Arguments<'_>) -> Failed {
        self.invalid(format_args!("{expected}, got {}", List(self.shape())))
    }

    /// Checks the rank.
    pub(crate) fn expect_rank(&self, ranks: core::ops::RangeInclusive<usize>, axes: &str) -> Result<(), Failed> {
        if ranks.contains(&self.rank) {
            return Ok(());
        }
        let (low, high) = (ranks.start(), ranks.end());
        let (rank, shape) = (self.rank, List(self.shape()));
        Err(if low == high {
            self.invalid(format_args!("expected rank {low} {axes}, got rank {rank} {shape}"))
        } else {
            self.invalid(format_args!("expected rank {low} to {high} {axes}, got rank {rank} {shape}"))
        })
    }

    /// Checks the whole shape.
    pub(crate) fn expect_shape(&self, expected: &[usize], why: &str) -> Result<(), Failed> {
        if self.has_shape(expected) {
            return Ok(());
        }
        let (expected, actual) = (List(expected), List(self.shape()));
        Err(self.invalid(format_args!("expected shape {expected} ({why}), got {actual}")))
    }

    /// Not a comparison of slices, which is a call for a few numbers.
    fn has_shape(&self, expected: &[usize]) -> bool {
        self.rank == expected.len() && self.shape().iter().zip(expected).all(|(extent, expected)| extent == expected)
    }

    /// Checks the dtype.
    pub(crate) fn expect_dtype(&self, expected: D, why: &str) -> Result<(), Failed> {
        if self.dtype == expected {
            return Ok(());
        }
        Err(self.invalid(format_args!("expected dtype {expected} ({why}), got {}", self.dtype)))
    }

    /// Checks that the last axis is dense.
    pub(crate) fn expect_dense_last(&self) -> Result<(), Failed> {
        if self.is_empty() || self.last() == 1 || self.strides().last().is_none_or(|&stride| stride == 1) {
            return Ok(());
        }
        let strides = List(self.strides());
        Err(self.invalid(format_args!("expected stride 1 in the last axis, got strides {strides}")))
    }

    /// Checks that no two elements share an address, as an output must. Refuses also the rare layouts of interleaved
    /// axes where that cannot be told axis by axis.
    pub(crate) fn expect_writable(&self) -> Result<(), Failed> {
        if self.dense || self.is_empty() {
            return Ok(());
        }
        // What most outputs are: each axis steps over all that stand behind it.
        let mut reach = 0;
        let steps_over = |(&extent, &stride): (&usize, &isize)| {
            let stride = stride.unsigned_abs();
            let apart = extent == 1 || stride > reach;
            reach += (extent - 1) * stride;
            apart
        };
        if self.shape().iter().zip(self.strides()).rev().all(steps_over) {
            return Ok(());
        }
        let mut axes = [(0_usize, 0_usize); MAX_RANK];
        let mut count = 0;
        for (&extent, &stride) in self.shape().iter().zip(self.strides()) {
            if extent > 1 {
                // Into its place among the lesser ones: there are few, and most come in falling order.
                let axis = (stride.unsigned_abs(), extent);
                let place = axes[..count].partition_point(|other| *other < axis);
                axes.copy_within(place..count, place + 1);
                axes[place] = axis;
                count += 1;
            }
        }
        let mut reach = 0;
        for &(stride, extent) in &axes[..count] {
            if stride <= reach {
                let (shape, strides) = (List(self.shape()), List(self.strides()));
                return Err(self.invalid(format_args!(
                    "expected an output whose elements lie apart, got shape {shape} with strides {strides}"
                )));
            }
            reach += (extent - 1) * stride;
        }
        Ok(())
    }

    /// Whether `other` views the same elements in the same order.
    pub(crate) fn same_view(&self, other: &Self) -> bool {
        self.data == other.data
            && self.has_shape(other.shape())
            && self.strides().iter().zip(other.strides()).all(|(stride, other)| stride == other)
    }

    /// That this output is the same view as `other`, which it may not be.
    #[cold]
    pub(crate) fn same_view_fault(&self, other: &Self) -> Failed {
        let name = other.name;
        self.invalid(format_args!("expected memory apart from `{name}`, got the same view"))
    }

    /// Checks that this output is the input `other`, element for element, or lies apart from it.
    pub(crate) fn expect_same_or_apart(&self, other: &Self) -> Result<(), Failed> {
        if self.same_view(other) { Ok(()) } else { self.expect_apart(other) }
    }

    /// Checks that this output does not overlap the input `other`, where both fill their span, so that the spans
    /// decide. Views that are interleaved in one buffer are left to the caller's contract.
    pub(crate) fn expect_apart<O>(&self, other: &Tensor<O>) -> Result<(), Failed> {
        if self.full && other.full && self.span.0 < other.span.1 && other.span.0 < self.span.1 {
            let name = other.name;
            return Err(
                self.invalid(format_args!("expected memory apart from `{name}`, got a partial overlap with it"))
            );
        }
        Ok(())
    }
}
