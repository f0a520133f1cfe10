//! The gated feed-forward block (`SwiGLU`).

use candle_core::{D, DType, Module, Result, Tensor};
use candle_nn::Linear;

use super::spec::claim_pair;
use super::{LayerError, kernels};
use crate::bind::{Contract, GatedActivation, MAX_RANK};
use crate::swap::{Mode, Plan, Slot, Slots};

const LAYER: &str = "SiluAndMul";
const CONTRACT: Contract = Contract::GatedActivation(GatedActivation::Silu);

/// `down(silu(gate(x)) * up(x))`, with the gate and up projections in one weight.
///
/// The fused weight lets a kernel path run one matrix product and one activation over its two halves. The reference
/// runs two products on the weight's contiguous halves, which share its memory: what a candle model does as a rule.
///
/// # Shapes
/// `gate_up` is `[2 * intermediate, hidden]`, the gate's rows first; `down` is `[hidden, intermediate]`. Input and output are
/// `[..., hidden]`.
///
/// # Element types
/// Weights and input of one floating-point type.
#[derive(Debug, Clone)]
pub struct GatedMlp {
    gate_up: Linear,
    // Views of `gate_up`, made once: a variable that an optimizer steps changes in place, and they with it.
    gate: Linear,
    up: Linear,
    down: Linear,
    slot: Slot,
}

impl GatedMlp {
    /// A block with its weights, in the slot `path` of the model. The slot's width is `intermediate`, the activation's
    /// output.
    ///
    /// # Errors
    /// A [`LayerError`] when the weights do not fit each other.
    pub fn new(gate_up: Tensor, down: Tensor, slots: &Slots, path: impl Into<String>) -> Result<Self> {
        let shape = |tensor, expected: String, weight: &Tensor| LayerError::Shape {
            layer: LAYER,
            tensor,
            expected,
            actual: weight.dims().to_vec(),
        };
        let [hidden, intermediate] = *down.dims() else {
            return Err(shape("down", "[hidden, intermediate]".to_owned(), &down).into());
        };
        if *gate_up.dims() != [2 * intermediate, hidden] {
            let expected = format!("[{}, {hidden}] to go with down [{hidden}, {intermediate}]", 2 * intermediate);
            return Err(shape("gate_up", expected, &gate_up).into());
        }
        let slot = claim_pair(slots, path, (LAYER, CONTRACT), [("gate_up", &gate_up), ("down", &down)], intermediate)?;
        let gate_up = if gate_up.is_contiguous() { gate_up } else { gate_up.contiguous()? };
        let half = |start| Ok::<_, candle_core::Error>(Linear::new(gate_up.narrow(0, start, intermediate)?, None));
        Ok(Self {
            gate: half(0)?,
            up: half(intermediate)?,
            gate_up: Linear::new(gate_up, None),
            down: Linear::new(down, None),
            slot,
        })
    }

    /// The fused weight, `[2 * intermediate, hidden]`.
    #[must_use]
    pub fn gate_up(&self) -> &Tensor {
        self.gate_up.weight()
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
        self.slot.with_plan(|plan| self.forward_in(plan, x))
    }

    /// Runs the block on `x`, under the plan that the model pinned.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn forward_in(&self, plan: &Plan, x: &Tensor) -> Result<Tensor> {
        match plan.gated_activation(&self.slot) {
            Some(kernel) if !x.track_op() && x.elem_count() != 0 => {
                self.check(x)?;
                // Contiguous for the same reason as in the reference.
                let gate_up = self.gate_up.forward(&x.contiguous()?)?;
                self.down.forward(&kernels::gated_activation(kernel, &gate_up)?)
            }
            _ => self.forward_reference(plan.mode(), x),
        }
    }

    /// Runs the block on `x` by candle's own code. Both modes run the same operations, which are all differentiable.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn forward_reference(&self, _mode: Mode, x: &Tensor) -> Result<Tensor> {
        self.check(x)?;
        if x.elem_count() == 0 {
            // candle's Linear cannot tell a number of rows from no elements. The output has the shape of the input.
            return Ok(x.clone());
        }
        // candle's Linear multiplies some transposed inputs wrongly: with its weight broadcast over the batch, the
        // product takes the rows of all batches as evenly spaced.
        let x = &x.contiguous()?;
        let (gate, up) = if x.dtype() == DType::BF16 && x.device().is_cpu() {
            // candle widens the whole memory under a bf16 operand, which would be both halves for each of them.
            let (gate_up, width) = (self.gate_up.forward(x)?, self.down().dim(1)?);
            (gate_up.narrow(D::Minus1, 0, width)?, gate_up.narrow(D::Minus1, width, width)?)
        } else {
            (self.gate.forward(x)?, self.up.forward(x)?)
        };
        self.down.forward(&(gate.silu()? * up)?)
    }

    fn check(&self, x: &Tensor) -> Result<()> {
        let hidden = self.gate_up().dim(1)?;
        if !(2..=MAX_RANK).contains(&x.rank()) || x.dims().last() != Some(&hidden) {
            let axes = if x.rank() > MAX_RANK { format!(" of at most {MAX_RANK} axes") } else { String::new() };
            let (expected, actual) = (format!("[..., {hidden}]{axes}"), x.dims().to_vec());
            return Err(LayerError::Shape { layer: LAYER, tensor: "input", expected, actual }.into());
        }
        if x.dtype() != self.gate_up().dtype() {
            let expected = format!("{:?} like the weights", self.gate_up().dtype());
            let actual = format!("{:?}", x.dtype());
            return Err(LayerError::DType { layer: LAYER, tensor: "input", expected, actual }.into());
        }
        Ok(())
    }
}
