//! Sequences of different lengths, packed one behind the other.

use super::arguments::expect_heads;
use super::options::Options;
use super::run::Call;
use super::sequences::{Lengths, Sequences};
use crate::call::{Args, Failed, IndexType, Tensor};

/// Arguments by position.
const CU_SEQLENS: [usize; 2] = [4, 5];
const MAX_SEQLENS: [usize; 2] = [6, 7];
const OPTIONS: usize = 8;

/// `flash_attn_varlen(out, q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, softmax_scale, causal,
/// window_left, window_right, softcap)`.
pub(crate) fn call(function: &'static str, args: &Args<'_>) -> Result<(), Failed> {
    let mut tensors = [Tensor::EMPTY; 4];
    let tensors = args.tensors(&mut tensors)?;
    let [out, q, k, _] = tensors;
    let [cu_q, cu_k] = [args.index_tensor(CU_SEQLENS[0])?, args.index_tensor(CU_SEQLENS[1])?];
    let options = Options::all(args, OPTIONS)?;
    q.expect_rank(3..=3, "[total_q, heads, head_dim]")?;
    k.expect_rank(3..=3, "[total_k, kv_heads, head_dim]")?;
    let &[total_q, _, head_dim] = q.shape() else { return Err(q.invalid_shape(format_args!("expected rank 3"))) };
    let &[total_k, kv_heads, _] = k.shape() else { return Err(k.invalid_shape(format_args!("expected rank 3"))) };
    k.expect_shape(&[total_k, kv_heads, head_dim], "[total_k, kv_heads, head_dim], head_dim as in `q`")?;
    let heads = expect_heads(tensors, "as `k`")?;
    [&cu_q, &cu_k].into_iter().try_for_each(|tensor| out.expect_apart(tensor))?;
    cu_q.expect_rank(1..=1, "[batch + 1]")?;
    let Some(batch) = cu_q.len_of_axis(0).checked_sub(1) else {
        return Err(cu_q.invalid(format_args!("expected [batch + 1] numbers, of which the first is 0, got none")));
    };
    cu_k.expect_shape(cu_q.shape(), "as `cu_seqlens_q`")?;
    let (q_starts, end) = starts(args, &cu_q, total_q, MAX_SEQLENS[0])?;
    // Else there were outputs that no sequence writes.
    if end != [0, total_q] {
        let [first, last] = end;
        let text = format_args!("expected numbers from 0 to the {total_q} rows of `q`, got {first} to {last}");
        return Err(cu_q.invalid(text));
    }
    let (kv_starts, _) = starts(args, &cu_k, total_k, MAX_SEQLENS[1])?;
    if out.is_empty() {
        return Ok(());
    }
    Call { function, tensors, sequences: Sequences::Packed { q_starts, kv_starts }, batch, heads, options }.run()
}

/// Checks the starts of the sequences among `total` rows, and that none is longer than the argument at `longest` says.
/// Gives the first and the last number too.
fn starts(
    args: &Args<'_>,
    cu_seqlens: &Tensor<IndexType>,
    total: usize,
    longest: usize,
) -> Result<(Lengths, [usize; 2]), Failed> {
    let maximum = args.int(longest)?;
    let (mut first, mut last, mut most) = (0, 0, 0);
    let lengths = Lengths::read(cu_seqlens, |index, start| {
        if index == 0 {
            (first, last) = (start, start);
        }
        let Some(length) = start.checked_sub(last) else {
            let text = format_args!("expected numbers that do not fall, got {start} after {last} at {index}");
            return Err(cu_seqlens.invalid(text));
        };
        if start > total {
            return Err(cu_seqlens.invalid(format_args!("expected numbers up to {total} rows, got {start} at {index}")));
        }
        (last, most) = (start, most.max(length));
        Ok(())
    })?;
    if usize::try_from(maximum).map_or(true, |maximum| most > maximum) {
        let text = format_args!("expected the length of the longest sequence, at least {most}, got {maximum}");
        return Err(args.invalid(longest, text));
    }
    Ok((lengths, [first, last]))
}
