//! Layer normalisation.

use candle_core::{D, DType, Result, Tensor};
use candle_nn::Module;

use super::spec::{Claim, check_rows, exact_shape, float_dtype, mode_for, same_dtype};
use super::{LayerError, call};
use crate::bind::{Contract, Rounding};
use crate::swap::{Mode, Plan, Slot, Slots};

const LAYER: &str = "LayerNorm";

/// `(x - mean(x)) / sqrt(var(x) + eps) * weight + bias` over the last axis.
///
/// # Shapes
/// `weight` and `bias` are `[hidden]`; the input is `[..., hidden]` of any strides, the output has its shape and is
/// contiguous.
///
/// # Element types
/// f32, bf16 and f16 with the sums in f32, and f64; input, weight and bias of one type. The differentiable path, which
/// is also what candle runs in inference without a bias, rounds the normalised value to the input's type before it
/// multiplies by the weight, and again before it adds the bias. A kernel rounds once, at the end.
#[derive(Debug, Clone)]
pub struct LayerNorm {
    weight: Tensor,
    bias: Option<Tensor>,
    eps: f64,
    slot: Slot,
}

impl LayerNorm {
    /// A norm with `weight` and `bias` `[hidden]`, in the slot `path` of the model.
    ///
    /// # Errors
    /// A [`LayerError`] when the weight is not one axis of a floating-point type, or the bias is not like it.
    pub fn new(
        weight: Tensor,
        bias: Option<Tensor>,
        eps: impl Into<f64>,
        slots: &Slots,
        path: impl Into<String>,
    ) -> Result<Self> {
        let [hidden] = *weight.dims() else {
            let (expected, actual) = ("[hidden]".to_owned(), weight.dims().to_vec());
            return Err(LayerError::Shape { layer: LAYER, tensor: "weight", expected, actual }.into());
        };
        let dtype = float_dtype(LAYER, "weight", weight.dtype())?;
        if let Some(bias) = &bias {
            exact_shape(LAYER, ("bias", bias), &[hidden], "[hidden]")?;
            same_dtype(LAYER, ("the weight", &weight), ("bias", bias))?;
        }
        let weights: Vec<_> = [&weight].into_iter().chain(&bias).collect();
        let claim = Claim {
            layer: LAYER,
            contract: Contract::LayerNorm,
            dtype,
            width: hidden,
            weights: &weights,
            options: if bias.is_some() { &["bias"] } else { &[] },
            rounding: if bias.is_some() { Rounding::Dtype } else { Rounding::F32WeightDtype },
        };
        let slot = claim.slot(slots, path);
        Ok(Self { weight, bias, eps: eps.into(), slot })
    }

    /// The weight, `[hidden]`.
    #[must_use]
    pub fn weight(&self) -> &Tensor {
        &self.weight
    }

    /// The bias, `[hidden]`.
    #[must_use]
    pub fn bias(&self) -> Option<&Tensor> {
        self.bias.as_ref()
    }

    /// The number added to the variance.
    #[must_use]
    pub fn eps(&self) -> f64 {
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
        self.check(x)?;
        match call::layer_norm(plan, &self.slot, x, &self.weight, self.bias.as_ref(), self.eps)? {
            Some(out) => Ok(out),
            None => self.reference(plan.mode(), x),
        }
    }

    /// Normalises `x` by candle's own code: its fused operation in inference where there is a bias, differentiable
    /// operations else.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn forward_reference(&self, mode: Mode, x: &Tensor) -> Result<Tensor> {
        self.check(x)?;
        self.reference(mode, x)
    }

    fn reference(&self, mode: Mode, x: &Tensor) -> Result<Tensor> {
        if x.elem_count() == 0 {
            // candle's operations divide by the width, and copy beyond a view of nothing.
            return Ok(x.clone());
        }
        match &self.bias {
            // The fused operation takes neither strided nor f64 input, and cuts gradients.
            Some(bias) if !mode_for(mode, &[x, &self.weight, bias]).is_training() && x.dtype() != DType::F64 => {
                let (x, weight, bias) = (x.contiguous()?, self.weight.contiguous()?, bias.contiguous()?);
                #[expect(clippy::cast_possible_truncation, reason = "candle's operation takes it in f32")]
                candle_nn::ops::layer_norm(&x, &weight, &bias, self.eps as f32)
            }
            bias => self.differentiable(x, bias.as_ref()),
        }
    }

    fn differentiable(&self, x: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
        let dtype = x.dtype();
        let wide = if matches!(dtype, DType::F16 | DType::BF16) { x.to_dtype(DType::F32)? } else { x.clone() };
        let centred = wide.broadcast_sub(&wide.mean_keepdim(D::Minus1)?)?;
        let variance = centred.sqr()?.mean_keepdim(D::Minus1)?;
        let normalised = centred.broadcast_div(&(variance + self.eps)?.sqrt()?)?;
        let scaled = normalised.to_dtype(dtype)?.broadcast_mul(&self.weight)?;
        bias.map_or_else(|| Ok(scaled.clone()), |bias| scaled.broadcast_add(bias))
    }

    fn check(&self, x: &Tensor) -> Result<()> {
        Ok(check_rows(LAYER, x, self.weight.dim(0)?, ("the weight", self.weight.dtype()), 1)?)
    }
}

impl Module for LayerNorm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.forward(x)
    }
}
