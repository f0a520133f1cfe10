//! Rotary position embedding.

use candle_core::{Result, Tensor};
use candle_nn::rotary_emb;

use super::spec::{Claim, float_dtype, mode_for, same_dtype};
use super::{LayerError, call};
use crate::bind::{Contract, RotaryStyle, Rounding};
use crate::swap::{Mode, Plan, Slot, Slots};

const LAYER: &str = "RotaryEmbedding";

/// Rotates queries and keys by their positions.
///
/// # Shapes
/// The tables are `[max_seq, head_dim / 2]` and are shared by all decoder layers (a clone of a tensor is a handle).
/// Queries are `[batch, heads, seq, head_dim]` and keys `[batch, kv_heads, seq, head_dim]`, of any strides, so that
/// a transposed view of a projection's output may be passed as it is.
///
/// # Element types
/// The tables' type is the queries' and keys'.
#[derive(Debug, Clone)]
pub struct RotaryEmbedding {
    cos: Tensor,
    sin: Tensor,
    style: RotaryStyle,
    slot: Slot,
}

impl RotaryEmbedding {
    /// A rotary embedding with its tables, in the slot `path` of the model.
    ///
    /// # Errors
    /// A [`LayerError`] when the tables are not two equal `[max_seq, head_dim / 2]` of one floating-point type.
    pub fn new(cos: Tensor, sin: Tensor, style: RotaryStyle, slots: &Slots, path: impl Into<String>) -> Result<Self> {
        let [_, half] = *cos.dims() else {
            let (expected, actual) = ("[max_seq, head_dim / 2]".to_owned(), cos.dims().to_vec());
            return Err(LayerError::Shape { layer: LAYER, tensor: "cos", expected, actual }.into());
        };
        if sin.dims() != cos.dims() {
            let (expected, actual) = (format!("{:?} like cos", cos.dims()), sin.dims().to_vec());
            return Err(LayerError::Shape { layer: LAYER, tensor: "sin", expected, actual }.into());
        }
        let dtype = float_dtype(LAYER, "cos", cos.dtype())?;
        same_dtype(LAYER, ("cos", &cos), ("sin", &sin))?;
        let claim = Claim {
            layer: LAYER,
            contract: Contract::Rotary,
            dtype,
            width: 2 * half,
            weights: &[&cos, &sin],
            options: &[],
            rounding: Rounding::Dtype,
        };
        let slot = claim.slot(slots, path);
        let dense = |table: Tensor| if table.is_contiguous() { Ok(table) } else { table.contiguous() };
        Ok(Self { cos: dense(cos)?, sin: dense(sin)?, style, slot })
    }

    /// Which elements are rotated together.
    #[must_use]
    pub fn style(&self) -> RotaryStyle {
        self.style
    }

    /// The tables' rows of `seq` positions from `offset` on: `(cos, sin)`, each `[seq, head_dim / 2]`, contiguous.
    ///
    /// # Errors
    /// A [`LayerError`] when the tables end before `offset + seq`.
    pub fn rows(&self, offset: usize, seq: usize) -> Result<(Tensor, Tensor)> {
        self.check_positions(offset, seq)?;
        Ok((self.cos.narrow(0, offset, seq)?, self.sin.narrow(0, offset, seq)?))
    }

    /// Refuses positions beyond the tables.
    fn check_positions(&self, offset: usize, seq: usize) -> Result<()> {
        let maximum = self.cos.dim(0)?;
        match offset.checked_add(seq) {
            Some(end) if end <= maximum => Ok(()),
            end => {
                let end = end.unwrap_or(usize::MAX);
                Err(LayerError::Positions { layer: LAYER, start: offset, end, maximum }.into())
            }
        }
    }

    /// Rotates `q` and `k`, whose first position is `offset`, under the plan of the scope that the thread is in, or
    /// else the current one.
    ///
    /// # Errors
    /// When a shape or an element type does not fit the tables, or the positions go beyond them.
    pub fn forward(&self, q: &Tensor, k: &Tensor, offset: usize) -> Result<(Tensor, Tensor)> {
        self.slot.with_plan(|plan| self.forward_in(plan, q, k, offset))
    }

    /// Rotates `q` and `k`, under the plan that the model pinned.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn forward_in(&self, plan: &Plan, q: &Tensor, k: &Tensor, offset: usize) -> Result<(Tensor, Tensor)> {
        let seq = self.check(q, k)?;
        self.check_positions(offset, seq)?;
        // Whole tables: a view of some rows would take as long to make as the rotation of one position.
        let pair = call::rotary_pair(plan, &self.slot, [q, k], [&self.cos, &self.sin], offset, self.style)?;
        if let Some(turned) = pair {
            return Ok(turned);
        }
        let (cos, sin) = self.rows(offset, seq)?;
        let by_kernel = |x| call::rotary(plan, &self.slot, x, [&cos, &sin], self.style);
        if let Some(turned_q) = by_kernel(q)?
            && let Some(turned_k) = by_kernel(k)?
        {
            return Ok((turned_q, turned_k));
        }
        self.reference(plan.mode(), [q, k], [&cos, &sin])
    }

    /// Rotates `q` and `k` by candle's own code: its fused operations in inference, differentiable ones in training or
    /// where `q` or `k` tracks a gradient.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn forward_reference(&self, mode: Mode, q: &Tensor, k: &Tensor, offset: usize) -> Result<(Tensor, Tensor)> {
        let seq = self.check(q, k)?;
        let (cos, sin) = self.rows(offset, seq)?;
        self.reference(mode, [q, k], [&cos, &sin])
    }

    fn reference(&self, mode: Mode, [q, k]: [&Tensor; 2], [cos, sin]: [&Tensor; 2]) -> Result<(Tensor, Tensor)> {
        let mode = mode_for(mode, &[q, k, cos, sin]);
        let rotate = |x: &Tensor| match (mode.is_training(), self.style) {
            // candle's operations divide by the length of a sequence, and of nothing every rotation is itself.
            _ if x.elem_count() == 0 => Ok(x.clone()),
            (false, RotaryStyle::HalfSplit) => rotary_emb::rope(&x.contiguous()?, cos, sin),
            (false, RotaryStyle::Interleaved) => rotary_emb::rope_i(&x.contiguous()?, cos, sin),
            (true, RotaryStyle::HalfSplit) => rotary_emb::rope_slow(x, cos, sin),
            (true, RotaryStyle::Interleaved) => rotary_emb::rope_i_slow(x, cos, sin),
        };
        Ok((rotate(q)?, rotate(k)?))
    }

    /// Refuses what the tables do not fit; returns the number of positions.
    fn check(&self, q: &Tensor, k: &Tensor) -> Result<usize> {
        let head_dim = 2 * self.cos.dim(1)?;
        let mut positions = None;
        for (tensor, x) in [("q", q), ("k", k)] {
            let fits =
                matches!(*x.dims(), [_, _, seq, last] if last == head_dim && *positions.get_or_insert(seq) == seq);
            if !fits {
                let actual = x.dims().to_vec();
                let seq = positions.map_or_else(|| "seq".to_owned(), |seq| seq.to_string());
                let expected = format!("[batch, heads, {seq}, {head_dim}]");
                return Err(LayerError::Shape { layer: LAYER, tensor, expected, actual }.into());
            }
            if x.dtype() != self.cos.dtype() {
                let expected = format!("{:?} like the tables", self.cos.dtype());
                return Err(
                    LayerError::DType { layer: LAYER, tensor, expected, actual: format!("{:?}", x.dtype()) }.into()
                );
            }
        }
        Ok(positions.unwrap_or(0))
    }
}
