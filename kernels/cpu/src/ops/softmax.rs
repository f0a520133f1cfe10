//! The softmax of rows.

#![expect(unsafe_code, reason = "reads and writes rows by pointer")]
#![expect(clippy::inline_always, reason = "generic SIMD code must be inlined into the function compiled for its level")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "an access and the pointer arithmetic to it share a note")]
#![expect(clippy::cast_possible_truncation, reason = "factors round to f32, in which rows are scaled")]

use core::mem::MaybeUninit;
use core::ops::Range;

use half::{bf16, f16};

use super::exponentials::{PART, exponentials, greatest};
use super::rows::{TOGETHER, head, store_wide, streams};
use crate::call::{Args, DType, Failed, Job, MAX_RANK, RowMap, Tensor, launch};
use crate::simd::{Element, Simd, store};

struct Softmax<E> {
    rows: RowMap<2>,
    out: *mut E,
    x: *const E,
    width: usize,
    stream: bool,
}

/// The exponentials of a part of a row.
#[repr(align(64))]
struct Kept(MaybeUninit<[f32; PART]>);

/// Checks the arguments and runs the kernel.
pub(crate) fn call(function: &'static str, args: &Args<'_>) -> Result<(), Failed> {
    let mut tensors = [Tensor::EMPTY; 2];
    let [out, x] = args.tensors(&mut tensors)?;
    x.expect_rank(1..=MAX_RANK, "[.., d]")?;
    out.expect_shape(x.shape(), "as `x`")?;
    out.expect_dtype(x.dtype, "as `x`")?;
    out.expect_dense_last()?;
    x.expect_dense_last()?;
    out.expect_writable()?;
    out.expect_same_or_apart(x)?;
    if out.is_empty() {
        return Ok(());
    }
    match x.dtype {
        DType::F32 => run::<f32>(function, out, x),
        DType::Bf16 => run::<bf16>(function, out, x),
        DType::F16 => run::<f16>(function, out, x),
    }
}

fn run<E: Element>(function: &'static str, out: &Tensor, x: &Tensor) -> Result<(), Failed> {
    let stream = streams(2 * x.len() * size_of::<E>()) && !out.same_view(x);
    let job = Softmax::<E> { rows: RowMap::new([out, x]), out: out.data(), x: x.data(), width: x.last(), stream };
    // About 3 elements per nanosecond.
    launch(function, &job, job.rows.len(), x.len() as u64 / 3)
}

// SAFETY: rows are independent, outputs lie apart (`expect_writable`), inputs are only read or are the row's own
// output.
unsafe impl<E: Element> Job for Softmax<E> {
    #[inline(always)]
    fn run<S: Simd>(&self, s: S, items: Range<usize>) {
        let mut kept = Kept(MaybeUninit::uninit());
        let kept = kept.0.as_mut_ptr().cast::<f32>();
        let mut cursor = self.rows.cursor(items.start);
        for _ in items {
            let [to, from] = cursor.offsets;
            // SAFETY: the row's offset lies inside the checked tensor.
            let x = unsafe { self.x.offset(from) };
            // SAFETY: likewise.
            let out = unsafe { self.out.offset(to) };
            // SAFETY: a row of `width` elements starts there, dense; `kept` has room for a part.
            unsafe { self.row(s, x, out, kept) };
            cursor.advance();
        }
        if self.stream {
            s.fence();
        }
    }
}

impl<E: Element> Softmax<E> {
    /// # Safety
    /// `width` elements are readable at `x` and writable at `out`, which is `x` or apart; [`PART`] numbers are writable
    /// at `kept`.
    #[inline(always)]
    unsafe fn row<S: Simd>(&self, s: S, x: *const E, out: *mut E, kept: *mut f32) {
        let width = self.width;
        // SAFETY: by this function's contract.
        let max = unsafe { greatest(s, x, width) };
        let (mut total, mut start) = (0.0, 0);
        while start < width {
            let count = PART.min(width - start);
            // SAFETY: a part of the row; it fits `kept`.
            total += f64::from(unsafe { exponentials(s, x.add(start), count, max, Some(kept)) });
            start += count;
        }
        let factor = (1.0 / total) as f32;
        if width <= PART {
            // SAFETY: by this function's contract; the row's exponentials were kept.
            return unsafe { self.write(s, kept, out, width, factor) };
        }
        let mut start = 0;
        while start < width {
            let count = PART.min(width - start);
            // SAFETY: a part of the row; it fits `kept`.
            unsafe { exponentials(s, x.add(start), count, max, Some(kept)) };
            // SAFETY: likewise; the part was read before it is overwritten.
            unsafe { self.write(s, kept, out.add(start), count, factor) };
            start += count;
        }
    }

    /// Writes `factor * kept`.
    ///
    /// # Safety
    /// `count` exponentials were kept, and `count` elements are writable at `out`.
    #[inline(always)]
    unsafe fn write<S: Simd>(&self, s: S, kept: *const f32, out: *mut E, count: usize, factor: f32) {
        let (lanes, factor) = (S::LANES, s.splat(factor));
        // What was kept stands in the order of the vectors that it was made in, so that these can't begin elsewhere.
        let stream = self.stream && head::<S, E>(true, out, count) == 0;
        let mut i = 0;
        while i + TOGETHER * lanes <= count {
            let mut values = [s.splat(0.0); TOGETHER];
            for (j, value) in values.iter_mut().enumerate() {
                // SAFETY: `TOGETHER` vectors stand at `i`.
                *value = s.mul(unsafe { s.load_f32(kept.add(i + j * lanes)) }, factor);
            }
            // SAFETY: likewise; where it streams, whole vectors begin at `out`, and so does every step.
            unsafe { store_wide(s, out.add(i), values, stream, false) };
            i += TOGETHER * lanes;
        }
        while i < count {
            let part = lanes.min(count - i);
            // SAFETY: whole vectors were kept.
            let value = s.mul(unsafe { s.load_f32(kept.add(i)) }, factor);
            // SAFETY: `part` elements stand at `i`.
            unsafe { store(s, out.add(i), value, part) };
            i += lanes;
        }
    }
}
