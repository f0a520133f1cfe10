//! Root-mean-square normalisation.

use candle_core::{D, DType, Result, Tensor};

use super::spec::{float_dtype, mode_for};
use super::{LayerError, kernels};
use crate::bind::{Contract, MAX_RANK, Rounding};
use crate::swap::{Mode, Plan, Slot, SlotSpec, Slots};

const LAYER: &str = "RMSNorm";

/// `x / sqrt(mean(x²) + eps) * weight` over the last axis.
///
/// # Shapes
/// `weight` is `[hidden]`; the input is `[..., hidden]` of any strides, the output has its shape and is contiguous.
///
/// # Element types
/// f32, bf16 and f16 with the sum in f32, and f64; input and weight of one type. The differentiable path rounds the
/// normalised value to the input's type before it multiplies by the weight. candle's fused operation rounds the root of
/// the mean square to the input's type, which in bf16 scales a whole row by up to 0.4 %; it is the reference all the
/// same, because it is what a plain candle model runs. A kernel rounds once, at the end.
#[derive(Debug, Clone)]
pub struct RmsNorm {
    weight: Tensor,
    eps: f32,
    slot: Slot,
}

impl RmsNorm {
    /// A norm with `weight` `[hidden]`, in the slot `path` of the model.
    ///
    /// # Errors
    /// A [`LayerError`] when the weight is not one axis of a floating-point type.
    pub fn new(weight: Tensor, eps: f32, slots: &Slots, path: impl Into<String>) -> Result<Self> {
        let [hidden] = *weight.dims() else {
            let actual = weight.dims().to_vec();
            return Err(
                LayerError::Shape { layer: LAYER, tensor: "weight", expected: "[hidden]".to_owned(), actual }.into()
            );
        };
        let dtype = float_dtype(LAYER, "weight", weight.dtype())?;
        let trainable = weight.track_op();
        let slot = slots.slot(SlotSpec {
            path: path.into(),
            layer: LAYER.to_owned(),
            contract: Contract::RmsNorm,
            dtype,
            last_dim: hidden,
            trainable,
            options: Vec::new(),
            rounding: Rounding::Dtype,
        });
        Ok(Self { weight, eps, slot })
    }

    /// The weight, `[hidden]`.
    #[must_use]
    pub fn weight(&self) -> &Tensor {
        &self.weight
    }

    /// The number added to the mean square.
    #[must_use]
    pub fn eps(&self) -> f32 {
        self.eps
    }

    /// Normalises `x`, under the plan of the scope that the thread is in, or else the current one.
    ///
    /// # Errors
    /// When the last axis of `x` is not the weight's, or its type differs.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.slot.with_plan(|plan| self.forward_in(plan, x))
    }

    /// Normalises `x`, under the plan that the model pinned.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn forward_in(&self, plan: &Plan, x: &Tensor) -> Result<Tensor> {
        match plan.rms_norm(&self.slot) {
            Some(kernel) if !x.track_op() => {
                self.check(x)?;
                kernels::rms_norm(kernel, x, &self.weight, self.eps)
            }
            _ => self.forward_reference(plan.mode(), x),
        }
    }

    /// Normalises `x` by candle's own code: its fused operation in inference, differentiable operations in training or
    /// where `x` or the weight tracks a gradient.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn forward_reference(&self, mode: Mode, x: &Tensor) -> Result<Tensor> {
        self.check(x)?;
        if x.elem_count() == 0 {
            // candle's operations divide by the width, and copy beyond a view of nothing.
            return Ok(x.clone());
        }
        // The fused operation takes neither strided nor f64 input.
        if mode_for(mode, &[x, &self.weight]).is_training() || x.dtype() == DType::F64 {
            return self.differentiable(x);
        }
        candle_nn::ops::rms_norm(&x.contiguous()?, &self.weight.contiguous()?, self.eps)
    }

    fn differentiable(&self, x: &Tensor) -> Result<Tensor> {
        let dtype = x.dtype();
        let wide = if matches!(dtype, DType::F16 | DType::BF16) { x.to_dtype(DType::F32)? } else { x.clone() };
        let mean_square = wide.sqr()?.mean_keepdim(D::Minus1)?;
        let normalised = wide.broadcast_div(&(mean_square + f64::from(self.eps))?.sqrt()?)?;
        normalised.to_dtype(dtype)?.broadcast_mul(&self.weight)
    }

    fn check(&self, x: &Tensor) -> Result<()> {
        let hidden = self.weight.dim(0)?;
        // candle panics where it copies a view of more axes, and kernels take no more.
        if x.rank() > MAX_RANK || x.dims().last() != Some(&hidden) {
            let axes = if x.rank() > MAX_RANK { format!(" of at most {MAX_RANK} axes") } else { String::new() };
            let (expected, actual) = (format!("[..., {hidden}]{axes}"), x.dims().to_vec());
            return Err(LayerError::Shape { layer: LAYER, tensor: "input", expected, actual }.into());
        }
        if x.dtype() != self.weight.dtype() {
            let expected = format!("{:?} like the weight", self.weight.dtype());
            let actual = format!("{:?}", x.dtype());
            return Err(LayerError::DType { layer: LAYER, tensor: "input", expected, actual }.into());
        }
        Ok(())
    }
}
