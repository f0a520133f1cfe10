//! The gated feed-forward block (`SwiGLU` and its kin).

use candle_core::{D, DType, Result, Tensor};
use candle_nn::Module;

use super::spec::{check_rows, exact_shape, float_dtype, same_dtype};
use super::{GatedActivationLayer, LayerError, gated_activation_layer, linear};
use crate::bind::GatedActivation;
use crate::swap::{Mode, Plan, Slots};

/// `down(activation(gate(x)) * up(x))`, with the gate and up projections in one weight.
///
/// The fused weight lets a kernel path run one matrix product and one activation over its two halves. The reference
/// runs two products on the weight's contiguous halves, which share its memory: what a candle model does as a rule.
///
/// # Shapes
/// `gate_up` is `[2 * intermediate, hidden]`, the first half's rows first (the gate's, except in
/// [`GatedActivation::MulAndSilu`]); `down` is `[hidden, intermediate]`. Input and output are `[..., hidden]`.
///
/// # Element types
/// Weights and input of one floating-point type. Rounding is that of [`GatedActivationLayer`], after each product too.
#[derive(Debug, Clone)]
pub struct GatedMlp {
    gate_up: Tensor,
    // Views of `gate_up`, made once: a variable that an optimizer steps changes in place, and they with it.
    gate: Tensor,
    up: Tensor,
    down: Tensor,
    activation: GatedActivationLayer,
}

impl GatedMlp {
    /// A `SwiGLU` block with its weights, in the slot `path` of the model. The slot's width is `intermediate`, the
    /// activation's output.
    ///
    /// # Errors
    /// A [`LayerError`] when the weights do not fit each other.
    pub fn new(gate_up: Tensor, down: Tensor, slots: &Slots, path: impl Into<String>) -> Result<Self> {
        Self::with_activation(GatedActivation::Silu, gate_up, down, slots, path)
    }

    /// A block with another activation.
    ///
    /// # Errors
    /// As [`new`](Self::new), and for [`GatedActivation::Fatrelu`], which needs a threshold: [`fatrelu`](Self::fatrelu).
    pub fn with_activation(
        activation: GatedActivation,
        gate_up: Tensor,
        down: Tensor,
        slots: &Slots,
        path: impl Into<String>,
    ) -> Result<Self> {
        if activation == GatedActivation::Fatrelu {
            return Err(LayerError::Threshold { layer: gated_activation_layer(activation) }.into());
        }
        Self::claim(activation, None, gate_up, down, slots, path.into())
    }

    /// A block with `FATReLU`.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn fatrelu(
        threshold: f64,
        gate_up: Tensor,
        down: Tensor,
        slots: &Slots,
        path: impl Into<String>,
    ) -> Result<Self> {
        Self::claim(GatedActivation::Fatrelu, Some(threshold), gate_up, down, slots, path.into())
    }

    fn claim(
        activation: GatedActivation,
        threshold: Option<f64>,
        gate_up: Tensor,
        down: Tensor,
        slots: &Slots,
        path: String,
    ) -> Result<Self> {
        let intermediate = check_weights(gated_activation_layer(activation), &gate_up, &down)?;
        let trained: (_, &[&Tensor]) = (down.dtype(), &[&gate_up, &down]);
        let activation = GatedActivationLayer::claim(activation, threshold, intermediate, trained, slots, path)?;
        let gate_up = if gate_up.is_contiguous() { gate_up } else { gate_up.contiguous()? };
        let (gate, up) = (gate_up.narrow(0, 0, intermediate)?, gate_up.narrow(0, intermediate, intermediate)?);
        Ok(Self { gate_up, gate, up, down, activation })
    }

    /// The fused weight, `[2 * intermediate, hidden]`.
    #[must_use]
    pub fn gate_up(&self) -> &Tensor {
        &self.gate_up
    }

    /// The weight of the projection back, `[hidden, intermediate]`.
    #[must_use]
    pub fn down(&self) -> &Tensor {
        &self.down
    }

    /// Runs the block on `x`, under the plan of the scope that the thread is in, or else the current one.
    ///
    /// # Errors
    /// When the last axis or the element type of `x` is not the weights'.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.activation.slot().with_plan(|plan| self.forward_in(plan, x))
    }

    /// Runs the block on `x`, under the plan that the model pinned.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn forward_in(&self, plan: &Plan, x: &Tensor) -> Result<Tensor> {
        self.check(x)?;
        if plan.kernel(self.activation.slot()).is_some() && x.elem_count() != 0 {
            let gate_up = linear::product(x, &self.gate_up, None)?;
            let gated = match self.activation.by_kernel(plan, &gate_up)? {
                Some(gated) => gated,
                None => self.gated_halves(&gate_up)?,
            };
            return linear::product(&gated, &self.down, None);
        }
        self.reference(x)
    }

    /// Runs the block on `x` by candle's own code. Both modes run the same operations, which are all differentiable.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn forward_reference(&self, _mode: Mode, x: &Tensor) -> Result<Tensor> {
        self.check(x)?;
        self.reference(x)
    }

    fn reference(&self, x: &Tensor) -> Result<Tensor> {
        if x.elem_count() == 0 {
            // The output has the shape of the input.
            return Ok(x.clone());
        }
        let gated = if x.dtype() == DType::BF16 && x.device().is_cpu() {
            // candle widens the whole memory under a bf16 operand, which would be both halves for each of them.
            self.gated_halves(&linear::product(x, &self.gate_up, None)?)?
        } else {
            // Neighbouring rows once for both products.
            let x = x.contiguous()?;
            let (gate, up) = (linear::product(&x, &self.gate, None)?, linear::product(&x, &self.up, None)?);
            self.activation.of_halves(&gate, &up)?
        };
        linear::product(&gated, &self.down, None)
    }

    fn gated_halves(&self, gate_up: &Tensor) -> Result<Tensor> {
        let width = self.down.dim(1)?;
        let (gate, up) = (gate_up.narrow(D::Minus1, 0, width)?, gate_up.narrow(D::Minus1, width, width)?);
        self.activation.of_halves(&gate, &up)
    }

    fn check(&self, x: &Tensor) -> Result<()> {
        let layer = gated_activation_layer(self.activation.activation());
        Ok(check_rows(layer, x, self.gate_up.dim(1)?, ("the weights", self.gate_up.dtype()), 2)?)
    }
}

impl Module for GatedMlp {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.forward(x)
    }
}

/// Refuses weights that do not fit each other; returns `intermediate`.
fn check_weights(layer: &'static str, gate_up: &Tensor, down: &Tensor) -> Result<usize> {
    let [hidden, intermediate] = *down.dims() else {
        let (expected, actual) = ("[hidden, intermediate]".to_owned(), down.dims().to_vec());
        return Err(LayerError::Shape { layer, tensor: "down", expected, actual }.into());
    };
    exact_shape(layer, ("gate_up", gate_up), &[2 * intermediate, hidden], "[2 * intermediate, hidden]")?;
    float_dtype(layer, "gate_up", gate_up.dtype())?;
    same_dtype(layer, ("gate_up", gate_up), ("down", down))?;
    Ok(intermediate)
}
