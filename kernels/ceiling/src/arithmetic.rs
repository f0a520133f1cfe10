//! The rate of products and sums.
#![cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "calls functions of detected instruction sets"))]

use crate::team;

/// Samples of one measurement.
const SAMPLES: usize = 7;
/// Steps of a sample's loop: about half a millisecond.
const STEPS: u32 = 100_000;
/// Sums that do not wait for each other: enough to keep two units of latency 4 to 5 busy.
#[cfg(target_arch = "x86_64")]
const SUMS: usize = 12;

/// One loop of some number of steps, and the operations of one step.
type Loop = (fn(u32), usize);

/// Operations per second of `f32` products with sums (FMA), by `threads` threads; a product and a sum count as two. Of
/// plain products and sums where the processor has no FMA that this crate knows.
#[must_use]
pub fn f32_fma_rate(threads: usize) -> f64 {
    rate(wide::fma(), threads)
}

/// As [`f32_fma_rate`], of products of `bf16` pairs summed up in `f32` by one instruction. `None` where the processor has
/// none.
#[must_use]
pub fn bf16_dot_rate(threads: usize) -> Option<f64> {
    Some(rate(wide::bf16_dot()?, threads))
}

fn rate((run, operations): Loop, threads: usize) -> f64 {
    let threads = threads.max(1);
    let counted = operations as f64 * f64::from(STEPS) * threads as f64;
    team::with(
        vec![(); threads],
        |(), steps| run(steps),
        |time| {
            time(STEPS);
            let mut sample = || counted / time(STEPS).as_secs_f64();
            crate::median((0..SAMPLES).map(|_| sample()).collect())
        },
    )
}

#[cfg(target_arch = "x86_64")]
mod wide {
    use std::arch::x86_64::{
        __m512, __m512bh, _mm256_fmadd_ps, _mm256_set1_ps, _mm512_dpbf16_ps, _mm512_fmadd_ps, _mm512_set1_ps,
    };
    use std::hint::black_box;

    use super::{Loop, SUMS};

    pub(super) fn fma() -> Loop {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the processor has AVX-512 F, as just detected.
            (|steps| unsafe { fma_512(steps) }, 2 * 16 * SUMS)
        } else if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            // SAFETY: the processor has AVX2 and FMA, as just detected.
            (|steps| unsafe { fma_256(steps) }, 2 * 8 * SUMS)
        } else {
            super::portable::fma()
        }
    }

    pub(super) fn bf16_dot() -> Option<Loop> {
        let is_there = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bf16");
        // SAFETY: the processor has AVX-512 F and BF16, as just detected.
        is_there.then_some((|steps| unsafe { dot_512(steps) }, 2 * 32 * SUMS))
    }

    #[target_feature(enable = "avx512f")]
    fn fma_512(steps: u32) {
        let factor = black_box(_mm512_set1_ps(0.999));
        let mut sums = [_mm512_set1_ps(1.0); SUMS];
        for _ in 0..steps {
            for sum in &mut sums {
                *sum = _mm512_fmadd_ps(*sum, factor, factor);
            }
        }
        black_box(sums);
    }

    #[target_feature(enable = "avx2,fma")]
    fn fma_256(steps: u32) {
        let factor = black_box(_mm256_set1_ps(0.999));
        let mut sums = [_mm256_set1_ps(1.0); SUMS];
        for _ in 0..steps {
            for sum in &mut sums {
                *sum = _mm256_fmadd_ps(*sum, factor, factor);
            }
        }
        black_box(sums);
    }

    #[target_feature(enable = "avx512f,avx512bf16")]
    fn dot_512(steps: u32) {
        let numbers = _mm512_set1_ps(1e-3);
        // SAFETY: both are 512 bits of plain numbers.
        let pairs = black_box(unsafe { std::mem::transmute::<__m512, __m512bh>(numbers) });
        let mut sums = [_mm512_set1_ps(1.0); SUMS];
        for _ in 0..steps {
            for sum in &mut sums {
                *sum = _mm512_dpbf16_ps(*sum, pairs, pairs);
            }
        }
        black_box(sums);
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod wide {
    use super::Loop;

    pub(super) fn fma() -> Loop {
        super::portable::fma()
    }

    pub(super) fn bf16_dot() -> Option<Loop> {
        None
    }
}

/// What the compiler makes of plain Rust.
mod portable {
    use std::hint::black_box;

    use super::Loop;

    const LANES: usize = 64;

    pub(super) fn fma() -> Loop {
        (run, 2 * LANES)
    }

    fn run(steps: u32) {
        let factor = black_box(0.999_f32);
        let mut sums = [1.0_f32; LANES];
        for _ in 0..steps {
            for sum in &mut sums {
                *sum = *sum * factor + factor;
            }
        }
        black_box(sums);
    }
}

#[cfg(test)]
mod tests {
    use super::{bf16_dot_rate, f32_fma_rate};

    #[test]
    fn rates_are_numbers_of_this_world() {
        for threads in [1, 2] {
            assert!((1e7..1e14).contains(&f32_fma_rate(threads)));
            assert!(bf16_dot_rate(threads).is_none_or(|rate| (1e7..1e15).contains(&rate)));
        }
    }
}
