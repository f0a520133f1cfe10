//! The gradient of `silu_and_mul`.

#![expect(unsafe_code, reason = "reads and writes rows by pointer")]
#![expect(clippy::inline_always, reason = "generic SIMD code must be inlined into the function compiled for its level")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "an access and the pointer arithmetic to it share a note")]

use core::ops::Range;

use half::{bf16, f16};

use super::{SEGMENT, expect_half};
use crate::call::{Args, DType, Failed, Job, RowMap, Tensor, launch};
use crate::ops::rows::{TOGETHER, load_wide, store_wide};
use crate::simd::{Arithmetic, Element, Simd, Wide, exp_minus, load, store};

struct SiluAndMulBackward<E> {
    rows: RowMap<3>,
    dx: *mut E,
    dy: *const E,
    x: *const E,
    width: usize,
    segments: usize,
}

/// Checks the arguments and runs the kernel.
pub(crate) fn silu_and_mul(function: &'static str, args: &Args<'_>) -> Result<(), Failed> {
    let mut tensors = [Tensor::EMPTY; 3];
    let [dx, dy, x] = args.tensors(&mut tensors)?;
    expect_half(dy, x, "as `x` with half its last axis")?;
    dx.expect_shape(x.shape(), "as `x`")?;
    for tensor in [dx, dy] {
        tensor.expect_dtype(x.dtype, "as `x`")?;
    }
    for tensor in [dx, dy, x] {
        tensor.expect_dense_last()?;
    }
    dx.expect_writable()?;
    dx.expect_apart(dy)?;
    dx.expect_same_or_apart(x)?;
    if dx.is_empty() {
        return Ok(());
    }
    let run = match x.dtype {
        DType::F32 => run::<f32>,
        DType::Bf16 => run::<bf16>,
        DType::F16 => run::<f16>,
    };
    run(function, [dx, dy, x])
}

fn run<E: Element>(function: &'static str, tensors: [&Tensor; 3]) -> Result<(), Failed> {
    let [dx, dy, x] = tensors;
    let width = dy.last();
    let segments = width.div_ceil(SEGMENT);
    let rows = RowMap::new(tensors);
    let job = SiluAndMulBackward::<E> { rows, dx: dx.data(), dy: dy.data(), x: x.data(), width, segments };
    // About 2 elements of `dy` per nanosecond.
    launch(function, &job, rows.len() * segments, dy.len() as u64 / 2)
}

// SAFETY: items are independent, outputs lie apart (`expect_writable`), inputs are only read or are the item's own
// output.
unsafe impl<E: Element> Job for SiluAndMulBackward<E> {
    #[inline(always)]
    fn run<S: Simd>(&self, s: S, items: Range<usize>) {
        let mut cursor = self.rows.cursor(items.start / self.segments);
        let mut segment = items.start % self.segments;
        for _ in items {
            let [to, from, x] = cursor.offsets;
            let start = segment * SEGMENT;
            // SAFETY: the row's offset lies inside the checked tensor, and `start < width`.
            let dx = unsafe { self.dx.offset(to).add(start) };
            // SAFETY: likewise.
            let dy = unsafe { self.dy.offset(from).add(start) };
            // SAFETY: likewise.
            let x = unsafe { self.x.offset(x).add(start) };
            // SAFETY: the segment ends within each half of the row.
            unsafe { self.segment(s, dx, dy, x, SEGMENT.min(self.width - start)) };
            segment += 1;
            if segment == self.segments {
                segment = 0;
                cursor.advance();
            }
        }
    }
}

impl<E: Element> SiluAndMulBackward<E> {
    /// # Safety
    /// `count` elements are readable at `dy`, at `x` and `width` behind it, and writable at `dx` and `width` behind it.
    #[inline(always)]
    unsafe fn segment<S: Simd>(&self, s: S, dx: *mut E, dy: *const E, x: *const E, count: usize) {
        let (width, step) = (self.width, TOGETHER * S::LANES);
        let mut i = 0;
        while i + step <= count {
            // SAFETY: `TOGETHER` vectors stand at `i`.
            let gradient = unsafe { load_wide(s, dy.add(i)) };
            // SAFETY: likewise.
            let gate = unsafe { load_wide(s, x.add(i)) };
            // SAFETY: likewise.
            let up = unsafe { load_wide(s, x.add(width + i)) };
            let wide = Wide::<S, TOGETHER>(s);
            let (value, slope) = silu_with_slope(wide, gate);
            // In this order, since the slope is at most about 1: the product of the other two may leave f32.
            let (of_gate, of_up) = (wide.mul(wide.mul(up, slope), gradient), wide.mul(gradient, value));
            // SAFETY: likewise; both halves were read.
            unsafe { store_wide(s, dx.add(i), of_gate, false, false) };
            // SAFETY: likewise.
            unsafe { store_wide(s, dx.add(width + i), of_up, false, false) };
            i += step;
        }
        while i < count {
            let part = S::LANES.min(count - i);
            // SAFETY: `part` elements stand at `i`.
            let gradient = unsafe { load(s, dy.add(i), part) };
            // SAFETY: likewise.
            let gate = unsafe { load(s, x.add(i), part) };
            // SAFETY: likewise.
            let up = unsafe { load(s, x.add(width + i), part) };
            let (value, slope) = silu_with_slope(s, gate);
            // SAFETY: likewise.
            unsafe { store(s, dx.add(i), s.mul(s.mul(up, slope), gradient), part) };
            // SAFETY: likewise.
            unsafe { store(s, dx.add(width + i), s.mul(gradient, value), part) };
            i += S::LANES;
        }
    }
}

/// `x sigmoid(x)` and its slope `sigmoid(x) (1 + x (1 - sigmoid(x)))`; the two sigmoids of `x` and `-x` are computed
/// each for itself, since a difference from 1 would lose the lesser one's digits.
#[inline(always)]
fn silu_with_slope<A: Arithmetic>(s: A, x: A::V) -> (A::V, A::V) {
    let one = s.splat(1.0);
    // For any type to the last bits, which the slope loses near its zero.
    let decay = exp_minus(s, s.abs(x));
    let reciprocal = s.divide(one, s.add(one, decay));
    let sigmoid = s.mul(s.where_negative(x, decay, one), reciprocal);
    let other = s.mul(s.where_negative(x, one, decay), reciprocal);
    (s.mul(x, sigmoid), s.mul(sigmoid, s.fma(x, other, one)))
}
