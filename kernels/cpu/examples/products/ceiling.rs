//! What the machine can do: reading memory, multiplying and adding.

#![cfg_attr(target_arch = "x86_64", expect(unsafe_code, reason = "vector intrinsics, chosen after detection"))]

use std::hint::black_box;
use std::time::Instant;

use rayon::iter::{IndexedParallelIterator as _, IntoParallelIterator as _, ParallelIterator as _};

use crate::median;

/// Runs `body` once on each of `threads` threads of the pool, and answers the seconds that all of them take.
fn on_threads(threads: usize, body: impl Fn(usize) + Sync) -> f64 {
    let start = Instant::now();
    (0..threads).into_par_iter().with_max_len(1).for_each(&body);
    start.elapsed().as_secs_f64()
}

/// Bytes per nanosecond of reading `bytes` bytes again and again, each thread its part of them.
pub(crate) fn read(threads: usize, bytes: usize) -> f64 {
    let memory = vec![[1_u64; 8]; bytes / 64];
    let part = memory.len() / threads;
    let passes = (64_usize << 20).div_ceil(bytes);
    let samples = (0..9).map(|_| {
        let body = |thread: usize| {
            for _ in 0..passes {
                black_box(sum(black_box(&memory[thread * part..][..part])));
            }
        };
        on_threads(threads, body) / passes as f64
    });
    (part * threads * 64) as f64 / median(samples.collect()) / 1e9
}

/// Multiply-adds per nanosecond, twice: in f32, and of pairs of bf16 where the processor has an instruction for it.
pub(crate) fn multiply_add(threads: usize, bf16: bool) -> Option<f64> {
    const STEPS: usize = 2_000_000;
    let each = if bf16 { pairs(0)? } else { fma(0) };
    let samples = (0..9).map(|_| {
        on_threads(threads, |_| {
            black_box(if bf16 { pairs(STEPS) } else { Some(fma(STEPS)) });
        })
    });
    Some((STEPS * each * threads) as f64 / median(samples.collect()) / 1e9)
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        _mm256_add_epi64, _mm256_extract_epi64, _mm256_fmadd_ps, _mm256_loadu_si256, _mm256_set1_ps,
        _mm256_setzero_si256, _mm512_add_epi64, _mm512_cvtne2ps_pbh, _mm512_dpbf16_ps, _mm512_fmadd_ps,
        _mm512_loadu_si512, _mm512_reduce_add_epi64, _mm512_set1_ps, _mm512_setzero_ps, _mm512_setzero_si512,
    };
    use std::hint::black_box;

    /// Places that are read side by side: one alone does not reach what the memory gives.
    const STREAMS: usize = 8;
    /// Sums that hide an addition's latency.
    const CHAINS: usize = 16;

    #[target_feature(enable = "avx512f")]
    pub(super) fn sum512(memory: &[[u64; 8]]) -> u64 {
        let mut sums = [_mm512_setzero_si512(); STREAMS];
        let length = memory.len() / STREAMS;
        for at in 0..length {
            for (stream, sum) in sums.iter_mut().enumerate() {
                // SAFETY: a line has 64 bytes.
                *sum =
                    _mm512_add_epi64(*sum, unsafe { _mm512_loadu_si512(memory[stream * length + at].as_ptr().cast()) });
            }
        }
        sums.into_iter().fold(0, |sum, next| sum.wrapping_add(_mm512_reduce_add_epi64(next).cast_unsigned()))
    }

    #[target_feature(enable = "avx512f")]
    pub(super) fn fma512(steps: usize) -> usize {
        let (mut sums, factor) = ([_mm512_set1_ps(1.0); CHAINS], black_box(_mm512_set1_ps(0.5)));
        for _ in 0..steps {
            for sum in &mut sums {
                *sum = _mm512_fmadd_ps(*sum, factor, factor);
            }
        }
        black_box(sums);
        CHAINS * 16
    }

    #[target_feature(enable = "avx512f,avx512bf16")]
    pub(super) fn pairs512(steps: usize) -> usize {
        let zero = _mm512_setzero_ps();
        let (mut sums, factor) = ([zero; CHAINS], black_box(_mm512_cvtne2ps_pbh(zero, zero)));
        for _ in 0..steps {
            for sum in &mut sums {
                *sum = _mm512_dpbf16_ps(*sum, factor, factor);
            }
        }
        black_box(sums);
        CHAINS * 32
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn sum256(memory: &[[u64; 8]]) -> u64 {
        let mut sums = [_mm256_setzero_si256(); 8];
        for lines in memory.chunks_exact(4) {
            for (sum, line) in sums.iter_mut().zip(lines.as_flattened().chunks_exact(4)) {
                // SAFETY: four numbers of 8 bytes.
                *sum = _mm256_add_epi64(*sum, unsafe { _mm256_loadu_si256(line.as_ptr().cast()) });
            }
        }
        let parts = sums.map(|sum| _mm256_extract_epi64::<0>(sum).wrapping_add(_mm256_extract_epi64::<3>(sum)));
        parts.into_iter().fold(0, |sum, next| sum.wrapping_add(next.cast_unsigned()))
    }

    #[target_feature(enable = "avx2,fma")]
    pub(super) fn fma256(steps: usize) -> usize {
        let (mut sums, factor) = ([_mm256_set1_ps(1.0); 12], black_box(_mm256_set1_ps(0.5)));
        for _ in 0..steps {
            for sum in &mut sums {
                *sum = _mm256_fmadd_ps(*sum, factor, factor);
            }
        }
        black_box(sums);
        12 * 8
    }
}

/// Reads everything.
fn sum(memory: &[[u64; 8]]) -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: detected just above.
            return unsafe { x86::sum512(memory) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: detected just above.
            return unsafe { x86::sum256(memory) };
        }
    }
    memory.as_flattened().iter().fold(0, |sum, &next| sum.wrapping_add(next))
}

/// Multiplies and adds; answers the multiply-adds of a step.
fn fma(steps: usize) -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: detected just above.
            return unsafe { x86::fma512(steps) };
        }
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            // SAFETY: detected just above.
            return unsafe { x86::fma256(steps) };
        }
    }
    let (mut sums, factor) = ([1.0_f32; 32], black_box(0.5_f32));
    for _ in 0..steps {
        for sum in &mut sums {
            *sum = *sum * factor + factor;
        }
    }
    black_box(sums);
    32
}

/// As [`fma`], of pairs of bf16.
fn pairs(steps: usize) -> Option<usize> {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bf16") {
        // SAFETY: detected just above.
        return Some(unsafe { x86::pairs512(steps) });
    }
    let _ = steps;
    None
}
