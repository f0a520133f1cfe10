//! Activations and gated activations.

use candle_core::{D, DType, Result, Tensor};
use candle_nn::{Module, ops};

use super::spec::{Claim, check_rows, float_dtype};
use super::{LayerError, call};
use crate::bind::{Activation, Contract, GatedActivation, Rounding};
use crate::swap::{Plan, Slot, Slots};

/// An activation of every element.
///
/// # Shapes
/// The input is `[..., width]` of any strides, the output has its shape.
///
/// # Element types
/// f64, f32, bf16 and f16. The reference rounds to the element type after every operation of candle's, of which
/// [`Activation::Silu`], [`Activation::Gelu`] and the tanh curves have one each and [`Activation::GeluQuick`] three. A
/// kernel computes in f32 and rounds once, at the end.
#[derive(Debug, Clone)]
pub struct ActivationLayer {
    activation: Activation,
    width: usize,
    dtype: DType,
    slot: Slot,
}

impl ActivationLayer {
    /// An activation of rows of `width` elements of `dtype`, in the slot `path` of the model. In kernel mappings the
    /// layer has the name of [`activation_layer`].
    ///
    /// # Errors
    /// A [`LayerError`] when `dtype` is not floating-point or the activation has no reference here.
    pub fn new(
        activation: Activation,
        width: usize,
        dtype: DType,
        slots: &Slots,
        path: impl Into<String>,
    ) -> Result<Self> {
        let layer = activation_layer(activation);
        let claim = Claim {
            layer,
            contract: Contract::Activation(activation),
            dtype: float_dtype(layer, "dtype", dtype)?,
            width,
            weights: &[],
            options: &[],
            rounding: Rounding::Dtype,
        };
        Ok(Self { activation, width, dtype, slot: claim.slot(slots, path) })
    }

    /// Which activation it is.
    #[must_use]
    pub fn activation(&self) -> Activation {
        self.activation
    }

    /// Activates `x`, under the plan of the scope that the thread is in, or else the current one.
    ///
    /// # Errors
    /// When the last axis or the element type of `x` is not the layer's.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.slot.with_plan(|plan| self.forward_in(plan, x))
    }

    /// Activates `x`, under the plan that the model pinned.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn forward_in(&self, plan: &Plan, x: &Tensor) -> Result<Tensor> {
        self.check(x)?;
        match call::activation(plan, &self.slot, x)? {
            Some(out) => Ok(out),
            None => activate(self.activation, x),
        }
    }

    /// Activates `x` by candle's own operations, which are differentiable in every mode.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn forward_reference(&self, x: &Tensor) -> Result<Tensor> {
        self.check(x)?;
        activate(self.activation, x)
    }

    fn check(&self, x: &Tensor) -> Result<()> {
        Ok(check_rows(activation_layer(self.activation), x, self.width, ("the layer", self.dtype), 1)?)
    }
}

impl Module for ActivationLayer {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.forward(x)
    }
}

/// An activation of one half of each row, multiplied by the other half.
///
/// # Shapes
/// The input is `[..., 2 * width]` of any strides, the output `[..., width]`.
///
/// # Element types
/// f64, f32, bf16 and f16. The reference rounds to the element type after the activation and after the product. A
/// kernel computes in f32 and rounds once, at the end.
#[derive(Debug, Clone)]
pub struct GatedActivationLayer {
    activation: GatedActivation,
    threshold: Option<f64>,
    width: usize,
    dtype: DType,
    slot: Slot,
}

impl GatedActivationLayer {
    /// An activation to rows of `width` elements of `dtype`, in the slot `path` of the model. In kernel mappings the
    /// layer has the name of [`gated_activation_layer`].
    ///
    /// # Errors
    /// A [`LayerError`] when `dtype` is not floating-point, or for [`GatedActivation::Fatrelu`], which needs a
    /// threshold: [`fatrelu`](Self::fatrelu).
    pub fn new(
        activation: GatedActivation,
        width: usize,
        dtype: DType,
        slots: &Slots,
        path: impl Into<String>,
    ) -> Result<Self> {
        if activation == GatedActivation::Fatrelu {
            return Err(LayerError::Threshold { layer: gated_activation_layer(activation) }.into());
        }
        Self::claim(activation, None, width, (dtype, &[]), slots, path.into())
    }

    /// `(a if a > threshold, else 0) * b` for the halves `a` and `b`.
    ///
    /// # Errors
    /// A [`LayerError`] when `dtype` is not floating-point.
    pub fn fatrelu(threshold: f64, width: usize, dtype: DType, slots: &Slots, path: impl Into<String>) -> Result<Self> {
        Self::claim(GatedActivation::Fatrelu, Some(threshold), width, (dtype, &[]), slots, path.into())
    }

    /// `weights` are tensors that the layer's input is computed from, whose gradients go through it.
    pub(super) fn claim(
        activation: GatedActivation,
        threshold: Option<f64>,
        width: usize,
        (dtype, weights): (DType, &[&Tensor]),
        slots: &Slots,
        path: String,
    ) -> Result<Self> {
        let layer = gated_activation_layer(activation);
        let claim = Claim {
            layer,
            contract: Contract::GatedActivation(activation),
            dtype: float_dtype(layer, "dtype", dtype)?,
            width,
            weights,
            options: &[],
            rounding: Rounding::Dtype,
        };
        Ok(Self { activation, threshold, width, dtype, slot: claim.slot(slots, path) })
    }

    /// Which activation it is.
    #[must_use]
    pub fn activation(&self) -> GatedActivation {
        self.activation
    }

    /// Activates `x`, under the plan of the scope that the thread is in, or else the current one.
    ///
    /// # Errors
    /// When the last axis or the element type of `x` is not the layer's.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.slot.with_plan(|plan| self.forward_in(plan, x))
    }

    /// Activates `x`, under the plan that the model pinned.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn forward_in(&self, plan: &Plan, x: &Tensor) -> Result<Tensor> {
        self.check(x)?;
        match self.by_kernel(plan, &self.slot, x)? {
            Some(out) => Ok(out),
            None => self.reference(x),
        }
    }

    /// Activates `x` by candle's own operations, which are differentiable in every mode.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn forward_reference(&self, x: &Tensor) -> Result<Tensor> {
        self.check(x)?;
        self.reference(x)
    }

    pub(super) fn slot(&self) -> &Slot {
        &self.slot
    }

    /// What the kernel of `slot` makes of `x`, whose shape was checked; `None`: run the reference code.
    pub(super) fn by_kernel(&self, plan: &Plan, slot: &Slot, x: &Tensor) -> Result<Option<Tensor>> {
        call::gated_activation(plan, slot, x, self.threshold)
    }

    /// The product of the halves `a` and `b`, one of them activated.
    pub(super) fn of_halves(&self, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        match self.activation {
            GatedActivation::Silu => activate(Activation::Silu, a)? * b,
            GatedActivation::MulAndSilu => a * activate(Activation::Silu, b)?,
            GatedActivation::Gelu => activate(Activation::Gelu, a)? * b,
            GatedActivation::GeluTanh => activate(Activation::GeluTanh, a)? * b,
            GatedActivation::Fatrelu => {
                // The comparison has no gradient and needs none.
                let passes = a.gt(self.threshold.unwrap_or_default())?;
                passes.where_cond(a, &a.zeros_like()?)? * b
            }
        }
    }

    fn reference(&self, x: &Tensor) -> Result<Tensor> {
        let (a, b) = (x.narrow(D::Minus1, 0, self.width)?, x.narrow(D::Minus1, self.width, self.width)?);
        self.of_halves(&a, &b)
    }

    fn check(&self, x: &Tensor) -> Result<()> {
        Ok(check_rows(gated_activation_layer(self.activation), x, 2 * self.width, ("the layer", self.dtype), 1)?)
    }
}

impl Module for GatedActivationLayer {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.forward(x)
    }
}

/// The name of an activation's layer in kernel mappings.
#[must_use]
pub const fn activation_layer(activation: Activation) -> &'static str {
    match activation {
        Activation::Silu => "Silu",
        Activation::Gelu => "Gelu",
        Activation::GeluTanh => "GeluTanh",
        Activation::GeluFast => "FastGELU",
        Activation::GeluNew => "NewGELU",
        Activation::GeluQuick => "QuickGELU",
    }
}

/// The name of a gated activation's layer in kernel mappings.
#[must_use]
pub const fn gated_activation_layer(activation: GatedActivation) -> &'static str {
    match activation {
        GatedActivation::Silu => "SiluAndMul",
        GatedActivation::MulAndSilu => "MulAndSilu",
        GatedActivation::Gelu => "GeluAndMul",
        GatedActivation::GeluTanh => "GeluTanhAndMul",
        GatedActivation::Fatrelu => "FatreluAndMul",
    }
}

/// `activation(x)` by candle's own operations.
fn activate(activation: Activation, x: &Tensor) -> Result<Tensor> {
    match activation {
        Activation::Silu => x.silu(),
        Activation::Gelu => x.gelu_erf(),
        // candle's `gelu` is the tanh curve, which these are three spellings of.
        Activation::GeluTanh | Activation::GeluFast | Activation::GeluNew => x.gelu(),
        Activation::GeluQuick => x * ops::sigmoid(&(x * 1.702)?)?,
    }
}
