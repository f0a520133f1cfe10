//! Layer normalisation of rows.

#![expect(unsafe_code, reason = "reads and writes rows by pointer")]
#![expect(clippy::inline_always, reason = "generic SIMD code must be inlined into the function compiled for its level")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "an access and the pointer arithmetic to it share a note")]
#![expect(clippy::cast_possible_truncation, reason = "rows are scaled in f32")]
#![expect(clippy::manual_map, reason = "a closure need not be inlined into the function compiled for its level")]

use core::ops::Range;

use half::{bf16, f16};

use crate::call::{Args, DType, Failed, Job, MAX_RANK, RowMap, Tensor, launch};
use crate::ops::blocks::{self, Plan, Rows};
use crate::ops::rows::{head, prefetch_pair, streams};
use crate::simd::{Element, Simd, load, load2_as, store, store2_as};

/// Sums of squares below this may have lost terms to underflow.
const TINY: f32 = 1e-30;
/// Sums of squares below this are those of rows from which f32, or pairs of bf16, may have lost more than their digits.
const LOST: f32 = 1e-25;
/// An `eps` from which on what is lost to underflow is nothing beside it.
const LARGE_EPS: f64 = 1e-20;

struct LayerNorm<E, W> {
    rows: RowMap<2>,
    out: *mut E,
    x: *const E,
    weight: *const W,
    bias: Option<*const W>,
    hidden: usize,
    eps: f64,
    /// Whether outputs bypass the cache.
    stream: bool,
    plan: Plan,
}

/// Checks the arguments and runs the kernel.
pub(crate) fn call(function: &'static str, args: &Args<'_>) -> Result<(), Failed> {
    let (mut tensors, mut bias) = ([Tensor::EMPTY; 3], Tensor::EMPTY);
    let [out, x, weight] = args.tensors(&mut tensors)?;
    let bias = args.optional_tensor(3, &mut bias)?;
    let eps = args.not_negative(4)?;
    x.expect_rank(1..=MAX_RANK, "[.., hidden]")?;
    out.expect_shape(x.shape(), "as `x`")?;
    out.expect_dtype(x.dtype, "as `x`")?;
    weight.expect_shape(&[x.last()], "[hidden], hidden as in `x`")?;
    if weight.dtype != DType::F32 {
        weight.expect_dtype(x.dtype, "as `x`, or f32")?;
    }
    if let Some(bias) = bias {
        bias.expect_shape(weight.shape(), "as `weight`")?;
        bias.expect_dtype(weight.dtype, "as `weight`")?;
        bias.expect_dense_last()?;
        out.expect_apart(bias)?;
    }
    for tensor in [out, x, weight] {
        tensor.expect_dense_last()?;
    }
    out.expect_writable()?;
    out.expect_same_or_apart(x)?;
    out.expect_apart(weight)?;
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
    run(function, [out, x, weight], bias, eps)
}

fn run<E: Element, W: Element>(
    function: &'static str,
    [out, x, weight]: [&Tensor; 3],
    bias: Option<&Tensor>,
    eps: f64,
) -> Result<(), Failed> {
    let bytes = 2 * x.len() * size_of::<E>();
    let job = LayerNorm::<E, W> {
        rows: RowMap::new([out, x]),
        out: out.data(),
        x: x.data(),
        weight: weight.data(),
        bias: bias.map(|bias| bias.data::<W>().cast_const()),
        hidden: x.last(),
        eps,
        stream: streams(bytes) && !out.same_view(x),
        plan: Plan::new::<E>(x.last(), streams(bytes)),
    };
    // About 35 bytes per nanosecond from the nearer caches.
    launch(function, &job, job.rows.len(), bytes as u64 / 35)
}

/// How a row is written.
#[derive(Debug, Clone, Copy)]
enum Moments {
    /// As `(x * factor + shift) * weight + bias`.
    Near { factor: f32, shift: f32 },
    /// As `(x - center - shift) * factor * weight + bias`. Mean = center + shift: the shift is what the mean in f32 is
    /// wrong by, which matters in rows that vary little around a large number.
    Far { center: f32, shift: f32, factor: f32 },
    /// In f64.
    Wide,
}

// SAFETY: rows are independent, outputs lie apart (`expect_writable`), inputs are only read or are the row's own
// output.
unsafe impl<E: Element, W: Element> Job for LayerNorm<E, W> {
    #[inline(always)]
    fn run<S: Simd>(&self, s: S, items: Range<usize>) {
        // SAFETY: see above.
        unsafe { blocks::run(s, self, &self.rows, items, self.plan) };
        if self.stream {
            s.fence();
        }
    }
}

impl<E: Element, W: Element> Rows<2, 2> for LayerNorm<E, W> {
    type Whole = Moments;

    #[inline(always)]
    unsafe fn read<S: Simd>(&self, s: S, [_, from]: [isize; 2], _: usize) -> [S::V; 2] {
        // SAFETY: the row's offset lies inside the checked tensor, and a row of `hidden` elements starts there, dense.
        unsafe { self.near(s, self.x.offset(from)) }
    }

    #[inline(always)]
    unsafe fn whole<S: Simd>(&self, s: S, [_, from]: [isize; 2], [sum, squares]: [f32; 2], _: usize) -> Moments {
        let part = 1.0 / self.hidden as f64;
        let (mean, square) = (f64::from(sum) * part, f64::from(squares) * part);
        let variance = square - mean * mean;
        // Also false where there is a NaN, or where terms were lost in f32.
        if variance * E::FAR > mean * mean && squares.is_finite() && squares > LOST {
            let factor = 1.0 / (variance + self.eps).sqrt();
            return Moments::Near { factor: factor as f32, shift: (-mean * factor) as f32 };
        }
        // SAFETY: likewise.
        unsafe { self.far(s, self.x.offset(from)) }
    }

    #[inline(always)]
    unsafe fn write<S: Simd, const N: usize>(
        &self,
        s: S,
        rows: [[isize; 2]; N],
        moments: [Moments; N],
        later: [[isize; 2]; N],
        _: usize,
    ) {
        // SAFETY: the row's offset lies inside the checked tensor.
        let x = rows.map(|[_, from]| unsafe { self.x.offset(from) });
        // SAFETY: likewise.
        let out = rows.map(|[to, _]| unsafe { self.out.offset(to) });
        let later = later.map(|[_, from]| self.x.wrapping_offset(from));
        let heads = out.map(|out| head::<S, E>(self.stream, out, self.hidden));
        let mut near = [[s.splat(0.0); 3]; N];
        let mut alike = heads.iter().all(|head| *head == heads[0]);
        for (near, moments) in near.iter_mut().zip(moments) {
            match moments {
                Moments::Near { factor, shift } => *near = [s.splat(factor), s.splat(shift), s.splat(0.0)],
                Moments::Far { .. } | Moments::Wide => alike = false,
            }
        }
        if alike {
            // SAFETY: rows of `hidden` elements start there, dense, as do weight and bias.
            return unsafe { self.scale::<S, N, true>(s, x, out, near, later) };
        }
        for r in 0..N {
            let (x, out, later) = ([x[r]], [out[r]], [later[r]]);
            match moments[r] {
                // SAFETY: likewise.
                Moments::Near { .. } => unsafe { self.scale::<S, 1, true>(s, x, out, [near[r]], later) },
                Moments::Far { center, shift, factor } => {
                    let far = [[s.splat(factor), s.splat(shift), s.splat(center)]];
                    // SAFETY: likewise.
                    unsafe { self.scale::<S, 1, false>(s, x, out, far, later) };
                }
                // SAFETY: likewise.
                Moments::Wide => unsafe { self.wide(x[0], out[0]) },
            }
        }
    }
}

/// An element without its row's mean, scaled by the row's factor: see [`Moments`], whose `factor`, `shift` and `center`
/// these are.
#[inline(always)]
fn normal<S: Simd, const NEAR: bool>(s: S, value: S::V, [factor, shift, center]: [S::V; 3]) -> S::V {
    if NEAR { s.fma(value, factor, shift) } else { s.mul(s.sub(s.sub(value, center), shift), factor) }
}

impl<E: Element, W: Element> LayerNorm<E, W> {
    /// Vectors whose lanes together are the sum of a row and that of its squares.
    ///
    /// # Safety
    /// `hidden` elements are readable at `x`.
    #[inline(always)]
    unsafe fn near<S: Simd>(&self, s: S, x: *const E) -> [S::V; 2] {
        let (pair, hidden) = (2 * S::LANES, self.hidden);
        let (mut first, mut second) = ([s.splat(0.0); 4], [s.splat(0.0); 4]);
        let mut i = 0;
        while i + 4 * pair <= hidden {
            for step in 0..4 {
                // SAFETY: `i + 8 * LANES <= hidden`.
                unsafe { E::sum2(s, x.add(i + step * pair), &mut first, &mut second, step) };
            }
            i += 4 * pair;
        }
        for step in 0..3 {
            if i + pair <= hidden {
                // SAFETY: likewise.
                unsafe { E::sum2(s, x.add(i), &mut first, &mut second, step) };
                i += pair;
            }
        }
        while i < hidden {
            let count = S::LANES.min(hidden - i);
            // SAFETY: `count` elements stand at `i`.
            let value = unsafe { load(s, x.add(i), count) };
            first[0] = s.add(first[0], value);
            second[0] = s.fma(value, value, second[0]);
            i += count;
        }
        let first = s.add(s.add(first[0], first[1]), s.add(first[2], first[3]));
        [first, s.add(s.add(second[0], second[1]), s.add(second[2], second[3]))]
    }

    /// The sums of the row's distances from `center`, and of their squares.
    ///
    /// # Safety
    /// `hidden` elements are readable at `x`.
    #[inline(always)]
    unsafe fn sums<S: Simd>(&self, s: S, x: *const E, center: f32) -> [f32; 2] {
        let (lanes, hidden) = (S::LANES, self.hidden);
        let (zero, center) = (s.splat(0.0), s.splat(center));
        let (mut first, mut second) = ([zero; 4], [zero; 4]);
        let mut i = 0;
        while i + 4 * lanes <= hidden {
            // SAFETY: `i + 4 * LANES <= hidden`.
            let values = unsafe { [E::load2(s, x.add(i)), E::load2(s, x.add(i + 2 * lanes))] };
            for ((first, second), value) in first.iter_mut().zip(&mut second).zip(values.as_flattened()) {
                let value = s.sub(*value, center);
                *first = s.add(*first, value);
                *second = s.fma(value, value, *second);
            }
            i += 4 * lanes;
        }
        while i < hidden {
            let count = lanes.min(hidden - i);
            // SAFETY: `count` elements stand at `i`.
            let value = s.sub(unsafe { load(s, x.add(i), count) }, center);
            let value = s.keep_first(value, count, 0.0);
            first[0] = s.add(first[0], value);
            second[0] = s.fma(value, value, second[0]);
            i += lanes;
        }
        let first = s.add(s.add(first[0], first[1]), s.add(first[2], first[3]));
        let second = s.add(s.add(second[0], second[1]), s.add(second[2], second[3]));
        [s.sum(first), s.sum(second)]
    }

    /// The moments of a row that is far from zero, or not finite, or tiny.
    ///
    /// # Safety
    /// `hidden` elements are readable at `x`.
    #[inline(always)]
    unsafe fn far<S: Simd>(&self, s: S, x: *const E) -> Moments {
        let count = self.hidden as f64;
        // The mean of the first few is near enough to that of all: sums around it lose no more digits than the distance
        // is large beside the deviation.
        let few = S::LANES.min(self.hidden);
        // SAFETY: the first elements of the row.
        let mut center = s.sum(unsafe { load(s, x, few) }) / few as f32;
        // SAFETY: by this function's contract.
        let [mut sum, mut squares] = unsafe { self.sums(s, x, center) };
        let mut shift = f64::from(sum) / count;
        if f64::from(squares) < 2.0 * count * shift * shift {
            // Farther than the deviation: again, around the mean.
            center += shift as f32;
            // SAFETY: by this function's contract.
            [sum, squares] = unsafe { self.sums(s, x, center) };
            shift = f64::from(sum) / count;
        }
        if !squares.is_finite() || (squares < TINY && self.eps < LARGE_EPS) {
            return Moments::Wide;
        }
        let variance = (f64::from(squares) / count - shift * shift).max(0.0);
        Moments::Far { center, shift: shift as f32, factor: (1.0 / (variance + self.eps).sqrt()) as f32 }
    }

    /// Writes rows that stream, if they do, from the same element on; `terms` are those of [`normal`].
    ///
    /// # Safety
    /// `hidden` elements are readable at each `x`, the weight and the bias, and writable at each `out`, which is its
    /// `x` or apart from all.
    #[inline(always)]
    unsafe fn scale<S: Simd, const N: usize, const NEAR: bool>(
        &self,
        s: S,
        x: [*const E; N],
        out: [*mut E; N],
        terms: [[S::V; 3]; N],
        later: [*const E; N],
    ) {
        let (pair, hidden) = (2 * S::LANES, self.hidden);
        let mut i = 0;
        let mut end = head::<S, E>(self.stream, out[0], hidden);
        loop {
            while i < end {
                let count = S::LANES.min(end - i);
                // SAFETY: `count` elements stand at `i`.
                let weight = unsafe { load(s, self.weight.add(i), count) };
                // SAFETY: likewise.
                let bias = match self.bias {
                    // SAFETY: likewise.
                    Some(bias) => Some(unsafe { load(s, bias.add(i), count) }),
                    None => None,
                };
                for r in 0..N {
                    // SAFETY: likewise.
                    let value = normal::<S, NEAR>(s, unsafe { load(s, x[r].add(i), count) }, terms[r]);
                    let value = match bias {
                        Some(bias) => s.fma(value, weight, bias),
                        None => s.mul(value, weight),
                    };
                    // SAFETY: likewise.
                    unsafe { store(s, out[r].add(i), value, count) };
                }
                i += count;
            }
            while i + pair <= hidden {
                // SAFETY: `i + 2 * LANES <= hidden`.
                let [v, w] = unsafe { W::load2(s, self.weight.add(i)) };
                let bias = match self.bias {
                    // SAFETY: likewise.
                    Some(bias) => Some(unsafe { W::load2(s, bias.add(i)) }),
                    None => None,
                };
                for r in 0..N {
                    if self.plan.asks {
                        prefetch_pair::<S, E>(later[r], i);
                    }
                    // SAFETY: likewise.
                    let [a, b] = unsafe { load2_as::<S, E, W>(s, x[r].add(i)) };
                    let (a, b) = (normal::<S, NEAR>(s, a, terms[r]), normal::<S, NEAR>(s, b, terms[r]));
                    let values = match bias {
                        Some([c, d]) => [s.fma(a, v, c), s.fma(b, w, d)],
                        None => [s.mul(a, v), s.mul(b, w)],
                    };
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

    /// A whole row in f64, where sums or squares leave the range of f32.
    ///
    /// # Safety
    /// `hidden` elements are readable at `x`, the weight and the bias, and writable at `out`, which is `x` or apart.
    #[cold]
    #[inline(never)]
    unsafe fn wide(&self, x: *const E, out: *mut E) {
        let count = self.hidden as f64;
        // SAFETY: `i` is below `hidden` wherever this is called.
        let at = |i: usize| f64::from(unsafe { x.add(i).read() }.to_f32());
        let mean = (0..self.hidden).map(at).sum::<f64>() / count;
        let variance = (0..self.hidden).map(|i| (at(i) - mean).powi(2)).sum::<f64>() / count;
        let factor = 1.0 / (variance + self.eps).sqrt();
        for i in 0..self.hidden {
            // SAFETY: `i` is below `hidden`.
            let weight = f64::from(unsafe { self.weight.add(i).read() }.to_f32());
            // SAFETY: likewise.
            let bias = self.bias.map_or(0.0, |bias| f64::from(unsafe { bias.add(i).read() }.to_f32()));
            let value = E::from_f32(((at(i) - mean) * factor * weight + bias) as f32);
            // SAFETY: likewise.
            unsafe { out.add(i).write(value) };
        }
    }
}
