//! Rotary position embedding on strided halves.

#![expect(unsafe_code, reason = "promises that items may run at once")]
#![expect(clippy::inline_always, reason = "generic SIMD code must be inlined into the function compiled for its level")]

mod turn;

use core::ops::Range;

use half::{bf16, f16};

use self::turn::Turn;
use super::rows::streams;
use crate::call::{Args, DType, Failed, Job, Tensor, launch};
use crate::simd::{Element, Simd};

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
