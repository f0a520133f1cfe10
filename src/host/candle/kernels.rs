//! candle's memory as kernels see it, and attention as candle custom operations on the CPU.
//!
//! The operations live on the stack of one forward and borrow the kernel from the pinned plan. Nothing is allocated
//! but the output. They have no backward: a layer calls them only where nothing tracks a gradient.

use std::borrow::Cow;

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

/// A candle tensor as a kernel sees it.
#[inline]
pub(super) fn view<'a, T: StorageElement>(storage: &'a CpuStorage, layout: &'a Layout) -> Result<TensorRef<'a>> {
    let elements =
        T::elements(storage).ok_or_else(|| Error::Msg("operands of one operation differ in dtype".into()))?;
    let elements = elements.get(layout.start_offset()..).unwrap_or_default();
    TensorRef::new(elements, layout.dims(), layout.stride()).map_err(bind_error)
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

pub(super) fn finish<T: StorageElement>(
    output: std::result::Result<Vec<T>, BindError>,
    shape: Shape,
) -> Result<(CpuStorage, Shape)> {
    output.map(|output| (T::storage(output), shape)).map_err(bind_error)
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
