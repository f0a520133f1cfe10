//! Every kernel through its exported function, per dtype and instruction level, against plain f64 references.

mod attention;
mod pool;
mod rms_norm;
mod rotary;
mod silu;
mod support;
mod wrong_calls;
