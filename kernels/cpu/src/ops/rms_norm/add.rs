//! The addition of a residual and the norm of the sum, in one pass over memory.

#![expect(unsafe_code, reason = "reads and writes rows by pointer")]
#![expect(clippy::inline_always, reason = "generic SIMD code must be inlined into the function compiled for its level")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "an access and the pointer arithmetic to it share a note")]

use core::mem::MaybeUninit;
use core::ops::Range;

use half::{bf16, f16};

use super::factor::{finish, square};
use super::{expect_row, expect_weight};
use crate::call::{Args, DType, Failed, Job, RowMap, Tensor, launch};
use crate::ops::rows::{head, prefetch_pair, streams};
use crate::simd::{Element, Simd, load, load2_as, store, store2_as};

/// Longest row that streams, in bytes: it waits on the stack between its two passes.
const MAX_ROW: usize = 32 << 10;

/// A row on the stack.
#[repr(align(64))]
struct Row(MaybeUninit<[u8; MAX_ROW]>);

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
    /// Whether outputs bypass the cache.
    stream: bool,
    /// Whether to ask for the next row while this one is written.
    ahead: bool,
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
    let bytes = 4 * x.len() * size_of::<E>();
    let apart = [out, sum].iter().all(|output| !output.same_view(x) && !output.same_view(residual));
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
        stream: streams(bytes) && apart && x.last() * size_of::<E>() <= MAX_ROW,
        ahead: streams(bytes),
    };
    // About 50 bytes per nanosecond from the nearer caches.
    launch(function, &job, job.rows.len(), bytes as u64 / 50)
}

// SAFETY: rows are independent, outputs lie apart (`expect_writable`), inputs are only read or are the row's own
// output.
unsafe impl<E: Element, W: Element> Job for AddRmsNorm<E, W> {
    #[inline(always)]
    fn run<S: Simd>(&self, s: S, items: Range<usize>) {
        let mut row = Row(MaybeUninit::uninit());
        let row = row.0.as_mut_ptr().cast::<E>();
        let mut cursor = self.rows.cursor(items.start);
        for _ in items {
            let [out, sum, x, residual] = cursor.offsets;
            cursor.advance();
            let [_, _, next_x, next_residual] = cursor.offsets;
            // SAFETY: the row's offset lies inside the checked tensor.
            let out = unsafe { self.out.offset(out) };
            // SAFETY: likewise.
            let sum = unsafe { self.sum.offset(sum) };
            // SAFETY: likewise.
            let x = unsafe { self.x.offset(x) };
            // SAFETY: likewise.
            let residual = unsafe { self.residual.offset(residual) };
            // SAFETY: likewise; behind the last row the first one comes again.
            let next = unsafe { [self.x.offset(next_x), self.residual.offset(next_residual)] };
            // What bypasses the cache can't be read again from it: such a row waits in one of its own.
            let kept = if self.stream { row } else { sum };
            // SAFETY: rows of `hidden` elements start there, dense; a row of the stack has room for one that streams.
            let factor = unsafe { self.add(s, x, residual, kept) };
            // SAFETY: likewise, as does the weight; the row was written.
            unsafe { self.scale(s, kept, factor, out, sum, next) };
        }
        if self.stream {
            s.fence();
        }
    }
}

impl<E: Element, W: Element> AddRmsNorm<E, W> {
    /// Writes the sum, rounded, and gives the factor of what was written, to the bits of the norm by itself.
    ///
    /// # Safety
    /// `hidden` elements are readable at `x` and `residual` and writable at `sum`, which is one of them or apart.
    #[inline(always)]
    unsafe fn add<S: Simd>(&self, s: S, x: *const E, residual: *const E, sum: *mut E) -> f32 {
        let (lanes, hidden) = (S::LANES, self.hidden);
        let mut squares = [s.splat(0.0); 4];
        let mut i = 0;
        while i + 4 * lanes <= hidden {
            let mut sums = [[s.splat(0.0); 2]; 2];
            for (j, written) in sums.iter_mut().enumerate() {
                let at = i + 2 * j * lanes;
                // SAFETY: `i + 4 * LANES <= hidden`.
                let [a, b] = unsafe { E::load2(s, x.add(at)) };
                // SAFETY: likewise.
                let [c, d] = unsafe { E::load2(s, residual.add(at)) };
                // SAFETY: likewise.
                unsafe { E::store2(s, sum.add(at), [s.add(a, c), s.add(b, d)]) };
                // SAFETY: likewise; just written.
                *written = unsafe { E::load2(s, sum.add(at)) };
            }
            square(s, &mut squares, sums);
            i += 4 * lanes;
        }
        while i < hidden {
            let count = lanes.min(hidden - i);
            // SAFETY: `count` elements stand at `i`.
            let left = unsafe { load(s, x.add(i), count) };
            // SAFETY: likewise.
            let right = unsafe { load(s, residual.add(i), count) };
            // SAFETY: likewise.
            unsafe { store(s, sum.add(i), s.add(left, right), count) };
            // SAFETY: likewise; just written.
            let written = unsafe { load(s, sum.add(i), count) };
            squares[0] = s.fma(written, written, squares[0]);
            i += lanes;
        }
        // SAFETY: the row was written.
        unsafe { finish(s, squares, sum.cast_const(), hidden, self.eps) }
    }

    /// Writes the norm, and, where that streams, the sum too.
    ///
    /// # Safety
    /// `hidden` elements are readable at `kept` and the weight and writable at `out` and `sum`; `out` lies apart, and
    /// `sum` too where it is not `kept`.
    #[inline(always)]
    unsafe fn scale<S: Simd>(&self, s: S, kept: *const E, factor: f32, out: *mut E, sum: *mut E, next: [*const E; 2]) {
        let (pair, hidden) = (2 * S::LANES, self.hidden);
        let (factor, offset) = (s.splat(factor), s.splat(self.offset));
        let scaled = |value, weight| s.mul(s.mul(value, factor), s.add(weight, offset));
        // Both outputs stream where their vectors begin at the same elements.
        let start = head::<S, E>(self.stream, out, hidden);
        let stream = self.stream && start == head::<S, E>(self.stream, sum, hidden);
        let mut i = 0;
        let mut end = if stream { start } else { 0 };
        loop {
            while i < end {
                let count = S::LANES.min(end - i);
                // SAFETY: `count` elements stand at `i`.
                let value = unsafe { load(s, kept.add(i), count) };
                // SAFETY: likewise.
                let weight = unsafe { load(s, self.weight.add(i), count) };
                if self.stream {
                    // SAFETY: likewise.
                    unsafe { store(s, sum.add(i), value, count) };
                }
                // SAFETY: likewise.
                unsafe { store(s, out.add(i), scaled(value, weight), count) };
                i += count;
            }
            while i + pair <= hidden {
                if self.ahead {
                    for row in next {
                        prefetch_pair::<S, E>(row, i);
                    }
                }
                // SAFETY: `i + 2 * LANES <= hidden`.
                let values = unsafe { load2_as::<S, E, W>(s, kept.add(i)) };
                // SAFETY: likewise.
                let [v, w] = unsafe { W::load2(s, self.weight.add(i)) };
                if self.stream {
                    // SAFETY: likewise; where it streams, whole vectors begin behind the head, and so does every step.
                    unsafe { store2_as::<S, E, W>(s, sum.add(i), values, stream) };
                }
                let norm = [scaled(values[0], v), scaled(values[1], w)];
                // SAFETY: likewise.
                unsafe { store2_as::<S, E, W>(s, out.add(i), norm, stream) };
                i += pair;
            }
            if i == hidden {
                return;
            }
            end = hidden;
        }
    }
}
