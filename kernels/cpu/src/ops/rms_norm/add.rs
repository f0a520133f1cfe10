//! The addition of a residual and the norm of the sum, in one pass over memory.

#![expect(unsafe_code, reason = "reads and writes rows by pointer")]
#![expect(clippy::inline_always, reason = "generic SIMD code must be inlined into the function compiled for its level")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "an access and the pointer arithmetic to it share a note")]

use core::mem::MaybeUninit;
use core::ops::Range;

use half::{bf16, f16};

use super::factor::{Row, factor, squares};
use super::{expect_row, expect_weight};
use crate::call::{Args, DType, Failed, Job, RowMap, Tensor, launch};
use crate::ops::blocks::{self, Plan, Rows};
use crate::ops::rows::{head, prefetch_pair, streams};
use crate::simd::{Element, Simd, load, load2_as, store, store2_as};

/// Longest row that streams, in bytes: it waits on the stack between its two passes.
const MAX_ROW: usize = 32 << 10;

/// Two rows on the stack: one that is written, and the next.
#[repr(align(64))]
struct Kept(MaybeUninit<[[u8; MAX_ROW]; 2]>);

/// With `STREAM`, outputs bypass the cache.
struct AddRmsNorm<E, W, const STREAM: bool> {
    rows: RowMap<4>,
    out: *mut E,
    sum: *mut E,
    x: *const E,
    residual: *const E,
    weight: *const W,
    hidden: usize,
    eps: f64,
    offset: f32,
    plan: Plan,
}

/// A job with the place of rows that stream.
struct Running<'a, E, W, const STREAM: bool> {
    job: &'a AddRmsNorm<E, W, STREAM>,
    kept: *mut [u8; MAX_ROW],
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
    let plan = Plan::new::<E>(x.last(), streams(bytes));
    if streams(bytes) && apart && x.last() * size_of::<E>() <= MAX_ROW {
        // Of what streams, one row of each of two blocks has a place.
        launched::<E, W, true>(function, tensors, weight, eps, offset, plan.by_row(), bytes)
    } else {
        launched::<E, W, false>(function, tensors, weight, eps, offset, plan, bytes)
    }
}

fn launched<E: Element, W: Element, const STREAM: bool>(
    function: &'static str,
    tensors: [&Tensor; 4],
    weight: &Tensor,
    eps: f64,
    offset: f32,
    plan: Plan,
    bytes: usize,
) -> Result<(), Failed> {
    let [out, sum, x, residual] = tensors;
    let job = AddRmsNorm::<E, W, STREAM> {
        rows: RowMap::new(tensors),
        out: out.data(),
        sum: sum.data(),
        x: x.data(),
        residual: residual.data(),
        weight: weight.data(),
        hidden: x.last(),
        eps,
        offset,
        plan,
    };
    // About 50 bytes per nanosecond from the nearer caches.
    launch(function, &job, job.rows.len(), bytes as u64 / 50)
}

// SAFETY: rows are independent, outputs lie apart (`expect_writable`), inputs are only read or are the row's own
// output.
unsafe impl<E: Element, W: Element, const STREAM: bool> Job for AddRmsNorm<E, W, STREAM> {
    #[inline(always)]
    fn run<S: Simd>(&self, s: S, items: Range<usize>) {
        if STREAM {
            let mut kept = Kept(MaybeUninit::uninit());
            let running = Running { job: self, kept: kept.0.as_mut_ptr().cast() };
            // SAFETY: see above.
            unsafe { blocks::run(s, &running, &self.rows, items, self.plan) };
            s.fence();
        } else {
            let running = Running { job: self, kept: core::ptr::null_mut() };
            // SAFETY: see above.
            unsafe { blocks::run(s, &running, &self.rows, items, self.plan) };
        }
    }
}

impl<E: Element, W: Element, const STREAM: bool> Rows<4, 1> for Running<'_, E, W, STREAM> {
    type Whole = f32;

    #[inline(always)]
    unsafe fn read<S: Simd>(&self, s: S, [_, sum, x, residual]: [isize; 4], turn: usize) -> [S::V; 1] {
        let job = self.job;
        // SAFETY: the row's offset lies inside the checked tensor.
        let x = unsafe { job.x.offset(x) };
        // SAFETY: likewise.
        let residual = unsafe { job.residual.offset(residual) };
        // SAFETY: likewise.
        let sum = unsafe { self.kept(sum, turn) };
        // The squares are those of what is written, so that the norm is that of the sum by itself, to the bit.
        // SAFETY: rows of `hidden` elements start there, dense; a kept row has room for one that streams.
        unsafe { [squares(s, &Added { x, residual, sum }, job.hidden)] }
    }

    #[inline(always)]
    unsafe fn whole<S: Simd>(&self, _: S, [_, sum, ..]: [isize; 4], [squares]: [f32; 1], turn: usize) -> f32 {
        // SAFETY: the row was written.
        unsafe { factor::<S, E>(squares, self.kept(sum, turn), self.job.hidden, self.job.eps) }
    }

    #[inline(always)]
    unsafe fn write<S: Simd, const N: usize>(
        &self,
        s: S,
        rows: [[isize; 4]; N],
        factors: [f32; N],
        later: [[isize; 4]; N],
        turn: usize,
    ) {
        let job = self.job;
        // SAFETY: the row's offset lies inside the checked tensor.
        let kept = rows.map(|[_, sum, ..]| unsafe { self.kept(sum, turn) }.cast_const());
        // SAFETY: likewise.
        let out = rows.map(|[out, ..]| unsafe { job.out.offset(out) });
        // SAFETY: likewise.
        let sum = rows.map(|[_, sum, ..]| unsafe { job.sum.offset(sum) });
        let later = later.map(|[.., x, residual]| [job.x.wrapping_offset(x), job.residual.wrapping_offset(residual)]);
        // SAFETY: rows of `hidden` elements start there, dense; those kept were written.
        unsafe { job.scale(s, kept, factors, out, sum, later) };
    }
}

impl<E: Element, W: Element, const STREAM: bool> Running<'_, E, W, STREAM> {
    /// Where a row's sum is read again: what bypasses the cache can't be read from it, so such a row waits in a place of
    /// its own.
    ///
    /// # Safety
    /// `sum` is the offset of a row.
    #[inline(always)]
    unsafe fn kept(&self, sum: isize, turn: usize) -> *mut E {
        if STREAM {
            // SAFETY: there are two places.
            unsafe { self.kept.add(turn).cast() }
        } else {
            // SAFETY: by this function's contract.
            unsafe { self.job.sum.offset(sum) }
        }
    }
}

/// A row of sums, which is written as it is summed.
struct Added<E> {
    x: *const E,
    residual: *const E,
    sum: *mut E,
}

impl<E: Element> Row for Added<E> {
    #[inline(always)]
    unsafe fn pair<S: Simd>(&self, s: S, i: usize, sums: &mut [S::V; 4], step: usize) {
        // SAFETY: by this function's contract.
        let [a, b] = unsafe { E::load2(s, self.x.add(i)) };
        // SAFETY: likewise.
        let [c, d] = unsafe { E::load2(s, self.residual.add(i)) };
        // SAFETY: likewise.
        unsafe { E::store_square2(s, self.sum.add(i), [s.add(a, c), s.add(b, d)], sums, step) };
    }
    #[inline(always)]
    unsafe fn rest<S: Simd>(&self, s: S, i: usize, count: usize) -> S::V {
        // SAFETY: by this function's contract.
        let left = unsafe { load(s, self.x.add(i), count) };
        // SAFETY: likewise.
        let right = unsafe { load(s, self.residual.add(i), count) };
        // SAFETY: likewise.
        unsafe { store(s, self.sum.add(i), s.add(left, right), count) };
        // SAFETY: likewise; just written.
        unsafe { load(s, self.sum.add(i), count) }
    }
}

impl<E: Element, W: Element, const STREAM: bool> AddRmsNorm<E, W, STREAM> {
    /// Writes the norms, and, where that streams, the sums too.
    ///
    /// # Safety
    /// `hidden` elements are readable at each `kept` and the weight and writable at each `out` and `sum`; `out` lies
    /// apart, and `sum` too where it is not `kept`.
    #[inline(always)]
    unsafe fn scale<S: Simd, const N: usize>(
        &self,
        s: S,
        kept: [*const E; N],
        factors: [f32; N],
        out: [*mut E; N],
        sum: [*mut E; N],
        later: [[*const E; 2]; N],
    ) {
        let (pair, hidden, offset) = (2 * S::LANES, self.hidden, s.splat(self.offset));
        let factors = factors.map(|factor| s.splat(factor));
        // Both outputs stream where their vectors begin at the same elements.
        let start = head::<S, E>(STREAM, out[0], hidden);
        let stream = STREAM && start == head::<S, E>(STREAM, sum[0], hidden);
        let mut i = 0;
        let mut end = if stream { start } else { 0 };
        loop {
            while i < end {
                let count = S::LANES.min(end - i);
                // SAFETY: `count` elements stand at `i`.
                let weight = s.add(unsafe { load(s, self.weight.add(i), count) }, offset);
                for r in 0..N {
                    // SAFETY: likewise.
                    let value = unsafe { load(s, kept[r].add(i), count) };
                    if STREAM {
                        // SAFETY: likewise.
                        unsafe { store(s, sum[r].add(i), value, count) };
                    }
                    // SAFETY: likewise.
                    unsafe { store(s, out[r].add(i), s.mul(s.mul(value, factors[r]), weight), count) };
                }
                i += count;
            }
            while i + pair <= hidden {
                // SAFETY: `i + 2 * LANES <= hidden`.
                let [v, w] = unsafe { W::load2(s, self.weight.add(i)) };
                let (v, w) = (s.add(v, offset), s.add(w, offset));
                for r in 0..N {
                    if self.plan.asks {
                        for row in later[r] {
                            prefetch_pair::<S, E>(row, i);
                        }
                    }
                    // SAFETY: likewise.
                    let values = unsafe { load2_as::<S, E, W>(s, kept[r].add(i)) };
                    if STREAM {
                        // SAFETY: likewise; where it streams, whole vectors begin behind the head, and so does every step.
                        unsafe { store2_as::<S, E, W>(s, sum[r].add(i), values, stream) };
                    }
                    let norm = [s.mul(s.mul(values[0], factors[r]), v), s.mul(s.mul(values[1], factors[r]), w)];
                    // SAFETY: likewise.
                    unsafe { store2_as::<S, E, W>(s, out[r].add(i), norm, stream) };
                }
                i += pair;
            }
            if i == hidden {
                return;
            }
            end = hidden;
        }
    }
}
