//! Walks the rows of tensors that share their leading axes.

#![expect(clippy::cast_possible_wrap, reason = "extents times strides fit isize: checked with the tensor")]

use super::tensor::{MAX_RANK, Tensor};

/// The leading axes of `K` tensors, merged where all of them allow it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowMap<const K: usize> {
    axes: usize,
    extents: [usize; MAX_RANK],
    strides: [[isize; K]; MAX_RANK],
}

impl<const K: usize> RowMap<K> {
    /// The rows of `tensors`, which have the same leading extents; the last axis is the row.
    #[inline]
    pub(crate) fn new(tensors: [&Tensor; K]) -> Self {
        let leading = tensors[0].shape().len().saturating_sub(1);
        Self::from_axes(&tensors[0].shape()[..leading], tensors.map(|tensor| &tensor.strides()[..leading]))
    }

    /// The places of an index space of `extents` in `K` tensors, of which each has one stride for each axis.
    #[inline]
    pub(crate) fn from_axes(extents: &[usize], strides: [&[isize]; K]) -> Self {
        let mut map = Self { axes: 0, extents: [1; MAX_RANK], strides: [[0; K]; MAX_RANK] };
        for (axis, &extent) in extents.iter().enumerate() {
            if extent == 1 {
                continue;
            }
            let strides = strides.map(|strides| strides[axis]);
            // Fits: the product of an extent and its stride was checked with the tensor.
            let mergeable = map.axes > 0
                && (0..K).all(|k| map.strides[map.axes - 1][k] == strides[k].wrapping_mul(extent as isize));
            if mergeable {
                map.extents[map.axes - 1] *= extent;
                map.strides[map.axes - 1] = strides;
            } else {
                map.extents[map.axes] = extent;
                map.strides[map.axes] = strides;
                map.axes += 1;
            }
        }
        map
    }

    /// The number of rows.
    pub(crate) fn len(&self) -> usize {
        self.extents[..self.axes].iter().product()
    }

    /// A cursor at row `start`.
    pub(crate) fn cursor(&self, start: usize) -> Cursor<'_, K> {
        let mut cursor = Cursor { map: self, index: [0; MAX_RANK], offsets: [0; K] };
        let mut rest = start;
        for axis in (0..self.axes).rev() {
            cursor.index[axis] = rest % self.extents[axis];
            rest /= self.extents[axis];
            for k in 0..K {
                cursor.offsets[k] += cursor.index[axis] as isize * self.strides[axis][k];
            }
        }
        cursor
    }
}

/// A position among the rows.
#[derive(Debug, Clone)]
pub(crate) struct Cursor<'a, const K: usize> {
    map: &'a RowMap<K>,
    index: [usize; MAX_RANK],
    /// The row's first element in each tensor, in elements.
    pub(crate) offsets: [isize; K],
}

impl<const K: usize> Cursor<'_, K> {
    /// Moves to the next row; from the last one to the first.
    #[inline]
    pub(crate) fn advance(&mut self) {
        for axis in (0..self.map.axes).rev() {
            self.index[axis] += 1;
            let strides = &self.map.strides[axis];
            if self.index[axis] < self.map.extents[axis] {
                for (offset, stride) in self.offsets.iter_mut().zip(strides) {
                    *offset += stride;
                }
                return;
            }
            for (offset, stride) in self.offsets.iter_mut().zip(strides) {
                *offset -= (self.index[axis] - 1) as isize * stride;
            }
            self.index[axis] = 0;
        }
    }
}
