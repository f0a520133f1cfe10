//! Rows divided by their root mean square.

#![expect(unsafe_code, reason = "reads and writes rows by pointer")]
#![expect(clippy::inline_always, reason = "generic SIMD code must be inlined into the function compiled for its level")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "an access and the pointer arithmetic to it share a note")]

use core::ops::Range;

use half::{bf16, f16};

use super::factor::{Read, factor, squares};
use super::{expect_row, expect_weight};
use crate::call::{Args, DType, Failed, Job, RowMap, Tensor, launch};
use crate::ops::blocks::{self, Plan, Rows};
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
    plan: Plan,
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
        plan: Plan::new::<E>(x.last(), streams(bytes)),
    };
    // About 50 bytes per nanosecond from the nearer caches.
    launch(function, &job, job.rows.len(), bytes as u64 / 50)
}

// SAFETY: rows are independent, outputs lie apart (`expect_writable`), inputs are only read or are the row's own
// output.
unsafe impl<E: Element, W: Element, const OFFSET: bool> Job for RmsNorm<E, W, OFFSET> {
    #[inline(always)]
    fn run<S: Simd>(&self, s: S, items: Range<usize>) {
        if E::IS_F32 && self.plan.reads_ahead() && !self.stream {
            // SAFETY: see above.
            unsafe { self.interleaved(s, items) };
        } else {
            // SAFETY: likewise.
            unsafe { blocks::run(s, self, &self.rows, items, self.plan) };
        }
        if self.stream {
            s.fence();
        }
    }
}

impl<E: Element, W: Element, const OFFSET: bool> Rows<2, 1> for RmsNorm<E, W, OFFSET> {
    type Whole = f32;

    #[inline(always)]
    unsafe fn read<S: Simd>(&self, s: S, [_, from]: [isize; 2], _: usize) -> [S::V; 1] {
        // SAFETY: the row's offset lies inside the checked tensor, and a row of `hidden` elements starts there, dense.
        unsafe { [squares(s, &Read(self.x.offset(from)), self.hidden)] }
    }

    #[inline(always)]
    unsafe fn whole<S: Simd>(&self, _: S, [_, from]: [isize; 2], [sum]: [f32; 1], _: usize) -> f32 {
        // SAFETY: likewise.
        unsafe { factor::<S, E>(sum, self.x.offset(from), self.hidden, self.eps) }
    }

    #[inline(always)]
    unsafe fn write<S: Simd, const N: usize>(
        &self,
        s: S,
        rows: [[isize; 2]; N],
        factors: [f32; N],
        later: [[isize; 2]; N],
        _: usize,
    ) {
        // SAFETY: the row's offset lies inside the checked tensor.
        let x = rows.map(|[_, from]| unsafe { self.x.offset(from) });
        // SAFETY: likewise.
        let out = rows.map(|[to, _]| unsafe { self.out.offset(to) });
        let later = later.map(|[_, from]| self.x.wrapping_offset(from));
        let heads = out.map(|out| head::<S, E>(self.stream, out, self.hidden));
        if heads.iter().all(|head| *head == heads[0]) {
            // SAFETY: rows of `hidden` elements start there, dense.
            unsafe { self.scale(s, x, out, factors, later) };
        } else {
            for r in 0..N {
                // SAFETY: likewise.
                unsafe { self.scale(s, [x[r]], [out[r]], [factors[r]], [later[r]]) };
            }
        }
    }
}

impl<E: Element, W: Element, const OFFSET: bool> RmsNorm<E, W, OFFSET> {
    /// Writes rows that stream, if they do, from the same element on.
    ///
    /// # Safety
    /// `hidden` elements are readable at each `x` and writable at each `out`, which is its `x` or apart from all.
    #[inline(always)]
    unsafe fn scale<S: Simd, const N: usize>(
        &self,
        s: S,
        x: [*const E; N],
        out: [*mut E; N],
        factors: [f32; N],
        later: [*const E; N],
    ) {
        let (pair, hidden, offset) = (2 * S::LANES, self.hidden, s.splat(self.offset));
        let factors = factors.map(|factor| s.splat(factor));
        let mut i = 0;
        let mut end = head::<S, E>(self.stream, out[0], hidden);
        loop {
            while i < end {
                let count = S::LANES.min(end - i);
                // SAFETY: `count` elements stand at `i`.
                let mut weight = unsafe { load(s, self.weight.add(i), count) };
                if OFFSET {
                    weight = s.add(weight, offset);
                }
                for r in 0..N {
                    // SAFETY: likewise.
                    let value = unsafe { load(s, x[r].add(i), count) };
                    // SAFETY: likewise.
                    unsafe { store(s, out[r].add(i), s.mul(s.mul(value, factors[r]), weight), count) };
                }
                i += count;
            }
            while i + pair <= hidden {
                // SAFETY: `i + 2 * LANES <= hidden`.
                let [mut v, mut w] = unsafe { W::load2(s, self.weight.add(i)) };
                if OFFSET {
                    (v, w) = (s.add(v, offset), s.add(w, offset));
                }
                for r in 0..N {
                    if self.plan.asks {
                        prefetch_pair::<S, E>(later[r], i);
                    }
                    // SAFETY: likewise.
                    let [a, b] = unsafe { load2_as::<S, E, W>(s, x[r].add(i)) };
                    let values = [s.mul(s.mul(a, factors[r]), v), s.mul(s.mul(b, factors[r]), w)];
                    // SAFETY: likewise; where it streams, whole vectors begin behind the head, and so does every step.
                    unsafe { store2_as::<S, E, W>(s, out[r].add(i), values, self.stream) };
                }
                i += pair;
            }
            if i == hidden {
                return;
            }
            end = hidden;
        }
    }

    /// Short rows of f32, which are computed with faster than a near cache gives them: a row is read while the one before
    /// it is written, so that the cache does both at once.
    ///
    /// # Safety
    /// Rows of one output lie apart from other rows of the input.
    #[inline(always)]
    unsafe fn interleaved<S: Simd>(&self, s: S, items: Range<usize>) {
        let mut cursor = self.rows.cursor(items.start);
        // SAFETY: the cursor is at a row.
        let squares = unsafe { self.read(s, cursor.offsets, 0) };
        let mut factor = self.of_squares(s, cursor.offsets, squares[0]);
        for item in items.clone() {
            let row = cursor.offsets;
            cursor.advance();
            if item + 1 == items.end {
                // SAFETY: the row was read.
                unsafe { self.write(s, [row], [factor], [row], 0) };
            } else {
                // SAFETY: likewise; the cursor is at the next one.
                let squares = unsafe { self.write_and_read(s, row, factor, cursor.offsets[1]) };
                factor = self.of_squares(s, cursor.offsets, squares);
            }
        }
    }

    /// The factor of a row, whose squares are the lanes of `squares`, to the bits of a block.
    #[inline(always)]
    fn of_squares<S: Simd>(&self, s: S, row: [isize; 2], squares: S::V) -> f32 {
        let [sum, ..] = s.sum4([squares, s.splat(0.0), s.splat(0.0), s.splat(0.0)]);
        // SAFETY: the offsets are those of a row.
        unsafe { self.whole(s, row, [sum], 0) }
    }

    /// Writes a row, and gives the squares of the one at `next`, as [`squares`] does.
    ///
    /// # Safety
    /// Both are offsets of rows.
    #[inline(always)]
    unsafe fn write_and_read<S: Simd>(&self, s: S, [to, from]: [isize; 2], factor: f32, next: isize) -> S::V {
        // SAFETY: the row's offset lies inside the checked tensor.
        let (x, next, out) = unsafe { (self.x.offset(from), self.x.offset(next), self.out.offset(to)) };
        let (pair, hidden) = (2 * S::LANES, self.hidden);
        let (factor, offset) = (s.splat(factor), s.splat(self.offset));
        let (mut sums, mut i) = ([s.splat(0.0); 4], 0);
        while i + 2 * pair <= hidden {
            for step in 0..2 {
                let i = i + step * pair;
                // Of four sums, the pairs of f32 go to two by turns.
                // SAFETY: `i + 2 * LANES <= hidden`.
                unsafe { E::square2(s, next.add(i), &mut sums, step) };
                // SAFETY: likewise.
                let [a, b] = unsafe { load2_as::<S, E, W>(s, x.add(i)) };
                // SAFETY: likewise.
                let [mut v, mut w] = unsafe { W::load2(s, self.weight.add(i)) };
                if OFFSET {
                    (v, w) = (s.add(v, offset), s.add(w, offset));
                }
                let values = [s.mul(s.mul(a, factor), v), s.mul(s.mul(b, factor), w)];
                // SAFETY: likewise.
                unsafe { store2_as::<S, E, W>(s, out.add(i), values, false) };
            }
            i += 2 * pair;
        }
        if i + pair <= hidden {
            // SAFETY: `i + 2 * LANES <= hidden`.
            unsafe { E::square2(s, next.add(i), &mut sums, 0) };
        }
        let mut j = hidden - (hidden - i) % pair;
        while j < hidden {
            let count = S::LANES.min(hidden - j);
            // SAFETY: `count` elements stand at `j`.
            let value = unsafe { load(s, next.add(j), count) };
            sums[0] = s.fma(value, value, sums[0]);
            j += count;
        }
        while i < hidden {
            let count = S::LANES.min(hidden - i);
            // SAFETY: `count` elements stand at `i`.
            let mut weight = unsafe { load(s, self.weight.add(i), count) };
            if OFFSET {
                weight = s.add(weight, offset);
            }
            // SAFETY: likewise.
            let value = unsafe { load(s, x.add(i), count) };
            // SAFETY: likewise.
            unsafe { store(s, out.add(i), s.mul(s.mul(value, factor), weight), count) };
            i += count;
        }
        s.add(s.add(sums[0], sums[1]), s.add(sums[2], sums[3]))
    }
}
