//! kernelhub's CPU kernel pack: norms, rotary embedding, activations, softmax, flash attention, linear layers,
//! embedding and cross entropy.
//!
//! Owns: the kernels and the exported functions of `docs/pack-abi.md`. Refuses: to allocate in a call, to start
//! threads, to read the environment, to convert layouts (a view that a kernel does not take is an error).
//!
//! Rooms: `call` is the boundary (arguments, errors, the host's threads), `simd` the instruction levels, `ops` the
//! kernels. Each feature switches one kernel's exports on, so that one source builds a library for each, with its
//! own functions and the handshake. The `rlib` is for this crate's tests and measurements; hosts load the `cdylib`.

#![cfg_attr(
    any(
        test,
        not(all(
            feature = "rmsnorm",
            feature = "layer-norm",
            feature = "rotary",
            feature = "activation",
            feature = "softmax",
            feature = "flash-attn2",
            feature = "linear",
            feature = "embedding",
            feature = "cross-entropy"
        ))
    ),
    allow(dead_code, unused_imports, unused_macros, reason = "each kernel uses its part of the shared rooms")
)]

mod call;
// The unit tests are about the boundary alone. Without exports no kernel is compiled for them a second time, which at the
// optimisation of these tests takes longer than everything else in them; the kernels' tests stand in `tests/it`.
#[cfg(not(test))]
mod exports;
mod ops;
mod simd;

pub use call::{kernelhub_last_error, kernelhub_set_parallel_for};
#[cfg(not(test))]
pub use exports::*;
#[doc(hidden)]
pub use simd::{Level, available as available_levels, force_level};
