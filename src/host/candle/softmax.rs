//! The softmax of rows.

use candle_core::{D, DType, Result, Tensor};
use candle_nn::{Module, ops};

use super::call;
use super::spec::{Claim, check_rows, float_dtype, mode_for};
use crate::bind::{Contract, Rounding};
use crate::swap::{Mode, Plan, Slot, Slots};

/// The layer's name in kernel mappings.
const LAYER: &str = "Softmax";

/// `e^x / sum(e^x)` over the last axis.
///
/// # Shapes
/// The input is `[..., width]` of any strides, the output has its shape.
///
/// # Element types
/// f64, f32, bf16 and f16. The reference rounds as candle's `softmax_last_dim` does in inference, and to the element
/// type after each of its operations where a gradient is tracked. A kernel computes in f32 and rounds once, at the end.
#[derive(Debug, Clone)]
pub struct Softmax {
    width: usize,
    dtype: DType,
    slot: Slot,
}

impl Softmax {
    /// The softmax of rows of `width` elements of `dtype`, in the slot `path` of the model. In kernel mappings the layer
    /// is `Softmax`.
    ///
    /// # Errors
    /// A [`LayerError`](super::LayerError) when `dtype` is not floating-point.
    pub fn new(width: usize, dtype: DType, slots: &Slots, path: impl Into<String>) -> Result<Self> {
        let claim = Claim {
            layer: LAYER,
            contract: Contract::Softmax,
            dtype: float_dtype(LAYER, "dtype", dtype)?,
            width,
            weights: &[],
            options: &[],
            rounding: Rounding::Dtype,
        };
        Ok(Self { width, dtype, slot: claim.slot(slots, path) })
    }

    /// The softmax of `x`, under the plan of the scope that the thread is in, or else the current one.
    ///
    /// # Errors
    /// When the last axis or the element type of `x` is not the layer's.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.slot.with_plan(|plan| self.forward_in(plan, x))
    }

    /// The softmax of `x`, under the plan that the model pinned.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn forward_in(&self, plan: &Plan, x: &Tensor) -> Result<Tensor> {
        self.check(x)?;
        match call::softmax(plan, &self.slot, x)? {
            Some(out) => Ok(out),
            None => reference(plan.mode(), x),
        }
    }

    /// The softmax of `x` by candle's own code: its fused operation in inference, differentiable operations else.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn forward_reference(&self, mode: Mode, x: &Tensor) -> Result<Tensor> {
        self.check(x)?;
        reference(mode, x)
    }

    fn check(&self, x: &Tensor) -> Result<()> {
        Ok(check_rows(LAYER, x, self.width, ("the layer", self.dtype), 1)?)
    }
}

fn reference(mode: Mode, x: &Tensor) -> Result<Tensor> {
    if x.elem_count() == 0 {
        // candle's operations look for the greatest of nothing.
        return Ok(x.clone());
    }
    // The fused operation takes no strided input, and cuts gradients.
    if mode_for(mode, &[x]).is_training() {
        ops::softmax(x, D::Minus1)
    } else {
        ops::softmax_last_dim(&x.contiguous()?)
    }
}

impl Module for Softmax {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.forward(x)
    }
}
