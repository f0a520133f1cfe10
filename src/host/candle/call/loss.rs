//! Losses.

use std::sync::Arc;

use candle_core::{CpuStorage, CustomOp2, Layout, Result, Shape, Tensor, WithDType};

use super::{Route, broken, host_memory, route, wanted};
use crate::bind::{CrossEntropyKernel, LayerKernel};
use crate::host::candle::kernels::{StorageElement, bind_error, by_dtype, dense_rows, finish, indices, view};
use crate::swap::{Plan, Slot};

fn face(kernel: &LayerKernel) -> Option<&CrossEntropyKernel> {
    if let LayerKernel::CrossEntropy(kernel) = kernel { Some(kernel) } else { None }
}

struct CrossEntropyOp<'a> {
    kernel: &'a CrossEntropyKernel,
    ignored: i64,
}

impl CustomOp2 for CrossEntropyOp<'_> {
    fn name(&self) -> &'static str {
        "kernelhub-cross-entropy"
    }

    fn cpu_fwd(
        &self,
        logits: &CpuStorage,
        ll: &Layout,
        targets: &CpuStorage,
        lt: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        fn run<T: StorageElement>(
            op: &CrossEntropyOp<'_>,
            (logits, ll): (&CpuStorage, &Layout),
            (targets, lt): (&CpuStorage, &Layout),
        ) -> Result<(CpuStorage, Shape)> {
            let (rows, _) = ll.shape().dims2()?;
            let (logits, targets) = (view::<T>(logits, ll)?, indices(targets, lt)?);
            finish(op.kernel.forward_to_vec(&logits, &targets, rows, op.ignored), Shape::from(rows))
        }
        by_dtype!(self.name(), logits, run(self, (logits, ll), (targets, lt)))
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
        "kernelhub-cross-entropy"
    }

    fn cpu_fwd(
        &self,
        logits: &CpuStorage,
        ll: &Layout,
        targets: &CpuStorage,
        lt: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        self.op()?.cpu_fwd(logits, ll, targets, lt)
    }

    fn bwd(
        &self,
        logits: &Tensor,
        targets: &Tensor,
        _: &Tensor,
        dloss: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        fn run<T: StorageElement + WithDType>(
            op: &CrossEntropyOp<'_>,
            [dloss, logits, targets]: [&Tensor; 3],
            memory: [&CpuStorage; 3],
        ) -> Result<Tensor> {
            let shape = logits.dims();
            let dloss = view::<f32>(memory[0], dloss.layout())?;
            let (logits_view, targets) =
                (view::<T>(memory[1], logits.layout())?, indices(memory[2], targets.layout())?);
            let dlogits = op
                .kernel
                .backward_to_vec::<T>(&dloss, &logits_view, shape, &targets, op.ignored)
                .map_err(bind_error)?;
            Tensor::from_vec(dlogits, shape, logits.device())
        }
        let op = self.op()?;
        let (dense_dloss, dense_logits) = (dloss.contiguous()?, dense_rows(logits)?);
        let tensors = [&dense_dloss, &*dense_logits, targets];
        let storages = tensors.map(|tensor| tensor.storage_and_layout().0);
        let memory = [host_memory(&storages[0])?, host_memory(&storages[1])?, host_memory(&storages[2])?];
        let dlogits = by_dtype!(CustomOp2::name(self), memory[1], run(&op, tensors, memory))?;
        Ok((wanted(logits, dlogits), None))
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
        Route::Free(kernel) => logits.apply_op2_no_bwd(&targets, &CrossEntropyOp { kernel, ignored }),
        Route::Tracked(kernel) => {
            logits.apply_op2(&targets, TrainedCrossEntropyOp { kernel: Arc::clone(kernel), ignored })
        }
    }
    .map(Some)
}
