//! Normalisations.

use std::sync::Arc;

use candle_core::{CpuStorage, CustomOp2, Layout, Result, Tensor};

use super::{Route, broken, route, wanted};
use crate::bind::{AddRmsNormKernel, LayerKernel, LayerNormKernel, RmsNormKernel};
use crate::host::candle::kernels::{
    Call, Operand, Output, StorageElement, call, call_on, dense_rows, finish, finish_both, tensor,
};
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

impl Call for RmsNormOp<'_> {
    const NAME: &'static str = "kernelhub-rms-norm";
    type Output = Output;

    fn call<T: StorageElement>(&self, operands: &[Operand<'_>]) -> Result<Output> {
        let [x, weight] = operands else { return Err(broken()) };
        let (x_view, weight) = (x.view::<T>()?, weight.view::<T>()?);
        let output = self.kernel.forward_to_vec::<T>(&x_view, x.dims(), &weight, self.eps, self.offset);
        finish(output, x.shape().clone())
    }
}

/// The gradients of the norm for `x` and the weight, from `[dy, x, weight]`.
struct RmsNormGradient<'a>(RmsNormOp<'a>);

impl Call for RmsNormGradient<'_> {
    const NAME: &'static str = "kernelhub-rms-norm";
    type Output = [Output; 2];

    fn call<T: StorageElement>(&self, operands: &[Operand<'_>]) -> Result<[Output; 2]> {
        let [dy, x, weight] = operands else { return Err(broken()) };
        let Self(RmsNormOp { kernel, eps, offset }) = self;
        let (dy, x_view, weight_view) = (dy.view::<T>()?, x.view::<T>()?, weight.view::<T>()?);
        let gradients = kernel.backward_to_vec::<T>(&dy, &x_view, x.dims(), &weight_view, *eps, *offset);
        finish_both(gradients, [x.shape(), weight.shape()])
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
        RmsNormOp::NAME
    }

    fn cpu_fwd(&self, x: &CpuStorage, lx: &Layout, weight: &CpuStorage, lw: &Layout) -> Result<Output> {
        call_on(&self.op()?, &[Operand::new(x, lx), Operand::new(weight, lw)])
    }

    fn bwd(&self, x: &Tensor, weight: &Tensor, _: &Tensor, dy: &Tensor) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let (dense_dy, dense_x, dense_weight) = (dense_rows(dy)?, dense_rows(x)?, dense_rows(weight)?);
        let [dx, dweight] = call!(&RmsNormGradient(self.op()?), dense_dy, dense_x, dense_weight)?;
        Ok((wanted(x, tensor(dx)), wanted(weight, tensor(dweight))))
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
        Route::Free(kernel) => call!(&RmsNormOp { kernel, eps, offset }, x, weight).map(tensor),
        Route::Tracked(kernel) => x.apply_op2(&weight, TrainedRmsNormOp { kernel: Arc::clone(kernel), eps, offset }),
    }
    .map(Some)
}

struct AddRmsNormOp<'a> {
    kernel: &'a AddRmsNormKernel,
    eps: f64,
    offset: f64,
}

impl Call for AddRmsNormOp<'_> {
    const NAME: &'static str = "kernelhub-add-rms-norm";
    type Output = [Output; 2];

    fn call<T: StorageElement>(&self, operands: &[Operand<'_>]) -> Result<[Output; 2]> {
        let [x, residual, weight] = operands else { return Err(broken()) };
        let (x_view, residual, weight) = (x.view::<T>()?, residual.view::<T>()?, weight.view::<T>()?);
        let outputs = self.kernel.forward_to_vec::<T>(&x_view, &residual, x.dims(), &weight, self.eps, self.offset);
        finish_both(outputs, [x.shape(); 2])
    }
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
    let called = "add_rms_norm";
    // The contract has no backward, so a route that tracks a gradient isn't there.
    let Some(Route::Free(kernel)) = route(plan, slot, add_rms_norm_face, called, &[x, residual, weight])? else {
        return Ok(None);
    };
    let (x, residual, weight) = (dense_rows(x)?, dense_rows(residual)?, dense_rows(weight)?);
    let [out, sum] = call!(&AddRmsNormOp { kernel, eps, offset }, x, residual, weight)?;
    Ok(Some((tensor(out), tensor(sum))))
}

struct LayerNormOp<'a> {
    kernel: &'a LayerNormKernel,
    eps: f64,
}

impl Call for LayerNormOp<'_> {
    const NAME: &'static str = "kernelhub-layer-norm";
    type Output = Output;

    fn call<T: StorageElement>(&self, operands: &[Operand<'_>]) -> Result<Output> {
        let [x, weight, bias @ ..] = operands else { return Err(broken()) };
        let bias = bias.first().map(Operand::view::<T>).transpose()?;
        let (x_view, weight) = (x.view::<T>()?, weight.view::<T>()?);
        let output = self.kernel.forward_to_vec::<T>(&x_view, x.dims(), &weight, bias.as_ref(), self.eps);
        finish(output, x.shape().clone())
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
        Some(bias) => call!(&op, x, weight, dense_rows(bias)?),
        None => call!(&op, x, weight),
    }
    .map(|output| Some(tensor(output)))
}
