//! Rotary position embedding.

use super::array::check_same;
use super::error::check_plan;
use super::norm::spec;
use super::{Array, ArrayMut, Number, RotaryStyle, SliceError};
use crate::bind::{BindError, Contract, RotaryKernel, TensorRef};
use crate::swap::{Plan, Slot, Slots};

const LAYER: &str = "RotaryEmbedding";

/// Turns each head by the angles of its position.
///
/// # Shapes
/// Tables `[positions, head_dim / 2]`; input and output `[batch, heads, seq, head_dim]`, the first of `seq` at the
/// position that the caller names.
#[derive(Debug, Clone)]
pub struct RotaryEmbedding<T> {
    cos: Vec<T>,
    sin: Vec<T>,
    /// `[positions, head_dim / 2]`.
    shape: [usize; 2],
    style: RotaryStyle,
    slot: Slot,
}

impl<T: Number> RotaryEmbedding<T> {
    /// An embedding with its tables of `shape` `[positions, head_dim / 2]`, in the slot `path` of the model. The slot's
    /// width is `head_dim`.
    ///
    /// # Errors
    /// [`SliceError::Length`] for tables of another length.
    pub fn new(
        cos: Vec<T>,
        sin: Vec<T>,
        shape: [usize; 2],
        style: RotaryStyle,
        slots: &Slots,
        path: impl Into<String>,
    ) -> Result<Self, SliceError> {
        Array::new(&cos, &shape)?;
        Array::new(&sin, &shape)?;
        let slot = slots.slot(spec::<T>(path, LAYER, Contract::Rotary, shape[1].saturating_mul(2), Vec::new()));
        Ok(Self { cos, sin, shape, style, slot })
    }

    /// Turns `x`, whose first position is `offset`, into `out`, under the plan of the scope that the thread is in, or
    /// else the current one.
    ///
    /// # Errors
    /// [`SliceError::Shape`], also for positions beyond the tables, or [`SliceError::Kernel`] from the kernel.
    pub fn forward(&self, out: &mut ArrayMut<'_, T>, x: &Array<'_, T>, offset: usize) -> Result<(), SliceError> {
        self.slot.with_plan(|plan| self.forward_in(plan, out, x, offset))
    }

    /// Turns `x` into `out`, under the plan that the model pinned.
    ///
    /// # Errors
    /// As [`Self::forward`].
    pub fn forward_in(
        &self,
        plan: &Plan,
        out: &mut ArrayMut<'_, T>,
        x: &Array<'_, T>,
        offset: usize,
    ) -> Result<(), SliceError> {
        check_plan(plan, &self.slot, LAYER)?;
        let Some(kernel) = plan.rotary(&self.slot) else { return self.forward_reference(out, x, offset) };
        let (first, seq) = self.check(out, x, offset)?;
        self.by_kernel(kernel, out, x, first, seq).map_err(|source| SliceError::kernel(LAYER, source))
    }

    fn by_kernel(
        &self,
        kernel: &RotaryKernel,
        out: &mut ArrayMut<'_, T>,
        x: &Array<'_, T>,
        first: usize,
        seq: usize,
    ) -> Result<(), BindError> {
        let shape = [seq, self.shape[1]];
        let (cos, sin) =
            (TensorRef::contiguous(&self.cos[first..], &shape), TensorRef::contiguous(&self.sin[first..], &shape));
        kernel.forward(&mut out.tensor()?, &x.tensor()?, &cos?, &sin?, self.style)
    }

    /// Turns `x` into `out` in plain Rust.
    ///
    /// # Errors
    /// [`SliceError::Shape`].
    pub fn forward_reference(
        &self,
        out: &mut ArrayMut<'_, T>,
        x: &Array<'_, T>,
        offset: usize,
    ) -> Result<(), SliceError> {
        let (first, seq) = self.check(out, x, offset)?;
        let half = self.shape[1];
        if x.data.is_empty() {
            return Ok(());
        }
        for (row, (out, x)) in out.data.chunks_exact_mut(2 * half).zip(x.data.chunks_exact(2 * half)).enumerate() {
            let angles = first + row % seq * half;
            for index in 0..half {
                let (cos, sin) = (self.cos[angles + index].to_f32(), self.sin[angles + index].to_f32());
                let (i, j) = match self.style {
                    RotaryStyle::HalfSplit => (index, index + half),
                    RotaryStyle::Interleaved => (2 * index, 2 * index + 1),
                };
                let (a, b) = (x[i].to_f32(), x[j].to_f32());
                out[i] = T::from_f32(a * cos - b * sin);
                out[j] = T::from_f32(a * sin + b * cos);
            }
        }
        Ok(())
    }

    /// Refuses what the tables do not fit; returns where the first position's angles stand, and the number of
    /// positions.
    fn check(&self, out: &ArrayMut<'_, T>, x: &Array<'_, T>, offset: usize) -> Result<(usize, usize), SliceError> {
        let [positions, half] = self.shape;
        let expected = || format!("[batch, heads, seq, {}] of positions {offset}.. below {positions}", 2 * half);
        let &[_, _, seq, head_dim] = x.shape else { return Err(SliceError::shape(LAYER, "x", expected(), x.shape)) };
        if head_dim != 2 * half || offset.checked_add(seq).is_none_or(|end| end > positions) {
            return Err(SliceError::shape(LAYER, "x", expected(), x.shape));
        }
        check_same(LAYER, out, x)?;
        Ok((offset * half, seq))
    }
}
