//! Cross entropy of rows of logits with one target each, and its gradient.
//!
//! `log(sum(exp(x)))` is taken as the maximum plus the logarithm of a sum that it was taken out of, so that it
//! neither overflows nor vanishes. The sum of a long row is kept in f64, of parts that are summed in f32.

#![expect(unsafe_code, reason = "reads and writes rows by pointer")]
#![expect(clippy::inline_always, reason = "generic SIMD code must be inlined into the function compiled for its level")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "an access and the pointer arithmetic to it share a note")]
#![expect(clippy::cast_possible_truncation, reason = "losses and factors round to f32; targets were checked")]
#![expect(clippy::cast_sign_loss, reason = "targets were checked")]

use core::ops::Range;

use half::{bf16, f16};

use super::exponentials::{exponentials, greatest};
use super::rows::{TOGETHER, load_wide, store_wide};
use crate::call::{Args, DType, Failed, IdType, Ids, Job, MAX_RANK, RowMap, Tensor, launch};
use crate::simd::{EXP_SCALE, Element, Simd, Wide, exp_minus, load, prefetch, store};

/// Longest part of a row that is summed in f32, in elements: two of them fit the nearest cache. A multiple of
/// [`TOGETHER`] of every vector.
const PART: usize = 2048;

/// The rows of a call.
struct Rows<E> {
    logits: *const E,
    targets: Ids,
    ignored: i64,
    vocab: usize,
}

struct Forward<E> {
    rows: Rows<E>,
    /// Of the logits, the targets, the losses.
    places: RowMap<3>,
    loss: *mut f32,
}

struct Backward<E> {
    rows: Rows<E>,
    /// Of the logits, the targets, the losses' gradients, the logits' gradients.
    places: RowMap<4>,
    dloss: *const f32,
    dlogits: *mut E,
}

/// Checks what both functions take: one number for each row, logits, targets.
fn expect_rows(per_row: &Tensor, logits: &Tensor, targets: &Tensor<IdType>, ignored: i64) -> Result<(), Failed> {
    logits.expect_rank(1..=MAX_RANK, "[.., vocab]")?;
    let leading = &logits.shape()[..logits.shape().len() - 1];
    per_row.expect_shape(leading, "[..], the leading axes of `logits`")?;
    per_row.expect_dtype(DType::F32, "always")?;
    targets.expect_shape(leading, "[..], the leading axes of `logits`")?;
    logits.expect_dense_last()?;
    targets.expect_ids(logits.last(), "vocab", Some(ignored))
}

/// Checks the arguments of `cross_entropy` and runs the kernel.
pub(crate) fn forward(function: &'static str, args: &Args<'_>) -> Result<(), Failed> {
    let (mut tensors, mut targets) = ([Tensor::EMPTY; 2], Tensor::EMPTY);
    let [loss, logits] = args.tensors(&mut tensors)?;
    let targets = args.tensor(2, &mut targets)?;
    let ignored = args.int(3)?;
    expect_rows(loss, logits, targets, ignored)?;
    loss.expect_writable()?;
    loss.expect_apart(logits)?;
    loss.expect_apart(targets)?;
    if loss.is_empty() {
        return Ok(());
    }
    match logits.dtype {
        DType::F32 => run_forward::<f32>(function, loss, logits, targets, ignored),
        DType::Bf16 => run_forward::<bf16>(function, loss, logits, targets, ignored),
        DType::F16 => run_forward::<f16>(function, loss, logits, targets, ignored),
    }
}

fn run_forward<E: Element>(
    function: &'static str,
    loss: &Tensor,
    logits: &Tensor,
    targets: &Tensor<IdType>,
    ignored: i64,
) -> Result<(), Failed> {
    let leading = loss.shape();
    let strides = [&logits.strides()[..leading.len()], targets.strides(), loss.strides()];
    let rows = Rows::<E> { logits: logits.data(), targets: targets.ids(), ignored, vocab: logits.last() };
    let job = Forward { rows, places: RowMap::from_axes(leading, strides), loss: loss.data() };
    // About 2 elements per nanosecond.
    launch(function, &job, job.places.len(), (loss.len() * logits.last()) as u64 / 2)
}

/// Checks the arguments of `cross_entropy_backward` and runs the kernel.
pub(crate) fn backward(function: &'static str, args: &Args<'_>) -> Result<(), Failed> {
    let (mut tensors, mut targets) = ([Tensor::EMPTY; 3], Tensor::EMPTY);
    let tensors = args.tensors(&mut tensors)?;
    let [dlogits, dloss, logits] = tensors;
    let targets = args.tensor(3, &mut targets)?;
    let ignored = args.int(4)?;
    expect_rows(dloss, logits, targets, ignored)?;
    dlogits.expect_shape(logits.shape(), "as `logits`")?;
    dlogits.expect_dtype(logits.dtype, "as `logits`")?;
    dlogits.expect_dense_last()?;
    dlogits.expect_writable()?;
    dlogits.expect_same_or_apart(logits)?;
    dlogits.expect_apart(dloss)?;
    dlogits.expect_apart(targets)?;
    if dlogits.is_empty() {
        return Ok(());
    }
    match logits.dtype {
        DType::F32 => run_backward::<f32>(function, tensors, targets, ignored),
        DType::Bf16 => run_backward::<bf16>(function, tensors, targets, ignored),
        DType::F16 => run_backward::<f16>(function, tensors, targets, ignored),
    }
}

fn run_backward<E: Element>(
    function: &'static str,
    [dlogits, dloss, logits]: [&Tensor; 3],
    targets: &Tensor<IdType>,
    ignored: i64,
) -> Result<(), Failed> {
    let leading = dloss.shape();
    let axes = leading.len();
    let strides = [&logits.strides()[..axes], targets.strides(), dloss.strides(), &dlogits.strides()[..axes]];
    let rows = Rows::<E> { logits: logits.data(), targets: targets.ids(), ignored, vocab: logits.last() };
    let places = RowMap::from_axes(leading, strides);
    let job = Backward { rows, places, dloss: dloss.data(), dlogits: dlogits.data() };
    // About 1 element per nanosecond.
    launch(function, &job, job.places.len(), logits.len() as u64)
}

/// What the exponentials of a row sum to: `sum(exp(x - max))`.
struct Sum {
    max: f32,
    sum: f64,
}

impl<E: Element> Rows<E> {
    /// The target at `place`, or None where the row is ignored.
    ///
    /// # Safety
    /// `place` is the offset of one of the targets.
    #[inline(always)]
    unsafe fn target(&self, place: isize) -> Option<usize> {
        // SAFETY: by this function's contract.
        let target = unsafe { self.targets.get(place) };
        // Checked: it is an index where it is not ignored.
        (target != self.ignored).then_some(target as usize)
    }

    /// Reads each part of the row twice while it is in the nearest cache, and the row once: what was summed before a
    /// greater element is found is scaled for that.
    ///
    /// # Safety
    /// `vocab` elements are readable at `row`.
    #[inline(always)]
    unsafe fn sum<S: Simd>(&self, s: S, row: *const E) -> Sum {
        let (mut max, mut sum, mut start) = (f32::NEG_INFINITY, 0.0, 0);
        while start < self.vocab {
            let count = PART.min(self.vocab - start);
            // SAFETY: a part of the row.
            let part = unsafe { row.add(start) };
            // SAFETY: likewise.
            let greatest = unsafe { greatest(s, part, count) };
            if greatest > max {
                sum *= (f64::from(max) - f64::from(greatest)).exp();
                max = greatest;
            }
            // The sums take long enough for the next part to come.
            let next = row.wrapping_add(start + count);
            for line in 0..(PART.min(self.vocab - start - count) * size_of::<E>()).div_ceil(64) {
                prefetch(next.wrapping_byte_add(64 * line));
            }
            // As long as all are -infinity (or NaN, which the sum then is too), any number will do.
            let from = if max == f32::NEG_INFINITY { 0.0 } else { max };
            // The sum becomes an f32, whatever the logits are.
            // SAFETY: likewise.
            sum += f64::from(unsafe { exponentials(s, part, count, from, None) });
            start += count;
        }
        Sum { max, sum: sum / f64::from(EXP_SCALE) }
    }
}

// SAFETY: rows are independent, outputs lie apart (`expect_writable`), inputs are only read.
unsafe impl<E: Element> Job for Forward<E> {
    #[inline(always)]
    fn run<S: Simd>(&self, s: S, items: Range<usize>) {
        let mut cursor = self.places.cursor(items.start);
        for _ in items {
            let [row, target, loss] = cursor.offsets;
            // SAFETY: the offset lies inside the checked tensor.
            let value = match unsafe { self.rows.target(target) } {
                None => 0.0,
                Some(target) => {
                    // SAFETY: likewise.
                    let row = unsafe { self.rows.logits.offset(row) };
                    // SAFETY: a row of `vocab` elements starts there, dense.
                    let Sum { max, sum } = unsafe { self.rows.sum(s, row) };
                    // SAFETY: the target is an index of the row.
                    let logit = unsafe { row.add(target).read() }.to_f32();
                    (f64::from(max) - f64::from(logit) + sum.ln()) as f32
                }
            };
            // SAFETY: the offset lies inside the checked tensor.
            unsafe { self.loss.offset(loss).write(value) };
            cursor.advance();
        }
    }
}

// SAFETY: rows are independent, outputs lie apart (`expect_writable`), inputs are only read or are the row's own
// output.
unsafe impl<E: Element> Job for Backward<E> {
    #[inline(always)]
    fn run<S: Simd>(&self, s: S, items: Range<usize>) {
        let mut cursor = self.places.cursor(items.start);
        for _ in items {
            let [row, target, dloss, dlogits] = cursor.offsets;
            // SAFETY: the offset lies inside the checked tensor.
            let to = unsafe { self.dlogits.offset(dlogits) };
            // SAFETY: likewise.
            match unsafe { self.rows.target(target) } {
                // SAFETY: a row of `vocab` elements starts there, dense.
                None => unsafe { self.zero(s, to) },
                Some(target) => {
                    // SAFETY: likewise.
                    let from = unsafe { self.rows.logits.offset(row) };
                    // SAFETY: likewise.
                    let factor = unsafe { self.dloss.offset(dloss).read() };
                    // SAFETY: rows of `vocab` elements start there, dense; the target is an index of the row.
                    unsafe { self.row(s, to, from, target, factor) };
                }
            }
            cursor.advance();
        }
    }
}

impl<E: Element> Backward<E> {
    /// Writes `dloss * (softmax(x) - onehot(target))`.
    ///
    /// # Safety
    /// `vocab` elements are readable at `from` and writable at `to`, which is `from` or apart; `target` is below.
    #[inline(always)]
    unsafe fn row<S: Simd>(&self, s: S, to: *mut E, from: *const E, target: usize, dloss: f32) {
        let vocab = self.rows.vocab;
        // SAFETY: by this function's contract.
        let Sum { max, sum } = unsafe { self.rows.sum(s, from) };
        // Read before it is overwritten.
        // SAFETY: `target` is below `vocab`.
        let logit = unsafe { from.add(target).read() }.to_f32();
        let (factor, max_value) = ((f64::from(dloss) / sum) as f32, max);
        let (factor, max) = (s.splat(factor), s.splat(max));
        let (step, mut i) = (TOGETHER * S::LANES, 0);
        while i + step <= vocab {
            // SAFETY: `TOGETHER` vectors stand at `i`.
            let mut values = unsafe { load_wide(s, from.add(i)) };
            for value in &mut values {
                *value = s.sub(max, *value);
            }
            let mut values = exp_minus(Wide::<S, TOGETHER>(s), values);
            for value in &mut values {
                *value = s.mul(*value, factor);
            }
            // SAFETY: likewise.
            unsafe { store_wide(s, to.add(i), values, false, false) };
            i += step;
        }
        while i < vocab {
            let count = S::LANES.min(vocab - i);
            // SAFETY: `count` elements stand at `i`.
            let value = unsafe { load(s, from.add(i), count) };
            let value = s.mul(exp_minus(s, s.sub(max, value)), factor);
            // SAFETY: `count` elements stand at `i`.
            unsafe { store(s, to.add(i), value, count) };
            i += S::LANES;
        }
        let probability = (f64::from(logit) - f64::from(max_value)).exp() / sum;
        let value = E::from_f32((f64::from(dloss) * (probability - 1.0)) as f32);
        // SAFETY: `target` is below `vocab`.
        unsafe { to.add(target).write(value) };
    }

    /// # Safety
    /// `vocab` elements are writable at `to`.
    #[inline(always)]
    unsafe fn zero<S: Simd>(&self, s: S, to: *mut E) {
        let mut i = 0;
        while i < self.rows.vocab {
            let count = S::LANES.min(self.rows.vocab - i);
            // SAFETY: `count` elements stand at `i`.
            unsafe { E::store_part(s, to.add(i), s.splat(0.0), count) };
            i += S::LANES;
        }
    }
}
