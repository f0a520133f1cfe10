//! Rows of a table, by id.

#![expect(unsafe_code, reason = "reads and writes rows by pointer")]
#![expect(clippy::inline_always, reason = "generic SIMD code must be inlined into the function compiled for its level")]
#![expect(clippy::cast_possible_truncation, reason = "ids are below the table's rows: checked before")]

use core::ops::Range;

use crate::call::{Args, DType, Failed, IdType, Ids, Job, MAX_RANK, RowMap, Tensor, launch};
use crate::simd::Simd;

struct Embedding<T> {
    /// Of the outputs and the ids.
    places: RowMap<2>,
    out: *mut T,
    ids: Ids,
    weight: *const T,
    /// Between rows of the table.
    stride: isize,
    hidden: usize,
}

/// Checks the arguments and runs the kernel.
pub(crate) fn call(function: &'static str, args: &Args<'_>) -> Result<(), Failed> {
    let (mut out, mut ids, mut weight) = (Tensor::<DType>::EMPTY, Tensor::<IdType>::EMPTY, Tensor::<DType>::EMPTY);
    let out = args.tensor(0, &mut out)?;
    let ids = args.tensor(1, &mut ids)?;
    let weight = args.tensor(2, &mut weight)?;
    weight.expect_rank(2..=2, "[vocab, hidden]")?;
    let &[vocab, hidden] = weight.shape() else {
        return Err(weight.invalid_shape(format_args!("expected rank 2")));
    };
    ids.expect_rank(0..=MAX_RANK - 1, "[..]")?;
    let mut expected = [hidden; MAX_RANK];
    let axes = ids.shape().len();
    expected[..axes].copy_from_slice(ids.shape());
    out.expect_shape(&expected[..=axes], "[.., hidden], the leading axes as `ids`, hidden as in `weight`")?;
    out.expect_dtype(weight.dtype, "as `weight`")?;
    out.expect_dense_last()?;
    weight.expect_dense_last()?;
    out.expect_writable()?;
    out.expect_apart(ids)?;
    out.expect_apart(weight)?;
    ids.expect_ids(vocab, "vocab", None)?;
    if out.is_empty() {
        return Ok(());
    }
    // What the bits mean is no matter.
    let run = if weight.dtype == DType::F32 { run::<u32> } else { run::<u16> };
    run(function, out, ids, weight)
}

fn run<T: Copy>(function: &'static str, out: &Tensor, ids: &Tensor<IdType>, weight: &Tensor) -> Result<(), Failed> {
    let axes = ids.shape().len();
    let job = Embedding::<T> {
        places: RowMap::from_axes(ids.shape(), [&out.strides()[..axes], ids.strides()]),
        out: out.data(),
        ids: ids.ids(),
        weight: weight.data(),
        stride: weight.strides()[0],
        hidden: out.last(),
    };
    // About 10 bytes per nanosecond, in and out.
    launch(function, &job, job.places.len(), (out.len() * size_of::<T>()) as u64 / 10)
}

// SAFETY: rows are independent, outputs lie apart (`expect_writable`), inputs are only read.
unsafe impl<T: Copy> Job for Embedding<T> {
    #[inline(always)]
    fn run<S: Simd>(&self, _s: S, items: Range<usize>) {
        let mut cursor = self.places.cursor(items.start);
        for _ in items {
            let [to, place] = cursor.offsets;
            // SAFETY: the offset lies inside the checked tensor.
            let row = unsafe { self.ids.get(place) } as isize;
            // SAFETY: likewise.
            let to = unsafe { self.out.offset(to) };
            // SAFETY: a row of the table: the ids were checked against it.
            let from = unsafe { self.weight.offset(row * self.stride) };
            // SAFETY: `hidden` elements start at both, dense and apart.
            unsafe { core::ptr::copy_nonoverlapping(from, to, self.hidden) };
            cursor.advance();
        }
    }
}
