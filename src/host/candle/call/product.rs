//! Matrix products.

use candle_core::{Result, Shape, Tensor};

use super::{Route, broken, route};
use crate::bind::{BindError, GatedLinearKernel, LayerKernel, LinearKernel, TensorRef};
use crate::host::candle::kernels::{Call, Operand, Output, StorageElement, call, dense_rows, finish, tensor};
use crate::swap::{Plan, Slot};

fn face(kernel: &LayerKernel) -> Option<&LinearKernel> {
    if let LayerKernel::Linear(kernel) = kernel { Some(kernel) } else { None }
}

fn gated_face(kernel: &LayerKernel) -> Option<&GatedLinearKernel> {
    if let LayerKernel::GatedLinear(kernel) = kernel { Some(kernel) } else { None }
}

/// A product of `[..., in]` and a weight of rows of `in` elements, by either contract's kernel.
struct Product<'a, K>(&'a K);

impl Call for Product<'_, LinearKernel> {
    const NAME: &'static str = "kernelhub-linear";
    type Output = Output;

    fn call<T: StorageElement>(&self, operands: &[Operand<'_>]) -> Result<Output> {
        multiply::<T>(operands, 1, |x, weight, bias, shape| self.0.forward_to_vec(x, weight, bias, shape))
    }
}

impl Call for Product<'_, GatedLinearKernel> {
    const NAME: &'static str = "kernelhub-gated-linear";
    type Output = Output;

    fn call<T: StorageElement>(&self, operands: &[Operand<'_>]) -> Result<Output> {
        multiply::<T>(operands, 2, |x, weight, bias, shape| self.0.forward_to_vec(x, weight, bias, shape))
    }
}

/// Runs `product` on `[x, weight]` or `[x, weight, bias]`; the weight has `rows_per_output` rows for each output.
#[inline]
fn multiply<T: StorageElement>(
    operands: &[Operand<'_>],
    rows_per_output: usize,
    product: impl FnOnce(
        &TensorRef<'_>,
        &TensorRef<'_>,
        Option<&TensorRef<'_>>,
        &[usize],
    ) -> std::result::Result<Vec<T>, BindError>,
) -> Result<Output> {
    let [x, weight, bias @ ..] = operands else { return Err(broken()) };
    let mut shape = x.dims().to_vec();
    if let (Some(width), Some(rows)) = (shape.last_mut(), weight.dims().first()) {
        *width = rows / rows_per_output;
    }
    let bias = bias.first().map(Operand::view::<T>).transpose()?;
    let output = product(&x.view::<T>()?, &weight.view::<T>()?, bias.as_ref(), &shape);
    finish(output, Shape::from(shape))
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
    run(&Product(kernel), x, weight, bias).map(Some)
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
    run(&Product(kernel), x, weight, bias).map(Some)
}

/// Rows of `x` and of the weight that are no neighbours are made so.
fn run(product: &impl Call<Output = Output>, x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    let (x, weight) = (dense_rows(x)?, dense_rows(weight)?);
    match bias {
        Some(bias) => call!(product, x, weight, dense_rows(bias)?),
        None => call!(product, x, weight),
    }
    .map(tensor)
}
