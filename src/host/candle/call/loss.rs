//! Losses.

use std::sync::Arc;

use candle_core::{CpuStorage, CustomOp2, Layout, Result, Shape, Tensor};

use super::{Route, broken, route, wanted};
use crate::bind::{CrossEntropyKernel, LayerKernel};
use crate::host::candle::kernels::{Call, Operand, Output, StorageElement, call, call_on, dense_rows, finish, tensor};
use crate::swap::{Plan, Slot};

fn face(kernel: &LayerKernel) -> Option<&CrossEntropyKernel> {
    if let LayerKernel::CrossEntropy(kernel) = kernel { Some(kernel) } else { None }
}

struct CrossEntropyOp<'a> {
    kernel: &'a CrossEntropyKernel,
    ignored: i64,
}

impl Call for CrossEntropyOp<'_> {
    const NAME: &'static str = "kernelhub-cross-entropy";
    type Output = Output;

    fn call<T: StorageElement>(&self, operands: &[Operand<'_>]) -> Result<Output> {
        let [logits, targets] = operands else { return Err(broken()) };
        let (rows, _) = logits.shape().dims2()?;
        let (logits, targets) = (logits.view::<T>()?, targets.indices()?);
        finish(self.kernel.forward_to_vec(&logits, &targets, rows, self.ignored), Shape::from(rows))
    }
}

/// The gradient of the losses for the logits, from `[logits, targets, dloss]`.
struct CrossEntropyGradient<'a>(CrossEntropyOp<'a>);

impl Call for CrossEntropyGradient<'_> {
    const NAME: &'static str = "kernelhub-cross-entropy";
    type Output = Output;

    fn call<T: StorageElement>(&self, operands: &[Operand<'_>]) -> Result<Output> {
        let [logits, targets, dloss] = operands else { return Err(broken()) };
        let Self(CrossEntropyOp { kernel, ignored }) = self;
        let (dloss, view, targets) = (dloss.view::<f32>()?, logits.view::<T>()?, targets.indices()?);
        let dlogits = kernel.backward_to_vec::<T>(&dloss, &view, logits.dims(), &targets, *ignored);
        finish(dlogits, logits.shape().clone())
    }
}

/// With the kernel's backward.
struct TrainedCrossEntropyOp {
    kernel: Arc<LayerKernel>,
    ignored: i64,
}

impl TrainedCrossEntropyOp {
    fn op(&self) -> Result<CrossEntropyOp<'_>> {
        Ok(CrossEntropyOp { kernel: face(&self.kernel).ok_or_else(broken)?, ignored: self.ignored })
    }
}

impl CustomOp2 for TrainedCrossEntropyOp {
    fn name(&self) -> &'static str {
        CrossEntropyOp::NAME
    }

    fn cpu_fwd(&self, logits: &CpuStorage, ll: &Layout, targets: &CpuStorage, lt: &Layout) -> Result<Output> {
        call_on(&self.op()?, &[Operand::new(logits, ll), Operand::new(targets, lt)])
    }

    fn bwd(
        &self,
        logits: &Tensor,
        targets: &Tensor,
        _: &Tensor,
        dloss: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let gradient = CrossEntropyGradient(self.op()?);
        let dlogits = call!(&gradient, dense_rows(logits)?, targets, dloss.contiguous()?)?;
        Ok((wanted(logits, tensor(dlogits)), None))
    }
}

/// The loss of each row, `[rows]` in f32, for a slot of
/// [`Contract::CrossEntropy`](crate::bind::Contract::CrossEntropy).
///
/// # Shapes
/// `logits` are `[rows, vocabulary]` of any strides, `targets` `[rows]` of u32 or i64. The loss of a row whose target
/// is `ignored` is 0.
///
/// # Errors
/// When the kernel refuses the tensors or a target, or serves another contract.
pub fn cross_entropy(
    plan: &Plan,
    slot: &Slot,
    logits: &Tensor,
    targets: &Tensor,
    ignored: i64,
) -> Result<Option<Tensor>> {
    let Some(route) = route(plan, slot, face, "cross_entropy", &[logits])? else { return Ok(None) };
    let (logits, targets) = (dense_rows(logits)?, targets.contiguous()?);
    match route {
        Route::Free(kernel) => call!(&CrossEntropyOp { kernel, ignored }, logits, targets).map(tensor),
        Route::Tracked(kernel) => {
            logits.apply_op2(&targets, TrainedCrossEntropyOp { kernel: Arc::clone(kernel), ignored })
        }
    }
    .map(Some)
}
