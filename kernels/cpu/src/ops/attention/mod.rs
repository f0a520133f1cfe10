//! Scaled dot-product attention with grouped heads, without a matrix of scores in memory.
//!
//! Queries of all heads that share a key/value head are the rows of one block, so that keys and values are read once
//! per block. A block walks over tiles of keys with an online softmax (running maximum and sum per row). Blocks of
//! many rows transpose the keys of a tile and multiply with register tiles; blocks of few rows (decoding) take dot
//! products with the keys as they lie, since transposing would cost more than it saves.

mod block;
mod softmax;
mod split;
mod tiles;

use half::{bf16, f16};

use self::block::Attention;
use super::multiply;
use crate::call::{Args, DType, Failed, Tensor, launch};
use crate::simd::Element;

/// Largest head size, in elements: what the tiles on the stack are sized for.
const MAX_HEAD: usize = 256;

/// A tensor `[batch, sequence, heads, head_dim]` as base and the strides of its first three axes.
#[derive(Debug, Clone, Copy)]
struct View<E> {
    data: *mut E,
    strides: [isize; 3],
}

/// Checks the arguments and runs the kernel.
pub(crate) fn call(function: &'static str, args: &Args<'_>) -> Result<(), Failed> {
    let mut tensors = [Tensor::EMPTY; 4];
    let [out, q, k, v] = args.tensors(&mut tensors)?;
    let scale = args.float(4)?;
    let causal = args.flag(5)?;
    if !scale.is_finite() {
        return Err(args.invalid(4, format_args!("expected a finite number, got {scale}")));
    }
    q.expect_rank(4..=4, "[batch, q_len, heads, head_dim]")?;
    k.expect_rank(4..=4, "[batch, kv_len, kv_heads, head_dim]")?;
    let &[batch, _, heads, head_dim] = q.shape() else { return Err(q.invalid_shape(format_args!("expected rank 4"))) };
    let &[_, kv_len, kv_heads, _] = k.shape() else { return Err(k.invalid_shape(format_args!("expected rank 4"))) };
    k.expect_shape(
        &[batch, kv_len, kv_heads, head_dim],
        "[batch, kv_len, kv_heads, head_dim], batch and head_dim as in `q`",
    )?;
    v.expect_shape(k.shape(), "as `k`")?;
    out.expect_shape(q.shape(), "as `q`")?;
    for tensor in [&k, &v, &out] {
        tensor.expect_dtype(q.dtype, "as `q`")?;
    }
    if head_dim > MAX_HEAD {
        return Err(q.invalid(format_args!("expected a head_dim of 1 to {MAX_HEAD}, got {head_dim}")));
    }
    if heads > 0 && (kv_heads == 0 || !heads.is_multiple_of(kv_heads)) {
        return Err(k.invalid(format_args!("expected kv_heads that divide the {heads} heads of `q`, got {kv_heads}")));
    }
    for tensor in [&out, &q, &k, &v] {
        tensor.expect_dense_last()?;
    }
    out.expect_writable()?;
    for tensor in [&q, &k, &v] {
        out.expect_apart(tensor)?;
    }
    if out.is_empty() {
        return Ok(());
    }
    let run = match q.dtype {
        DType::F32 => run::<f32>,
        DType::Bf16 => run::<bf16>,
        DType::F16 => run::<f16>,
    };
    run(function, [out, q, k, v], scale, causal)
}

fn run<E: Element>(function: &'static str, tensors: [&Tensor; 4], scale: f64, causal: bool) -> Result<(), Failed> {
    let views = tensors.map(|tensor| {
        let mut strides = [0; 3];
        strides.copy_from_slice(&tensor.strides()[..3]);
        View::<E> { data: tensor.data(), strides }
    });
    let (shape, keys_shape) = (tensors[1].shape(), tensors[2].shape());
    let (kv_len, kv_heads) = (keys_shape[1], keys_shape[2]);
    let group = shape[2] / kv_heads;
    let job = Attention::new(views, shape, kv_len, kv_heads, scale, causal);
    // About 80 multiply-adds, or 25 bytes of keys and values, per nanosecond, whichever takes longer.
    let pairs = (shape[0] * kv_heads) as u64 * kv_len as u64 * shape[3] as u64;
    let products = pairs.saturating_mul((2 * group) as u64).saturating_mul(shape[1] as u64);
    let seen = if causal { products / 2 } else { products };
    let bytes = pairs.saturating_mul(2 * size_of::<E>() as u64);
    let cost = (seen / 40).max(bytes / 25);
    match split::parts(&job) {
        1 => launch(function, &job, job.items(), cost),
        parts => split::run(function, &job, parts, cost),
    }
}
