//! Rows of a table by their numbers.

use candle_core::{DType, Result, Tensor};
use candle_nn::Module;

use super::spec::{Claim, any_dtype};
use super::{LayerError, call};
use crate::bind::{Contract, MAX_RANK, Rounding};
use crate::swap::{Plan, Slot, Slots};

const LAYER: &str = "Embedding";

/// `weight[ids]`, rows copied bit for bit on every path.
///
/// # Shapes
/// `weight` is `[vocabulary, hidden]`, ids are `[...]` of any strides, the output is `[..., hidden]`, contiguous.
///
/// # Element types
/// A weight of any type that the hub knows; ids of u8, u32 or i64, each below `vocabulary`.
#[derive(Debug, Clone)]
pub struct Embedding {
    weight: Tensor,
    slot: Slot,
}

impl Embedding {
    /// A table `[vocabulary, hidden]`, in the slot `path` of the model. The slot's width is `hidden`.
    ///
    /// # Errors
    /// A [`LayerError`] when the weight is not two axes, or of a type that the hub does not know.
    pub fn new(weight: Tensor, slots: &Slots, path: impl Into<String>) -> Result<Self> {
        let [_, hidden] = *weight.dims() else {
            let (expected, actual) = ("[vocabulary, hidden]".to_owned(), weight.dims().to_vec());
            return Err(LayerError::Shape { layer: LAYER, tensor: "weight", expected, actual }.into());
        };
        let dtype = any_dtype(LAYER, "weight", weight.dtype())?;
        let claim = Claim {
            layer: LAYER,
            contract: Contract::Embedding,
            dtype,
            width: hidden,
            weights: &[&weight],
            options: &[],
            rounding: Rounding::Exact,
        };
        let slot = claim.slot(slots, path);
        Ok(Self { weight, slot })
    }

    /// The table, `[vocabulary, hidden]`.
    #[must_use]
    pub fn weight(&self) -> &Tensor {
        &self.weight
    }

    /// Elements of a row.
    #[must_use]
    pub fn hidden(&self) -> usize {
        // Two axes, as `new` made sure of.
        self.weight.dims().last().copied().unwrap_or_default()
    }

    /// The rows of `ids`, under the plan of the scope that the thread is in, or else the current one.
    ///
    /// # Errors
    /// When the ids are not whole numbers of a type that candle takes, or one is not below the table's rows.
    pub fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        self.slot.with_plan(|plan| self.forward_in(plan, ids))
    }

    /// The rows of `ids`, under the plan that the model pinned.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn forward_in(&self, plan: &Plan, ids: &Tensor) -> Result<Tensor> {
        check(ids)?;
        match call::embedding(plan, &self.slot, ids, &self.weight)? {
            Some(out) => Ok(out),
            None => self.reference(ids),
        }
    }

    /// The rows of `ids` by candle's own selection, which is differentiable in every mode.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn forward_reference(&self, ids: &Tensor) -> Result<Tensor> {
        check(ids)?;
        self.reference(ids)
    }

    fn reference(&self, ids: &Tensor) -> Result<Tensor> {
        let mut shape = ids.dims().to_vec();
        shape.push(self.weight.dim(1)?);
        if ids.elem_count() == 0 {
            return Tensor::zeros(shape, self.weight.dtype(), self.weight.device());
        }
        self.weight.index_select(&ids.flatten_all()?, 0)?.reshape(shape)
    }
}

impl Module for Embedding {
    fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        self.forward(ids)
    }
}

fn check(ids: &Tensor) -> Result<()> {
    if ids.rank() >= MAX_RANK {
        let (expected, actual) = (format!("[...] of at most {} axes", MAX_RANK - 1), ids.dims().to_vec());
        return Err(LayerError::Shape { layer: LAYER, tensor: "ids", expected, actual }.into());
    }
    if !matches!(ids.dtype(), DType::U8 | DType::U32 | DType::I64) {
        let (expected, actual) = ("one of u8, u32, i64".to_owned(), format!("{:?}", ids.dtype()));
        return Err(LayerError::DType { layer: LAYER, tensor: "ids", expected, actual }.into());
    }
    Ok(())
}
