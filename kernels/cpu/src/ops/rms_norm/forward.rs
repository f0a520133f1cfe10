//! Rows divided by their root mean square.

#![expect(unsafe_code, reason = "reads and writes rows by pointer")]
#![expect(clippy::inline_always, reason = "generic SIMD code must be inlined into the function compiled for its level")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "an access and the pointer arithmetic to it share a note")]

use core::ops::Range;

use half::{bf16, f16};

use super::factor::{factor, finish, square};
use super::{expect_row, expect_weight};
use crate::call::{Args, DType, Failed, Job, RowMap, Tensor, launch};
use crate::ops::rows::{head, prefetch_pair, streams};
use crate::simd::{Element, Simd, load, load2_as, store, store2_as};

/// With `OFFSET`, `offset` is added to the weight; without, it is not looked at.
struct RmsNorm<E, W, const OFFSET: bool> {
    rows: RowMap<2>,
    x: *const E,
    out: *mut E,
    weight: *const W,
    hidden: usize,
    eps: f64,
    offset: f32,
    /// Whether outputs bypass the cache.
    stream: bool,
    /// Whether to ask for rows before they are read.
    ahead: bool,
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
        stream: streams(bytes) && !out.same_view(x),
        ahead: streams(bytes),
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
        // SAFETY: the row's offset lies inside the checked tensor, and a row of `hidden` elements starts there, dense.
        let mut factor = unsafe { factor(s, self.x.offset(cursor.offsets[1]), self.hidden, self.eps) };
        for item in items.clone() {
            let [to, from] = cursor.offsets;
            cursor.advance();
            // SAFETY: likewise.
            let x = unsafe { self.x.offset(from) };
            // SAFETY: likewise.
            let out = unsafe { self.out.offset(to) };
            // SAFETY: likewise.
            let next = unsafe { self.x.offset(cursor.offsets[1]) };
            let last = item + 1 == items.end;
            // SAFETY: rows of `hidden` elements start there, dense, as does the weight; rows of one output lie apart
            // from other rows of the input.
            factor = unsafe {
                if last {
                    self.row::<S, false>(s, x, out, factor, next)
                } else {
                    self.row::<S, true>(s, x, out, factor, next)
                }
            };
        }
        if self.stream {
            s.fence();
        }
    }
}

impl<E: Element, W: Element, const OFFSET: bool> RmsNorm<E, W, OFFSET> {
    /// Writes a row. With `NEXT` it reads the next one meanwhile, so that memory is read and written at once, and gives
    /// its factor.
    ///
    /// # Safety
    /// `hidden` elements are readable at `x` and `next` and writable at `out`; `out` is `x` or apart from it, and apart
    /// from `next`.
    #[inline(always)]
    unsafe fn row<S: Simd, const NEXT: bool>(
        &self,
        s: S,
        x: *const E,
        out: *mut E,
        factor: f32,
        next: *const E,
    ) -> f32 {
        let (lanes, hidden) = (S::LANES, self.hidden);
        let (pair, offset, factor) = (2 * lanes, s.splat(self.offset), s.splat(factor));
        let scaled = |value, weight| {
            let weight = if OFFSET { s.add(weight, offset) } else { weight };
            s.mul(s.mul(value, factor), weight)
        };
        // Where rows stand at one distance, the row behind the next one; else whatever is there, which costs no more.
        let beyond = next.wrapping_byte_add(next.addr().wrapping_sub(x.addr()));
        let mut squares = [s.splat(0.0); 4];
        // `i` is the place in this row, `j` that in the next one, whose squares are summed in the order of `factor`.
        let (mut i, mut j) = (0, 0);
        let mut end = head::<S, E>(self.stream, out, hidden);
        loop {
            while i < end {
                let count = lanes.min(end - i);
                // SAFETY: `count` elements stand at `i`.
                let value = unsafe { load(s, x.add(i), count) };
                // SAFETY: likewise.
                let weight = unsafe { load(s, self.weight.add(i), count) };
                // SAFETY: likewise.
                unsafe { store(s, out.add(i), scaled(value, weight), count) };
                i += count;
            }
            while i + 2 * pair <= hidden {
                if NEXT {
                    if self.ahead {
                        prefetch_pair::<S, E>(beyond, j);
                        prefetch_pair::<S, E>(beyond, j + pair);
                    }
                    // SAFETY: `j <= i`, so `j + 4 * LANES <= hidden`.
                    square(s, &mut squares, unsafe { [E::load2(s, next.add(j)), E::load2(s, next.add(j + pair))] });
                    j += 2 * pair;
                }
                for i in [i, i + pair] {
                    // SAFETY: `i + 2 * LANES <= hidden`.
                    let values = unsafe { load2_as::<S, E, W>(s, x.add(i)) };
                    // SAFETY: likewise.
                    let weights = unsafe { W::load2(s, self.weight.add(i)) };
                    let values = [scaled(values[0], weights[0]), scaled(values[1], weights[1])];
                    // SAFETY: likewise; where it streams, whole vectors begin behind the head, and so does every step.
                    unsafe { store2_as::<S, E, W>(s, out.add(i), values, self.stream) };
                }
                i += 2 * pair;
            }
            if i == hidden {
                break;
            }
            end = hidden;
        }
        if !NEXT {
            return 0.0;
        }
        while j < hidden {
            if j + 2 * pair <= hidden {
                // SAFETY: `j + 4 * LANES <= hidden`.
                square(s, &mut squares, unsafe { [E::load2(s, next.add(j)), E::load2(s, next.add(j + pair))] });
                j += 2 * pair;
            } else {
                let count = lanes.min(hidden - j);
                // SAFETY: `count` elements stand at `j`.
                let value = unsafe { load(s, next.add(j), count) };
                squares[0] = s.fma(value, value, squares[0]);
                j += lanes;
            }
        }
        // SAFETY: by this function's contract.
        unsafe { finish(s, squares, next, hidden, self.eps) }
    }
}
