//! Walks the rows of tensors that share their leading axes.

#![expect(unsafe_code, reason = "reads as many axes as were written")]
#![expect(clippy::inline_always, reason = "built where it stays: to move a map costs more than to make it")]
#![expect(clippy::cast_possible_wrap, reason = "extents times strides fit isize: checked with the tensor")]

use core::mem::MaybeUninit;

use super::tensor::{MAX_RANK, Tensor};

/// One axis: how many places it has, and how far they stand apart in each tensor, in elements.
#[derive(Debug, Clone, Copy)]
struct Axis<const K: usize> {
    extent: usize,
    strides: [isize; K],
}

/// The leading axes of `K` tensors, merged where all of them allow it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowMap<const K: usize> {
    /// The first `count` are initialised: mostly one, and to fill the rest would take longer than to find it.
    axes: [MaybeUninit<Axis<K>>; MAX_RANK],
    count: usize,
}

impl<const K: usize> RowMap<K> {
    /// The rows of `tensors`, which have the same leading extents; the last axis is the row.
    #[inline(always)]
    pub(crate) fn new(tensors: [&Tensor; K]) -> Self {
        let leading = tensors[0].shape().len().saturating_sub(1);
        Self::from_axes(&tensors[0].shape()[..leading], tensors.map(|tensor| &tensor.strides()[..leading]))
    }

    /// The places of an index space of `extents` in `K` tensors, of which each has one stride for each axis.
    #[inline(always)]
    pub(crate) fn from_axes(extents: &[usize], strides: [&[isize]; K]) -> Self {
        let mut map = Self { axes: [const { MaybeUninit::uninit() }; MAX_RANK], count: 0 };
        // The axis before, not yet written.
        let mut before: Option<Axis<K>> = None;
        for (axis, &extent) in extents.iter().enumerate() {
            if extent == 1 {
                continue;
            }
            let mut here = Axis { extent, strides: strides.map(|strides| strides[axis]) };
            if let Some(before) = before {
                // Fits: the product of an extent and its stride was checked with the tensor.
                let merge = (0..K).all(|k| before.strides[k] == here.strides[k].wrapping_mul(extent as isize));
                if merge {
                    here.extent *= before.extent;
                } else {
                    map.axes[map.count].write(before);
                    map.count += 1;
                }
            }
            before = Some(here);
        }
        if let Some(last) = before {
            map.axes[map.count].write(last);
            map.count += 1;
        }
        map
    }

    /// The axes, outermost first.
    #[inline(always)]
    fn axes(&self) -> &[Axis<K>] {
        // SAFETY: `count` axes were written, and room for one is laid out as one.
        unsafe { core::slice::from_raw_parts(self.axes.as_ptr().cast(), self.count) }
    }

    /// The number of rows.
    pub(crate) fn len(&self) -> usize {
        self.axes().iter().map(|axis| axis.extent).product()
    }

    /// A cursor at row `start`.
    pub(crate) fn cursor(&self, start: usize) -> Cursor<'_, K> {
        let mut cursor = Cursor { axes: self.axes(), index: [0; MAX_RANK], offsets: [0; K] };
        let mut rest = start;
        for (axis, index) in self.axes().iter().zip(&mut cursor.index).rev() {
            *index = rest % axis.extent;
            rest /= axis.extent;
            for (offset, stride) in cursor.offsets.iter_mut().zip(axis.strides) {
                *offset += *index as isize * stride;
            }
        }
        cursor
    }
}

/// A position among the rows.
#[derive(Debug, Clone)]
pub(crate) struct Cursor<'a, const K: usize> {
    axes: &'a [Axis<K>],
    index: [usize; MAX_RANK],
    /// The row's first element in each tensor, in elements.
    pub(crate) offsets: [isize; K],
}

impl<const K: usize> Cursor<'_, K> {
    /// Moves to the next row; from the last one to the first.
    #[inline]
    pub(crate) fn advance(&mut self) {
        for (axis, index) in self.axes.iter().zip(&mut self.index).rev() {
            *index += 1;
            if *index < axis.extent {
                for (offset, stride) in self.offsets.iter_mut().zip(axis.strides) {
                    *offset += stride;
                }
                return;
            }
            for (offset, stride) in self.offsets.iter_mut().zip(axis.strides) {
                *offset -= (*index - 1) as isize * stride;
            }
            *index = 0;
        }
    }
}
