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
/// for pages and prefetching, while the tables' rows stay in the second cache for the next head.
const HEAD_BLOCK: usize = 512;
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

/// Tensors that are turned by the same tables: their halves, and those of the outputs.
#[derive(Debug, Clone, Copy)]
struct Side<E> {
    /// x1, x2, out1, out2.
    tensors: [View<E>; 4],
    /// The tables' strides over this side's axes.
    cos: [isize; AXES],
    sin: [isize; AXES],
    shape: [usize; AXES],
    layout: Layout,
    /// Whether an item is of one head.
    by_head: bool,
    /// Positions of an item.
    block: usize,
    /// Items along the positions.
    blocks: usize,
    items: usize,
    stream: bool,
}

struct Rotary<E, C, const SIDES: usize> {
    sides: [Side<E>; SIDES],
    cos: *mut C,
    sin: *mut C,
    conj: bool,
}

/// Checks the arguments of `apply_rotary` and runs the kernel.
pub(crate) fn call(function: &'static str, args: &Args<'_>) -> Result<(), Failed> {
    let mut tensors = [Tensor::EMPTY; 6];
    let [x1, x2, cos, sin, out1, out2] = args.tensors(&mut tensors)?;
    let conj = args.flag(6)?;
    let x = Halves { x: [x1, x2], out: [out1, out2] };
    x.check(cos, sin, "as `x1`")?;
    dispatch(function, [x], [cos, sin], conj)
}

/// Checks the arguments of `apply_rotary_pair` and runs the kernel.
pub(crate) fn call_pair(function: &'static str, args: &Args<'_>) -> Result<(), Failed> {
    let mut tensors = [Tensor::EMPTY; 6];
    let [x1, x2, cos, sin, out1, out2] = args.tensors(&mut tensors)?;
    let conj = args.flag(6)?;
    let x = Halves { x: [x1, x2], out: [out1, out2] };
    x.check(cos, sin, "as `x1`")?;
    if args.is_none(7) {
        for index in 8..11 {
            if !args.is_none(index) {
                return Err(args.invalid(index, format_args!("expected None, as `y1` is")));
            }
        }
        return dispatch(function, [x], [cos, sin], conj);
    }
    let [mut y1, mut y2, mut y_out1, mut y_out2] = [Tensor::EMPTY; 4];
    let y = Halves {
        x: [args.tensor(7, &mut y1)?, args.tensor(8, &mut y2)?],
        out: [args.tensor(9, &mut y_out1)?, args.tensor(10, &mut y_out2)?],
    };
    y.x[0].expect_dtype(x1.dtype, "as `x1`")?;
    y.check(cos, sin, "as `y1`")?;
    for (outs, others) in [(&x.out, &y), (&y.out, &x)] {
        for out in outs {
            for other in others.x.iter().chain(&others.out) {
                if out.same_view(other) && !out.is_empty() {
                    return Err(out.same_view_fault(other));
                }
                out.expect_apart(other)?;
            }
        }
    }
    match (x1.is_empty(), y.x[0].is_empty()) {
        (true, _) => dispatch(function, [y], [cos, sin], conj),
        (false, true) => dispatch(function, [x], [cos, sin], conj),
        (false, false) => dispatch(function, [x, y], [cos, sin], conj),
    }
}

/// The tensors of one side.
#[derive(Debug, Clone, Copy)]
struct Halves<'a> {
    x: [&'a Tensor; 2],
    out: [&'a Tensor; 2],
}

impl Halves<'_> {
    /// Checks all but the tables' shapes; `first` says which tensor the others are like.
    fn check(&self, cos: &Tensor, sin: &Tensor, first: &str) -> Result<(), Failed> {
        let ([x1, x2], [out1, out2]) = (self.x, self.out);
        x1.expect_rank(3..=4, "[batch, seq, heads, half] or [seq, heads, half]")?;
        for tensor in [x2, out1, out2] {
            tensor.expect_shape(x1.shape(), first)?;
            tensor.expect_dtype(x1.dtype, first)?;
        }
        if cos.dtype != DType::F32 {
            cos.expect_dtype(x1.dtype, "as `x1`, or f32")?;
        }
        sin.expect_dtype(cos.dtype, "as `cos`")?;
        out1.expect_writable()?;
        out2.expect_writable()?;
        // What is empty has no address of its own.
        if out1.same_view(out2) && !out1.is_empty() {
            return Err(out2.same_view_fault(out1));
        }
        out1.expect_apart(out2)?;
        // In place is out1 == x1 and out2 == x2; nothing else may be overwritten before it is read.
        for (out, others) in [(out1, [x2, cos, sin]), (out2, [x1, cos, sin])] {
            for other in others {
                out.expect_apart(other)?;
            }
        }
        out1.expect_same_or_apart(x1)?;
        out2.expect_same_or_apart(x2)
    }
}

fn dispatch<const SIDES: usize>(
    function: &'static str,
    sides: [Halves<'_>; SIDES],
    tables: [&Tensor; 2],
    conj: bool,
) -> Result<(), Failed> {
    let run = match (sides[0].x[0].dtype, tables[0].dtype) {
        (DType::F32, _) => run::<f32, f32, SIDES>,
        (DType::Bf16, DType::F32) => run::<bf16, f32, SIDES>,
        (DType::Bf16, _) => run::<bf16, bf16, SIDES>,
        (DType::F16, DType::F32) => run::<f16, f32, SIDES>,
        (DType::F16, _) => run::<f16, f16, SIDES>,
    };
    run(function, sides, tables, conj)
}

/// The axes of a tensor of rank 3 or 4, `missing` for the one that it may lack. Not a copy of a slice, which would be a
/// call for a few numbers.
fn axes_into<T: Copy>(place: &mut [T; AXES], axes: &[T], missing: T) {
    match *axes {
        [seq, heads, half] => *place = [missing, seq, heads, half],
        [batch, seq, heads, half] => *place = [batch, seq, heads, half],
        _ => *place = [missing; AXES],
    }
}

/// The strides of `cos` or `sin` over [batch, seq, heads, half], 0 where it is broadcast.
fn table_strides(strides: &mut [isize; AXES], table: &Tensor, x1: &Tensor, shape: [usize; AXES]) -> Result<(), Failed> {
    // The usual table.
    if let (&[seq, half], &[of_seq, last]) = (table.shape(), table.strides())
        && seq == shape[1]
        && half == shape[3]
    {
        *strides = [0, of_seq, 0, last];
        return Ok(());
    }
    *strides = [0; AXES];
    let mut fits = true;
    let mut place = |from: usize, to: usize| {
        let extent = table.shape()[from];
        if extent == shape[to] {
            strides[to] = table.strides()[from];
        } else if extent != 1 || to == AXES - 1 {
            fits = false;
        }
    };
    match table.shape().len() {
        rank @ 3..=4 if rank <= x1.shape().len() => {
            for axis in 0..rank {
                place(axis, AXES - rank + axis);
            }
        }
        _ => fits = false,
    }
    if fits {
        return Ok(());
    }
    let [batch, seq, heads, half] = shape;
    Err(table.invalid_shape(format_args!(
        "expected [{seq}, {half}] (seq, half), or a shape that broadcasts to [{batch}, {seq}, {heads}, {half}]"
    )))
}

fn run<E: Element, C: Element, const SIDES: usize>(
    function: &'static str,
    halves: [Halves<'_>; SIDES],
    [cos, sin]: [&Tensor; 2],
    conj: bool,
) -> Result<(), Failed> {
    let mut bytes = 0;
    for half in &halves {
        let x1 = half.x[0];
        bytes += if x1.is_empty() { 0 } else { 4 * x1.len() * size_of::<E>() };
    }
    // Filled in their places: they are large.
    let mut job = Rotary::<E, C, SIDES> { sides: [Side::EMPTY; SIDES], cos: cos.data(), sin: sin.data(), conj };
    for (side, half) in job.sides.iter_mut().zip(&halves) {
        side.fill(half, cos, sin, streams(bytes))?;
    }
    if bytes == 0 {
        return Ok(());
    }
    let items = job.sides.iter().map(|side| side.items).sum();
    // About 50 bytes per nanosecond from the nearer caches.
    launch(function, &job, items, bytes as u64 / 50)
}

impl<E: Element> Side<E> {
    const EMPTY: Self = Self {
        tensors: [View { data: core::ptr::null_mut(), strides: [0; AXES] }; 4],
        cos: [0; AXES],
        sin: [0; AXES],
        shape: [0; AXES],
        layout: Layout::Strided,
        by_head: false,
        block: 1,
        blocks: 0,
        items: 0,
        stream: false,
    };

    /// Describes a side whose tensors were checked, and checks the tables' shapes.
    fn fill(&mut self, halves: &Halves<'_>, cos: &Tensor, sin: &Tensor, streams: bool) -> Result<(), Failed> {
        let ([x1, x2], [out1, out2]) = (halves.x, halves.out);
        axes_into(&mut self.shape, x1.shape(), 1);
        table_strides(&mut self.cos, cos, x1, self.shape)?;
        table_strides(&mut self.sin, sin, x1, self.shape)?;
        for (view, tensor) in self.tensors.iter_mut().zip([x1, x2, out1, out2]) {
            view.data = tensor.data();
            axes_into(&mut view.strides, tensor.strides(), 0);
        }
        let [batch, seq, heads, half] = self.shape;
        let [of_seq, of_head] = [1, 2].map(|axis| self.tensors[0].strides[axis].unsigned_abs());
        self.layout = layout(&self.tensors, self.cos[3], self.sin[3], half);
        // The inner loop goes over the axis whose rows lie nearer.
        self.by_head = seq > 1 && of_head >= of_seq;
        self.block = if self.by_head { HEAD_BLOCK } else { BLOCK };
        self.blocks = seq.div_ceil(self.block);
        self.items = batch * self.blocks * if self.by_head { heads } else { 1 };
        self.stream = streams && !out1.same_view(x1) && !out2.same_view(x2);
        Ok(())
    }
}

/// `cos` and `sin` are the strides of the tables' last axis.
fn layout<E>(tensors: &[View<E>; 4], cos: isize, sin: isize, half: usize) -> Layout {
    // An axis of one element has no stride to speak of; one element needs no vector either.
    if half == 1 || cos != 1 || sin != 1 {
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
unsafe impl<E: Element, C: Element, const SIDES: usize> Job for Rotary<E, C, SIDES> {
    #[inline(always)]
    fn run<S: Simd>(&self, s: S, items: Range<usize>) {
        // The items of a side come behind those of the side before it.
        let mut first = 0;
        for side in &self.sides {
            let last = first + side.items;
            let (start, end) = (items.start.max(first), items.end.min(last));
            if start < end {
                let turn = Turn::<E, C> { side, cos: self.cos, sin: self.sin, conj: self.conj };
                turn.run(s, start - first..end - first);
            }
            first = last;
        }
    }
}

/// One side's part of a call.
struct Turn<'a, E, C> {
    side: &'a Side<E>,
    cos: *mut C,
    sin: *mut C,
    conj: bool,
}

/// The addresses of one row.
#[derive(Clone, Copy)]
struct Row<E, C> {
    /// x1, x2, out1, out2.
    tensors: [*mut E; 4],
    cos: *mut C,
    sin: *mut C,
}

impl<E: Element, C: Element> Turn<'_, E, C> {
    #[inline(always)]
    fn run<S: Simd>(&self, s: S, items: Range<usize>) {
        let side = self.side;
        let [_, seq, heads, _] = side.shape;
        for item in items {
            // Items next to each other are heads of the same positions.
            let (item, head) = if side.by_head { (item / heads, item % heads) } else { (item, 0) };
            let (batch, start) = (item / side.blocks, item % side.blocks * side.block);
            let end = (start + side.block).min(seq);
            // The rows of positions of one head, or of the heads of one position.
            let (calls, axis, count) = if side.by_head { (1, 1, end - start) } else { (end - start, 2, heads) };
            for call in 0..calls {
                // SAFETY: the indices are inside the shape.
                unsafe { self.rows(s, [batch, start + call, head], axis, count) };
            }
        }
        if side.stream {
            s.fence();
        }
    }

    /// Turns `count` rows from `first` on along an axis.
    ///
    /// # Safety
    /// They are inside the first three axes.
    #[inline(always)]
    unsafe fn rows<S: Simd>(&self, s: S, first: [usize; 3], axis: usize, count: usize) {
        let side = self.side;
        let offset = |strides: &[isize; AXES]| -> isize { (0..3).map(|k| first[k] as isize * strides[k]).sum() };
        let row = Row {
            // SAFETY: inside the shape, so inside each tensor's checked span.
            tensors: side.tensors.map(|view| unsafe { view.data.offset(offset(&view.strides)) }),
            // SAFETY: likewise; broadcast axes have stride 0.
            cos: unsafe { self.cos.offset(offset(&side.cos)) },
            // SAFETY: likewise.
            sin: unsafe { self.sin.offset(offset(&side.sin)) },
        };
        let steps = Steps {
            tensors: side.tensors.map(|view| view.strides[axis]),
            cos: side.cos[axis],
            sin: side.sin[axis],
            count,
        };
        let (half, pair) = (side.shape[3], 2 * S::LANES);
        let mut done = 0;
        if side.layout == Layout::Split {
            // Rows are short: those that begin within a vector are not worth a head of their own.
            let aligned = |r: usize| {
                let step = steps.tensors[r].unsigned_abs() * size_of::<E>();
                head::<S, E>(true, row.tensors[r], half) == 0 && step.is_multiple_of(S::LANES * size_of::<f32>())
            };
            let stream = side.stream && aligned(2) && aligned(3);
            done = half / pair * pair;
            if steps.cos == 0 && steps.sin == 0 {
                // One row of the tables for all: a pair of its vectors stays in registers.
                for i in (0..done).step_by(pair) {
                    // SAFETY: rows inside the shape, of which a pair of vectors stands at `i`.
                    unsafe { self.columns(s, row, &steps, i, stream) };
                }
            } else {
                let (mut row, one) = (row, Steps { count: 1, ..steps });
                for _ in 0..count {
                    for i in (0..done).step_by(pair) {
                        // SAFETY: likewise.
                        unsafe { self.columns(s, row, &one, i, stream) };
                    }
                    row = row.after(&steps);
                }
            }
        }
        if done < half {
            let mut row = row;
            for _ in 0..count {
                // SAFETY: a row inside the shape.
                unsafe { self.rest(s, row, done) };
                row = row.after(&steps);
            }
        }
    }

    /// Turns the pairs of vectors at `i` of rows that the same row of the tables turns.
    ///
    /// # Safety
    /// They are inside the shape, and the last axis is dense; where it streams, outputs begin at multiples of a vector.
    #[inline(always)]
    unsafe fn columns<S: Simd>(&self, s: S, mut row: Row<E, C>, steps: &Steps, i: usize, stream: bool) {
        // SAFETY: by this function's contract.
        let (c, sn) = unsafe { self.tables(s, row, i) };
        for _ in 0..steps.count {
            let [x1, x2, out1, out2] = row.tensors;
            // SAFETY: likewise.
            let a = unsafe { load2_as::<S, E, C>(s, x1.add(i)) };
            // SAFETY: likewise.
            let b = unsafe { load2_as::<S, E, C>(s, x2.add(i)) };
            let (first, second) = rotate(s, a[0], b[0], c[0], sn[0]);
            let (third, fourth) = rotate(s, a[1], b[1], c[1], sn[1]);
            // SAFETY: likewise; where it streams, whole vectors begin at the rows, and at `i`.
            unsafe { store2_as::<S, E, C>(s, out1.add(i), [first, third], stream) };
            // SAFETY: likewise.
            unsafe { store2_as::<S, E, C>(s, out2.add(i), [second, fourth], stream) };
            row = row.after(steps);
        }
    }

    /// The pairs of vectors at `i` of a row of the tables.
    ///
    /// # Safety
    /// They are inside the row, and its elements are dense.
    #[inline(always)]
    unsafe fn tables<S: Simd>(&self, s: S, row: Row<E, C>, i: usize) -> ([S::V; 2], [S::V; 2]) {
        // SAFETY: by this function's contract.
        let (c, [mut first, mut second]) = unsafe { (C::load2(s, row.cos.add(i)), C::load2(s, row.sin.add(i))) };
        if self.conj {
            let back = s.splat(-1.0);
            (first, second) = (s.mul(first, back), s.mul(second, back));
        }
        (c, [first, second])
    }

    /// Turns a row from the pair `i` on.
    ///
    /// # Safety
    /// The addresses are those of a row.
    #[inline(always)]
    unsafe fn rest<S: Simd>(&self, s: S, row: Row<E, C>, mut i: usize) {
        let Row { tensors: [x1, x2, out1, out2], cos, sin } = row;
        let (half, layout) = (self.side.shape[3], self.side.layout);
        let sign = s.splat(if self.conj { -1.0 } else { 1.0 });
        while layout != Layout::Strided && i + S::LANES <= half {
            // SAFETY: `i + LANES <= half`, and the tables' last axis is dense in these layouts.
            let c = unsafe { C::load(s, cos.add(i)) };
            // SAFETY: likewise.
            let sn = s.mul(unsafe { C::load(s, sin.add(i)) }, sign);
            if layout == Layout::Split {
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
        let [step1, step2, step3, step4] = self.side.tensors.map(|view| view.strides[3]);
        for i in i as isize..half as isize {
            // SAFETY: `i < half`, so inside each tensor's checked span.
            let c = unsafe { cos.offset(i * self.side.cos[3]).read() }.to_f32();
            // SAFETY: likewise.
            let sn = unsafe { sin.offset(i * self.side.sin[3]).read() }.to_f32() * sign;
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

/// From one row to the next along an axis, in elements, and how many rows there are.
#[derive(Debug, Clone, Copy)]
struct Steps {
    tensors: [isize; 4],
    cos: isize,
    sin: isize,
    count: usize,
}

impl<E, C> Row<E, C> {
    #[inline(always)]
    fn after(mut self, steps: &Steps) -> Self {
        for (address, step) in self.tensors.iter_mut().zip(steps.tensors) {
            *address = address.wrapping_offset(step);
        }
        self.cos = self.cos.wrapping_offset(steps.cos);
        self.sin = self.sin.wrapping_offset(steps.sin);
        self
    }
}

#[inline(always)]
fn rotate<S: Simd>(s: S, a: S::V, b: S::V, cos: S::V, sin: S::V) -> (S::V, S::V) {
    (s.sub(s.mul(a, cos), s.mul(b, sin)), s.fma(a, sin, s.mul(b, cos)))
}
