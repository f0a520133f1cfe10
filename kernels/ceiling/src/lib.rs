//! What this machine can do at most: the bandwidth of its memory and the rate of its arithmetic.
//!
//! The loops do nothing but what they measure: copy, copy past the caches, read, multiply and add. What a kernel reaches
//! is told as a part of them. They use the widest instructions of the processor at hand, and memory is passed over in
//! several [`Way`]s, of which the fastest counts: a ceiling is the most that the machine does, and how many streams a
//! thread should follow at once depends on the processor, the size and the pages.
//!
//! More than one thread are threads of this crate's own, which stand ready before the clock starts: their start is not
//! in a rate. A program whose threads have to be woken for each call runs [`Parts`] by them, to see what that costs.
//!
//! This is a library for measuring programs. Its unsafe code is confined to the modules of the instruction sets and of
//! the pages.

mod arithmetic;
mod memory;
mod pages;
mod team;
mod walk;

pub use arithmetic::{bf16_dot_rate, f32_fma_rate};
pub use memory::{Memory, Parts, Pass, Rate};
pub use pages::{Pages, with_capacity};
pub use walk::Way;

/// The median of some numbers; 0 for none.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
