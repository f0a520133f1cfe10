//! Matrix products.

use candle_core::{CpuStorage, CustomOp2, CustomOp3, Layout, Result, Shape, Tensor};

use super::{Route, route};
use crate::bind::{BindError, Element, GatedLinearKernel, LayerKernel, LinearKernel, TensorRef};
use crate::host::candle::kernels::{StorageElement, by_dtype, dense_rows, finish, view};
use crate::swap::{Plan, Slot};

fn face(kernel: &LayerKernel) -> Option<&LinearKernel> {
    if let LayerKernel::Linear(kernel) = kernel { Some(kernel) } else { None }
}

fn gated_face(kernel: &LayerKernel) -> Option<&GatedLinearKernel> {
    if let LayerKernel::GatedLinear(kernel) = kernel { Some(kernel) } else { None }
}

/// A kernel of `[..., in]` and a weight of rows of `in` elements.
trait Multiply {
    /// Rows of the weight for each output.
    const ROWS: usize;

    fn to_vec<T: Element>(
        &self,
        x: &TensorRef<'_>,
        weight: &TensorRef<'_>,
        bias: Option<&TensorRef<'_>>,
        shape: &[usize],
    ) -> std::result::Result<Vec<T>, BindError>;
}

impl Multiply for LinearKernel {
    const ROWS: usize = 1;

    fn to_vec<T: Element>(
        &self,
        x: &TensorRef<'_>,
        weight: &TensorRef<'_>,
        bias: Option<&TensorRef<'_>>,
        shape: &[usize],
    ) -> std::result::Result<Vec<T>, BindError> {
        self.forward_to_vec(x, weight, bias, shape)
    }
}

impl Multiply for GatedLinearKernel {
    const ROWS: usize = 2;

    fn to_vec<T: Element>(
        &self,
        x: &TensorRef<'_>,
        weight: &TensorRef<'_>,
        bias: Option<&TensorRef<'_>>,
        shape: &[usize],
    ) -> std::result::Result<Vec<T>, BindError> {
        self.forward_to_vec(x, weight, bias, shape)
    }
}

struct ProductOp<'a, K> {
    kernel: &'a K,
}

/// The op's name among candle's.
const NAME: &str = "kernelhub-linear";

impl<K: Multiply> ProductOp<'_, K> {
    fn run(
        &self,
        (x, lx): (&CpuStorage, &Layout),
        (weight, lw): (&CpuStorage, &Layout),
        bias: Option<(&CpuStorage, &Layout)>,
    ) -> Result<(CpuStorage, Shape)> {
        fn run<T: StorageElement>(
            kernel: &impl Multiply,
            (x, lx): (&CpuStorage, &Layout),
            (weight, lw): (&CpuStorage, &Layout),
            (bias, per_output): (Option<(&CpuStorage, &Layout)>, usize),
        ) -> Result<(CpuStorage, Shape)> {
            let mut shape = lx.dims().to_vec();
            if let (Some(width), Some(rows)) = (shape.last_mut(), lw.dims().first()) {
                *width = rows / per_output;
            }
            let (x, weight) = (view::<T>(x, lx)?, view::<T>(weight, lw)?);
            let bias = bias.map(|(bias, layout)| view::<T>(bias, layout)).transpose()?;
            finish(kernel.to_vec::<T>(&x, &weight, bias.as_ref(), &shape), Shape::from(shape))
        }
        by_dtype!(NAME, x, run(self.kernel, (x, lx), (weight, lw), (bias, K::ROWS)))
    }
}

impl<K: Multiply> CustomOp2 for ProductOp<'_, K> {
    fn name(&self) -> &'static str {
        NAME
    }

    fn cpu_fwd(&self, x: &CpuStorage, lx: &Layout, weight: &CpuStorage, lw: &Layout) -> Result<(CpuStorage, Shape)> {
        self.run((x, lx), (weight, lw), None)
    }
}

impl<K: Multiply> CustomOp3 for ProductOp<'_, K> {
    fn name(&self) -> &'static str {
        NAME
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
    multiply(kernel, x, weight, bias).map(Some)
}

/// `activation(x · gateᵀ + gate_bias) * (x · upᵀ + up_bias)`, for a slot of
/// [`Contract::GatedLinear`](crate::bind::Contract::GatedLinear).
///
/// # Shapes
/// `x` is `[..., in]` of any strides, `weight` `[2 * width, in]`, the rows of `gate` first, `bias` `[2 * width]`; the
/// output is `[..., width]`, contiguous.
///
/// # Errors
/// As [`linear`].
pub fn gated_linear(
    plan: &Plan,
    slot: &Slot,
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
) -> Result<Option<Tensor>> {
    let tensors = [x, weight, bias.unwrap_or(weight)];
    let Some(Route::Free(kernel)) = route(plan, slot, gated_face, "gated_linear", &tensors)? else {
        return Ok(None);
    };
    multiply(kernel, x, weight, bias).map(Some)
}

fn multiply(kernel: &impl Multiply, x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    let (x, weight, op) = (dense_rows(x)?, dense_rows(weight)?, ProductOp { kernel });
    match bias {
        Some(bias) => x.apply_op3_no_bwd(&weight, &*dense_rows(bias)?, &op),
        None => x.apply_op2_no_bwd(&weight, &op),
    }
}
