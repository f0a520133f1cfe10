//! What this machine can do at most: the bandwidth of its memory and the rate of its arithmetic.
//!
//! The loops do nothing but what they measure: copy, copy past the caches, read, multiply and add. What a kernel reaches
//! is told as a part of them. They use the widest instructions of the processor at hand, and rayon's pool when they are
//! asked for more than one thread, as kernels do; what waking it costs is in their times.
//!
//! This is a library for measuring programs. Its unsafe code is confined to the modules of the instruction sets.

mod arithmetic;
mod memory;

pub use arithmetic::{bf16_dot_rate, f32_fma_rate};
pub use memory::{Memory, Pass};

/// The median of some numbers; 0 for none.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
