//! Rotary position embedding on strided halves.

#![expect(unsafe_code, reason = "reads and writes rows by pointer")]
#![expect(clippy::inline_always, reason = "generic SIMD code must be inlined into the function compiled for its level")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "an access and the pointer arithmetic to it share a note")]
#![expect(clippy::cast_possible_wrap, reason = "extents and offsets fit isize: checked with the tensor")]
#![expect(clippy::many_single_char_names, reason = "short names for vectors in formulas")]

use core::ops::Range;

use half::{bf16, f16};

use super::rows::{head, streams};
use crate::call::{Args, DType, Failed, Job, Tensor, launch};
use crate::simd::{Element, Simd, load2_as, store2_as};

/// Positions that are one item of work, where the heads of a position are neighbours.
const BLOCK: usize = 8;
/// Positions of one head that are one item of work, where the positions of a head are neighbours: a stretch long enough
/// for pages and prefetching, while the tables' rows stay in a near cache for the next head.
const HEAD_BLOCK: usize = 64;
/// Axes after normalisation: batch, seq, heads, half.
const AXES: usize = 4;

/// How the last axes lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// Each half dense.
    Split,
    /// The halves alternate: `x2` is one element behind `x1`, both with stride 2.
    Interleaved,
    /// Anything else.
    Strided,
}

/// A tensor as base and four strides.
#[derive(Debug, Clone, Copy)]
struct View<E> {
    data: *mut E,
    strides: [isize; AXES],
}

struct Rotary<E, C> {
    /// x1, x2, out1, out2.
    tensors: [View<E>; 4],
    cos: View<C>,
    sin: View<C>,
    shape: [usize; AXES],
    layout: Layout,
    conj: bool,
    /// Whether an item is of one head.
    by_head: bool,
    /// Positions of an item.
    block: usize,
    /// Items along the positions.
    blocks: usize,
    stream: bool,
}

/// Checks the arguments and runs the kernel.
pub(crate) fn call(function: &'static str, args: &Args<'_>) -> Result<(), Failed> {
    let mut tensors = [Tensor::EMPTY; 6];
    let [x1, x2, cos, sin, out1, out2] = args.tensors(&mut tensors)?;
    let conj = args.flag(6)?;
    x1.expect_rank(3..=4, "[batch, seq, heads, half] or [seq, heads, half]")?;
    for tensor in [&x2, &out1, &out2] {
        tensor.expect_shape(x1.shape(), "as `x1`")?;
        tensor.expect_dtype(x1.dtype, "as `x1`")?;
    }
    if cos.dtype != DType::F32 {
        cos.expect_dtype(x1.dtype, "as `x1`, or f32")?;
    }
    sin.expect_dtype(cos.dtype, "as `cos`")?;
    let shape = last_axes(x1.shape(), 1);
    let table_strides = [table_strides(cos, x1, shape)?, table_strides(sin, x1, shape)?];
    out1.expect_writable()?;
    out2.expect_writable()?;
    if out1.same_view(out2) {
        return Err(out2.invalid(format_args!("expected memory apart from `out1`, got the same view")));
    }
    out1.expect_apart(out2)?;
    // In place is out1 == x1 and out2 == x2; nothing else may be overwritten before it is read.
    for (out, others) in [(&out1, [&x2, &cos, &sin]), (&out2, [&x1, &cos, &sin])] {
        for other in others {
            out.expect_apart(other)?;
        }
    }
    for (out, x) in [(&out1, &x1), (&out2, &x2)] {
        if !out.same_view(x) {
            out.expect_apart(x)?;
        }
    }
    if x1.is_empty() {
        return Ok(());
    }
    let run = match (x1.dtype, cos.dtype) {
        (DType::F32, _) => run::<f32, f32>,
        (DType::Bf16, DType::F32) => run::<bf16, f32>,
        (DType::Bf16, _) => run::<bf16, bf16>,
        (DType::F16, DType::F32) => run::<f16, f32>,
        (DType::F16, _) => run::<f16, f16>,
    };
    run(function, [x1, x2, out1, out2], [cos, sin], table_strides, shape, conj)
}

/// The axes of a tensor of rank 3 or 4, `missing` for those that it lacks. Not a copy of a slice, which would be a call
/// for a few numbers.
fn last_axes<T: Copy>(axes: &[T], missing: T) -> [T; AXES] {
    match *axes {
        [seq, heads, half] => [missing, seq, heads, half],
        [batch, seq, heads, half] => [batch, seq, heads, half],
        _ => [missing; AXES],
    }
}

/// The strides of `cos` or `sin` over [batch, seq, heads, half], 0 where it is broadcast.
fn table_strides(table: &Tensor, x1: &Tensor, shape: [usize; AXES]) -> Result<[isize; AXES], Failed> {
    let mut strides = [0; AXES];
    let mut fits = true;
    let mut place = |from: usize, to: usize, may_broadcast: bool| {
        let extent = table.shape()[from];
        if extent == shape[to] {
            strides[to] = table.strides()[from];
        } else if extent != 1 || !may_broadcast {
            fits = false;
        }
    };
    match table.shape().len() {
        2 => {
            place(0, 1, false);
            place(1, 3, false);
        }
        rank @ 3..=4 if rank <= x1.shape().len() => {
            for axis in 0..rank {
                let to = AXES - rank + axis;
                place(axis, to, to != AXES - 1);
            }
        }
        _ => fits = false,
    }
    if fits {
        return Ok(strides);
    }
    let [batch, seq, heads, half] = shape;
    Err(table.invalid_shape(format_args!(
        "expected [{seq}, {half}] (seq, half), or a shape that broadcasts to [{batch}, {seq}, {heads}, {half}]"
    )))
}

fn run<E: Element, C: Element>(
    function: &'static str,
    tensors: [&Tensor; 4],
    tables: [&Tensor; 2],
    table_strides: [[isize; AXES]; 2],
    shape: [usize; AXES],
    conj: bool,
) -> Result<(), Failed> {
    let view = |tensor: &Tensor| View::<E> { data: tensor.data(), strides: last_axes(tensor.strides(), 0) };
    // One by one: `map` would make them elsewhere and copy them.
    let views = [view(tensors[0]), view(tensors[1]), view(tensors[2]), view(tensors[3])];
    let table = |index: usize| View::<C> { data: tables[index].data(), strides: table_strides[index] };
    let (cos, sin) = (table(0), table(1));
    let bytes = 4 * tensors[0].len() * size_of::<E>();
    // The inner loop goes over the axis whose rows lie nearer.
    let by_head = shape[1] > 1 && views[0].strides[2].unsigned_abs() >= views[0].strides[1].unsigned_abs();
    let block = if by_head { HEAD_BLOCK } else { BLOCK };
    let blocks = shape[1].div_ceil(block);
    let job = Rotary {
        layout: layout(&views, &cos, &sin, shape[3]),
        tensors: views,
        cos,
        sin,
        shape,
        conj,
        by_head,
        block,
        blocks,
        stream: streams(bytes) && !tensors[2].same_view(tensors[0]) && !tensors[3].same_view(tensors[1]),
    };
    // About 50 bytes per nanosecond from the nearer caches.
    launch(function, &job, shape[0] * blocks * if by_head { shape[2] } else { 1 }, bytes as u64 / 50)
}

fn layout<E, C>(tensors: &[View<E>; 4], cos: &View<C>, sin: &View<C>, half: usize) -> Layout {
    // An axis of one element has no stride to speak of; one element needs no vector either.
    if half == 1 || cos.strides[3] != 1 || sin.strides[3] != 1 {
        return Layout::Strided;
    }
    let [x1, x2, out1, out2] = tensors;
    if tensors.iter().all(|view| view.strides[3] == 1) {
        return Layout::Split;
    }
    let pair = |first: &View<E>, second: &View<E>| {
        first.strides == second.strides
            && first.strides[3] == 2
            && second.data.addr().wrapping_sub(first.data.addr()) == size_of::<E>()
    };
    if pair(x1, x2) && pair(out1, out2) { Layout::Interleaved } else { Layout::Strided }
}

// SAFETY: items are independent, outputs lie apart (`expect_writable`), inputs are only read or are the item's own
// output.
unsafe impl<E: Element, C: Element> Job for Rotary<E, C> {
    #[inline(always)]
    fn run<S: Simd>(&self, s: S, items: Range<usize>) {
        let [_, seq, heads, _] = self.shape;
        for item in items {
            // Items next to each other are heads of the same positions.
            let (item, head) = if self.by_head { (item / heads, item % heads) } else { (item, 0) };
            let (batch, start) = (item / self.blocks, item % self.blocks * self.block);
            let end = (start + self.block).min(seq);
            if self.by_head {
                // SAFETY: the indices are inside the shape.
                unsafe { self.rows(s, [batch, start, head], 1, end - start) };
            } else {
                for position in start..end {
                    // SAFETY: likewise.
                    unsafe { self.rows(s, [batch, position, 0], 2, heads) };
                }
            }
        }
        if self.stream {
            s.fence();
        }
    }
}

/// The addresses of one row.
#[derive(Clone, Copy)]
struct Row<E, C> {
    /// x1, x2, out1, out2.
    tensors: [*mut E; 4],
    cos: *mut C,
    sin: *mut C,
}

impl<E: Element, C: Element> Rotary<E, C> {
    /// Turns `count` rows from `first` on along an axis.
    ///
    /// # Safety
    /// They are inside the first three axes.
    #[inline(always)]
    unsafe fn rows<S: Simd>(&self, s: S, first: [usize; 3], axis: usize, count: usize) {
        let mut row = Row {
            // SAFETY: inside the shape, so inside each tensor's checked span.
            tensors: self.tensors.map(|view| unsafe { view.row(first) }),
            // SAFETY: likewise; broadcast axes have stride 0.
            cos: unsafe { self.cos.row(first) },
            // SAFETY: likewise.
            sin: unsafe { self.sin.row(first) },
        };
        for _ in 0..count {
            // SAFETY: a row inside the shape.
            unsafe { self.row(s, row) };
            for (address, view) in row.tensors.iter_mut().zip(&self.tensors) {
                *address = address.wrapping_offset(view.strides[axis]);
            }
            row.cos = row.cos.wrapping_offset(self.cos.strides[axis]);
            row.sin = row.sin.wrapping_offset(self.sin.strides[axis]);
        }
    }

    /// # Safety
    /// The addresses are those of a row.
    #[inline(always)]
    unsafe fn row<S: Simd>(&self, s: S, row: Row<E, C>) {
        let Row { tensors: [x1, x2, out1, out2], cos, sin } = row;
        let half = self.shape[3];
        let sign = s.splat(if self.conj { -1.0 } else { 1.0 });
        let mut i = 0;
        if self.layout == Layout::Split {
            let pair = 2 * S::LANES;
            // Rows are short: those that begin within a vector are not worth a head of their own.
            let aligned = |p: *mut E| head::<S, E>(self.stream, p, half) == 0;
            let stream = self.stream && aligned(out1) && aligned(out2);
            while i + pair <= half {
                // SAFETY: `i + 2 * LANES <= half`, and the tables' last axis is dense in these layouts.
                let c = unsafe { C::load2(s, cos.add(i)) };
                // SAFETY: likewise.
                let sn = unsafe { C::load2(s, sin.add(i)) };
                // SAFETY: likewise, as is the last axis of the others in this layout.
                let a = unsafe { load2_as::<S, E, C>(s, x1.add(i)) };
                // SAFETY: likewise.
                let b = unsafe { load2_as::<S, E, C>(s, x2.add(i)) };
                let (first, second) = rotate(s, a[0], b[0], c[0], s.mul(sn[0], sign));
                let (third, fourth) = rotate(s, a[1], b[1], c[1], s.mul(sn[1], sign));
                // SAFETY: likewise; where it streams, whole vectors begin at both rows, and at every step.
                unsafe { store2_as::<S, E, C>(s, out1.add(i), [first, third], stream) };
                // SAFETY: likewise.
                unsafe { store2_as::<S, E, C>(s, out2.add(i), [second, fourth], stream) };
                i += pair;
            }
        }
        while self.layout != Layout::Strided && i + S::LANES <= half {
            // SAFETY: `i + LANES <= half`, and the tables' last axis is dense in these layouts.
            let c = unsafe { C::load(s, cos.add(i)) };
            // SAFETY: likewise.
            let sn = s.mul(unsafe { C::load(s, sin.add(i)) }, sign);
            if self.layout == Layout::Split {
                // SAFETY: `i + LANES <= half`, and the last axis is dense in this layout.
                let a = unsafe { E::load(s, x1.add(i)) };
                // SAFETY: likewise.
                let b = unsafe { E::load(s, x2.add(i)) };
                let (first, second) = rotate(s, a, b, c, sn);
                // SAFETY: likewise.
                unsafe { E::store(s, out1.add(i), first) };
                // SAFETY: likewise.
                unsafe { E::store(s, out2.add(i), second) };
            } else {
                // SAFETY: pairs `i..i + LANES` are `2 * LANES` dense elements in this layout.
                let low = unsafe { E::load(s, x1.add(2 * i)) };
                // SAFETY: likewise.
                let high = unsafe { E::load(s, x1.add(2 * i + S::LANES)) };
                let (a, b) = s.deinterleave(low, high);
                let (first, second) = rotate(s, a, b, c, sn);
                let (low, high) = s.interleave(first, second);
                // SAFETY: likewise.
                unsafe { E::store(s, out1.add(2 * i), low) };
                // SAFETY: likewise.
                unsafe { E::store(s, out1.add(2 * i + S::LANES), high) };
            }
            i += S::LANES;
        }
        let sign = if self.conj { -1.0 } else { 1.0 };
        let [step1, step2, step3, step4] = self.tensors.map(|view| view.strides[3]);
        for i in i as isize..half as isize {
            // SAFETY: `i < half`, so inside each tensor's checked span.
            let c = unsafe { cos.offset(i * self.cos.strides[3]).read() }.to_f32();
            // SAFETY: likewise.
            let sn = unsafe { sin.offset(i * self.sin.strides[3]).read() }.to_f32() * sign;
            // SAFETY: likewise.
            let a = unsafe { x1.offset(i * step1).read() }.to_f32();
            // SAFETY: likewise.
            let b = unsafe { x2.offset(i * step2).read() }.to_f32();
            // SAFETY: likewise.
            unsafe { out1.offset(i * step3).write(E::from_f32(a * c - b * sn)) };
            // SAFETY: likewise.
            unsafe { out2.offset(i * step4).write(E::from_f32(a * sn + b * c)) };
        }
    }
}

impl<E> View<E> {
    /// # Safety
    /// `index` is inside the first three axes.
    #[inline(always)]
    unsafe fn row(&self, index: [usize; 3]) -> *mut E {
        let offset: isize = (0..3).map(|axis| index[axis] as isize * self.strides[axis]).sum();
        // SAFETY: inside the tensor's checked span by this function's contract.
        unsafe { self.data.offset(offset) }
    }
}

#[inline(always)]
fn rotate<S: Simd>(s: S, a: S::V, b: S::V, cos: S::V, sin: S::V) -> (S::V, S::V) {
    (s.sub(s.mul(a, cos), s.mul(b, sin)), s.fma(a, sin, s.mul(b, cos)))
}
