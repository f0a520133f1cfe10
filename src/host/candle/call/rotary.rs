//! Rotations by position.

use std::sync::Arc;

use candle_core::{CpuStorage, CustomOp3, Layout, Result, Shape, Tensor};

use super::{Route, broken, route};
use crate::bind::{LayerKernel, RotaryKernel, RotaryStyle};
use crate::host::candle::kernels::{StorageElement, by_dtype, dense_rows, finish, view};
use crate::swap::{Plan, Slot};

fn face(kernel: &LayerKernel) -> Option<&RotaryKernel> {
    if let LayerKernel::Rotary(kernel) = kernel { Some(kernel) } else { None }
}

struct RotaryOp<'a> {
    kernel: &'a RotaryKernel,
    style: RotaryStyle,
    /// Whether it turns back, as gradients are turned.
    is_back: bool,
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
            let output = if op.is_back {
                op.kernel.turn_back_to_vec::<T>(&x, lx.dims(), &cos, &sin, op.style)
            } else {
                op.kernel.forward_to_vec::<T>(&x, lx.dims(), &cos, &sin, op.style)
            };
            finish(output, lx.shape().clone())
        }
        by_dtype!(self.name(), x, run(self, (x, lx), (cos, lc), (sin, ls)))
    }
}

/// With the turn back as its backward.
struct TrainedRotaryOp {
    kernel: Arc<LayerKernel>,
    style: RotaryStyle,
}

impl TrainedRotaryOp {
    fn op(&self, is_back: bool) -> Result<RotaryOp<'_>> {
        Ok(RotaryOp { kernel: face(&self.kernel).ok_or_else(broken)?, style: self.style, is_back })
    }
}

impl CustomOp3 for TrainedRotaryOp {
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
        self.op(false)?.cpu_fwd(x, lx, cos, lc, sin, ls)
    }

    fn bwd(
        &self,
        _: &Tensor,
        cos: &Tensor,
        sin: &Tensor,
        _: &Tensor,
        dy: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let dx = dense_rows(dy)?.apply_op3_no_bwd(&*dense_rows(cos)?, &*dense_rows(sin)?, &self.op(true)?)?;
        Ok((Some(dx), None, None))
    }
}

/// `x` turned by its positions, for a slot of [`Contract::Rotary`](crate::bind::Contract::Rotary). A kernel gives the
/// tables no gradient: where one of them tracks it, the answer is `None`.
///
/// # Shapes
/// `x` is `[batch, heads, seq, head_dim]` of any strides, `cos` and `sin` are `[seq, head_dim / 2]`; the output has the
/// shape of `x` and is contiguous.
///
/// # Errors
/// When the kernel refuses the tensors, or serves another contract.
pub fn rotary(
    plan: &Plan,
    slot: &Slot,
    x: &Tensor,
    [cos, sin]: [&Tensor; 2],
    style: RotaryStyle,
) -> Result<Option<Tensor>> {
    let Some(route) = route(plan, slot, face, "rotary", &[x])? else { return Ok(None) };
    if cos.track_op() || sin.track_op() {
        return Ok(None);
    }
    let (x, cos, sin) = (dense_rows(x)?, dense_rows(cos)?, dense_rows(sin)?);
    match route {
        Route::Free(kernel) => x.apply_op3_no_bwd(&cos, &sin, &RotaryOp { kernel, style, is_back: false }),
        Route::Tracked(kernel) => x.apply_op3(&cos, &sin, TrainedRotaryOp { kernel: Arc::clone(kernel), style }),
    }
    .map(Some)
}
