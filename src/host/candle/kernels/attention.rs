//! Attention as candle custom operations.

use candle_core::{CpuStorage, CustomOp3, Layout, Result, Shape, Tensor};

use super::{StorageElement, dense_rows, finish, view};
use crate::bind::{
    AttentionKernel, AttentionOptions, AttentionPagedKernel, AttentionVarlenKernel, PagedKeys, TensorRef,
};

/// A tensor's memory and how it lies there.
type Operand<'a> = (&'a CpuStorage, &'a Layout);

/// A kind of attention over three tensors.
trait Attend {
    const NAME: &'static str;

    fn run<T: StorageElement>(&self, q: Operand<'_>, k: Operand<'_>, v: Operand<'_>) -> Result<(CpuStorage, Shape)>;
}

struct AttendOp<'a, A>(&'a A);

impl<A: Attend> CustomOp3 for AttendOp<'_, A> {
    fn name(&self) -> &'static str {
        A::NAME
    }

    fn cpu_fwd(
        &self,
        q: &CpuStorage,
        lq: &Layout,
        k: &CpuStorage,
        lk: &Layout,
        v: &CpuStorage,
        lv: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        fn run<T: StorageElement>(op: &impl Attend, [q, k, v]: [Operand<'_>; 3]) -> Result<(CpuStorage, Shape)> {
            op.run::<T>(q, k, v)
        }
        by_dtype!(self.name(), q, run(self.0, [(q, lq), (k, lk), (v, lv)]))
    }
}

fn apply(op: &impl Attend, [q, k, v]: [&Tensor; 3]) -> Result<Tensor> {
    let (q, k, v) = (dense_rows(q)?, dense_rows(k)?, dense_rows(v)?);
    q.apply_op3_no_bwd(&k, &v, &AttendOp(op))
}

struct Dense<'a> {
    kernel: &'a AttentionKernel,
    options: AttentionOptions,
}

impl Attend for Dense<'_> {
    const NAME: &'static str = "kernelhub-attention";

    fn run<T: StorageElement>(&self, q: Operand<'_>, k: Operand<'_>, v: Operand<'_>) -> Result<(CpuStorage, Shape)> {
        let (batch, heads, q_len, head_dim) = q.1.shape().dims4()?;
        let shape = [batch, q_len, heads, head_dim];
        let (q, k, v) = (view::<T>(q.0, q.1)?, view::<T>(k.0, k.1)?, view::<T>(v.0, v.1)?);
        let output = self.kernel.forward_to_vec::<T>(&q, &k, &v, &shape, &self.options);
        finish(output, Shape::from((batch, q_len, heads * head_dim)))
    }
}

/// Attention by `kernel` over `[batch, heads, q_len, head_dim]` and `[batch, kv_heads, kv_len, head_dim]`; the output
/// is `[batch, q_len, heads * head_dim]`.
pub(in crate::host::candle) fn attention(
    kernel: &AttentionKernel,
    inputs: [&Tensor; 3],
    options: AttentionOptions,
) -> Result<Tensor> {
    apply(&Dense { kernel, options }, inputs)
}

struct Varlen<'a> {
    kernel: &'a AttentionVarlenKernel,
    starts: [&'a [i32]; 2],
    options: AttentionOptions,
}

impl Attend for Varlen<'_> {
    const NAME: &'static str = "kernelhub-attention-varlen";

    fn run<T: StorageElement>(&self, q: Operand<'_>, k: Operand<'_>, v: Operand<'_>) -> Result<(CpuStorage, Shape)> {
        let (total, heads, head_dim) = q.1.shape().dims3()?;
        let (q, k, v) = (view::<T>(q.0, q.1)?, view::<T>(k.0, k.1)?, view::<T>(v.0, v.1)?);
        let counts = self.starts.map(|starts| [starts.len()]);
        let starts = |of: usize| TensorRef::indices(self.starts[of], &counts[of]).map_err(candle_core::Error::wrap);
        let (of_q, of_k) = (starts(0)?, starts(1)?);
        let shape = [total, heads, head_dim];
        let output = self.kernel.forward_to_vec::<T>(&q, &k, &v, [&of_q, &of_k], &shape, &self.options);
        finish(output, Shape::from((total, heads * head_dim)))
    }
}

/// Attention by `kernel` over sequences that stand one behind the other: `q` is `[total_q, heads, head_dim]`, `k` and
/// `v` `[total_k, kv_heads, head_dim]`; `starts` are those of the queries and of the keys. The output is
/// `[total_q, heads * head_dim]`.
pub(in crate::host::candle) fn attention_varlen(
    kernel: &AttentionVarlenKernel,
    inputs: [&Tensor; 3],
    starts: [&[i32]; 2],
    options: AttentionOptions,
) -> Result<Tensor> {
    apply(&Varlen { kernel, starts, options }, inputs)
}

struct Paged<'a> {
    kernel: &'a AttentionPagedKernel,
    table: &'a [i32],
    lengths: &'a [i32],
    options: AttentionOptions,
}

impl Attend for Paged<'_> {
    const NAME: &'static str = "kernelhub-attention-paged";

    fn run<T: StorageElement>(&self, q: Operand<'_>, k: Operand<'_>, v: Operand<'_>) -> Result<(CpuStorage, Shape)> {
        let (batch, heads, q_len, head_dim) = q.1.shape().dims4()?;
        let (q, k, v) = (view::<T>(q.0, q.1)?, view::<T>(k.0, k.1)?, view::<T>(v.0, v.1)?);
        let blocks = self.table.len().checked_div(batch).unwrap_or(0);
        let (table_shape, lengths_shape) = ([batch, blocks], [batch]);
        let table = TensorRef::indices(self.table, &table_shape).map_err(candle_core::Error::wrap)?;
        let lengths = TensorRef::indices(self.lengths, &lengths_shape).map_err(candle_core::Error::wrap)?;
        let paged = PagedKeys { keys: &k, values: &v, block_table: &table, lengths: &lengths };
        let shape = [batch, q_len, heads, head_dim];
        let output = self.kernel.forward_to_vec::<T>(&q, &paged, &shape, &self.options);
        finish(output, Shape::from((batch, q_len, heads * head_dim)))
    }
}

/// Attention by `kernel` of `q` `[batch, heads, q_len, head_dim]` over keys and values
/// `[blocks, block_size, kv_heads, head_dim]`; `table` is `[batch, max_blocks]`, `lengths` `[batch]`. The output is
/// `[batch, q_len, heads * head_dim]`.
pub(in crate::host::candle) fn attention_paged(
    kernel: &AttentionPagedKernel,
    inputs: [&Tensor; 3],
    (table, lengths): (&[i32], &[i32]),
    options: AttentionOptions,
) -> Result<Tensor> {
    apply(&Paged { kernel, table, lengths, options }, inputs)
}
