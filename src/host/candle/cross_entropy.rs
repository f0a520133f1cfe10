//! The loss of a classifier.

use candle_core::{D, DType, Result, Tensor};

use super::spec::{Claim, float_dtype};
use super::{LayerError, call};
use crate::bind::{Contract, Rounding};
use crate::swap::{Plan, Slot, Slots};

const LAYER: &str = "CrossEntropy";

/// `log(sum(exp(logits))) - logits[target]` for each row, and its mean over the rows that count.
///
/// # Shapes
/// Logits are `[rows, vocabulary]` of any strides, targets `[rows]`.
///
/// # Element types
/// Logits of f32, bf16 or f16 give a loss in f32, of f64 one in f64; targets are u32 or i64. Every path computes in f32
/// (or f64) from the logits on. A target equal to the ignored index counts for nothing: its loss and its gradient are
/// 0.
#[derive(Debug, Clone)]
pub struct CrossEntropy {
    vocabulary: usize,
    ignored: i64,
    slot: Slot,
}

impl CrossEntropy {
    /// What `PyTorch` ignores when it isn't told otherwise.
    pub const IGNORED: i64 = -100;

    /// A loss over logits of `vocabulary` classes and of `dtype`, in the slot `path` of the model. The slot's width is
    /// `vocabulary`.
    ///
    /// # Errors
    /// A [`LayerError`] when `dtype` is not floating-point.
    pub fn new(vocabulary: usize, dtype: DType, slots: &Slots, path: impl Into<String>) -> Result<Self> {
        let dtype = float_dtype(LAYER, "dtype", dtype)?;
        let claim = Claim {
            layer: LAYER,
            contract: Contract::CrossEntropy,
            dtype,
            width: vocabulary,
            weights: &[],
            options: &[],
            rounding: Rounding::F32,
        };
        Ok(Self { vocabulary, ignored: Self::IGNORED, slot: claim.slot(slots, path) })
    }

    /// The same loss with another target that counts for nothing.
    #[must_use]
    pub fn with_ignored(mut self, ignored: i64) -> Self {
        self.ignored = ignored;
        self
    }

    /// The mean loss of the rows that count, a scalar, under the plan of the scope that the thread is in, or else the
    /// current one. It is not a number when no row counts, as in `PyTorch`.
    ///
    /// # Errors
    /// When a shape or an element type is not the layer's, or a target is no class.
    pub fn forward(&self, logits: &Tensor, targets: &Tensor) -> Result<Tensor> {
        self.slot.with_plan(|plan| self.forward_in(plan, logits, targets))
    }

    /// The mean loss, under the plan that the model pinned.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn forward_in(&self, plan: &Plan, logits: &Tensor, targets: &Tensor) -> Result<Tensor> {
        let losses = self.rows_in(plan, logits, targets)?;
        let counted = self.counted(targets, losses.dtype())?.sum_all()?;
        losses.sum_all()? / counted
    }

    /// The loss of each row, `[rows]`, under the plan that the model pinned.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn rows_in(&self, plan: &Plan, logits: &Tensor, targets: &Tensor) -> Result<Tensor> {
        self.check(logits, targets)?;
        match call::cross_entropy(plan, &self.slot, logits, targets, self.ignored)? {
            Some(losses) => Ok(losses),
            None => self.reference(logits, targets),
        }
    }

    /// The loss of each row by candle's own code, which is differentiable in every mode.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn forward_reference(&self, logits: &Tensor, targets: &Tensor) -> Result<Tensor> {
        self.check(logits, targets)?;
        self.reference(logits, targets)
    }

    fn reference(&self, logits: &Tensor, targets: &Tensor) -> Result<Tensor> {
        let wide = if logits.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
        if logits.elem_count() == 0 {
            return Tensor::zeros(targets.dims(), wide, logits.device());
        }
        // Ignored targets are no classes: they select the first, and what they selected is multiplied away.
        let counted = self.counted(targets, DType::U8)?;
        let classes = counted.where_cond(targets, &targets.zeros_like()?)?;
        let likely = candle_nn::ops::log_softmax(&logits.to_dtype(wide)?, D::Minus1)?;
        let losses = likely.gather(&classes.unsqueeze(1)?, 1)?.squeeze(1)?.neg()?;
        counted.where_cond(&losses, &losses.zeros_like()?)
    }

    /// 1 for each target that counts, 0 for the others, `[rows]`.
    fn counted(&self, targets: &Tensor, dtype: DType) -> Result<Tensor> {
        // In i64, where the ignored index is what it is, and a u32 target keeps its value.
        targets.to_dtype(DType::I64)?.ne(self.ignored)?.to_dtype(dtype)
    }

    fn check(&self, logits: &Tensor, targets: &Tensor) -> Result<()> {
        let shape = |tensor, expected, x: &Tensor| LayerError::Shape {
            layer: LAYER,
            tensor,
            expected,
            actual: x.dims().to_vec(),
        };
        let rows = match *logits.dims() {
            [rows, vocabulary] if vocabulary == self.vocabulary => rows,
            _ => return Err(shape("logits", format!("[rows, {}]", self.vocabulary), logits).into()),
        };
        if *targets.dims() != [rows] {
            return Err(shape("targets", format!("[rows] = [{rows}]"), targets).into());
        }
        float_dtype(LAYER, "logits", logits.dtype())?;
        if !matches!(targets.dtype(), DType::U32 | DType::I64) {
            let (expected, actual) = ("one of u32, i64".to_owned(), format!("{:?}", targets.dtype()));
            return Err(LayerError::DType { layer: LAYER, tensor: "targets", expected, actual }.into());
        }
        Ok(())
    }
}
