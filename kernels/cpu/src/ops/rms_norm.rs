//! Root mean square normalisation of rows.

#![expect(unsafe_code, reason = "reads and writes rows by pointer")]
#![expect(clippy::inline_always, reason = "generic SIMD code must be inlined into the function compiled for its level")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "an access and the pointer arithmetic to it share a note")]
#![expect(clippy::cast_possible_truncation, reason = "the factor rounds to f32, in which rows are scaled")]

use core::ops::Range;

use half::{bf16, f16};

use super::STREAM_BYTES;
use crate::call::{Args, DType, Failed, Job, MAX_RANK, RowMap, Tensor, launch};
use crate::simd::{Element, Simd};

/// Sums of squares below this may have lost terms to underflow; they are taken again in f64.
const TINY: f32 = 1e-30;

struct RmsNorm<E, W> {
    rows: RowMap<2>,
    x: *const E,
    out: *mut E,
    weight: *const W,
    hidden: usize,
    eps: f64,
    stream: bool,
}

/// Checks the arguments and runs the kernel.
pub(crate) fn call(function: &'static str, args: &Args<'_>) -> Result<(), Failed> {
    let mut tensors = [Tensor::EMPTY; 3];
    let [out, x, weight] = args.tensors(&mut tensors)?;
    let eps = args.float(3)?;
    if !(eps.is_finite() && eps >= 0.0) {
        return Err(args.invalid(3, format_args!("expected a finite number of at least 0, got {eps}")));
    }
    x.expect_rank(1..=MAX_RANK, "[.., hidden]")?;
    let hidden = x.last();
    out.expect_shape(x.shape(), "as `x`")?;
    out.expect_dtype(x.dtype, "as `x`")?;
    weight.expect_shape(&[hidden], "[hidden], hidden as in `x`")?;
    if weight.dtype != DType::F32 {
        weight.expect_dtype(x.dtype, "as `x`, or f32")?;
    }
    for tensor in [out, x, weight] {
        tensor.expect_dense_last()?;
    }
    out.expect_writable()?;
    if !out.same_view(x) {
        out.expect_apart(x)?;
    }
    out.expect_apart(weight)?;
    if out.is_empty() {
        return Ok(());
    }
    match (x.dtype, weight.dtype) {
        (DType::F32, _) => run::<f32, f32>(function, out, x, weight, eps),
        (DType::Bf16, DType::F32) => run::<bf16, f32>(function, out, x, weight, eps),
        (DType::Bf16, _) => run::<bf16, bf16>(function, out, x, weight, eps),
        (DType::F16, DType::F32) => run::<f16, f32>(function, out, x, weight, eps),
        (DType::F16, _) => run::<f16, f16>(function, out, x, weight, eps),
    }
}

fn run<E: Element, W: Element>(
    function: &'static str,
    out: &Tensor,
    x: &Tensor,
    weight: &Tensor,
    eps: f64,
) -> Result<(), Failed> {
    let bytes = 2 * x.len() * size_of::<E>();
    let job = RmsNorm::<E, W> {
        rows: RowMap::new([out, x]),
        x: x.data(),
        out: out.data(),
        weight: weight.data(),
        hidden: x.last(),
        eps,
        stream: bytes >= STREAM_BYTES && !out.same_view(x),
    };
    // About 50 bytes per nanosecond from the nearer caches.
    launch(function, &job, job.rows.len(), bytes as u64 / 50)
}

// SAFETY: rows are independent, outputs lie apart (`expect_writable`), inputs are only read or are the row's own output.
unsafe impl<E: Element, W: Element> Job for RmsNorm<E, W> {
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

impl<E: Element, W: Element> RmsNorm<E, W> {
    /// # Safety
    /// `hidden` elements are readable at `x` and writable at `out`; `out` is `x` or apart from it.
    #[inline(always)]
    unsafe fn row<S: Simd>(&self, s: S, x: *const E, out: *mut E) {
        let (lanes, hidden) = (S::LANES, self.hidden);
        // SAFETY: by this function's contract.
        let factor = s.splat(unsafe { self.factor(s, x) });
        let whole = hidden - hidden % lanes;
        let stream = self.stream && out.addr().is_multiple_of(lanes * size_of::<E>());
        let mut i = 0;
        while i < whole {
            // SAFETY: `i + LANES <= hidden`.
            let value = unsafe { E::load(s, x.add(i)) };
            // SAFETY: `i + LANES <= hidden`.
            let weight = unsafe { W::load(s, self.weight.add(i)) };
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
            // SAFETY: likewise.
            unsafe { E::store_part(s, out.add(whole), s.mul(s.mul(value, factor), weight), rest) };
        }
    }

    /// `1 / sqrt(mean(x^2) + eps)`.
    ///
    /// # Safety
    /// `hidden` elements are readable at `x`.
    #[inline(always)]
    unsafe fn factor<S: Simd>(&self, s: S, x: *const E) -> f32 {
        let (lanes, hidden) = (S::LANES, self.hidden);
        let mut sums = [s.splat(0.0); 4];
        let mut i = 0;
        while i + 4 * lanes <= hidden {
            for (j, sum) in sums.iter_mut().enumerate() {
                // SAFETY: `i + 4 * LANES <= hidden`.
                let value = unsafe { E::load(s, x.add(i + j * lanes)) };
                *sum = s.fma(value, value, *sum);
            }
            i += 4 * lanes;
        }
        while i < hidden {
            let count = lanes.min(hidden - i);
            // SAFETY: `count` elements stand at `i`.
            let value = unsafe { E::load_part(s, x.add(i), count) };
            sums[0] = s.fma(value, value, sums[0]);
            i += lanes;
        }
        let sum = s.sum(s.add(s.add(sums[0], sums[1]), s.add(sums[2], sums[3])));
        let mut sum_of_squares = f64::from(sum);
        if !sum.is_finite() || sum < TINY {
            // SAFETY: by this function's contract.
            sum_of_squares = unsafe { self.wide_sum(x) };
        }
        (1.0 / (sum_of_squares / hidden as f64 + self.eps).sqrt()) as f32
    }

    /// The sum of squares in f64, for rows whose squares leave the range of f32.
    ///
    /// # Safety
    /// `hidden` elements are readable at `x`.
    #[cold]
    #[inline(never)]
    unsafe fn wide_sum(&self, x: *const E) -> f64 {
        // SAFETY: by this function's contract; the row is initialised, as an input.
        let row = unsafe { core::slice::from_raw_parts(x, self.hidden) };
        row.iter().map(|value| f64::from(value.to_f32()).powi(2)).sum()
    }
}
