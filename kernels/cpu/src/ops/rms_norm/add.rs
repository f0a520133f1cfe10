//! The addition of a residual and the norm of the sum, in one pass over memory.

#![expect(unsafe_code, reason = "reads and writes rows by pointer")]
#![expect(clippy::inline_always, reason = "generic SIMD code must be inlined into the function compiled for its level")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "an access and the pointer arithmetic to it share a note")]

use core::ops::Range;

use half::{bf16, f16};

use super::factor::factor;
use super::{expect_row, expect_weight};
use crate::call::{Args, DType, Failed, Job, RowMap, Tensor, launch};
use crate::simd::{Element, Simd, load, store};

struct AddRmsNorm<E, W> {
    rows: RowMap<4>,
    out: *mut E,
    sum: *mut E,
    x: *const E,
    residual: *const E,
    weight: *const W,
    hidden: usize,
    eps: f64,
    offset: f32,
}

/// Checks the arguments and runs the kernel.
pub(crate) fn call(function: &'static str, args: &Args<'_>) -> Result<(), Failed> {
    let mut tensors = [Tensor::EMPTY; 5];
    let [out, sum, x, residual, weight] = args.tensors(&mut tensors)?;
    let eps = args.not_negative(5)?;
    let offset = args.finite_f32(6)?;
    expect_row(x)?;
    for tensor in [out, sum, residual] {
        tensor.expect_shape(x.shape(), "as `x`")?;
        tensor.expect_dtype(x.dtype, "as `x`")?;
    }
    expect_weight(weight, x)?;
    for tensor in [out, sum, x, residual, weight] {
        tensor.expect_dense_last()?;
    }
    for output in [out, sum] {
        output.expect_writable()?;
        output.expect_same_or_apart(x)?;
        output.expect_same_or_apart(residual)?;
        output.expect_apart(weight)?;
    }
    out.expect_apart(sum)?;
    if out.is_empty() {
        return Ok(());
    }
    let run = match (x.dtype, weight.dtype) {
        (DType::F32, _) => run::<f32, f32>,
        (DType::Bf16, DType::F32) => run::<bf16, f32>,
        (DType::Bf16, _) => run::<bf16, bf16>,
        (DType::F16, DType::F32) => run::<f16, f32>,
        (DType::F16, _) => run::<f16, f16>,
    };
    run(function, [out, sum, x, residual], weight, eps, offset)
}

fn run<E: Element, W: Element>(
    function: &'static str,
    tensors: [&Tensor; 4],
    weight: &Tensor,
    eps: f64,
    offset: f32,
) -> Result<(), Failed> {
    let [out, sum, x, residual] = tensors;
    let job = AddRmsNorm::<E, W> {
        rows: RowMap::new(tensors),
        out: out.data(),
        sum: sum.data(),
        x: x.data(),
        residual: residual.data(),
        weight: weight.data(),
        hidden: x.last(),
        eps,
        offset,
    };
    // About 50 bytes per nanosecond from the nearer caches.
    launch(function, &job, job.rows.len(), (4 * x.len() * size_of::<E>()) as u64 / 50)
}

// SAFETY: rows are independent, outputs lie apart (`expect_writable`), inputs are only read or are the row's own
// output.
unsafe impl<E: Element, W: Element> Job for AddRmsNorm<E, W> {
    #[inline(always)]
    fn run<S: Simd>(&self, s: S, items: Range<usize>) {
        let mut cursor = self.rows.cursor(items.start);
        for _ in items {
            let [out, sum, x, residual] = cursor.offsets;
            // SAFETY: the row's offset lies inside the checked tensor.
            let out = unsafe { self.out.offset(out) };
            // SAFETY: likewise.
            let sum = unsafe { self.sum.offset(sum) };
            // SAFETY: likewise.
            let x = unsafe { self.x.offset(x) };
            // SAFETY: likewise.
            let residual = unsafe { self.residual.offset(residual) };
            // SAFETY: rows of `hidden` elements start there, dense.
            unsafe { self.add(s, x, residual, sum) };
            // The sum is read again, from the nearest cache, in the order of the norm by itself: the same bits.
            // SAFETY: likewise; the row was written.
            let factor = unsafe { factor(s, sum.cast_const(), self.hidden, self.eps) };
            // SAFETY: likewise, as does the weight.
            unsafe { self.scale(s, sum, factor, out) };
            cursor.advance();
        }
    }
}

impl<E: Element, W: Element> AddRmsNorm<E, W> {
    /// Writes the sum, rounded.
    ///
    /// # Safety
    /// `hidden` elements are readable at `x` and `residual` and writable at `sum`, which is one of them or apart.
    #[inline(always)]
    unsafe fn add<S: Simd>(&self, s: S, x: *const E, residual: *const E, sum: *mut E) {
        let mut i = 0;
        while i < self.hidden {
            let count = S::LANES.min(self.hidden - i);
            // SAFETY: `count` elements stand at `i`.
            let left = unsafe { load(s, x.add(i), count) };
            // SAFETY: likewise.
            let right = unsafe { load(s, residual.add(i), count) };
            // SAFETY: likewise.
            unsafe { store(s, sum.add(i), s.add(left, right), count) };
            i += S::LANES;
        }
    }

    /// # Safety
    /// `hidden` elements are readable at `sum` and writable at `out`, apart.
    #[inline(always)]
    unsafe fn scale<S: Simd>(&self, s: S, sum: *const E, factor: f32, out: *mut E) {
        let (factor, offset) = (s.splat(factor), s.splat(self.offset));
        let mut i = 0;
        while i < self.hidden {
            let count = S::LANES.min(self.hidden - i);
            // SAFETY: `count` elements stand at `i`.
            let value = unsafe { load(s, sum.add(i), count) };
            // SAFETY: likewise.
            let weight = s.add(unsafe { load(s, self.weight.add(i), count) }, offset);
            // SAFETY: likewise.
            unsafe { store(s, out.add(i), s.mul(s.mul(value, factor), weight), count) };
            i += S::LANES;
        }
    }
}
