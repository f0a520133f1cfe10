//! Every kernel through its exported function, per dtype and instruction level, against plain f64 references.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::float_cmp,
    reason = "small numbers of the tests' own; exact comparisons are meant"
)]

mod activation;
mod activation_backward;
mod add_rms_norm;
mod attention;
mod cross_entropy;
mod embedding;
mod gated_linear;
mod halves;
mod layer_norm;
mod linear;
mod packs;
mod pool;
mod rms_norm;
mod rms_norm_backward;
mod rotary;
mod silu;
mod softmax;
mod streams;
mod support;
mod wrong_calls;
