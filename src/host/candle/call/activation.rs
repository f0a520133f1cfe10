//! Activations, gated activations and the softmax.

use std::sync::Arc;

use candle_core::{CpuStorage, CustomOp1, Layout, Result, Shape, Tensor};

use super::{Route, broken, route};
use crate::bind::{ActivationKernel, BindError, GatedActivationKernel, LayerKernel, SoftmaxKernel, TensorRef};
use crate::host::candle::kernels::{Call, Operand, Output, StorageElement, call, call_on, dense_rows, finish, tensor};
use crate::swap::{Plan, Slot};

fn activation_face(kernel: &LayerKernel) -> Option<&ActivationKernel> {
    if let LayerKernel::Activation(kernel) = kernel { Some(kernel) } else { None }
}

fn gated_face(kernel: &LayerKernel) -> Option<&GatedActivationKernel> {
    if let LayerKernel::GatedActivation(kernel) = kernel { Some(kernel) } else { None }
}

/// A kernel of one input and one output of its shape.
struct Map<'a, K>(&'a K);

impl Call for Map<'_, ActivationKernel> {
    const NAME: &'static str = "kernelhub-activation";
    type Output = Output;

    fn call<T: StorageElement>(&self, operands: &[Operand<'_>]) -> Result<Output> {
        map::<T>(operands, |x, shape| self.0.forward_to_vec(x, shape))
    }
}

impl Call for Map<'_, SoftmaxKernel> {
    const NAME: &'static str = "kernelhub-softmax";
    type Output = Output;

    fn call<T: StorageElement>(&self, operands: &[Operand<'_>]) -> Result<Output> {
        map::<T>(operands, |x, shape| self.0.forward_to_vec(x, shape))
    }
}

/// Runs `forward` on `[x]`.
#[inline]
fn map<T: StorageElement>(
    operands: &[Operand<'_>],
    forward: impl FnOnce(&TensorRef<'_>, &[usize]) -> std::result::Result<Vec<T>, BindError>,
) -> Result<Output> {
    let [x] = operands else { return Err(broken()) };
    finish(forward(&x.view::<T>()?, x.dims()), x.shape().clone())
}

/// The slot's activation of every element, for a slot of [`Contract::Activation`](crate::bind::Contract::Activation).
///
/// # Shapes
/// `x` is `[..., width]` of any strides; the output has its shape and is contiguous.
///
/// # Errors
/// When the kernel refuses the tensor, or serves another contract.
pub fn activation(plan: &Plan, slot: &Slot, x: &Tensor) -> Result<Option<Tensor>> {
    let Some(Route::Free(kernel)) = route(plan, slot, activation_face, "activation", &[x])? else {
        return Ok(None);
    };
    Ok(Some(tensor(call!(&Map(kernel), dense_rows(x)?)?)))
}

fn softmax_face(kernel: &LayerKernel) -> Option<&SoftmaxKernel> {
    if let LayerKernel::Softmax(kernel) = kernel { Some(kernel) } else { None }
}

/// The slot's softmax over the last axis, for a slot of [`Contract::Softmax`](crate::bind::Contract::Softmax).
///
/// # Shapes
/// `x` is `[..., width]` of any strides; the output has its shape and is contiguous.
///
/// # Errors
/// As [`activation`].
pub fn softmax(plan: &Plan, slot: &Slot, x: &Tensor) -> Result<Option<Tensor>> {
    let Some(Route::Free(kernel)) = route(plan, slot, softmax_face, "softmax", &[x])? else { return Ok(None) };
    Ok(Some(tensor(call!(&Map(kernel), dense_rows(x)?)?)))
}

struct GatedActivationOp<'a> {
    kernel: &'a GatedActivationKernel,
    threshold: Option<f64>,
}

impl Call for GatedActivationOp<'_> {
    const NAME: &'static str = "kernelhub-gated-activation";
    type Output = Output;

    fn call<T: StorageElement>(&self, operands: &[Operand<'_>]) -> Result<Output> {
        let [x] = operands else { return Err(broken()) };
        let mut shape = x.dims().to_vec();
        if let Some(width) = shape.last_mut() {
            *width /= 2;
        }
        let x = x.view::<T>()?;
        let output = match self.threshold {
            None => self.kernel.forward_to_vec::<T>(&x, &shape),
            Some(threshold) => self.kernel.forward_with_threshold_to_vec::<T>(&x, &shape, threshold),
        };
        finish(output, Shape::from(shape))
    }
}

/// The gradient of the activation for `x`, from `[dy, x]`.
struct GatedActivationGradient<'a>(&'a GatedActivationKernel);

impl Call for GatedActivationGradient<'_> {
    const NAME: &'static str = "kernelhub-gated-activation";
    type Output = Output;

    fn call<T: StorageElement>(&self, operands: &[Operand<'_>]) -> Result<Output> {
        let [dy, x] = operands else { return Err(broken()) };
        let dx = self.0.backward_to_vec::<T>(&dy.view::<T>()?, &x.view::<T>()?, x.dims());
        finish(dx, x.shape().clone())
    }
}

/// With the kernel's backward.
struct TrainedGatedActivationOp {
    kernel: Arc<LayerKernel>,
    threshold: Option<f64>,
}

impl TrainedGatedActivationOp {
    fn op(&self) -> Result<GatedActivationOp<'_>> {
        let kernel = gated_face(&self.kernel).ok_or_else(broken)?;
        Ok(GatedActivationOp { kernel, threshold: self.threshold })
    }
}

impl CustomOp1 for TrainedGatedActivationOp {
    fn name(&self) -> &'static str {
        GatedActivationOp::NAME
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> Result<Output> {
        call_on(&self.op()?, &[Operand::new(x, layout)])
    }

    fn bwd(&self, x: &Tensor, _: &Tensor, dy: &Tensor) -> Result<Option<Tensor>> {
        let gradient = GatedActivationGradient(self.op()?.kernel);
        Ok(Some(tensor(call!(&gradient, dense_rows(dy)?, dense_rows(x)?)?)))
    }
}

/// The slot's activation of `x`'s halves, for a slot of
/// [`Contract::GatedActivation`](crate::bind::Contract::GatedActivation). `threshold` is `FATReLU`'s, and no other's.
///
/// # Shapes
/// `x` is `[..., 2 * width]` of any strides; the output is `[..., width]`, contiguous.
///
/// # Errors
/// As [`activation`].
pub fn gated_activation(plan: &Plan, slot: &Slot, x: &Tensor, threshold: Option<f64>) -> Result<Option<Tensor>> {
    let Some(route) = route(plan, slot, gated_face, "gated_activation", &[x])? else { return Ok(None) };
    let x = dense_rows(x)?;
    match route {
        Route::Free(kernel) => call!(&GatedActivationOp { kernel, threshold }, x).map(tensor),
        Route::Tracked(kernel) => x.apply_op1(TrainedGatedActivationOp { kernel: Arc::clone(kernel), threshold }),
    }
    .map(Some)
}
