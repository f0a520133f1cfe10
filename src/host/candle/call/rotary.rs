//! Rotations by position.

use std::sync::Arc;

use candle_core::{CpuStorage, CustomOp3, Layout, Result, Shape, Tensor};

use super::{Route, broken, route};
use crate::bind::{LayerKernel, RotaryKernel, RotaryStyle, TensorRef};
use crate::host::candle::LayerError;
use crate::host::candle::kernels::{
    Call, Operand, Output, StorageElement, bind_error, by_dtype, call, dense_rows, finish, finish_both, tensor, view,
};
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

/// [`rotary`] of two tensors whose first position is `offset`, such as queries and keys, in one call of the kernel where
/// its function takes two. Where anything tracks a gradient the answer is `None`, and [`rotary`] turns each.
///
/// # Shapes
/// `x` and `y` are `[batch, heads, seq, head_dim]` of any strides, `heads` of each its own; the tables are
/// `[max_seq, head_dim / 2]`. The outputs have the shapes of `x` and `y` and are contiguous.
///
/// # Errors
/// As [`rotary`], also for positions beyond the tables.
pub fn rotary_pair(
    plan: &Plan,
    slot: &Slot,
    [x, y]: [&Tensor; 2],
    [cos, sin]: [&Tensor; 2],
    offset: usize,
    style: RotaryStyle,
) -> Result<Option<(Tensor, Tensor)>> {
    let Some(Route::Free(kernel)) = route(plan, slot, face, "rotary_pair", &[x, y, cos, sin])? else { return Ok(None) };
    let (x, y) = (dense_rows(x)?, dense_rows(y)?);
    let [out, y_out] = call!(&PairCall { kernel, offset, style }, x, y, cos, sin)?;
    Ok(Some((tensor(out), tensor(y_out))))
}

/// A rotation of two tensors, and of the tables.
struct PairCall<'a> {
    kernel: &'a RotaryKernel,
    offset: usize,
    style: RotaryStyle,
}

impl PairCall<'_> {
    /// The table's rows from the first position on, of `shape`.
    fn rows<'a, T: StorageElement>(&self, table: &Operand<'a>, shape: &'a [usize; 2]) -> Result<TensorRef<'a>> {
        let maximum = table.dims().first().copied().unwrap_or(0);
        let end = self.offset.saturating_add(shape[0]);
        if end > maximum {
            return Err(LayerError::Positions { layer: "RotaryEmbedding", start: self.offset, end, maximum }.into());
        }
        let strides = table.strides();
        // Of a row of the table, unless the rows are none.
        let first = self.offset * strides.first().copied().unwrap_or(0);
        TensorRef::new(table.elements::<T>()?.get(first..).unwrap_or_default(), shape, strides).map_err(bind_error)
    }
}

impl Call for PairCall<'_> {
    const NAME: &'static str = "kernelhub-rotary";
    type Output = [Output; 2];

    fn call<T: StorageElement>(&self, operands: &[Operand<'_>]) -> Result<[Output; 2]> {
        let [x, y, cos, sin] = operands else { return Err(broken()) };
        let seq = x.dims().get(2).copied().unwrap_or(0);
        // Each of its own width: by the other's, the rows of a narrower one would run into each other.
        let [cos_shape, sin_shape] = [cos, sin].map(|table| [seq, table.dims().get(1).copied().unwrap_or(0)]);
        let (cos, sin) = (self.rows::<T>(cos, &cos_shape)?, self.rows::<T>(sin, &sin_shape)?);
        let views = [&x.view::<T>()?, &y.view::<T>()?];
        let outputs = self.kernel.forward_pair_to_vec::<T>(views, [x.dims(), y.dims()], &cos, &sin, self.style);
        finish_both(outputs, [x.shape(), y.shape()])
    }
}
