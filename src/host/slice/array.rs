//! Row-major slices with a shape.

use half::{bf16, f16};

use super::SliceError;
use crate::bind::{BindError, Element, TensorMut, TensorRef};

/// An element type of this host: one that kernels compute with, and that converts from and to `f32`.
pub trait Number: Element {
    /// The value in `f32`, exactly.
    fn to_f32(self) -> f32;
    /// The nearest value of this type.
    fn from_f32(value: f32) -> Self;
}

impl Number for f32 {
    fn to_f32(self) -> f32 {
        self
    }
    fn from_f32(value: f32) -> Self {
        value
    }
}
impl Number for bf16 {
    fn to_f32(self) -> f32 {
        Self::to_f32(self)
    }
    fn from_f32(value: f32) -> Self {
        Self::from_f32(value)
    }
}
impl Number for f16 {
    fn to_f32(self) -> f32 {
        Self::to_f32(self)
    }
    fn from_f32(value: f32) -> Self {
        Self::from_f32(value)
    }
}

/// Elements in row-major order, and the extents of their axes, outermost first.
#[derive(Debug, Clone, Copy)]
pub struct Array<'a, T> {
    pub(super) data: &'a [T],
    pub(super) shape: &'a [usize],
}

/// As [`Array`], to be written.
#[derive(Debug)]
pub struct ArrayMut<'a, T> {
    pub(super) data: &'a mut [T],
    pub(super) shape: &'a [usize],
}

/// Whether `len` elements fill a shape.
#[inline]
fn fills(len: usize, shape: &[usize]) -> bool {
    if shape.contains(&0) {
        return len == 0;
    }
    shape.iter().try_fold(1, |count: usize, extent| count.checked_mul(*extent)) == Some(len)
}

impl<'a, T> Array<'a, T> {
    /// The elements of `data` as an array of `shape`.
    ///
    /// # Errors
    /// [`SliceError::Length`] unless they are as many as the shape has.
    #[inline]
    pub fn new(data: &'a [T], shape: &'a [usize]) -> Result<Self, SliceError> {
        if !fills(data.len(), shape) {
            return Err(SliceError::Length { len: data.len(), shape: shape.to_vec() });
        }
        Ok(Self { data, shape })
    }

    /// The elements, in row-major order.
    #[must_use]
    #[inline]
    pub fn data(&self) -> &'a [T] {
        self.data
    }

    /// The extents, outermost first.
    #[must_use]
    #[inline]
    pub fn shape(&self) -> &'a [usize] {
        self.shape
    }
}

impl<'a, T> ArrayMut<'a, T> {
    /// As [`Array::new`].
    ///
    /// # Errors
    /// As [`Array::new`].
    #[inline]
    pub fn new(data: &'a mut [T], shape: &'a [usize]) -> Result<Self, SliceError> {
        if !fills(data.len(), shape) {
            return Err(SliceError::Length { len: data.len(), shape: shape.to_vec() });
        }
        Ok(Self { data, shape })
    }

    /// The elements, in row-major order, to be written.
    #[must_use]
    #[inline]
    pub fn data_mut(&mut self) -> &mut [T] {
        self.data
    }

    /// The extents, outermost first.
    #[must_use]
    #[inline]
    pub fn shape(&self) -> &'a [usize] {
        self.shape
    }
}

impl<'a, T: Number> Array<'a, T> {
    #[inline]
    pub(super) fn tensor(&self) -> Result<TensorRef<'a>, BindError> {
        TensorRef::contiguous(self.data, self.shape)
    }
}

impl<T: Number> ArrayMut<'_, T> {
    #[inline]
    pub(super) fn tensor(&mut self) -> Result<TensorMut<'_>, BindError> {
        TensorMut::contiguous(self.data, self.shape)
    }
}

/// Refuses an output that is not of the input's shape.
#[inline]
pub(super) fn check_same<T>(layer: &'static str, out: &ArrayMut<'_, T>, x: &Array<'_, T>) -> Result<(), SliceError> {
    if out.shape == x.shape {
        return Ok(());
    }
    Err(SliceError::shape(layer, "out", format!("{:?} like x", x.shape), out.shape))
}
