//! Calls of attention.

use candle_core::{Error, Result, Shape, Tensor};

use super::{Call, Operand, Output, StorageElement, dense_rows, finish, tensor};
use crate::bind::{
    AttentionKernel, AttentionOptions, AttentionPagedKernel, AttentionVarlenKernel, PagedKeys, TensorRef,
};

fn apply(kernel: &impl Call<Output = Output>, [q, k, v]: [&Tensor; 3]) -> Result<Tensor> {
    call!(kernel, dense_rows(q)?, dense_rows(k)?, dense_rows(v)?).map(tensor)
}

/// The three tensors of attention.
fn operands<'a, 'b>(operands: &'b [Operand<'a>]) -> Result<&'b [Operand<'a>; 3]> {
    operands.try_into().map_err(|_| Error::Msg("internal: attention has three operands".to_owned()))
}

struct Dense<'a> {
    kernel: &'a AttentionKernel,
    options: AttentionOptions,
}

impl Call for Dense<'_> {
    const NAME: &'static str = "kernelhub-attention";
    type Output = Output;

    fn call<T: StorageElement>(&self, inputs: &[Operand<'_>]) -> Result<Output> {
        let [q, k, v] = operands(inputs)?;
        let (batch, heads, q_len, head_dim) = q.shape().dims4()?;
        let shape = [batch, q_len, heads, head_dim];
        let (q, k, v) = (q.view::<T>()?, k.view::<T>()?, v.view::<T>()?);
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

impl Call for Varlen<'_> {
    const NAME: &'static str = "kernelhub-attention-varlen";
    type Output = Output;

    fn call<T: StorageElement>(&self, inputs: &[Operand<'_>]) -> Result<Output> {
        let [q, k, v] = operands(inputs)?;
        let (total, heads, head_dim) = q.shape().dims3()?;
        let (q, k, v) = (q.view::<T>()?, k.view::<T>()?, v.view::<T>()?);
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

impl Call for Paged<'_> {
    const NAME: &'static str = "kernelhub-attention-paged";
    type Output = Output;

    fn call<T: StorageElement>(&self, inputs: &[Operand<'_>]) -> Result<Output> {
        let [q, k, v] = operands(inputs)?;
        let (batch, heads, q_len, head_dim) = q.shape().dims4()?;
        let (q, k, v) = (q.view::<T>()?, k.view::<T>()?, v.view::<T>()?);
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
