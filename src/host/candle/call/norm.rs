//! Normalisations.

use std::sync::Arc;

use candle_core::{CpuStorage, CustomOp2, CustomOp3, Layout, Result, Shape, Tensor, WithDType};

use super::{Route, broken, host_memory, route, wanted};
use crate::bind::{AddRmsNormKernel, LayerKernel, LayerNormKernel, RmsNormKernel};
use crate::host::candle::kernels::{StorageElement, bind_error, by_dtype, dense_rows, finish, view};
use crate::swap::{Plan, Slot};

fn rms_norm_face(kernel: &LayerKernel) -> Option<&RmsNormKernel> {
    if let LayerKernel::RmsNorm(kernel) = kernel { Some(kernel) } else { None }
}

fn add_rms_norm_face(kernel: &LayerKernel) -> Option<&AddRmsNormKernel> {
    if let LayerKernel::AddRmsNorm(kernel) = kernel { Some(kernel) } else { None }
}

fn layer_norm_face(kernel: &LayerKernel) -> Option<&LayerNormKernel> {
    if let LayerKernel::LayerNorm(kernel) = kernel { Some(kernel) } else { None }
}

struct RmsNormOp<'a> {
    kernel: &'a RmsNormKernel,
    eps: f64,
    offset: f64,
}

impl CustomOp2 for RmsNormOp<'_> {
    fn name(&self) -> &'static str {
        "kernelhub-rms-norm"
    }

    fn cpu_fwd(&self, x: &CpuStorage, lx: &Layout, weight: &CpuStorage, lw: &Layout) -> Result<(CpuStorage, Shape)> {
        fn run<T: StorageElement>(
            op: &RmsNormOp<'_>,
            (x, lx): (&CpuStorage, &Layout),
            (weight, lw): (&CpuStorage, &Layout),
        ) -> Result<(CpuStorage, Shape)> {
            let (x, weight) = (view::<T>(x, lx)?, view::<T>(weight, lw)?);
            let output = op.kernel.forward_to_vec::<T>(&x, lx.dims(), &weight, op.eps, op.offset);
            finish(output, lx.shape().clone())
        }
        by_dtype!(self.name(), x, run(self, (x, lx), (weight, lw)))
    }
}

/// With the kernel's backward.
struct TrainedRmsNormOp {
    kernel: Arc<LayerKernel>,
    eps: f64,
    offset: f64,
}

impl TrainedRmsNormOp {
    fn op(&self) -> Result<RmsNormOp<'_>> {
        let kernel = rms_norm_face(&self.kernel).ok_or_else(broken)?;
        Ok(RmsNormOp { kernel, eps: self.eps, offset: self.offset })
    }
}

impl CustomOp2 for TrainedRmsNormOp {
    fn name(&self) -> &'static str {
        "kernelhub-rms-norm"
    }

    fn cpu_fwd(&self, x: &CpuStorage, lx: &Layout, weight: &CpuStorage, lw: &Layout) -> Result<(CpuStorage, Shape)> {
        self.op()?.cpu_fwd(x, lx, weight, lw)
    }

    fn bwd(&self, x: &Tensor, weight: &Tensor, _: &Tensor, dy: &Tensor) -> Result<(Option<Tensor>, Option<Tensor>)> {
        fn run<T: StorageElement + WithDType>(
            op: &RmsNormOp<'_>,
            tensors: [&Tensor; 3],
            memory: [&CpuStorage; 3],
        ) -> Result<(Tensor, Tensor)> {
            let [dy, x, weight] = [0, 1, 2].map(|at| view::<T>(memory[at], tensors[at].layout()));
            let shape = tensors[1].dims();
            let (dx, dweight) =
                op.kernel.backward_to_vec::<T>(&dy?, &x?, shape, &weight?, op.eps, op.offset).map_err(bind_error)?;
            let device = tensors[1].device();
            Ok((Tensor::from_vec(dx, shape, device)?, Tensor::from_vec(dweight, tensors[2].dims(), device)?))
        }
        let op = self.op()?;
        let (dense_dy, dense_x, dense_weight) = (dense_rows(dy)?, dense_rows(x)?, dense_rows(weight)?);
        let tensors = [&*dense_dy, &*dense_x, &*dense_weight];
        let storages = tensors.map(|tensor| tensor.storage_and_layout().0);
        let memory = [host_memory(&storages[0])?, host_memory(&storages[1])?, host_memory(&storages[2])?];
        let (dx, dweight) = by_dtype!(CustomOp2::name(self), memory[1], run(&op, tensors, memory))?;
        Ok((wanted(x, dx), wanted(weight, dweight)))
    }
}

/// `x / sqrt(mean(x²) + eps) * (weight + offset)` over the last axis, for a slot of
/// [`Contract::RmsNorm`](crate::bind::Contract::RmsNorm).
///
/// # Shapes
/// `x` is `[..., hidden]` of any strides, `weight` `[hidden]`; the output has the shape of `x` and is contiguous.
///
/// # Errors
/// When the kernel refuses the tensors, or serves another contract.
pub fn rms_norm(
    plan: &Plan,
    slot: &Slot,
    x: &Tensor,
    weight: &Tensor,
    eps: f64,
    offset: f64,
) -> Result<Option<Tensor>> {
    let Some(route) = route(plan, slot, rms_norm_face, "rms_norm", &[x, weight])? else { return Ok(None) };
    let (x, weight) = (dense_rows(x)?, dense_rows(weight)?);
    match route {
        Route::Free(kernel) => x.apply_op2_no_bwd(&weight, &RmsNormOp { kernel, eps, offset }),
        Route::Tracked(kernel) => x.apply_op2(&weight, TrainedRmsNormOp { kernel: Arc::clone(kernel), eps, offset }),
    }
    .map(Some)
}

/// `x + residual`, and `rms_norm` of that sum: `(normalised, sum)`, for a slot of
/// [`Contract::AddRmsNorm`](crate::bind::Contract::AddRmsNorm).
///
/// # Shapes
/// `x` and `residual` are `[..., hidden]` of any strides, `weight` `[hidden]`; both outputs have the shape of `x` and
/// are contiguous.
///
/// # Errors
/// As [`rms_norm`].
pub fn add_rms_norm(
    plan: &Plan,
    slot: &Slot,
    [x, residual]: [&Tensor; 2],
    weight: &Tensor,
    eps: f64,
    offset: f64,
) -> Result<Option<(Tensor, Tensor)>> {
    fn run<T: StorageElement + WithDType>(
        kernel: &AddRmsNormKernel,
        tensors: [&Tensor; 3],
        memory: [&CpuStorage; 3],
        (eps, offset): (f64, f64),
    ) -> Result<(Tensor, Tensor)> {
        let [x, residual, weight] = [0, 1, 2].map(|at| view::<T>(memory[at], tensors[at].layout()));
        let (shape, device) = (tensors[0].dims(), tensors[0].device());
        let (out, sum) =
            kernel.forward_to_vec::<T>(&x?, &residual?, shape, &weight?, eps, offset).map_err(bind_error)?;
        Ok((Tensor::from_vec(out, shape, device)?, Tensor::from_vec(sum, shape, device)?))
    }
    let called = "add_rms_norm";
    // The contract has no backward, so a route that tracks a gradient isn't there.
    let Some(Route::Free(kernel)) = route(plan, slot, add_rms_norm_face, called, &[x, residual, weight])? else {
        return Ok(None);
    };
    let (x, residual, weight) = (dense_rows(x)?, dense_rows(residual)?, dense_rows(weight)?);
    let tensors = [&*x, &*residual, &*weight];
    let storages = tensors.map(|tensor| tensor.storage_and_layout().0);
    let memory = [host_memory(&storages[0])?, host_memory(&storages[1])?, host_memory(&storages[2])?];
    by_dtype!("kernelhub-add-rms-norm", memory[0], run(kernel, tensors, memory, (eps, offset))).map(Some)
}

struct LayerNormOp<'a> {
    kernel: &'a LayerNormKernel,
    eps: f64,
}

impl LayerNormOp<'_> {
    fn run(
        &self,
        (x, lx): (&CpuStorage, &Layout),
        (weight, lw): (&CpuStorage, &Layout),
        bias: Option<(&CpuStorage, &Layout)>,
    ) -> Result<(CpuStorage, Shape)> {
        fn run<T: StorageElement>(
            op: &LayerNormOp<'_>,
            (x, lx): (&CpuStorage, &Layout),
            (weight, lw): (&CpuStorage, &Layout),
            bias: Option<(&CpuStorage, &Layout)>,
        ) -> Result<(CpuStorage, Shape)> {
            let (x, weight) = (view::<T>(x, lx)?, view::<T>(weight, lw)?);
            let bias = bias.map(|(bias, layout)| view::<T>(bias, layout)).transpose()?;
            let output = op.kernel.forward_to_vec::<T>(&x, lx.dims(), &weight, bias.as_ref(), op.eps);
            finish(output, lx.shape().clone())
        }
        by_dtype!("kernelhub-layer-norm", x, run(self, (x, lx), (weight, lw), bias))
    }
}

impl CustomOp2 for LayerNormOp<'_> {
    fn name(&self) -> &'static str {
        "kernelhub-layer-norm"
    }

    fn cpu_fwd(&self, x: &CpuStorage, lx: &Layout, weight: &CpuStorage, lw: &Layout) -> Result<(CpuStorage, Shape)> {
        self.run((x, lx), (weight, lw), None)
    }
}

impl CustomOp3 for LayerNormOp<'_> {
    fn name(&self) -> &'static str {
        "kernelhub-layer-norm"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        lx: &Layout,
        weight: &CpuStorage,
        lw: &Layout,
        bias: &CpuStorage,
        lb: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        self.run((x, lx), (weight, lw), Some((bias, lb)))
    }
}

/// `(x - mean(x)) / sqrt(var(x) + eps) * weight + bias` over the last axis, for a slot of
/// [`Contract::LayerNorm`](crate::bind::Contract::LayerNorm).
///
/// # Shapes
/// `x` is `[..., hidden]` of any strides, `weight` and `bias` `[hidden]`; the output has the shape of `x` and is
/// contiguous.
///
/// # Errors
/// As [`rms_norm`].
pub fn layer_norm(
    plan: &Plan,
    slot: &Slot,
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    eps: f64,
) -> Result<Option<Tensor>> {
    let tensors = [x, weight, bias.unwrap_or(weight)];
    let Some(Route::Free(kernel)) = route(plan, slot, layer_norm_face, "layer_norm", &tensors)? else {
        return Ok(None);
    };
    let (x, weight, op) = (dense_rows(x)?, dense_rows(weight)?, LayerNormOp { kernel, eps });
    match bias {
        Some(bias) => x.apply_op3_no_bwd(&weight, &*dense_rows(bias)?, &op),
        None => x.apply_op2_no_bwd(&weight, &op),
    }
    .map(Some)
}
