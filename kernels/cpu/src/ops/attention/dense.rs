//! A batch of sequences of equal lengths.

use super::arguments::expect_heads;
use super::options::Options;
use super::run::Call;
use super::sequences::Sequences;
use crate::call::{Args, Failed, Tensor};

/// `flash_attn(out, q, k, v, softmax_scale, causal)`.
pub(crate) fn call(function: &'static str, args: &Args<'_>) -> Result<(), Failed> {
    run(function, args, Options::plain)
}

/// `flash_attn_options(out, q, k, v, softmax_scale, causal, window_left, window_right, softcap)`.
pub(crate) fn call_with_options(function: &'static str, args: &Args<'_>) -> Result<(), Failed> {
    run(function, args, Options::all)
}

fn run(
    function: &'static str,
    args: &Args<'_>,
    read: impl FnOnce(&Args<'_>, usize) -> Result<Options, Failed>,
) -> Result<(), Failed> {
    let mut tensors = [Tensor::EMPTY; 4];
    let tensors = args.tensors(&mut tensors)?;
    let [out, q, k, _] = tensors;
    let options = read(args, 4)?;
    q.expect_rank(4..=4, "[batch, q_len, heads, head_dim]")?;
    k.expect_rank(4..=4, "[batch, kv_len, kv_heads, head_dim]")?;
    let &[batch, q_len, _, head_dim] = q.shape() else { return Err(q.invalid_shape(format_args!("expected rank 4"))) };
    let &[_, kv_len, kv_heads, _] = k.shape() else { return Err(k.invalid_shape(format_args!("expected rank 4"))) };
    k.expect_shape(
        &[batch, kv_len, kv_heads, head_dim],
        "[batch, kv_len, kv_heads, head_dim], batch and head_dim as in `q`",
    )?;
    let heads = expect_heads(tensors, "as `k`")?;
    if out.is_empty() {
        return Ok(());
    }
    Call { function, tensors, sequences: Sequences::Dense { q_len, kv_len }, batch, heads, options }.run()
}
