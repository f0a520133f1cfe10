//! Rows divided by their root mean square.

#![expect(unsafe_code, reason = "reads and writes rows by pointer")]
#![expect(clippy::inline_always, reason = "generic SIMD code must be inlined into the function compiled for its level")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "an access and the pointer arithmetic to it share a note")]

use core::ops::Range;

use half::{bf16, f16};

use super::factor::factor;
use super::{expect_row, expect_weight};
use crate::call::{Args, DType, Failed, Job, RowMap, Tensor, launch};
use crate::ops::STREAM_BYTES;
use crate::simd::{Element, Simd};

/// With `OFFSET`, `offset` is added to the weight; without, it is not looked at.
struct RmsNorm<E, W, const OFFSET: bool> {
    rows: RowMap<2>,
    x: *const E,
    out: *mut E,
    weight: *const W,
    hidden: usize,
    eps: f64,
    offset: f32,
    stream: bool,
}

/// Checks the arguments of `rms_norm` and runs the kernel.
pub(crate) fn call(function: &'static str, args: &Args<'_>) -> Result<(), Failed> {
    checked(function, args, 0.0)
}

/// Checks the arguments of `rms_norm_with_offset` and runs the kernel.
pub(crate) fn call_with_offset(function: &'static str, args: &Args<'_>) -> Result<(), Failed> {
    checked(function, args, args.finite_f32(4)?)
}

fn checked(function: &'static str, args: &Args<'_>, offset: f32) -> Result<(), Failed> {
    let mut tensors = [Tensor::EMPTY; 3];
    let [out, x, weight] = args.tensors(&mut tensors)?;
    let eps = args.not_negative(3)?;
    expect_row(x)?;
    out.expect_shape(x.shape(), "as `x`")?;
    out.expect_dtype(x.dtype, "as `x`")?;
    expect_weight(weight, x)?;
    for tensor in [out, x, weight] {
        tensor.expect_dense_last()?;
    }
    out.expect_writable()?;
    out.expect_same_or_apart(x)?;
    out.expect_apart(weight)?;
    if out.is_empty() {
        return Ok(());
    }
    let run = match (x.dtype, weight.dtype, offset == 0.0) {
        (DType::F32, _, true) => run::<f32, f32, false>,
        (DType::F32, _, false) => run::<f32, f32, true>,
        (DType::Bf16, DType::F32, true) => run::<bf16, f32, false>,
        (DType::Bf16, DType::F32, false) => run::<bf16, f32, true>,
        (DType::Bf16, _, true) => run::<bf16, bf16, false>,
        (DType::Bf16, _, false) => run::<bf16, bf16, true>,
        (DType::F16, DType::F32, true) => run::<f16, f32, false>,
        (DType::F16, DType::F32, false) => run::<f16, f32, true>,
        (DType::F16, _, true) => run::<f16, f16, false>,
        (DType::F16, _, false) => run::<f16, f16, true>,
    };
    run(function, [out, x, weight], eps, offset)
}

fn run<E: Element, W: Element, const OFFSET: bool>(
    function: &'static str,
    [out, x, weight]: [&Tensor; 3],
    eps: f64,
    offset: f32,
) -> Result<(), Failed> {
    let bytes = 2 * x.len() * size_of::<E>();
    let job = RmsNorm::<E, W, OFFSET> {
        rows: RowMap::new([out, x]),
        x: x.data(),
        out: out.data(),
        weight: weight.data(),
        hidden: x.last(),
        eps,
        offset,
        stream: bytes >= STREAM_BYTES && !out.same_view(x),
    };
    // About 50 bytes per nanosecond from the nearer caches.
    launch(function, &job, job.rows.len(), bytes as u64 / 50)
}

// SAFETY: rows are independent, outputs lie apart (`expect_writable`), inputs are only read or are the row's own
// output.
unsafe impl<E: Element, W: Element, const OFFSET: bool> Job for RmsNorm<E, W, OFFSET> {
    #[inline(always)]
    fn run<S: Simd>(&self, s: S, items: Range<usize>) {
        let mut cursor = self.rows.cursor(items.start);
        for _ in items {
            let [to, from] = cursor.offsets;
            // SAFETY: the row's offset lies inside the checked tensor.
            let x = unsafe { self.x.offset(from) };
            // SAFETY: likewise.
            let out = unsafe { self.out.offset(to) };
            // SAFETY: a row of `hidden` elements starts there, dense, as does the weight.
            unsafe { self.row(s, x, out) };
            cursor.advance();
        }
        if self.stream {
            s.fence();
        }
    }
}

impl<E: Element, W: Element, const OFFSET: bool> RmsNorm<E, W, OFFSET> {
    /// # Safety
    /// `hidden` elements are readable at `x` and writable at `out`; `out` is `x` or apart from it.
    #[inline(always)]
    unsafe fn row<S: Simd>(&self, s: S, x: *const E, out: *mut E) {
        let (lanes, hidden) = (S::LANES, self.hidden);
        // SAFETY: by this function's contract.
        let factor = s.splat(unsafe { factor(s, x, hidden, self.eps) });
        let offset = s.splat(self.offset);
        let whole = hidden - hidden % lanes;
        let stream = self.stream && out.addr().is_multiple_of(lanes * size_of::<E>());
        let mut i = 0;
        while i < whole {
            // SAFETY: `i + LANES <= hidden`.
            let value = unsafe { E::load(s, x.add(i)) };
            // SAFETY: `i + LANES <= hidden`.
            let weight = unsafe { W::load(s, self.weight.add(i)) };
            let weight = if OFFSET { s.add(weight, offset) } else { weight };
            let value = s.mul(s.mul(value, factor), weight);
            if stream {
                // SAFETY: `i + LANES <= hidden`; the row is aligned to whole vectors, and so is every step.
                unsafe { E::stream(s, out.add(i), value) };
            } else {
                // SAFETY: `i + LANES <= hidden`.
                unsafe { E::store(s, out.add(i), value) };
            }
            i += lanes;
        }
        let rest = hidden - whole;
        if rest > 0 {
            // SAFETY: `rest` elements stand at `whole`.
            let value = unsafe { E::load_part(s, x.add(whole), rest) };
            // SAFETY: likewise.
            let weight = unsafe { W::load_part(s, self.weight.add(whole), rest) };
            let weight = if OFFSET { s.add(weight, offset) } else { weight };
            // SAFETY: likewise.
            unsafe { E::store_part(s, out.add(whole), s.mul(s.mul(value, factor), weight), rest) };
        }
    }
}
