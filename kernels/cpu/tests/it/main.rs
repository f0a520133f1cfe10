//! Every kernel through its exported function, per dtype and instruction level, against plain f64 references.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::float_cmp,
    reason = "small numbers of the tests' own; exact comparisons are meant"
)]

mod attention;
mod pool;
mod rms_norm;
mod rotary;
mod silu;
mod support;
mod wrong_calls;
