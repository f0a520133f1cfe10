//! The addition of a residual and the norm of the sum, in one pass over memory.

#![expect(unsafe_code, reason = "reads and writes rows by pointer")]
#![expect(clippy::inline_always, reason = "generic SIMD code must be inlined into the function compiled for its level")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "an access and the pointer arithmetic to it share a note")]
#![expect(clippy::cast_possible_truncation, reason = "the factor rounds to f32, in which rows are scaled")]

use core::ops::Range;

use half::{bf16, f16};

use super::factor::of_sum;
use super::{expect_row, expect_weight};
use crate::call::{Args, DType, Failed, Job, RowMap, Tensor, launch};
use crate::simd::{Element, Simd};

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

// SAFETY: rows are independent, outputs lie apart (`expect_writable`), inputs are only read or are the row's own output.
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
            let squares = unsafe { self.add(s, x, residual, sum) };
            // SAFETY: likewise; the row was written.
            let factor = unsafe { of_sum(squares, sum.cast_const(), self.hidden, self.eps) } as f32;
            // SAFETY: likewise, as does the weight.
            unsafe { self.scale(s, sum, factor, out) };
            cursor.advance();
        }
    }
}

impl<E: Element, W: Element> AddRmsNorm<E, W> {
    /// Writes the sum, and answers the sum of squares of what was written.
    ///
    /// # Safety
    /// `hidden` elements are readable at `x` and `residual` and writable at `sum`, which is one of them or apart.
    #[inline(always)]
    unsafe fn add<S: Simd>(&self, s: S, x: *const E, residual: *const E, sum: *mut E) -> f32 {
        let (lanes, hidden) = (S::LANES, self.hidden);
        let mut squares = [s.splat(0.0); 2];
        let whole = hidden - hidden % lanes;
        let mut i = 0;
        while i < whole {
            // SAFETY: `i + LANES <= hidden`.
            let left = unsafe { E::load(s, x.add(i)) };
            // SAFETY: likewise.
            let right = unsafe { E::load(s, residual.add(i)) };
            let mut value = s.add(left, right);
            // SAFETY: likewise.
            unsafe { E::store(s, sum.add(i), value) };
            if !E::IS_F32 {
                // What was rounded is what the norm is of.
                // SAFETY: likewise; just written.
                value = unsafe { E::load(s, sum.add(i).cast_const()) };
            }
            squares[0] = s.fma(value, value, squares[0]);
            squares.swap(0, 1);
            i += lanes;
        }
        let rest = hidden - whole;
        if rest > 0 {
            // SAFETY: `rest` elements stand at `whole`.
            let left = unsafe { E::load_part(s, x.add(whole), rest) };
            // SAFETY: likewise.
            let right = unsafe { E::load_part(s, residual.add(whole), rest) };
            // SAFETY: likewise.
            unsafe { E::store_part(s, sum.add(whole), s.add(left, right), rest) };
            // SAFETY: likewise; just written. Lanes from `rest` on are zero.
            let value = unsafe { E::load_part(s, sum.add(whole).cast_const(), rest) };
            squares[0] = s.fma(value, value, squares[0]);
        }
        s.sum(s.add(squares[0], squares[1]))
    }

    /// # Safety
    /// `hidden` elements are readable at `sum` and writable at `out`, apart.
    #[inline(always)]
    unsafe fn scale<S: Simd>(&self, s: S, sum: *const E, factor: f32, out: *mut E) {
        let (lanes, hidden) = (S::LANES, self.hidden);
        let (factor, offset) = (s.splat(factor), s.splat(self.offset));
        let whole = hidden - hidden % lanes;
        let mut i = 0;
        while i < whole {
            // SAFETY: `i + LANES <= hidden`.
            let value = unsafe { E::load(s, sum.add(i)) };
            // SAFETY: likewise.
            let weight = s.add(unsafe { W::load(s, self.weight.add(i)) }, offset);
            // SAFETY: likewise.
            unsafe { E::store(s, out.add(i), s.mul(s.mul(value, factor), weight)) };
            i += lanes;
        }
        let rest = hidden - whole;
        if rest > 0 {
            // SAFETY: `rest` elements stand at `whole`.
            let value = unsafe { E::load_part(s, sum.add(whole), rest) };
            // SAFETY: likewise.
            let weight = s.add(unsafe { W::load_part(s, self.weight.add(whole), rest) }, offset);
            // SAFETY: likewise.
            unsafe { E::store_part(s, out.add(whole), s.mul(s.mul(value, factor), weight), rest) };
        }
    }
}
