//! Checks of the arguments that all functions share.

use super::MAX_HEAD;
use crate::call::{Failed, Tensor};

/// `out`, `q`, and keys and values whose leading axes were checked. `like_keys` says
/// in errors that something is as the keys are. Gives heads, key/value heads and head size.
pub(super) fn expect_heads([out, q, k, v]: [&Tensor; 4], like_keys: &str) -> Result<[usize; 3], Failed> {
    let ([.., heads, head_dim], [.., kv_heads, _]) = (q.shape(), k.shape()) else {
        return Err(q.invalid_shape(format_args!("expected rank 3 or 4")));
    };
    let (heads, head_dim, kv_heads) = (*heads, *head_dim, *kv_heads);
    v.expect_shape(k.shape(), like_keys)?;
    out.expect_shape(q.shape(), "as `q`")?;
    for tensor in [k, v, out] {
        tensor.expect_dtype(q.dtype, "as `q`")?;
    }
    if head_dim > MAX_HEAD {
        return Err(q.invalid(format_args!("expected a head_dim of 1 to {MAX_HEAD}, got {head_dim}")));
    }
    if heads > 0 && (kv_heads == 0 || !heads.is_multiple_of(kv_heads)) {
        return Err(k.invalid(format_args!("expected kv_heads that divide the {heads} heads of `q`, got {kv_heads}")));
    }
    for tensor in [out, q, k, v] {
        tensor.expect_dense_last()?;
    }
    out.expect_writable()?;
    for tensor in [q, k, v] {
        out.expect_apart(tensor)?;
    }
    Ok([heads, kv_heads, head_dim])
}
