//! The gated feed-forward block (`SwiGLU` and its kin).

use candle_core::{D, DType, Result, Tensor};
use candle_nn::Module;

use super::spec::{Claim, check_plan, check_rows, exact_shape, float_dtype, same_dtype};
use super::{GatedActivationLayer, LayerError, Linear, call, gated_activation_layer, linear};
use crate::bind::{Contract, GatedActivation, GatedLinear, Rounding};
use crate::swap::{GroupSpec, Mode, Plan, Slot, Slots};

const FUSED: &str = "GatedMLP";
const FUSED_LINEAR: &str = "SiluGatedLinear";

/// `down(activation(gate(x)) * up(x))`.
///
/// The gate and up projections are rows of one weight, so that a kernel path runs one matrix product and one activation
/// over its two halves. The reference runs two products on the halves, which share the weight's memory: what a candle
/// model does as a rule. Variables that come apart stay apart, since an optimizer would step the parts and not the
/// whole.
///
/// # Shapes
/// Gate and up are `[intermediate, hidden]`, the first half's rows first (the gate's, except in
/// [`GatedActivation::MulAndSilu`]); `down` is `[hidden, intermediate]`. Input and output are `[..., hidden]`.
///
/// # Element types
/// Weights and input of one floating-point type. Rounding is that of [`GatedActivationLayer`], after each product too.
#[derive(Debug, Clone)]
pub struct GatedMlp {
    projections: Projections,
    down: Linear,
    activation: GatedActivationLayer,
}

/// The gate and up projections.
#[derive(Debug, Clone)]
enum Projections {
    /// One layer, gate first. The halves are views of its weight: a variable that an optimizer steps changes in place,
    /// and they with it.
    One {
        gate_up: Linear,
        halves: [Tensor; 2],
        /// The slot of the layer and the activation together, where a contract has both.
        fused: Option<Slot>,
    },
    /// A layer each.
    Two {
        gate: Linear,
        up: Linear,
        /// Both weights, gate first, which they are views of.
        merged: Option<Tensor>,
        /// The slot of gate, up and activation together.
        fused: Slot,
    },
}

impl Projections {
    /// The weights of both halves.
    fn weights(&self) -> [&Tensor; 2] {
        match self {
            Self::One { halves: [gate, up], .. } => [gate, up],
            Self::Two { gate, up, .. } => [gate.weight(), up.weight()],
        }
    }

    fn merged(&self) -> Option<&Tensor> {
        match self {
            Self::One { gate_up, .. } => Some(gate_up.weight()),
            Self::Two { merged, .. } => merged.as_ref(),
        }
    }
}

impl GatedMlp {
    /// A `SwiGLU` block with its weights, `gate_up` being both projections `[2 * intermediate, hidden]`. Its slots are
    /// `path.gate_up_proj` and `path.down_proj`, both [`Linear`], and `path.act_fn`, the activation, whose width is
    /// `intermediate`, its output. The first and the activation are the group `path`, known to kernel mappings as
    /// `SiluGatedLinear`.
    ///
    /// # Errors
    /// A [`LayerError`] when the weights do not fit each other.
    pub fn new(gate_up: Tensor, down: Tensor, slots: &Slots, path: impl Into<String>) -> Result<Self> {
        Self::with_activation(GatedActivation::Silu, gate_up, down, slots, path)
    }

    /// A block with another activation.
    ///
    /// # Errors
    /// As [`new`](Self::new), and for [`GatedActivation::Fatrelu`], which needs a threshold:
    /// [`fatrelu`](Self::fatrelu).
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
        Self::of_merged(activation, None, gate_up, down, slots, &path.into())
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
        Self::of_merged(GatedActivation::Fatrelu, Some(threshold), gate_up, down, slots, &path.into())
    }

    fn of_merged(
        activation: GatedActivation,
        threshold: Option<f64>,
        gate_up: Tensor,
        down: Tensor,
        slots: &Slots,
        path: &str,
    ) -> Result<Self> {
        let intermediate = check_weights(gated_activation_layer(activation), &gate_up, &down)?;
        // Elements of a row that are no neighbours would be copied at every call of a kernel. One element that is seen
        // as all of them, as of a model that is only planned, stays one.
        let is_dense = matches!(gate_up.stride().last(), Some(0 | 1));
        let gate_up = if is_dense { gate_up } else { gate_up.contiguous()? };
        let gate_up = Linear::new(gate_up, None, slots, format!("{path}.gate_up_proj"))?;
        let half = |start| gate_up.weight().narrow(0, start, intermediate);
        let halves = [half(0)?, half(intermediate)?];
        let trained: (_, &[&Tensor]) = (down.dtype(), &[gate_up.weight()]);
        let act = format!("{path}.act_fn");
        let activation = GatedActivationLayer::claim(activation, threshold, intermediate, trained, slots, act)?;
        let fused = if activation.activation() == GatedActivation::Silu {
            let claim = Claim {
                layer: FUSED_LINEAR,
                contract: Contract::GatedLinear(GatedLinear::Silu),
                dtype: float_dtype(FUSED_LINEAR, "gate_up", gate_up.weight().dtype())?,
                width: gate_up.weight().dim(1)?,
                weights: &[],
                options: &[],
                rounding: Rounding::Dtype,
            };
            let members = [gate_up.slot(), activation.slot()].map(Clone::clone).to_vec();
            Some(slots.group(GroupSpec { fused: claim.spec(path), members }).map_err(LayerError::from)?)
        } else {
            None
        };
        let down = Linear::new(down, None, slots, format!("{path}.down_proj"))?;
        Ok(Self { projections: Projections::One { gate_up, halves, fused }, down, activation })
    }

    /// A block whose projections have a slot each: `path.gate_proj`, `path.up_proj` and `path.down_proj` are
    /// [`Linear`], the activation is `path.act_fn`, and the first two with the activation are the group `path`, known
    /// to kernel mappings as `GatedMLP`. A group's kernel is one for the activation, over the one product that candle
    /// makes of the merged projections.
    ///
    /// # Errors
    /// As [`with_activation`](Self::with_activation).
    pub fn of_projections(
        activation: GatedActivation,
        [gate, up]: [Tensor; 2],
        down: Tensor,
        slots: &Slots,
        path: impl Into<String>,
    ) -> Result<Self> {
        let (layer, path) = (gated_activation_layer(activation), path.into());
        if activation == GatedActivation::Fatrelu {
            return Err(LayerError::Threshold { layer }.into());
        }
        let [hidden, intermediate] = *down.dims() else {
            let (expected, actual) = ("[hidden, intermediate]".to_owned(), down.dims().to_vec());
            return Err(LayerError::Shape { layer, tensor: "down", expected, actual }.into());
        };
        float_dtype(layer, "down", down.dtype())?;
        for (name, weight) in [("gate", &gate), ("up", &up)] {
            exact_shape(layer, (name, weight), &[intermediate, hidden], "[intermediate, hidden]")?;
            same_dtype(layer, ("down", &down), (name, weight))?;
        }
        let (merged, gate, up) = if gate.track_op() || up.track_op() {
            (None, gate, up)
        } else {
            let merged = Tensor::cat(&[gate, up], 0)?;
            let half = |start| merged.narrow(0, start, intermediate);
            let (gate, up) = (half(0)?, half(intermediate)?);
            (Some(merged), gate, up)
        };
        let trained: (_, &[&Tensor]) = (down.dtype(), &[&gate, &up]);
        let act = format!("{path}.act_fn");
        let claim = GatedActivationLayer::claim;
        let activation_layer = claim(activation, None, intermediate, trained, slots, act)?;
        let linear = |weight, name| Linear::new(weight, None, slots, format!("{path}.{name}"));
        let (gate, up) = (linear(gate, "gate_proj")?, linear(up, "up_proj")?);
        let down = linear(down, "down_proj")?;
        let claim = Claim {
            layer: FUSED,
            contract: Contract::GatedActivation(activation),
            dtype: float_dtype(layer, "down", down.weight().dtype())?,
            width: intermediate,
            weights: &[],
            options: &[],
            rounding: Rounding::Dtype,
        };
        let members = [gate.slot(), up.slot(), activation_layer.slot()].map(Clone::clone).to_vec();
        let fused = slots.group(GroupSpec { fused: claim.spec(path), members }).map_err(LayerError::from)?;
        Ok(Self { projections: Projections::Two { gate, up, merged, fused }, down, activation: activation_layer })
    }

    /// Both projections, `[2 * intermediate, hidden]`, gate first; `None` where they are variables apart.
    #[must_use]
    pub fn gate_up(&self) -> Option<&Tensor> {
        self.projections.merged()
    }

    /// The weight of the projection back, `[hidden, intermediate]`.
    #[must_use]
    pub fn down(&self) -> &Tensor {
        self.down.weight()
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
        check_plan(plan, self.activation.slot())?;
        self.check(x)?;
        if x.elem_count() == 0 {
            // The output has the shape of the input.
            return Ok(x.clone());
        }
        self.down.forward_in(plan, &self.gated(plan, x)?)
    }

    /// What goes into the projection back.
    fn gated(&self, plan: &Plan, x: &Tensor) -> Result<Tensor> {
        match &self.projections {
            Projections::One { gate_up, fused, .. } => self.gated_at_once(plan, x, gate_up, fused.as_ref()),
            Projections::Two { gate, up, merged, fused } => {
                let fused = plan.kernel(fused).map(|_| fused);
                self.gated_apart(plan, x, [gate, up], (merged.as_ref(), fused))
            }
        }
    }

    fn gated_at_once(&self, plan: &Plan, x: &Tensor, gate_up: &Linear, fused: Option<&Slot>) -> Result<Tensor> {
        if let Some(fused) = fused
            && let Some(gated) = call::gated_linear(plan, fused, x, gate_up.weight(), None)?
        {
            return Ok(gated);
        }
        let inputs = [x, gate_up.weight()];
        if !call::takes(plan, gate_up.slot(), &inputs) && !call::takes(plan, self.activation.slot(), &inputs) {
            return self.reference(x);
        }
        let joined = gate_up.forward_in(plan, x)?;
        match self.activation.by_kernel(plan, self.activation.slot(), &joined)? {
            Some(gated) => Ok(gated),
            None => self.of_joined(&joined),
        }
    }

    fn gated_apart(
        &self,
        plan: &Plan,
        x: &Tensor,
        [gate, up]: [&Linear; 2],
        (merged, fused): (Option<&Tensor>, Option<&Slot>),
    ) -> Result<Tensor> {
        let slot = fused.unwrap_or(self.activation.slot());
        let is_activated = call::takes(plan, slot, &[x, gate.weight(), up.weight()]);
        let have_kernels = [gate, up].iter().any(|layer| plan.kernel(layer.slot()).is_some());
        match merged {
            Some(merged) if is_activated && !have_kernels => {
                let gate_up = linear::product(x, merged, None)?;
                match self.activation.by_kernel(plan, slot, &gate_up)? {
                    Some(gated) => Ok(gated),
                    None => self.of_joined(&gate_up),
                }
            }
            _ if have_kernels || is_activated => {
                let (gate, up) = (gate.forward_in(plan, x)?, up.forward_in(plan, x)?);
                if is_activated
                    && let Some(gated) =
                        self.activation.by_kernel(plan, slot, &Tensor::cat(&[&gate, &up], D::Minus1)?)?
                {
                    return Ok(gated);
                }
                self.activation.of_halves(&gate, &up)
            }
            _ => self.reference(x),
        }
    }

    /// Runs the block on `x` by candle's own code. Both modes run the same operations, which are all differentiable.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn forward_reference(&self, _mode: Mode, x: &Tensor) -> Result<Tensor> {
        self.check(x)?;
        if x.elem_count() == 0 {
            return Ok(x.clone());
        }
        linear::product(&self.reference(x)?, self.down.weight(), None)
    }

    fn reference(&self, x: &Tensor) -> Result<Tensor> {
        if let Some(merged) = self.projections.merged()
            && x.dtype() == DType::BF16
            && x.device().is_cpu()
        {
            // candle widens the whole memory under a bf16 operand, which would be both halves for each of them.
            return self.of_joined(&linear::product(x, merged, None)?);
        }
        // Neighbouring rows once for both products.
        let x = x.contiguous()?;
        let [gate, up] = self.projections.weights().map(|weight| linear::product(&x, weight, None));
        self.activation.of_halves(&gate?, &up?)
    }

    fn of_joined(&self, gate_up: &Tensor) -> Result<Tensor> {
        let width = self.down().dim(1)?;
        let (gate, up) = (gate_up.narrow(D::Minus1, 0, width)?, gate_up.narrow(D::Minus1, width, width)?);
        self.activation.of_halves(&gate, &up)
    }

    fn check(&self, x: &Tensor) -> Result<()> {
        let layer = gated_activation_layer(self.activation.activation());
        Ok(check_rows(layer, x, self.down().dim(0)?, ("the weights", self.down().dtype()), 2)?)
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
    if *gate_up.dims() != [2 * intermediate, hidden] {
        let expected = format!("[{}, {hidden}] to go with down [{hidden}, {intermediate}]", 2 * intermediate);
        return Err(LayerError::Shape { layer, tensor: "gate_up", expected, actual: gate_up.dims().to_vec() }.into());
    }
    float_dtype(layer, "gate_up", gate_up.dtype())?;
    same_dtype(layer, ("gate_up", gate_up), ("down", down))?;
    Ok(intermediate)
}
