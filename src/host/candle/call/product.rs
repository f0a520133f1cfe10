//! Matrix products.

use candle_core::{CpuStorage, CustomOp2, CustomOp3, Layout, Result, Shape, Tensor};

use super::{Route, route};
use crate::bind::{LayerKernel, LinearKernel};
use crate::host::candle::kernels::{StorageElement, by_dtype, dense_rows, finish, view};
use crate::swap::{Plan, Slot};

fn face(kernel: &LayerKernel) -> Option<&LinearKernel> {
    if let LayerKernel::Linear(kernel) = kernel { Some(kernel) } else { None }
}

struct LinearOp<'a> {
    kernel: &'a LinearKernel,
}

impl LinearOp<'_> {
    fn run(
        &self,
        (x, lx): (&CpuStorage, &Layout),
        (weight, lw): (&CpuStorage, &Layout),
        bias: Option<(&CpuStorage, &Layout)>,
    ) -> Result<(CpuStorage, Shape)> {
        fn run<T: StorageElement>(
            op: &LinearOp<'_>,
            (x, lx): (&CpuStorage, &Layout),
            (weight, lw): (&CpuStorage, &Layout),
            bias: Option<(&CpuStorage, &Layout)>,
        ) -> Result<(CpuStorage, Shape)> {
            let mut shape = lx.dims().to_vec();
            if let (Some(width), Some(outputs)) = (shape.last_mut(), lw.dims().first()) {
                *width = *outputs;
            }
            let (x, weight) = (view::<T>(x, lx)?, view::<T>(weight, lw)?);
            let bias = bias.map(|(bias, layout)| view::<T>(bias, layout)).transpose()?;
            finish(op.kernel.forward_to_vec::<T>(&x, &weight, bias.as_ref(), &shape), Shape::from(shape))
        }
        by_dtype!("kernelhub-linear", x, run(self, (x, lx), (weight, lw), bias))
    }
}

impl CustomOp2 for LinearOp<'_> {
    fn name(&self) -> &'static str {
        "kernelhub-linear"
    }

    fn cpu_fwd(&self, x: &CpuStorage, lx: &Layout, weight: &CpuStorage, lw: &Layout) -> Result<(CpuStorage, Shape)> {
        self.run((x, lx), (weight, lw), None)
    }
}

impl CustomOp3 for LinearOp<'_> {
    fn name(&self) -> &'static str {
        "kernelhub-linear"
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

/// `x · weightᵀ + bias`, for a slot of [`Contract::Linear`](crate::bind::Contract::Linear).
///
/// # Shapes
/// `x` is `[..., in]` of any strides, `weight` `[out, in]`, `bias` `[out]`; the output is `[..., out]`, contiguous.
///
/// # Errors
/// When the kernel refuses the tensors, or serves another contract.
pub fn linear(plan: &Plan, slot: &Slot, x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Option<Tensor>> {
    let tensors = [x, weight, bias.unwrap_or(weight)];
    let Some(Route::Free(kernel)) = route(plan, slot, face, "linear", &tensors)? else { return Ok(None) };
    let (x, weight, op) = (dense_rows(x)?, dense_rows(weight)?, LinearOp { kernel });
    match bias {
        Some(bias) => x.apply_op3_no_bwd(&weight, &*dense_rows(bias)?, &op),
        None => x.apply_op2_no_bwd(&weight, &op),
    }
    .map(Some)
}
