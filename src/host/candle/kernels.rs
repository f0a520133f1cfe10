//! Bound kernels as candle custom operations on the CPU.
//!
//! The operations live on the stack of one forward and borrow the kernel from the pinned plan. Nothing is allocated
//! but the output. They have no backward: a layer calls them only where nothing tracks a gradient.

use std::borrow::Cow;

use candle_core::{CpuStorage, CustomOp1, CustomOp2, CustomOp3, Error, Layout, Result, Shape, Tensor};
use half::{bf16, f16};

use super::RotaryStyle;
use crate::bind::{BindError, Element, GatedActivationKernel, RmsNormKernel, RotaryKernel, TensorRef};

/// An element type that candle stores and kernels compute.
trait StorageElement: Element {
    fn elements(storage: &CpuStorage) -> Option<&[Self]>;
    fn storage(elements: Vec<Self>) -> CpuStorage;
}

macro_rules! storage_element {
    ($element:ty, $storage:ident) => {
        impl StorageElement for $element {
            fn elements(storage: &CpuStorage) -> Option<&[Self]> {
                if let CpuStorage::$storage(elements) = storage { Some(elements) } else { None }
            }

            fn storage(elements: Vec<Self>) -> CpuStorage {
                CpuStorage::$storage(elements)
            }
        }
    };
}
storage_element!(f32, F32);
storage_element!(bf16, BF16);
storage_element!(f16, F16);

/// A candle tensor as a kernel sees it.
#[inline]
fn view<'a, T: StorageElement>(storage: &'a CpuStorage, layout: &'a Layout) -> Result<TensorRef<'a>> {
    let elements =
        T::elements(storage).ok_or_else(|| Error::Msg("operands of one operation differ in dtype".into()))?;
    let elements = elements.get(layout.start_offset()..).unwrap_or_default();
    TensorRef::new(elements, layout.dims(), layout.stride()).map_err(Error::wrap)
}

fn finish<T: StorageElement>(
    output: std::result::Result<Vec<T>, BindError>,
    shape: Shape,
) -> Result<(CpuStorage, Shape)> {
    output.map(|output| (T::storage(output), shape)).map_err(Error::wrap)
}

/// Calls `$run::<T>($arguments)` for the element type of `$storage`.
macro_rules! by_dtype {
    ($op:expr, $storage:expr, $run:ident($($argument:expr),*)) => {
        match $storage {
            CpuStorage::F32(_) => $run::<f32>($($argument),*),
            CpuStorage::BF16(_) => $run::<bf16>($($argument),*),
            CpuStorage::F16(_) => $run::<f16>($($argument),*),
            _ => Err(candle_core::Error::Msg(format!("{}: kernels compute f32, bf16 and f16 only", $op))),
        }
    };
}

struct RmsNormOp<'a> {
    kernel: &'a RmsNormKernel,
    eps: f64,
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
            finish(op.kernel.forward_to_vec::<T>(&x, lx.dims(), &weight, op.eps, 0.0), lx.shape().clone())
        }
        by_dtype!(self.name(), x, run(self, (x, lx), (weight, lw)))
    }
}

/// `x` `[..., hidden]` normalised by `kernel`.
pub(super) fn rms_norm(kernel: &RmsNormKernel, x: &Tensor, weight: &Tensor, eps: f32) -> Result<Tensor> {
    let (x, weight) = (dense_rows(x)?, dense_rows(weight)?);
    x.apply_op2_no_bwd(&weight, &RmsNormOp { kernel, eps: f64::from(eps) })
}

struct RotaryOp<'a> {
    kernel: &'a RotaryKernel,
    style: RotaryStyle,
}

impl CustomOp3 for RotaryOp<'_> {
    fn name(&self) -> &'static str {
        "kernelhub-rotary"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        lx: &Layout,
        cos: &CpuStorage,
        lc: &Layout,
        sin: &CpuStorage,
        ls: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        fn run<T: StorageElement>(
            op: &RotaryOp<'_>,
            (x, lx): (&CpuStorage, &Layout),
            (cos, lc): (&CpuStorage, &Layout),
            (sin, ls): (&CpuStorage, &Layout),
        ) -> Result<(CpuStorage, Shape)> {
            let (x, cos, sin) = (view::<T>(x, lx)?, view::<T>(cos, lc)?, view::<T>(sin, ls)?);
            finish(op.kernel.forward_to_vec::<T>(&x, lx.dims(), &cos, &sin, op.style), lx.shape().clone())
        }
        by_dtype!(self.name(), x, run(self, (x, lx), (cos, lc), (sin, ls)))
    }
}

/// `x` `[batch, heads, seq, head_dim]` turned by `kernel`; `cos`, `sin` are `[seq, head_dim / 2]`.
pub(super) fn rotary(
    kernel: &RotaryKernel,
    x: &Tensor,
    cos: &Tensor,
    sin: &Tensor,
    style: RotaryStyle,
) -> Result<Tensor> {
    dense_rows(x)?.apply_op3_no_bwd(cos, sin, &RotaryOp { kernel, style })
}

struct GatedActivationOp<'a> {
    kernel: &'a GatedActivationKernel,
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
            let output = op.kernel.forward_to_vec::<T>(&view::<T>(x, layout)?, &shape);
            finish(output, Shape::from(shape))
        }
        by_dtype!(self.name(), x, run(self, x, layout))
    }
}

/// `activation(x[..., :d]) * x[..., d:]` by `kernel`.
pub(super) fn gated_activation(kernel: &GatedActivationKernel, x: &Tensor) -> Result<Tensor> {
    dense_rows(x)?.apply_op1_no_bwd(&GatedActivationOp { kernel })
}

/// `x`, copied only when the elements of a row are no neighbours; every other stride is the kernel's to follow.
#[inline]
fn dense_rows(x: &Tensor) -> Result<Cow<'_, Tensor>> {
    let dense =
        x.stride().last().is_none_or(|stride| *stride == 1) || x.dims().last().is_some_and(|extent| *extent <= 1);
    // Borrowed: a clone counts up and down, which other threads would wait for.
    if dense { Ok(Cow::Borrowed(x)) } else { x.contiguous().map(Cow::Owned) }
}

// After the macro, which it uses.
mod attention;

pub(super) use attention::{attention, attention_paged, attention_varlen};
