//! The exported symbols: the handshake and one function per kernel.

#![expect(unsafe_code, reason = "exported symbols")]

use core::ffi::{c_int, c_void};

use kernelhub_abi::{PACK_ABI_VERSION, TVMFFIAny};

use crate::call::{Args, guard};

/// `uint32_t kernelhub_abi_version(void)`, see [`kernelhub_abi::AbiVersionFn`].
#[unsafe(no_mangle)]
pub extern "C" fn kernelhub_abi_version() -> u32 {
    PACK_ABI_VERSION
}

/// Exports one kernel under its symbol, behind the panic barrier.
macro_rules! export {
    ($feature:literal, $function:ident, $symbol:literal, [$($parameter:literal),*], $run:path, $doc:literal) => {
        #[doc = $doc]
        ///
        /// # Safety
        /// The calling convention of [`kernelhub_abi::PackedFn`]: `args` points to `num_args` values whose tensors are
        /// what they say they are and live through the call; `result` is null or writable.
        #[cfg(feature = $feature)]
        #[unsafe(export_name = $symbol)]
        pub unsafe extern "C" fn $function(
            _handle: *mut c_void,
            args: *const TVMFFIAny,
            num_args: i32,
            result: *mut TVMFFIAny,
        ) -> c_int {
            const NAME: &str = stringify!($function);
            guard(NAME, || {
                // SAFETY: the same contract.
                let args = unsafe { Args::new(NAME, &[$($parameter),*], args, num_args)? };
                $run(NAME, &args)?;
                if !result.is_null() {
                    // SAFETY: writable by the caller's contract.
                    unsafe { result.write(TVMFFIAny::none()) };
                }
                Ok(())
            })
        }
    };
}

export!(
    "rmsnorm",
    rms_norm,
    "__tvm_ffi_rms_norm",
    ["out", "x", "weight", "eps"],
    crate::ops::rms_norm::rms_norm,
    "`rms_norm(out, x, weight, eps)`: `out = x / sqrt(mean(x^2) + eps) * weight` over the last axis."
);
export!(
    "rotary",
    apply_rotary,
    "__tvm_ffi_apply_rotary",
    ["x1", "x2", "cos", "sin", "out1", "out2", "conj"],
    crate::ops::rotary::call,
    "`apply_rotary(x1, x2, cos, sin, out1, out2, conj)`: rotates the pairs `(x1, x2)`; backwards where `conj` is set."
);
export!(
    "rotary",
    apply_rotary_pair,
    "__tvm_ffi_apply_rotary_pair",
    ["x1", "x2", "cos", "sin", "out1", "out2", "conj", "y1", "y2", "y_out1", "y_out2"],
    crate::ops::rotary::call_pair,
    "`apply_rotary` of two tensors at once, such as queries and keys; or of the first alone, where the others are None."
);
export!(
    "activation",
    silu_and_mul,
    "__tvm_ffi_silu_and_mul",
    ["out", "x"],
    crate::ops::activation::silu_and_mul,
    "`silu_and_mul(out, x)`: `out = silu(x[.., :d]) * x[.., d:]`."
);
export!(
    "flash-attn2",
    flash_attn,
    "__tvm_ffi_flash_attn",
    ["out", "q", "k", "v", "softmax_scale", "causal"],
    crate::ops::attention::call,
    "`flash_attn(out, q, k, v, softmax_scale, causal)`: scaled dot-product attention with grouped heads."
);
export!(
    "rmsnorm",
    rms_norm_with_offset,
    "__tvm_ffi_rms_norm_with_offset",
    ["out", "x", "weight", "eps", "offset"],
    crate::ops::rms_norm::rms_norm_with_offset,
    "`rms_norm_with_offset(out, x, weight, eps, offset)`: `out = x / sqrt(mean(x^2) + eps) * (weight + offset)`."
);
export!(
    "rmsnorm",
    rms_norm_backward,
    "__tvm_ffi_rms_norm_backward",
    ["dx", "dweight", "dy", "x", "weight", "eps", "offset"],
    crate::ops::rms_norm::rms_norm_backward,
    "`rms_norm_backward(dx, dweight, dy, x, weight, eps, offset)`: the gradients of `rms_norm_with_offset`."
);
export!(
    "rmsnorm",
    add_rms_norm,
    "__tvm_ffi_add_rms_norm",
    ["out", "residual_out", "x", "residual", "weight", "eps", "offset"],
    crate::ops::rms_norm::add_rms_norm,
    "`add_rms_norm(out, residual_out, x, residual, weight, eps, offset)`: `residual_out = x + residual`, and its norm."
);
export!(
    "layer-norm",
    layer_norm,
    "__tvm_ffi_layer_norm",
    ["out", "x", "weight", "bias", "eps"],
    crate::ops::layer_norm::call,
    "`layer_norm(out, x, weight, bias, eps)`: `out = (x - mean(x)) / sqrt(var(x) + eps) * weight + bias`."
);
export!(
    "activation",
    mul_and_silu,
    "__tvm_ffi_mul_and_silu",
    ["out", "x"],
    crate::ops::activation::mul_and_silu,
    "`mul_and_silu(out, x)`: `out = x[.., :d] * silu(x[.., d:])`."
);
export!(
    "activation",
    gelu_and_mul,
    "__tvm_ffi_gelu_and_mul",
    ["out", "x"],
    crate::ops::activation::gelu_and_mul,
    "`gelu_and_mul(out, x)`: `out = gelu(x[.., :d]) * x[.., d:]`."
);
export!(
    "activation",
    gelu_tanh_and_mul,
    "__tvm_ffi_gelu_tanh_and_mul",
    ["out", "x"],
    crate::ops::activation::gelu_tanh_and_mul,
    "`gelu_tanh_and_mul(out, x)`: `out = gelu_tanh(x[.., :d]) * x[.., d:]`."
);
export!(
    "activation",
    fatrelu_and_mul,
    "__tvm_ffi_fatrelu_and_mul",
    ["out", "x", "threshold"],
    crate::ops::activation::fatrelu_and_mul,
    "`fatrelu_and_mul(out, x, threshold)`: `out = (x[.., :d] > threshold ? x[.., :d] : 0) * x[.., d:]`."
);
export!(
    "activation",
    silu_and_mul_backward,
    "__tvm_ffi_silu_and_mul_backward",
    ["dx", "dy", "x"],
    crate::ops::activation::silu_and_mul_backward,
    "`silu_and_mul_backward(dx, dy, x)`: the gradient of `silu_and_mul`."
);
export!(
    "activation",
    silu,
    "__tvm_ffi_silu",
    ["out", "x"],
    crate::ops::activation::silu,
    "`silu(out, x)`: `out = x / (1 + e^-x)`."
);
export!(
    "activation",
    gelu,
    "__tvm_ffi_gelu",
    ["out", "x"],
    crate::ops::activation::gelu,
    "`gelu(out, x)`: `out = x (1 + erf(x / sqrt(2))) / 2`."
);
export!(
    "activation",
    gelu_tanh,
    "__tvm_ffi_gelu_tanh",
    ["out", "x"],
    crate::ops::activation::gelu_tanh,
    "`gelu_tanh(out, x)`: `out = x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2`."
);
export!(
    "activation",
    gelu_new,
    "__tvm_ffi_gelu_new",
    ["out", "x"],
    crate::ops::activation::gelu_tanh,
    "`gelu_new(out, x)`: the same function as `gelu_tanh`."
);
export!(
    "activation",
    gelu_fast,
    "__tvm_ffi_gelu_fast",
    ["out", "x"],
    crate::ops::activation::gelu_tanh,
    "`gelu_fast(out, x)`: the same function as `gelu_tanh`."
);
export!(
    "activation",
    gelu_quick,
    "__tvm_ffi_gelu_quick",
    ["out", "x"],
    crate::ops::activation::gelu_quick,
    "`gelu_quick(out, x)`: `out = x / (1 + e^-1.702x)`."
);
export!(
    "softmax",
    softmax,
    "__tvm_ffi_softmax",
    ["out", "x"],
    crate::ops::softmax::call,
    "`softmax(out, x)`: `out = e^x / sum(e^x)` over the last axis."
);
export!(
    "linear",
    linear,
    "__tvm_ffi_linear",
    ["out", "x", "weight", "bias"],
    crate::ops::linear::linear,
    "`linear(out, x, weight, bias)`: `out = x weight^T + bias`."
);
export!(
    "linear",
    silu_gated_linear,
    "__tvm_ffi_silu_gated_linear",
    ["out", "x", "weight", "bias"],
    crate::ops::linear::silu_gated_linear,
    "`silu_gated_linear(out, x, weight, bias)`: `out = silu(x gate^T + gate_bias) * (x up^T + up_bias)`."
);
export!(
    "embedding",
    embedding,
    "__tvm_ffi_embedding",
    ["out", "ids", "weight"],
    crate::ops::embedding::call,
    "`embedding(out, ids, weight)`: `out[.., :] = weight[ids[..], :]`."
);
export!(
    "cross-entropy",
    cross_entropy,
    "__tvm_ffi_cross_entropy",
    ["loss", "logits", "targets", "ignore_index"],
    crate::ops::cross_entropy::forward,
    "`cross_entropy(loss, logits, targets, ignore_index)`: `loss = log(sum(exp(logits))) - logits[target]`."
);
export!(
    "cross-entropy",
    cross_entropy_backward,
    "__tvm_ffi_cross_entropy_backward",
    ["dlogits", "dloss", "logits", "targets", "ignore_index"],
    crate::ops::cross_entropy::backward,
    "`cross_entropy_backward(dlogits, dloss, logits, targets, ignore_index)`: `dlogits = dloss (softmax(logits) - onehot)`."
);
export!(
    "flash-attn2",
    flash_attn_options,
    "__tvm_ffi_flash_attn_options",
    ["out", "q", "k", "v", "softmax_scale", "causal", "window_left", "window_right", "softcap"],
    crate::ops::attention::call_with_options,
    "`flash_attn` with a window of visible keys and a soft cap of the scores."
);
export!(
    "flash-attn2",
    flash_attn_varlen,
    "__tvm_ffi_flash_attn_varlen",
    [
        "out",
        "q",
        "k",
        "v",
        "cu_seqlens_q",
        "cu_seqlens_k",
        "max_seqlen_q",
        "max_seqlen_k",
        "softmax_scale",
        "causal",
        "window_left",
        "window_right",
        "softcap"
    ],
    crate::ops::attention::call_varlen,
    "`flash_attn_options` over sequences of different lengths, packed one behind the other."
);
export!(
    "flash-attn2",
    flash_attn_paged,
    "__tvm_ffi_flash_attn_paged",
    [
        "out",
        "q",
        "k_cache",
        "v_cache",
        "block_table",
        "seqlens_k",
        "softmax_scale",
        "causal",
        "window_left",
        "window_right",
        "softcap"
    ],
    crate::ops::attention::call_paged,
    "`flash_attn_options` over keys and values in the blocks of a paged cache."
);
