//! Products with a weight, and rows chosen from one.

use super::error::check_plan;
use super::norm::spec;
use super::{Array, ArrayMut, Number, SliceError};
use crate::bind::{BindError, Contract, LinearKernel, TensorRef};
use crate::swap::{Plan, Slot, Slots};

const LINEAR: &str = "Linear";
const EMBEDDING: &str = "Embedding";

/// `x · weightᵀ + bias`.
///
/// # Shapes
/// Weight `[outputs, inputs]`, bias `[outputs]`; input `[..., inputs]`, output `[..., outputs]`.
#[derive(Debug, Clone)]
pub struct Linear<T> {
    weight: Vec<T>,
    bias: Option<Vec<T>>,
    /// `[outputs, inputs]`.
    shape: [usize; 2],
    slot: Slot,
}

impl<T: Number> Linear<T> {
    /// A product with its weights, in the slot `path` of the model. The slot's width is `inputs`.
    ///
    /// # Errors
    /// [`SliceError::Length`] for a weight that is not `[outputs, inputs]`, [`SliceError::Shape`] for a bias that is
    /// not `[outputs]`.
    pub fn new(
        weight: Vec<T>,
        [outputs, inputs]: [usize; 2],
        bias: Option<Vec<T>>,
        slots: &Slots,
        path: impl Into<String>,
    ) -> Result<Self, SliceError> {
        Array::new(&weight, &[outputs, inputs])?;
        if let Some(bias) = bias.as_ref().filter(|bias| bias.len() != outputs) {
            return Err(SliceError::shape(LINEAR, "bias", format!("[{outputs}]"), &[bias.len()]));
        }
        let options = if bias.is_some() { vec!["bias"] } else { Vec::new() };
        let slot = slots.slot(spec::<T>(path, LINEAR, Contract::Linear, inputs, options));
        Ok(Self { weight, bias, shape: [outputs, inputs], slot })
    }

    /// Writes the product to `out`, under the plan of the scope that the thread is in, or else the current one.
    ///
    /// # Errors
    /// [`SliceError::Shape`], or [`SliceError::Kernel`] from the kernel.
    pub fn forward(&self, out: &mut ArrayMut<'_, T>, x: &Array<'_, T>) -> Result<(), SliceError> {
        self.slot.with_plan(|plan| self.forward_in(plan, out, x))
    }

    /// Writes the product to `out`, under the plan that the model pinned.
    ///
    /// # Errors
    /// As [`Self::forward`].
    pub fn forward_in(&self, plan: &Plan, out: &mut ArrayMut<'_, T>, x: &Array<'_, T>) -> Result<(), SliceError> {
        check_plan(plan, &self.slot, LINEAR)?;
        match plan.linear(&self.slot) {
            Some(kernel) => self.by_kernel(kernel, out, x).map_err(|source| SliceError::kernel(LINEAR, source)),
            None => self.forward_reference(out, x),
        }
    }

    fn by_kernel(&self, kernel: &LinearKernel, out: &mut ArrayMut<'_, T>, x: &Array<'_, T>) -> Result<(), BindError> {
        let weight = TensorRef::contiguous(&self.weight, &self.shape)?;
        let bias = self.bias.as_deref().map(|bias| TensorRef::contiguous(bias, &self.shape[..1])).transpose()?;
        kernel.forward(&mut out.tensor()?, &x.tensor()?, &weight, bias.as_ref())
    }

    /// Writes the product to `out` in plain Rust.
    ///
    /// # Errors
    /// [`SliceError::Shape`].
    pub fn forward_reference(&self, out: &mut ArrayMut<'_, T>, x: &Array<'_, T>) -> Result<(), SliceError> {
        let [outputs, inputs] = self.shape;
        let Some((&width, rows)) = x.shape.split_last().filter(|(width, _)| **width == inputs) else {
            return Err(SliceError::shape(LINEAR, "x", format!("[..., {inputs}]"), x.shape));
        };
        if out.shape.split_last() != Some((&outputs, rows)) {
            return Err(SliceError::shape(LINEAR, "out", format!("{rows:?} and {outputs}"), out.shape));
        }
        for (index, out) in out.data.iter_mut().enumerate() {
            let (row, output) = (index / outputs, index % outputs);
            let (x, weight) = (&x.data[row * width..][..width], &self.weight[output * width..][..width]);
            let bias = self.bias.as_ref().map_or(0.0, |bias| bias[output].to_f32());
            *out = T::from_f32(dot(x, weight) + bias);
        }
        Ok(())
    }
}

/// Rows of a table, by their indices.
///
/// # Shapes
/// Table `[rows, hidden]`; indices `[...]`, output `[..., hidden]`.
#[derive(Debug, Clone)]
pub struct Embedding<T> {
    table: Vec<T>,
    /// `[rows, hidden]`.
    shape: [usize; 2],
    slot: Slot,
}

impl<T: Number> Embedding<T> {
    /// A table `[rows, hidden]`, in the slot `path` of the model. The slot's width is `hidden`.
    ///
    /// # Errors
    /// [`SliceError::Length`] for a table of another length.
    pub fn new(table: Vec<T>, shape: [usize; 2], slots: &Slots, path: impl Into<String>) -> Result<Self, SliceError> {
        Array::new(&table, &shape)?;
        let slot = slots.slot(spec::<T>(path, EMBEDDING, Contract::Embedding, shape[1], Vec::new()));
        Ok(Self { table, shape, slot })
    }

    /// Writes the rows to `out`, under the plan of the scope that the thread is in, or else the current one.
    ///
    /// # Errors
    /// [`SliceError::Shape`]; [`SliceError::Index`] or [`SliceError::Kernel`] for an index outside the table.
    pub fn forward(&self, out: &mut ArrayMut<'_, T>, ids: &Array<'_, u32>) -> Result<(), SliceError> {
        self.slot.with_plan(|plan| self.forward_in(plan, out, ids))
    }

    /// Writes the rows to `out`, under the plan that the model pinned.
    ///
    /// # Errors
    /// As [`Self::forward`].
    pub fn forward_in(&self, plan: &Plan, out: &mut ArrayMut<'_, T>, ids: &Array<'_, u32>) -> Result<(), SliceError> {
        check_plan(plan, &self.slot, EMBEDDING)?;
        let Some(kernel) = plan.embedding(&self.slot) else { return self.forward_reference(out, ids) };
        let result = out.tensor().and_then(|mut out| {
            let ids = TensorRef::indices(ids.data, ids.shape)?;
            kernel.forward(&mut out, &ids, &TensorRef::contiguous(&self.table, &self.shape)?)
        });
        result.map_err(|source| SliceError::kernel(EMBEDDING, source))
    }

    /// Writes the rows to `out` in plain Rust. An index outside the table leaves `out` as it was.
    ///
    /// # Errors
    /// [`SliceError::Shape`], [`SliceError::Index`].
    pub fn forward_reference(&self, out: &mut ArrayMut<'_, T>, ids: &Array<'_, u32>) -> Result<(), SliceError> {
        let [rows, hidden] = self.shape;
        if out.shape.split_last() != Some((&hidden, ids.shape)) {
            return Err(SliceError::shape(EMBEDDING, "out", format!("{:?} and {hidden}", ids.shape), out.shape));
        }
        let row_of = |index: u32| usize::try_from(index).ok().filter(|row| *row < rows);
        if let Some(position) = ids.data.iter().position(|index| row_of(*index).is_none()) {
            return Err(SliceError::Index { layer: EMBEDDING, index: ids.data[position], position, rows });
        }
        for (out, index) in out.data.chunks_exact_mut(hidden.max(1)).zip(ids.data) {
            if let Some(row) = row_of(*index) {
                out.copy_from_slice(&self.table[row * hidden..][..hidden]);
            }
        }
        Ok(())
    }
}

/// The sum of products, in `f32`.
pub(super) fn dot<T: Number>(left: &[T], right: &[T]) -> f32 {
    left.iter().zip(right).map(|(left, right)| left.to_f32() * right.to_f32()).sum()
}
