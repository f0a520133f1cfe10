//! Look-ups by number.

use std::borrow::Cow;

use candle_core::{CpuStorage, CustomOp2, DType, Error, Layout, Result, Shape, Tensor};

use super::{Route, route};
use crate::bind::{EmbeddingKernel, LayerKernel};
use crate::host::candle::kernels::{StorageElement, by_dtype, dense_rows, finish, indices, view};
use crate::swap::{Plan, Slot};

fn face(kernel: &LayerKernel) -> Option<&EmbeddingKernel> {
    if let LayerKernel::Embedding(kernel) = kernel { Some(kernel) } else { None }
}

struct EmbeddingOp<'a> {
    kernel: &'a EmbeddingKernel,
}

impl CustomOp2 for EmbeddingOp<'_> {
    fn name(&self) -> &'static str {
        "kernelhub-embedding"
    }

    fn cpu_fwd(&self, weight: &CpuStorage, lw: &Layout, ids: &CpuStorage, li: &Layout) -> Result<(CpuStorage, Shape)> {
        fn run<T: StorageElement>(
            op: &EmbeddingOp<'_>,
            (weight, lw): (&CpuStorage, &Layout),
            (ids, li): (&CpuStorage, &Layout),
        ) -> Result<(CpuStorage, Shape)> {
            // As long as it becomes: to grow would be a second allocation.
            let mut shape = Vec::with_capacity(li.dims().len() + 1);
            shape.extend_from_slice(li.dims());
            shape.extend(lw.dims().last());
            let (ids, weight) = (indices(ids, li)?, view::<T>(weight, lw)?);
            finish(op.kernel.forward_to_vec::<T>(&ids, &weight, &shape), Shape::from(shape))
        }
        by_dtype!(self.name(), weight, run(self, (weight, lw), (ids, li)))
    }
}

/// The rows `ids` of `weight`, for a slot of [`Contract::Embedding`](crate::bind::Contract::Embedding).
///
/// # Shapes
/// `ids` are `[...]` of u8, u32 or i64 and any strides, `weight` is `[vocabulary, hidden]`; the output is
/// `[..., hidden]`, contiguous.
///
/// # Errors
/// When the kernel refuses the tensors or an id, or serves another contract.
pub fn embedding(plan: &Plan, slot: &Slot, ids: &Tensor, weight: &Tensor) -> Result<Option<Tensor>> {
    let Some(Route::Free(kernel)) = route(plan, slot, face, "embedding", &[weight])? else { return Ok(None) };
    // The contract's ids are u32 or i64; every u8 is a u32.
    let ids = match ids.dtype() {
        DType::U8 => Cow::Owned(ids.to_dtype(DType::U32)?),
        _ if ids.is_contiguous() => Cow::Borrowed(ids),
        _ => Cow::Owned(ids.contiguous()?),
    };
    if !ids.device().same_device(weight.device()) {
        return Err(Error::DeviceMismatchBinaryOp {
            lhs: weight.device().location(),
            rhs: ids.device().location(),
            op: "embedding",
        });
    }
    dense_rows(weight)?.apply_op2_no_bwd(&ids, &EmbeddingOp { kernel }).map(Some)
}
