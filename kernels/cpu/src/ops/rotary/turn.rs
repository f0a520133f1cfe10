//! One side's rows, turned.

#![expect(unsafe_code, reason = "reads and writes rows by pointer")]
#![expect(clippy::inline_always, reason = "generic SIMD code must be inlined into the function compiled for its level")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "an access and the pointer arithmetic to it share a note")]
#![expect(clippy::cast_possible_wrap, reason = "extents and offsets fit isize: checked with the tensor")]
#![expect(clippy::many_single_char_names, reason = "short names for vectors in formulas")]

use core::ops::Range;

use super::{AXES, Layout, Side};
use crate::ops::rows::head;
use crate::simd::{Element, Simd, load2_as, store2_as};

/// One side's part of a call.
pub(super) struct Turn<'a, E, C> {
    pub(super) side: &'a Side<E>,
    pub(super) cos: *mut C,
    pub(super) sin: *mut C,
    pub(super) conj: bool,
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
    /// Runs some of the side's items.
    #[inline(always)]
    pub(super) fn run<S: Simd>(&self, s: S, items: Range<usize>) {
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
