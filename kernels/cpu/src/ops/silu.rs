//! The gated activation `SiLU`: `silu(gate) * up`.

#![expect(unsafe_code, reason = "reads and writes rows by pointer")]
#![expect(clippy::inline_always, reason = "generic SIMD code must be inlined into the function compiled for its level")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "an access and the pointer arithmetic to it share a note")]

use core::ops::Range;

use half::{bf16, f16};

use super::STREAM_BYTES;
use crate::call::{Args, DType, Failed, Job, MAX_RANK, RowMap, Tensor, launch};
use crate::simd::{Element, Simd, exp};

/// Longest part of a row that is one item of work, in elements. A multiple of every vector.
const SEGMENT: usize = 8192;

struct SiluAndMul<E> {
    rows: RowMap<2>,
    x: *const E,
    out: *mut E,
    width: usize,
    segments: usize,
    stream: bool,
}

/// Checks the arguments and runs the kernel.
pub(crate) fn call(function: &'static str, args: &Args<'_>) -> Result<(), Failed> {
    let mut tensors = [Tensor::EMPTY; 2];
    let [out, x] = args.tensors(&mut tensors)?;
    x.expect_rank(1..=MAX_RANK, "[.., 2 * d]")?;
    let double = x.last();
    if !double.is_multiple_of(2) {
        return Err(x.invalid(format_args!("expected an even extent in the last axis, 2 * d, got {double}")));
    }
    let mut expected = [0; MAX_RANK];
    let expected = &mut expected[..x.shape().len()];
    expected.copy_from_slice(x.shape());
    if let Some(last) = expected.last_mut() {
        *last = double / 2;
    }
    out.expect_shape(expected, "as `x` with half its last axis")?;
    out.expect_dtype(x.dtype, "as `x`")?;
    out.expect_dense_last()?;
    x.expect_dense_last()?;
    out.expect_writable()?;
    out.expect_apart(x)?;
    if out.is_empty() {
        return Ok(());
    }
    match x.dtype {
        DType::F32 => run::<f32>(function, out, x),
        DType::Bf16 => run::<bf16>(function, out, x),
        DType::F16 => run::<f16>(function, out, x),
    }
}

fn run<E: Element>(function: &'static str, out: &Tensor, x: &Tensor) -> Result<(), Failed> {
    let width = out.last();
    let bytes = (x.len() + out.len()) * size_of::<E>();
    let rows = RowMap::new([out, x]);
    let segments = width.div_ceil(SEGMENT);
    let job = SiluAndMul::<E> { rows, x: x.data(), out: out.data(), width, segments, stream: bytes >= STREAM_BYTES };
    // About 3 elements per nanosecond.
    launch(function, &job, rows.len() * segments, out.len() as u64 / 3)
}

// SAFETY: items are independent, outputs lie apart (`expect_writable`), inputs are only read.
unsafe impl<E: Element> Job for SiluAndMul<E> {
    #[inline(always)]
    fn run<S: Simd>(&self, s: S, items: Range<usize>) {
        let mut cursor = self.rows.cursor(items.start / self.segments);
        let mut segment = items.start % self.segments;
        for _ in items {
            let [to, from] = cursor.offsets;
            let start = segment * SEGMENT;
            // SAFETY: the row's offset lies inside the checked tensor, and `start < width`.
            let gate = unsafe { self.x.offset(from).add(start) };
            // SAFETY: a row of `x` has `2 * width` elements.
            let up = unsafe { gate.add(self.width) };
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

impl<E: Element> SiluAndMul<E> {
    /// # Safety
    /// `count` elements are readable at `gate` and `up` and writable at `out`.
    #[inline(always)]
    unsafe fn segment<S: Simd>(&self, s: S, gate: *const E, up: *const E, out: *mut E, count: usize) {
        let lanes = S::LANES;
        let whole = count - count % lanes;
        let stream = self.stream && out.addr().is_multiple_of(lanes * size_of::<E>());
        let mut i = 0;
        while i < whole {
            // SAFETY: `i + LANES <= count`.
            let g = unsafe { E::load(s, gate.add(i)) };
            // SAFETY: `i + LANES <= count`.
            let u = unsafe { E::load(s, up.add(i)) };
            let value = s.mul(silu(s, g), u);
            if stream {
                // SAFETY: `i + LANES <= count`; the start is aligned to whole vectors, and so is every step.
                unsafe { E::stream(s, out.add(i), value) };
            } else {
                // SAFETY: `i + LANES <= count`.
                unsafe { E::store(s, out.add(i), value) };
            }
            i += lanes;
        }
        let rest = count - whole;
        if rest > 0 {
            // SAFETY: `rest` elements stand at `whole`.
            let g = unsafe { E::load_part(s, gate.add(whole), rest) };
            // SAFETY: likewise.
            let u = unsafe { E::load_part(s, up.add(whole), rest) };
            // SAFETY: likewise.
            unsafe { E::store_part(s, out.add(whole), s.mul(silu(s, g), u), rest) };
        }
    }
}

/// `x / (1 + e^-x)`, computed with `e^-|x|`, which cannot overflow: for large negative `x` the other form gives 0
/// where the result is still a normal number.
#[inline(always)]
fn silu<S: Simd>(s: S, x: S::V) -> S::V {
    let decay = exp(s, s.sub(s.splat(0.0), s.abs(x)));
    let one = s.splat(1.0);
    let numerator = s.mul(x, s.where_negative(x, decay, one));
    s.mul(numerator, s.reciprocal(s.add(one, decay)))
}
