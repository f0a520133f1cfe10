//! Activations, gated activations and the softmax.

use std::sync::Arc;

use candle_core::{CpuStorage, CustomOp1, Layout, Result, Shape, Tensor, WithDType};

use super::{Route, broken, host_memory, route};
use crate::bind::{ActivationKernel, GatedActivationKernel, LayerKernel, SoftmaxKernel};
use crate::host::candle::kernels::{StorageElement, bind_error, by_dtype, dense_rows, finish, view};
use crate::swap::{Plan, Slot};

fn activation_face(kernel: &LayerKernel) -> Option<&ActivationKernel> {
    if let LayerKernel::Activation(kernel) = kernel { Some(kernel) } else { None }
}

fn gated_face(kernel: &LayerKernel) -> Option<&GatedActivationKernel> {
    if let LayerKernel::GatedActivation(kernel) = kernel { Some(kernel) } else { None }
}

struct ActivationOp<'a> {
    kernel: &'a ActivationKernel,
}

impl CustomOp1 for ActivationOp<'_> {
    fn name(&self) -> &'static str {
        "kernelhub-activation"
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        fn run<T: StorageElement>(
            op: &ActivationOp<'_>,
            x: &CpuStorage,
            layout: &Layout,
        ) -> Result<(CpuStorage, Shape)> {
            let output = op.kernel.forward_to_vec::<T>(&view::<T>(x, layout)?, layout.dims());
            finish(output, layout.shape().clone())
        }
        by_dtype!(self.name(), x, run(self, x, layout))
    }
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
    dense_rows(x)?.apply_op1_no_bwd(&ActivationOp { kernel }).map(Some)
}

fn softmax_face(kernel: &LayerKernel) -> Option<&SoftmaxKernel> {
    if let LayerKernel::Softmax(kernel) = kernel { Some(kernel) } else { None }
}

struct SoftmaxOp<'a> {
    kernel: &'a SoftmaxKernel,
}

impl CustomOp1 for SoftmaxOp<'_> {
    fn name(&self) -> &'static str {
        "kernelhub-softmax"
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        fn run<T: StorageElement>(op: &SoftmaxOp<'_>, x: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
            let output = op.kernel.forward_to_vec::<T>(&view::<T>(x, layout)?, layout.dims());
            finish(output, layout.shape().clone())
        }
        by_dtype!(self.name(), x, run(self, x, layout))
    }
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
    dense_rows(x)?.apply_op1_no_bwd(&SoftmaxOp { kernel }).map(Some)
}

struct GatedActivationOp<'a> {
    kernel: &'a GatedActivationKernel,
    threshold: Option<f64>,
}

impl CustomOp1 for GatedActivationOp<'_> {
    fn name(&self) -> &'static str {
        "kernelhub-gated-activation"
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        fn run<T: StorageElement>(
            op: &GatedActivationOp<'_>,
            x: &CpuStorage,
            layout: &Layout,
        ) -> Result<(CpuStorage, Shape)> {
            let mut shape = layout.dims().to_vec();
            if let Some(width) = shape.last_mut() {
                *width /= 2;
            }
            let x = view::<T>(x, layout)?;
            let output = match op.threshold {
                None => op.kernel.forward_to_vec::<T>(&x, &shape),
                Some(threshold) => op.kernel.forward_with_threshold_to_vec::<T>(&x, &shape, threshold),
            };
            finish(output, Shape::from(shape))
        }
        by_dtype!(self.name(), x, run(self, x, layout))
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
        "kernelhub-gated-activation"
    }

    fn cpu_fwd(&self, x: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        self.op()?.cpu_fwd(x, layout)
    }

    fn bwd(&self, x: &Tensor, _: &Tensor, dy: &Tensor) -> Result<Option<Tensor>> {
        fn run<T: StorageElement + WithDType>(
            op: &GatedActivationOp<'_>,
            [dy, x]: [&Tensor; 2],
            memory: [&CpuStorage; 2],
        ) -> Result<Tensor> {
            let (dy, x_view) = (view::<T>(memory[0], dy.layout())?, view::<T>(memory[1], x.layout())?);
            let dx = op.kernel.backward_to_vec::<T>(&dy, &x_view, x.dims()).map_err(bind_error)?;
            Tensor::from_vec(dx, x.dims(), x.device())
        }
        let op = self.op()?;
        let (dense_dy, dense_x) = (dense_rows(dy)?, dense_rows(x)?);
        let tensors = [&*dense_dy, &*dense_x];
        let storages = tensors.map(|tensor| tensor.storage_and_layout().0);
        let memory = [host_memory(&storages[0])?, host_memory(&storages[1])?];
        by_dtype!(self.name(), memory[1], run(&op, tensors, memory)).map(Some)
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
        Route::Free(kernel) => x.apply_op1_no_bwd(&GatedActivationOp { kernel, threshold }),
        Route::Tracked(kernel) => x.apply_op1(TrainedGatedActivationOp { kernel: Arc::clone(kernel), threshold }),
    }
    .map(Some)
}
