//! Root-mean-square normalisation, alone and after a residual add.

use candle_core::{D, DType, Result, Tensor};
use candle_nn::Module;

use super::spec::{Claim, check_rows, exact_shape, float_dtype, mode_for, same_dtype};
use super::{LayerError, call};
use crate::bind::{Contract, Rounding};
use crate::swap::{GroupSpec, Mode, Plan, Slot, Slots};

const LAYER: &str = "RMSNorm";
const FUSED: &str = "AddRMSNorm";

/// What an [`RmsNorm`] computes. A number alone is its `eps`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RmsNormConfig {
    /// The number added to the mean square.
    pub eps: f64,
    /// The number added to the weight: 0, or 1 where a model stores `weight - 1`, as Gemma does.
    pub offset: f64,
    /// Whether the model adds a residual just before, so that one kernel may do both: see [`RmsNorm::forward_add`].
    pub after_add: bool,
}

impl From<f64> for RmsNormConfig {
    fn from(eps: f64) -> Self {
        Self { eps, offset: 0.0, after_add: false }
    }
}

impl From<f32> for RmsNormConfig {
    fn from(eps: f32) -> Self {
        f64::from(eps).into()
    }
}

/// `x / sqrt(mean(x²) + eps) * (weight + offset)` over the last axis.
///
/// # Shapes
/// `weight` is `[hidden]`; the input is `[..., hidden]` of any strides, the output has its shape and is contiguous.
///
/// # Element types
/// f32, bf16 and f16 with the sum in f32, and f64; input and weight of one type. The differentiable path rounds the
/// normalised value to the input's type before it multiplies by the weight. candle's fused operation rounds the root of
/// the mean square to the input's type, which in bf16 scales a whole row by up to 0.4 %; it is the reference all the
/// same, because it is what a plain candle model runs. A kernel rounds once, at the end. With an offset, which candle
/// knows nothing of, every path computes in f32 (or f64) throughout and rounds once, as Gemma's own code does.
#[derive(Debug, Clone)]
pub struct RmsNorm {
    weight: Tensor,
    config: RmsNormConfig,
    slot: Slot,
    /// The slot of the norm and the add before it.
    fused: Option<Slot>,
}

impl RmsNorm {
    /// A norm with `weight` `[hidden]`, in the slot `path` of the model; `config` is its `eps` or a [`RmsNormConfig`].
    /// A norm after an add claims a second slot, `path.add` of the layer `AddRMSNorm`, for both together.
    ///
    /// # Errors
    /// A [`LayerError`] when the weight is not one axis of a floating-point type.
    pub fn new(
        weight: Tensor,
        config: impl Into<RmsNormConfig>,
        slots: &Slots,
        path: impl Into<String>,
    ) -> Result<Self> {
        let [hidden] = *weight.dims() else {
            let (expected, actual) = ("[hidden]".to_owned(), weight.dims().to_vec());
            return Err(LayerError::Shape { layer: LAYER, tensor: "weight", expected, actual }.into());
        };
        let (config, path) = (config.into(), path.into());
        let claim = Claim {
            layer: LAYER,
            contract: Contract::RmsNorm,
            dtype: float_dtype(LAYER, "weight", weight.dtype())?,
            width: hidden,
            weights: &[&weight],
            options: if config.offset == 0.0 { &[] } else { &["offset"] },
            rounding: if config.offset == 0.0 { Rounding::Dtype } else { Rounding::F32WeightF32 },
        };
        let slot = claim.slot(slots, path.clone());
        let fused = if config.after_add {
            let claim = Claim { layer: FUSED, contract: Contract::AddRmsNorm, ..claim };
            let group = GroupSpec { fused: claim.spec(format!("{path}.add")), members: vec![slot.clone()] };
            Some(slots.group(group).map_err(LayerError::from)?)
        } else {
            None
        };
        Ok(Self { weight, config, slot, fused })
    }

    /// The weight, `[hidden]`.
    #[must_use]
    pub fn weight(&self) -> &Tensor {
        &self.weight
    }

    /// The number added to the mean square.
    #[must_use]
    pub fn eps(&self) -> f64 {
        self.config.eps
    }

    /// The number added to the weight.
    #[must_use]
    pub fn offset(&self) -> f64 {
        self.config.offset
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
        let RmsNormConfig { eps, offset, .. } = self.config;
        match call::rms_norm(plan, &self.slot, x, &self.weight, eps, offset)? {
            Some(out) => Ok(out),
            None => self.reference(plan.mode(), x),
        }
    }

    /// Adds `residual` to `x` and normalises the sum: `(normalised, sum)`, under the plan of the scope that the thread
    /// is in, or else the current one.
    ///
    /// The sum is rounded to the element type before it is normalised, on every path. One kernel does both where the
    /// norm was made for it ([`RmsNormConfig::after_add`]) and the plan has one; else candle adds, and the norm runs as
    /// it does alone.
    ///
    /// # Errors
    /// As [`forward`](Self::forward), and when the shape or the element type of `residual` is not that of `x`.
    pub fn forward_add(&self, x: &Tensor, residual: &Tensor) -> Result<(Tensor, Tensor)> {
        self.slot.with_plan(|plan| self.forward_add_in(plan, x, residual))
    }

    /// Adds and normalises, under the plan that the model pinned.
    ///
    /// # Errors
    /// As [`forward_add`](Self::forward_add).
    pub fn forward_add_in(&self, plan: &Plan, x: &Tensor, residual: &Tensor) -> Result<(Tensor, Tensor)> {
        self.check(x)?;
        exact_shape(LAYER, ("residual", residual), x.dims(), "the shape of x")?;
        same_dtype(LAYER, ("x", x), ("residual", residual))?;
        let RmsNormConfig { eps, offset, .. } = self.config;
        if let Some(fused) = &self.fused
            && let Some(outputs) = call::add_rms_norm(plan, fused, [x, residual], &self.weight, eps, offset)?
        {
            return Ok(outputs);
        }
        let sum = (x + residual)?;
        Ok((self.forward_in(plan, &sum)?, sum))
    }

    /// Normalises `x` by candle's own code: its fused operation in inference, differentiable operations in training or
    /// where `x` or the weight tracks a gradient.
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
        // The fused operation takes neither strided nor f64 input.
        if mode_for(mode, &[x, &self.weight]).is_training() || x.dtype() == DType::F64 {
            return self.differentiable(x);
        }
        #[expect(clippy::cast_possible_truncation, reason = "candle's operation takes it in f32")]
        let eps = self.config.eps as f32;
        if self.config.offset == 0.0 {
            return candle_nn::ops::rms_norm(&x.contiguous()?, &self.weight.contiguous()?, eps);
        }
        let weight = (self.weight.to_dtype(DType::F32)? + self.config.offset)?;
        let wide = x.to_dtype(DType::F32)?.contiguous()?;
        candle_nn::ops::rms_norm(&wide, &weight.contiguous()?, eps)?.to_dtype(x.dtype())
    }

    fn differentiable(&self, x: &Tensor) -> Result<Tensor> {
        let dtype = x.dtype();
        let is_narrow = matches!(dtype, DType::F16 | DType::BF16);
        let wide = if is_narrow { x.to_dtype(DType::F32)? } else { x.clone() };
        let mean_square = wide.sqr()?.mean_keepdim(D::Minus1)?;
        let normalised = wide.broadcast_div(&(mean_square + self.config.eps)?.sqrt()?)?;
        if self.config.offset == 0.0 {
            return normalised.to_dtype(dtype)?.broadcast_mul(&self.weight);
        }
        let weight = (self.weight.to_dtype(normalised.dtype())? + self.config.offset)?;
        normalised.broadcast_mul(&weight)?.to_dtype(dtype)
    }

    fn check(&self, x: &Tensor) -> Result<()> {
        Ok(check_rows(LAYER, x, self.weight.dim(0)?, ("the weight", self.weight.dtype()), 1)?)
    }
}

impl Module for RmsNorm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.forward(x)
    }
}
