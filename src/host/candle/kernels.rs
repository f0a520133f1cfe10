//! candle's memory as kernels see it, and calls of kernels on it.
//!
//! A [`Call`] lives on the stack of one forward and borrows the kernel from the pinned plan. Nothing is allocated but
//! the output. It has no backward: a layer makes it only where nothing tracks a gradient, and an operation of candle's
//! with a backward makes it for its forward.

#![expect(clippy::inline_always, reason = "what is returned by memory is read back before it is there")]

use std::borrow::Cow;
use std::ops::Deref;

use candle_core::op::BackpropOp;
use candle_core::{CpuStorage, Error, Layout, Result, Shape, Storage, Tensor};
use half::{bf16, f16};

use crate::bind::{BindError, Element, IndexElement, TensorRef};

/// An element type that candle stores and kernels compute.
pub(super) trait StorageElement: Element {
    fn elements(storage: &CpuStorage) -> Option<&[Self]>;
    fn storage(elements: Vec<Self>) -> CpuStorage;
}

macro_rules! storage_element {
    ($element:ty, $storage:ident) => {
        impl StorageElement for $element {
            fn elements(storage: &CpuStorage) -> Option<&[Self]> {
                if let CpuStorage::$storage(elements) = storage { Some(elements) } else { None }
            }

            fn storage(elements: Vec<Self>) -> CpuStorage {
                CpuStorage::$storage(elements)
            }
        }
    };
}
storage_element!(f32, F32);
storage_element!(bf16, BF16);
storage_element!(f16, F16);

#[inline(always)]
fn elements<'a, T: StorageElement>(storage: &'a CpuStorage, layout: &Layout) -> Result<&'a [T]> {
    let elements =
        T::elements(storage).ok_or_else(|| Error::Msg("operands of one operation differ in dtype".into()))?;
    Ok(elements.get(layout.start_offset()..).unwrap_or_default())
}

/// A candle tensor as a kernel sees it.
#[inline(always)]
pub(super) fn view<'a, T: StorageElement>(storage: &'a CpuStorage, layout: &'a Layout) -> Result<TensorRef<'a>> {
    TensorRef::new(elements::<T>(storage, layout)?, layout.dims(), layout.stride()).map_err(bind_error)
}

/// A contiguous candle tensor of indices as a kernel sees it.
pub(super) fn indices<'a>(storage: &'a CpuStorage, layout: &'a Layout) -> Result<TensorRef<'a>> {
    fn view<'a, T: IndexElement>(elements: &'a [T], layout: &'a Layout) -> Result<TensorRef<'a>> {
        let elements = elements.get(layout.start_offset()..).unwrap_or_default();
        TensorRef::indices(elements, layout.dims()).map_err(bind_error)
    }
    match storage {
        CpuStorage::U32(elements) => view(elements, layout),
        CpuStorage::I64(elements) => view(elements, layout),
        _ => Err(Error::Msg("indices are u32 or i64".to_owned())),
    }
}

/// The memory behind a tensor on the processor.
#[inline]
pub(super) fn host_memory(storage: &Storage) -> Result<&CpuStorage> {
    if let Storage::Cpu(storage) = storage { Ok(storage) } else { Err(not_in_host_memory()) }
}

#[cold]
fn not_in_host_memory() -> Error {
    Error::Msg("kernels of the candle host compute on the processor only".to_owned())
}

/// A tensor's memory and how it lies there.
#[derive(Clone, Copy)]
pub(super) struct Operand<'a> {
    storage: &'a CpuStorage,
    layout: &'a Layout,
}

impl<'a> Operand<'a> {
    #[inline]
    pub(super) fn new(storage: &'a CpuStorage, layout: &'a Layout) -> Self {
        Self { storage, layout }
    }

    /// A tensor whose memory was locked.
    #[inline]
    pub(super) fn of((storage, layout): &'a (impl Deref<Target = Storage>, &'a Layout)) -> Result<Self> {
        Ok(Self { storage: host_memory(storage)?, layout })
    }

    pub(super) fn dims(&self) -> &'a [usize] {
        self.layout.dims()
    }

    pub(super) fn shape(&self) -> &'a Shape {
        self.layout.shape()
    }

    /// Its elements, which are `T`.
    #[inline(always)]
    pub(super) fn view<T: StorageElement>(&self) -> Result<TensorRef<'a>> {
        view::<T>(self.storage, self.layout)
    }

    pub(super) fn strides(&self) -> &'a [usize] {
        self.layout.stride()
    }

    /// Its memory from its first element on, which are `T`.
    pub(super) fn elements<T: StorageElement>(&self) -> Result<&'a [T]> {
        elements::<T>(self.storage, self.layout)
    }

    /// Its elements, which are indices and row-major.
    pub(super) fn indices(&self) -> Result<TensorRef<'a>> {
        indices(self.storage, self.layout)
    }
}

/// A kernel with all that a call needs but its tensors.
pub(super) trait Call {
    /// The call's name among candle's operations.
    const NAME: &'static str;
    /// What it gives: an output, or several.
    type Output;

    /// Calls the kernel on tensors, of which the first has the elements `T`, in the order that the call was given them.
    fn call<T: StorageElement>(&self, operands: &[Operand<'_>]) -> Result<Self::Output>;
}

/// One output: its elements and its shape.
pub(super) type Output = (CpuStorage, Shape);

/// Makes a call on operands.
#[inline(always)]
pub(super) fn call_on<C: Call>(call: &C, operands: &[Operand<'_>]) -> Result<C::Output> {
    match operands.first().map(|operand| operand.storage) {
        Some(CpuStorage::F32(_)) => call.call::<f32>(operands),
        Some(CpuStorage::BF16(_)) => call.call::<bf16>(operands),
        Some(CpuStorage::F16(_)) => call.call::<f16>(operands),
        _ => Err(no_such_kernel(C::NAME)),
    }
}

/// Makes a call on tensors: `call!(&call, x, weight)`.
///
/// A macro, so that the tensors' locks stay where they were taken: in an array they would be moved, and read back from
/// the memory that they were written to a moment before.
macro_rules! call {
    ($call:expr, $($tensor:expr),+) => {
        $crate::host::candle::kernels::call_on(
            $call,
            &[$($crate::host::candle::kernels::Operand::of(&$tensor.storage_and_layout())?),+],
        )
    };
}
pub(super) use call;

/// The output of a call as a tensor, which tracks no gradient.
#[inline]
pub(super) fn tensor((storage, shape): Output) -> Tensor {
    Tensor::from_storage(Storage::Cpu(storage), shape, BackpropOp::none(), false)
}

/// Moves the memory behind a tensor on the processor into huge pages, all of what it is a view of: see
/// [`use_huge_pages`](crate::system::use_huge_pages), whose count of bytes this is. For weights, after they were loaded;
/// 0 for a tensor elsewhere.
#[must_use]
pub fn use_huge_pages(tensor: &Tensor) -> usize {
    let (storage, _) = tensor.storage_and_layout();
    match &*storage {
        Storage::Cpu(CpuStorage::F32(elements)) => crate::system::use_huge_pages(elements),
        Storage::Cpu(CpuStorage::BF16(elements)) => crate::system::use_huge_pages(elements),
        Storage::Cpu(CpuStorage::F16(elements)) => crate::system::use_huge_pages(elements),
        Storage::Cpu(CpuStorage::F64(elements)) => crate::system::use_huge_pages(elements),
        _ => 0,
    }
}

/// A kernel's refusal as candle's error. Not `Error::wrap`, which puts a backtrace into the message where
/// `RUST_BACKTRACE` is set.
pub(super) fn bind_error(error: BindError) -> Error {
    Error::Wrapped(Box::new(error))
}

#[inline(always)]
pub(super) fn finish<T: StorageElement>(
    output: std::result::Result<Vec<T>, BindError>,
    shape: Shape,
) -> Result<Output> {
    output.map(|output| (T::storage(output), shape)).map_err(bind_error)
}

/// [`finish`] for a function with two outputs.
pub(super) fn finish_both<T: StorageElement>(
    outputs: std::result::Result<(Vec<T>, Vec<T>), BindError>,
    [first, second]: [&Shape; 2],
) -> Result<[Output; 2]> {
    let (one, other) = outputs.map_err(bind_error)?;
    Ok([(T::storage(one), first.clone()), (T::storage(other), second.clone())])
}

/// Calls `$run::<T>($arguments)` for the element type of `$storage`.
macro_rules! by_dtype {
    ($op:expr, $storage:expr, $run:ident($($argument:expr),*)) => {
        match $storage {
            candle_core::CpuStorage::F32(_) => $run::<f32>($($argument),*),
            candle_core::CpuStorage::BF16(_) => $run::<half::bf16>($($argument),*),
            candle_core::CpuStorage::F16(_) => $run::<half::f16>($($argument),*),
            _ => Err($crate::host::candle::kernels::no_such_kernel($op)),
        }
    };
}
pub(super) use by_dtype;

pub(super) fn no_such_kernel(op: &str) -> Error {
    Error::Msg(format!("{op}: kernels compute f32, bf16 and f16 only"))
}

/// `x`, copied only when the elements of a row are no neighbours; every other stride is the kernel's to follow.
#[inline]
pub(super) fn dense_rows(x: &Tensor) -> Result<Cow<'_, Tensor>> {
    let dense =
        x.stride().last().is_none_or(|stride| *stride == 1) || x.dims().last().is_some_and(|extent| *extent <= 1);
    // Borrowed: a clone counts up and down, which other threads would wait for.
    if dense { Ok(Cow::Borrowed(x)) } else { x.contiguous().map(Cow::Owned) }
}

// After the macro, which it uses.
mod attention;

pub(super) use attention::{attention, attention_paged, attention_varlen};
