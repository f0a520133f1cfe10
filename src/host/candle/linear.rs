//! Matrix products with a weight.

use candle_core::{Result, Tensor};
use candle_nn::Module;

use super::spec::{Claim, check_rows, exact_shape, float_dtype, same_dtype};
use super::{LayerError, call};
use crate::bind::{Contract, Rounding};
use crate::swap::{Plan, Slot, Slots};

const LAYER: &str = "Linear";

/// `x · weightᵀ + bias`.
///
/// # Shapes
/// `weight` is `[out, in]`, `bias` `[out]`; the input is `[..., in]` of any strides and at least two axes, the output
/// `[..., out]`, contiguous.
///
/// # Element types
/// f64, f32, bf16 and f16; input, weight and bias of one type. The reference rounds the product before it adds the
/// bias; candle's product of bf16 and f16 adds up in f32. A kernel rounds once, at the end.
#[derive(Debug, Clone)]
pub struct Linear {
    weight: Tensor,
    bias: Option<Tensor>,
    slot: Slot,
}

impl Linear {
    /// A product with `weight` `[out, in]` and `bias` `[out]`, in the slot `path` of the model. The slot's width is
    /// `in`.
    ///
    /// # Errors
    /// A [`LayerError`] when the weight is not two axes of a floating-point type, or the bias does not go with it.
    pub fn new(weight: Tensor, bias: Option<Tensor>, slots: &Slots, path: impl Into<String>) -> Result<Self> {
        let [outputs, inputs] = *weight.dims() else {
            let (expected, actual) = ("[out, in]".to_owned(), weight.dims().to_vec());
            return Err(LayerError::Shape { layer: LAYER, tensor: "weight", expected, actual }.into());
        };
        let dtype = float_dtype(LAYER, "weight", weight.dtype())?;
        if let Some(bias) = &bias {
            exact_shape(LAYER, ("bias", bias), &[outputs], "[out]")?;
            same_dtype(LAYER, ("the weight", &weight), ("bias", bias))?;
        }
        let weights: Vec<_> = [&weight].into_iter().chain(&bias).collect();
        let claim = Claim {
            layer: LAYER,
            contract: Contract::Linear,
            dtype,
            width: inputs,
            weights: &weights,
            options: if bias.is_some() { &["bias"] } else { &[] },
            rounding: if bias.is_some() { Rounding::Dtype } else { Rounding::F32 },
        };
        let slot = claim.slot(slots, path);
        Ok(Self { weight, bias, slot })
    }

    /// The weight, `[out, in]`.
    #[must_use]
    pub fn weight(&self) -> &Tensor {
        &self.weight
    }

    /// The bias, `[out]`.
    #[must_use]
    pub fn bias(&self) -> Option<&Tensor> {
        self.bias.as_ref()
    }

    /// Multiplies `x`, under the plan of the scope that the thread is in, or else the current one.
    ///
    /// # Errors
    /// When the last axis of `x` is not the weight's, or its type differs.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.slot.with_plan(|plan| self.forward_in(plan, x))
    }

    /// Multiplies `x`, under the plan that the model pinned.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn forward_in(&self, plan: &Plan, x: &Tensor) -> Result<Tensor> {
        self.check(x)?;
        match call::linear(plan, &self.slot, x, &self.weight, self.bias.as_ref())? {
            Some(out) => Ok(out),
            None => product(x, &self.weight, self.bias.as_ref()),
        }
    }

    /// Multiplies `x` by candle's own product, which is differentiable in every mode.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn forward_reference(&self, x: &Tensor) -> Result<Tensor> {
        self.check(x)?;
        product(x, &self.weight, self.bias.as_ref())
    }

    /// The slot of this projection alone.
    pub(super) fn slot(&self) -> &Slot {
        &self.slot
    }

    pub(super) fn check(&self, x: &Tensor) -> Result<()> {
        Ok(check_rows(LAYER, x, self.weight.dim(1)?, ("the weight", self.weight.dtype()), 2)?)
    }
}

impl Module for Linear {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.forward(x)
    }
}

/// `x · weightᵀ + bias` by candle, all rows of `x` in one product.
///
/// The rows are made neighbours first: candle's own layer multiplies some transposed inputs wrongly, where with its
/// weight broadcast over the batch the product takes the rows of all batches as evenly spaced.
pub(super) fn product(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    let (outputs, inputs) = weight.dims2()?;
    let mut shape = x.dims().to_vec();
    if let Some(last) = shape.last_mut() {
        *last = outputs;
    }
    let rows = x.elem_count().checked_div(inputs).unwrap_or(0);
    if rows == 0 {
        // candle cannot tell a number of rows from no elements. A sum over no inputs is the bias alone.
        let zeros = Tensor::zeros(shape, x.dtype(), x.device())?;
        return bias.map_or_else(|| Ok(zeros.clone()), |bias| zeros.broadcast_add(bias));
    }
    let out = x.contiguous()?.reshape((rows, inputs))?.matmul(&weight.t()?)?.reshape(shape)?;
    match bias {
        Some(bias) => out.broadcast_add(bias),
        None => Ok(out),
    }
}
