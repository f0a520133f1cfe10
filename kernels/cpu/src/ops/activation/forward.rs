//! Activations of rows: of each number, or of the two halves of a row.

#![expect(unsafe_code, reason = "reads and writes rows by pointer")]
#![expect(clippy::inline_always, reason = "generic SIMD code must be inlined into the function compiled for its level")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "an access and the pointer arithmetic to it share a note")]

use core::ops::Range;

use half::{bf16, f16};

use super::function::RowFunction;
use super::{SEGMENT, expect_half};
use crate::call::{Args, DType, Failed, Job, MAX_RANK, RowMap, Tensor, launch};
use crate::ops::rows::{TOGETHER, head, load_wide, store_wide, streams};
use crate::simd::{Element, Simd, Wide, load, store};

struct Activation<E, F> {
    f: F,
    rows: RowMap<2>,
    x: *const E,
    out: *mut E,
    width: usize,
    segments: usize,
    stream: bool,
}

/// Checks the arguments and runs `f`.
pub(super) fn call<F: RowFunction>(function: &'static str, args: &Args<'_>, f: F) -> Result<(), Failed> {
    let mut tensors = [Tensor::EMPTY; 2];
    let [out, x] = args.tensors(&mut tensors)?;
    if F::GATED {
        expect_half(out, x, "as `x` with half its last axis")?;
    } else {
        x.expect_rank(1..=MAX_RANK, "[.., d]")?;
        out.expect_shape(x.shape(), "as `x`")?;
    }
    out.expect_dtype(x.dtype, "as `x`")?;
    out.expect_dense_last()?;
    x.expect_dense_last()?;
    out.expect_writable()?;
    // A gated output is narrower than its input, so that it never is the same view.
    out.expect_same_or_apart(x)?;
    if out.is_empty() {
        return Ok(());
    }
    match x.dtype {
        DType::F32 => run::<f32, F>(function, out, x, f),
        DType::Bf16 => run::<bf16, F>(function, out, x, f),
        DType::F16 => run::<f16, F>(function, out, x, f),
    }
}

fn run<E: Element, F: RowFunction>(function: &'static str, out: &Tensor, x: &Tensor, f: F) -> Result<(), Failed> {
    let width = out.last();
    let bytes = (x.len() + out.len()) * size_of::<E>();
    let rows = RowMap::new([out, x]);
    let segments = width.div_ceil(SEGMENT);
    let (x_data, out_data, stream) = (x.data(), out.data(), streams(bytes) && !out.same_view(x));
    let job = Activation::<E, F> { f, rows, x: x_data, out: out_data, width, segments, stream };
    // About 3 elements per nanosecond.
    launch(function, &job, rows.len() * segments, out.len() as u64 / 3)
}

// SAFETY: items are independent, outputs lie apart (`expect_writable`), inputs are only read or are the item's own
// output.
unsafe impl<E: Element, F: RowFunction> Job for Activation<E, F> {
    #[inline(always)]
    fn run<S: Simd>(&self, s: S, items: Range<usize>) {
        let mut cursor = self.rows.cursor(items.start / self.segments);
        let mut segment = items.start % self.segments;
        for _ in items {
            let [to, from] = cursor.offsets;
            let start = segment * SEGMENT;
            // SAFETY: the row's offset lies inside the checked tensor, and `start < width`.
            let gate = unsafe { self.x.offset(from).add(start) };
            // SAFETY: a row of `x` has `2 * width` elements, where there are halves.
            let up = if F::GATED { unsafe { gate.add(self.width) } } else { gate };
            // SAFETY: as for `gate`.
            let out = unsafe { self.out.offset(to).add(start) };
            // SAFETY: the segment ends within the row.
            unsafe { self.segment(s, gate, up, out, SEGMENT.min(self.width - start)) };
            segment += 1;
            if segment == self.segments {
                segment = 0;
                cursor.advance();
            }
        }
        if self.stream {
            s.fence();
        }
    }
}

impl<E: Element, F: RowFunction> Activation<E, F> {
    /// # Safety
    /// `TOGETHER * LANES` elements are readable at `gate`, and at `up` where gated.
    #[inline(always)]
    unsafe fn values<S: Simd>(&self, s: S, gate: *const E, up: *const E) -> [S::V; TOGETHER] {
        // SAFETY: by this function's contract.
        let g = unsafe { load_wide(s, gate) };
        // SAFETY: likewise.
        let u = if F::GATED { unsafe { load_wide(s, up) } } else { g };
        self.f.value::<E, _>(Wide::<S, TOGETHER>(s), g, u)
    }

    /// # Safety
    /// `count` elements are readable at `gate` and `up` and writable at `out`.
    #[inline(always)]
    unsafe fn segment<S: Simd>(&self, s: S, gate: *const E, up: *const E, out: *mut E, count: usize) {
        let (lanes, step) = (S::LANES, TOGETHER * S::LANES);
        let mut i = 0;
        let mut end = head::<S, E>(self.stream, out, count);
        loop {
            while i < end {
                let part = lanes.min(end - i);
                // SAFETY: `part` elements stand at `i`.
                let g = unsafe { load(s, gate.add(i), part) };
                // SAFETY: likewise.
                let u = if F::GATED { unsafe { load(s, up.add(i), part) } } else { g };
                // SAFETY: likewise.
                unsafe { store(s, out.add(i), self.f.value::<E, S>(s, g, u), part) };
                i += part;
            }
            if i + step <= count {
                // Results are written while the next ones are computed: the conversion then waits for nothing.
                // SAFETY: `step` elements stand at `i`.
                let mut ready = unsafe { self.values(s, gate.add(i), up.add(i)) };
                while i + 2 * step <= count {
                    // SAFETY: another `step` elements stand behind them.
                    let next = unsafe { self.values(s, gate.add(i + step), up.add(i + step)) };
                    // SAFETY: as for `ready`; where it streams, whole vectors begin behind the head, and so does every
                    // step.
                    unsafe { store_wide(s, out.add(i), ready, self.stream, F::ZEROS) };
                    ready = next;
                    i += step;
                }
                // SAFETY: likewise.
                unsafe { store_wide(s, out.add(i), ready, self.stream, F::ZEROS) };
                i += step;
            }
            if i == count {
                return;
            }
            end = count;
        }
    }
}
