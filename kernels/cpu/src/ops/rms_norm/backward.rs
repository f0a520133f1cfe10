//! The gradient of `rms_norm`.
//!
//! Rows are cut into blocks, as many as the shape alone says. Each block sums its part of the weight's gradient, in
//! the order of its rows, in an array on the caller's stack; the arrays are then added in their order. So the result
//! is the same bits on any number of threads, nothing is allocated, and memory is read once. Rows that are longer than
//! that array are gone over once for each part of the weight that fits.

#![expect(unsafe_code, reason = "reads and writes rows by pointer")]
#![expect(clippy::inline_always, reason = "generic SIMD code must be inlined into the function compiled for its level")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "an access and the pointer arithmetic to it share a note")]
#![expect(clippy::cast_possible_truncation, reason = "factors round to f32, in which rows are scaled")]

use core::mem::MaybeUninit;
use core::ops::Range;
use core::ptr::NonNull;

use half::{bf16, f16};

use super::factor::leaves_f32;
use super::{expect_row, expect_weight};
use crate::call::{Args, DType, Failed, Job, RowMap, Tensor, launch};
use crate::simd::{Element, Simd, load, store};

/// f32 of scratch on the caller's stack, for all blocks: 256 KiB.
const SCRATCH: usize = 1 << 16;
/// Most blocks of a call.
const MAX_BLOCKS: usize = 64;
/// Fewest rows of a block, where there are as many.
const MIN_ROWS: usize = 8;
/// Columns of one item of the last addition.
const MERGE: usize = 1024;
/// A multiple of every vector, to which an array's length is rounded up.
const VECTOR: usize = 16;

#[repr(align(64))]
struct Scratch(MaybeUninit<[f32; SCRATCH]>);

/// One pass over all rows; item: a block of rows.
struct Pass<E, W> {
    rows: RowMap<3>,
    dx: *mut E,
    dy: *const E,
    x: *const E,
    weight: *const W,
    hidden: usize,
    eps: f64,
    offset: f32,
    rows_per_block: usize,
    /// The columns of the weight that this pass sums for.
    start: usize,
    count: usize,
    /// From one block's sums to the next's, in elements.
    stride: usize,
    sums: NonNull<f32>,
    /// Whether this pass writes `dx`: only the last one does, since `dx` may be `dy`.
    writes: bool,
}

/// The sum of the blocks' sums; item: [`MERGE`] columns.
struct Merge<W> {
    dweight: *mut W,
    count: usize,
    blocks: usize,
    stride: usize,
    sums: NonNull<f32>,
}

/// Checks the arguments and runs the kernel.
pub(crate) fn call(function: &'static str, args: &Args<'_>) -> Result<(), Failed> {
    let mut tensors = [Tensor::EMPTY; 5];
    let [dx, dweight, dy, x, weight] = args.tensors(&mut tensors)?;
    let eps = args.not_negative(5)?;
    let offset = args.finite_f32(6)?;
    expect_row(x)?;
    for tensor in [dx, dy] {
        tensor.expect_shape(x.shape(), "as `x`")?;
        tensor.expect_dtype(x.dtype, "as `x`")?;
    }
    expect_weight(weight, x)?;
    dweight.expect_shape(weight.shape(), "as `weight`")?;
    dweight.expect_dtype(weight.dtype, "as `weight`")?;
    for tensor in [dx, dweight, dy, x, weight] {
        tensor.expect_dense_last()?;
    }
    dx.expect_writable()?;
    dx.expect_same_or_apart(dy)?;
    dx.expect_same_or_apart(x)?;
    dx.expect_apart(weight)?;
    for tensor in [dx, dy, x, weight] {
        dweight.expect_apart(tensor)?;
    }
    if dweight.is_empty() {
        return Ok(());
    }
    let run = match (x.dtype, weight.dtype) {
        (DType::F32, _) => run::<f32, f32>,
        (DType::Bf16, DType::F32) => run::<bf16, f32>,
        (DType::Bf16, _) => run::<bf16, bf16>,
        (DType::F16, DType::F32) => run::<f16, f32>,
        (DType::F16, _) => run::<f16, f16>,
    };
    run(function, [dx, dy, x], dweight, weight, eps, offset)
}

#[inline(never)]
fn run<E: Element, W: Element>(
    function: &'static str,
    tensors: [&Tensor; 3],
    dweight: &Tensor,
    weight: &Tensor,
    eps: f64,
    offset: f32,
) -> Result<(), Failed> {
    let [dx, dy, x] = tensors;
    let hidden = x.last();
    // No rows leave a gradient of zero: one block without any.
    let rows = if x.is_empty() { 0 } else { x.len() / hidden };
    let stride = hidden.next_multiple_of(VECTOR).min(SCRATCH);
    let most = (SCRATCH / stride).min(MAX_BLOCKS).min(rows / MIN_ROWS).max(1);
    let rows_per_block = rows.div_ceil(most).max(1);
    let blocks = rows.div_ceil(rows_per_block).max(1);
    let mut scratch = Scratch(MaybeUninit::uninit());
    let sums = NonNull::from(&mut scratch.0).cast::<f32>();
    let mut pass = Pass::<E, W> {
        rows: RowMap::new(tensors),
        dx: dx.data(),
        dy: dy.data(),
        x: x.data(),
        weight: weight.data(),
        hidden,
        eps,
        offset,
        rows_per_block,
        start: 0,
        count: 0,
        stride,
        sums,
        writes: false,
    };
    let total = rows * hidden;
    while pass.start < hidden {
        pass.count = stride.min(hidden - pass.start);
        pass.writes = pass.start + pass.count == hidden;
        // About 6 elements per nanosecond.
        launch(function, &pass, blocks, total as u64 / 6)?;
        // SAFETY: inside the weight's gradient, which has `hidden` elements.
        let dweight = unsafe { dweight.data::<W>().add(pass.start) };
        let merge = Merge { dweight, count: pass.count, blocks, stride, sums };
        launch(function, &merge, pass.count.div_ceil(MERGE), (blocks * pass.count) as u64 / 8)?;
        pass.start += pass.count;
    }
    Ok(())
}

/// What a row's gradient needs to know of the whole row.
struct Whole {
    /// `1 / sqrt(mean(x^2) + eps)`.
    factor: f32,
    /// `mean(dy * (weight + offset) * x * factor)`.
    mean: f32,
}

// SAFETY: blocks have sums of their own, outputs lie apart (`expect_writable`), inputs are only read or are the row's
// own output.
unsafe impl<E: Element, W: Element> Job for Pass<E, W> {
    #[inline(always)]
    fn run<S: Simd>(&self, s: S, items: Range<usize>) {
        for block in items {
            // SAFETY: every block has its place in the scratch.
            let sums = unsafe { self.sums.as_ptr().add(block * self.stride) };
            let mut i = 0;
            while i < self.count {
                // SAFETY: below `count` rounded up to whole vectors, which `stride` is.
                unsafe { s.store_f32(sums.add(i), s.splat(0.0)) };
                i += S::LANES;
            }
            let first = block * self.rows_per_block;
            let last = (first + self.rows_per_block).min(self.rows.len());
            if first == last {
                // No rows at all.
                continue;
            }
            let mut cursor = self.rows.cursor(first);
            for _ in first..last {
                let [dx, dy, x] = cursor.offsets;
                // SAFETY: the row's offset lies inside the checked tensor.
                let dx = unsafe { self.dx.offset(dx) };
                // SAFETY: likewise.
                let dy = unsafe { self.dy.offset(dy) };
                // SAFETY: likewise.
                let x = unsafe { self.x.offset(x) };
                // SAFETY: rows of `hidden` elements start there, dense, as does the weight.
                let whole = unsafe { self.whole(s, dy, x) };
                // SAFETY: likewise; read before they are overwritten, in the last pass.
                unsafe { self.add(s, dy, x, whole.factor, sums) };
                if self.writes {
                    // SAFETY: likewise.
                    unsafe { self.write(s, dx, dy, x, &whole) };
                }
                cursor.advance();
            }
        }
    }
}

impl<E: Element, W: Element> Pass<E, W> {
    /// # Safety
    /// `hidden` elements are readable at `dy`, `x` and the weight.
    #[inline(always)]
    unsafe fn whole<S: Simd>(&self, s: S, dy: *const E, x: *const E) -> Whole {
        let (hidden, offset) = (self.hidden, s.splat(self.offset));
        let (mut squares, mut products) = ([s.splat(0.0); 2], [s.splat(0.0); 2]);
        let mut i = 0;
        while i < hidden {
            let count = S::LANES.min(hidden - i);
            // SAFETY: `count` elements stand at `i`.
            let [gradient, value] = unsafe { [load(s, dy.add(i), count), load(s, x.add(i), count)] };
            // SAFETY: likewise. Beyond the end the other factors are zero.
            let weight = s.add(unsafe { load(s, self.weight.add(i), count) }, offset);
            squares[0] = s.fma(value, value, squares[0]);
            products[0] = s.fma(s.mul(gradient, weight), value, products[0]);
            squares.swap(0, 1);
            products.swap(0, 1);
            i += S::LANES;
        }
        let (squares, products) = (s.sum(s.add(squares[0], squares[1])), s.sum(s.add(products[0], products[1])));
        let (mut squares, mut products, lost) =
            (f64::from(squares), f64::from(products), leaves_f32(squares) || !products.is_finite());
        if lost {
            // SAFETY: by this function's contract.
            (squares, products) = unsafe { self.wide(dy, x) };
        }
        let factor = 1.0 / (squares / hidden as f64 + self.eps).sqrt();
        Whole { factor: factor as f32, mean: (products * factor / hidden as f64) as f32 }
    }

    /// The sums in f64, for rows that leave the range of f32.
    ///
    /// # Safety
    /// `hidden` elements are readable at `dy`, `x` and the weight.
    #[cold]
    #[inline(never)]
    unsafe fn wide(&self, dy: *const E, x: *const E) -> (f64, f64) {
        // SAFETY: by this function's contract; the row is initialised, as an input.
        let x = unsafe { core::slice::from_raw_parts(x, self.hidden) };
        // SAFETY: likewise.
        let dy = unsafe { core::slice::from_raw_parts(dy, self.hidden) };
        // SAFETY: likewise.
        let weight = unsafe { core::slice::from_raw_parts(self.weight, self.hidden) };
        let (mut squares, mut products) = (0.0, 0.0);
        for ((x, dy), weight) in x.iter().zip(dy).zip(weight) {
            let [x, dy] = [x, dy].map(|value| f64::from(value.to_f32()));
            squares += x * x;
            products += dy * f64::from(weight.to_f32() + self.offset) * x;
        }
        (squares, products)
    }

    /// Adds the row's part of the weight's gradient, `dy * x * factor`.
    ///
    /// # Safety
    /// `hidden` elements are readable at `dy` and `x`, and `count` rounded up to whole vectors writable at `sums`.
    #[inline(always)]
    unsafe fn add<S: Simd>(&self, s: S, dy: *const E, x: *const E, factor: f32, sums: *mut f32) {
        let factor = s.splat(factor);
        let mut i = 0;
        while i < self.count {
            let count = S::LANES.min(self.count - i);
            let at = self.start + i;
            // SAFETY: `count` elements stand there.
            let [gradient, value] = unsafe { [load(s, dy.add(at), count), load(s, x.add(at), count)] };
            // SAFETY: below `count` rounded up to whole vectors, written before.
            let sum = unsafe { s.load_f32(sums.add(i).cast_const()) };
            // SAFETY: likewise.
            unsafe { s.store_f32(sums.add(i), s.fma(gradient, s.mul(value, factor), sum)) };
            i += S::LANES;
        }
    }

    /// Writes `dx = factor * (dy * (weight + offset) - x * factor * mean)`.
    ///
    /// # Safety
    /// `hidden` elements are readable at `dy`, `x` and the weight, and writable at `dx`, which is one of them or apart.
    #[inline(always)]
    unsafe fn write<S: Simd>(&self, s: S, dx: *mut E, dy: *const E, x: *const E, whole: &Whole) {
        let (factor, mean, offset) = (s.splat(whole.factor), s.splat(whole.mean), s.splat(self.offset));
        let mut i = 0;
        while i < self.hidden {
            let count = S::LANES.min(self.hidden - i);
            // SAFETY: `count` elements stand at `i`.
            let [gradient, value] = unsafe { [load(s, dy.add(i), count), load(s, x.add(i), count)] };
            // SAFETY: likewise.
            let weight = s.add(unsafe { load(s, self.weight.add(i), count) }, offset);
            let part = s.mul(s.mul(value, factor), mean);
            let value = s.mul(s.sub(s.mul(gradient, weight), part), factor);
            // SAFETY: `count` elements stand at `i`.
            unsafe { store(s, dx.add(i), value, count) };
            i += S::LANES;
        }
    }
}

// SAFETY: columns are independent, the blocks' sums are only read.
unsafe impl<W: Element> Job for Merge<W> {
    #[inline(always)]
    fn run<S: Simd>(&self, s: S, items: Range<usize>) {
        for item in items {
            let end = ((item + 1) * MERGE).min(self.count);
            let mut i = item * MERGE;
            while i < end {
                let mut sum = s.splat(0.0);
                for block in 0..self.blocks {
                    // SAFETY: every block wrote `count` columns, rounded up to whole vectors.
                    sum = s.add(sum, unsafe { s.load_f32(self.sums.as_ptr().add(block * self.stride + i)) });
                }
                let count = S::LANES.min(end - i);
                // SAFETY: `count` elements of the weight's gradient stand at `i`.
                unsafe { W::store_part(s, self.dweight.add(i), sum, count) };
                i += S::LANES;
            }
        }
    }
}
