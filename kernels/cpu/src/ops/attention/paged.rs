//! Keys and values in the blocks of a paged cache.

use super::arguments::expect_heads;
use super::options::Options;
use super::run::Call;
use super::sequences::{BlockTable, Lengths, Sequences};
use crate::call::{Args, Failed, Tensor};

/// Arguments by position.
const BLOCK_TABLE: usize = 4;
const SEQLENS_K: usize = 5;
const OPTIONS: usize = 6;

/// `flash_attn_paged(out, q, k_cache, v_cache, block_table, seqlens_k, softmax_scale, causal, window_left,
/// window_right, softcap)`.
pub(crate) fn call(function: &'static str, args: &Args<'_>) -> Result<(), Failed> {
    let mut tensors = [Tensor::EMPTY; 4];
    let tensors = args.tensors(&mut tensors)?;
    let [out, q, k, _] = tensors;
    let (table, kv_lens) = (args.index_tensor(BLOCK_TABLE)?, args.index_tensor(SEQLENS_K)?);
    let options = Options::all(args, OPTIONS)?;
    q.expect_rank(4..=4, "[batch, q_len, heads, head_dim]")?;
    k.expect_rank(4..=4, "[blocks, block_size, kv_heads, head_dim]")?;
    let &[batch, q_len, _, head_dim] = q.shape() else { return Err(q.invalid_shape(format_args!("expected rank 4"))) };
    let &[blocks, block_size, kv_heads, _] = k.shape() else {
        return Err(k.invalid_shape(format_args!("expected rank 4")));
    };
    k.expect_shape(
        &[blocks, block_size, kv_heads, head_dim],
        "[blocks, block_size, kv_heads, head_dim], head_dim as in `q`",
    )?;
    let heads = expect_heads(tensors, "as `k_cache`")?;
    [&table, &kv_lens].into_iter().try_for_each(|tensor| out.expect_apart(tensor))?;
    table.expect_rank(2..=2, "[batch, max_blocks]")?;
    let max_blocks = table.len_of_axis(1);
    table.expect_shape(&[batch, max_blocks], "[batch, max_blocks], batch as in `q`")?;
    kv_lens.expect_shape(&[batch], "[batch], batch as in `q`")?;
    let capacity = max_blocks.saturating_mul(block_size);
    let kv_lens = Lengths::read(&kv_lens, |index, length| {
        if length <= capacity {
            return Ok(());
        }
        let text = format_args!(
            "expected at most the {max_blocks} x {block_size} positions of a row of `block_table`, got {length} at {index}"
        );
        Err(kv_lens.invalid(text))
    })?;
    let table = BlockTable::read(&table, kv_lens, blocks, block_size)?;
    if out.is_empty() {
        return Ok(());
    }
    Call { function, tensors, sequences: Sequences::Paged { q_len, kv_lens, table }, batch, heads, options }.run()
}
