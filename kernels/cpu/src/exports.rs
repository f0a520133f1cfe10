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
    crate::ops::rms_norm::call,
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
    "activation",
    silu_and_mul,
    "__tvm_ffi_silu_and_mul",
    ["out", "x"],
    crate::ops::silu::call,
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
