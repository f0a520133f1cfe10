//! Bandwidth: copying and reading.
#![expect(unsafe_code, reason = "splits buffers between threads, and calls wide loads and stores")]

use std::time::Instant;

/// Bytes of a cache line, to which everything is aligned.
const LINE: usize = 64;
/// Samples of one measurement.
const SAMPLES: usize = 15;
/// How long one sample takes at least, in seconds.
const SAMPLE_SECONDS: f64 = 3e-4;

/// What passes over memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pass {
    /// Half of the bytes are read and stored into the other half.
    Copy,
    /// The same by stores that go past the caches.
    StreamingCopy,
    /// All bytes are read.
    Read,
}

#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Line([u8; LINE]);

/// Two buffers to pass over.
#[derive(Debug)]
pub struct Memory {
    source: Vec<Line>,
    target: Vec<Line>,
}

impl std::fmt::Debug for Line {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Line")
    }
}

impl Memory {
    /// Buffers for passes of up to `bytes` bytes, whose pages are all there.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        let lines = bytes.div_ceil(2 * LINE);
        Self { source: vec![Line([1; LINE]); lines], target: vec![Line([2; LINE]); lines] }
    }

    /// Bytes per second of a pass over `bytes` bytes, read and written, by `threads` threads: 1 is the caller, more are
    /// those of rayon's pool, woken for every pass. The median of a few samples, taken when the bytes were passed over
    /// before; rounded down to whole cache lines per thread. `None` where the processor has no such stores, and for
    /// fewer bytes than a line per thread.
    ///
    /// # Panics
    /// When `bytes` is more than the memory was made for.
    #[must_use]
    pub fn bandwidth(&mut self, pass: Pass, bytes: usize, threads: usize) -> Option<f64> {
        let threads = threads.max(1);
        // Half of them in each buffer; a read takes both.
        let lines = bytes / LINE / 2 / threads * threads;
        if lines == 0 || (pass == Pass::StreamingCopy && !wide::can_stream()) {
            return None;
        }
        assert!(lines <= self.source.len(), "{bytes} bytes are more than the memory was made for");
        let counted = (lines * LINE * 2) as f64;
        let mut once = || self.pass(pass, lines, threads);
        once();
        let clock = Instant::now();
        once();
        let passes = repetitions(clock.elapsed().as_secs_f64());
        let mut sample = || {
            let clock = Instant::now();
            (0..passes).for_each(|_| once());
            counted * f64::from(passes) / clock.elapsed().as_secs_f64()
        };
        Some(crate::median((0..SAMPLES).map(|_| sample()).collect()))
    }

    fn pass(&mut self, pass: Pass, lines: usize, threads: usize) {
        let (source, target) = (&self.source[..lines], &mut self.target[..lines]);
        let part = lines / threads;
        if threads == 1 {
            return run(pass, source, target);
        }
        rayon::scope(|scope| {
            let mut parts = source.chunks_exact(part).zip(target.chunks_exact_mut(part));
            let first = parts.next();
            for (source, target) in parts {
                scope.spawn(move |_| run(pass, source, target));
            }
            if let Some((source, target)) = first {
                run(pass, source, target);
            }
        });
    }
}

/// How often something of `seconds` is done in one sample.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 1 to 100,000")]
fn repetitions(seconds: f64) -> u32 {
    (SAMPLE_SECONDS / seconds.max(1e-9)).ceil().clamp(1.0, 1e5) as u32
}

fn run(pass: Pass, source: &[Line], target: &mut [Line]) {
    match pass {
        Pass::Copy => wide::copy(source, target, false),
        Pass::StreamingCopy => wide::copy(source, target, true),
        Pass::Read => {
            std::hint::black_box(wide::read(source));
            std::hint::black_box(wide::read(target));
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod wide {
    use std::arch::x86_64::{
        __m256i, __m512i, _mm_sfence, _mm256_load_si256, _mm256_or_si256, _mm256_setzero_si256, _mm256_store_si256,
        _mm256_stream_si256, _mm512_load_si512, _mm512_or_si512, _mm512_reduce_or_epi64, _mm512_setzero_si512,
        _mm512_store_si512, _mm512_stream_si512,
    };

    use super::Line;

    pub(super) fn can_stream() -> bool {
        is_x86_feature_detected!("avx2")
    }

    pub(super) fn copy(source: &[Line], target: &mut [Line], is_streaming: bool) {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the processor has AVX-512 F, as just detected.
            unsafe { copy_512(source, target, is_streaming) }
        } else if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2, as just detected.
            unsafe { copy_256(source, target, is_streaming) }
        } else {
            target.copy_from_slice(source);
        }
    }

    #[target_feature(enable = "avx512f")]
    fn copy_512(source: &[Line], target: &mut [Line], is_streaming: bool) {
        for (source, target) in source.iter().zip(target.iter_mut()) {
            // SAFETY: a `Line` is 64 bytes at a multiple of 64.
            let line = unsafe { _mm512_load_si512(std::ptr::from_ref(source).cast::<__m512i>()) };
            let target = std::ptr::from_mut(target).cast::<__m512i>();
            if is_streaming {
                // SAFETY: as above, and the line is borrowed uniquely.
                unsafe { _mm512_stream_si512(target, line) };
            } else {
                // SAFETY: as above, and the line is borrowed uniquely.
                unsafe { _mm512_store_si512(target, line) };
            }
        }
        if is_streaming {
            _mm_sfence();
        }
    }

    #[target_feature(enable = "avx2")]
    fn copy_256(source: &[Line], target: &mut [Line], is_streaming: bool) {
        for (source, target) in source.iter().zip(target.iter_mut()) {
            let source = std::ptr::from_ref(source).cast::<__m256i>();
            let target = std::ptr::from_mut(target).cast::<__m256i>();
            for half in 0..2 {
                // SAFETY: a `Line` is two halves of 32 bytes, the first at a multiple of 64.
                let source = unsafe { source.add(half) };
                // SAFETY: as above.
                let target = unsafe { target.add(half) };
                // SAFETY: as above.
                let value = unsafe { _mm256_load_si256(source) };
                if is_streaming {
                    // SAFETY: as above, and the line is borrowed uniquely.
                    unsafe { _mm256_stream_si256(target, value) };
                } else {
                    // SAFETY: as above, and the line is borrowed uniquely.
                    unsafe { _mm256_store_si256(target, value) };
                }
            }
        }
        if is_streaming {
            _mm_sfence();
        }
    }

    /// A number that depends on every byte.
    pub(super) fn read(lines: &[Line]) -> i64 {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the processor has AVX-512 F, as just detected.
            unsafe { read_512(lines) }
        } else if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2, as just detected.
            unsafe { read_256(lines) }
        } else {
            lines.iter().map(|line| i64::from(line.0[0])).fold(0, |all, byte| all | byte)
        }
    }

    #[target_feature(enable = "avx512f")]
    fn read_512(lines: &[Line]) -> i64 {
        let mut sums = [_mm512_setzero_si512(); 8];
        let (groups, rest) = lines.as_chunks::<8>();
        for group in groups {
            for (sum, line) in sums.iter_mut().zip(group) {
                // SAFETY: a `Line` is 64 bytes at a multiple of 64.
                let line = unsafe { _mm512_load_si512(std::ptr::from_ref(line).cast::<__m512i>()) };
                *sum = _mm512_or_si512(*sum, line);
            }
        }
        for line in rest {
            // SAFETY: a `Line` is 64 bytes at a multiple of 64.
            let line = unsafe { _mm512_load_si512(std::ptr::from_ref(line).cast::<__m512i>()) };
            sums[0] = _mm512_or_si512(sums[0], line);
        }
        sums.into_iter().map(|sum| _mm512_reduce_or_epi64(sum)).fold(0, |all, sum| all | sum)
    }

    #[target_feature(enable = "avx2")]
    fn read_256(lines: &[Line]) -> i64 {
        let mut sums = [_mm256_setzero_si256(); 2];
        for line in lines {
            let halves = std::ptr::from_ref(line).cast::<__m256i>();
            for (half, sum) in sums.iter_mut().take(2).enumerate() {
                // SAFETY: a `Line` is two halves of 32 bytes, the first at a multiple of 64.
                let at = unsafe { halves.add(half) };
                // SAFETY: as above.
                let value = unsafe { _mm256_load_si256(at) };
                *sum = _mm256_or_si256(*sum, value);
            }
        }
        let all =
            sums.into_iter().reduce(|all, sum| _mm256_or_si256(all, sum)).unwrap_or_else(|| _mm256_setzero_si256());
        // SAFETY: four numbers of 64 bits are 256 bits, and any bits are numbers.
        unsafe { std::mem::transmute::<__m256i, [i64; 4]>(all) }.into_iter().fold(0, |all, part| all | part)
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod wide {
    use super::Line;

    pub(super) fn can_stream() -> bool {
        false
    }

    pub(super) fn copy(source: &[Line], target: &mut [Line], _is_streaming: bool) {
        target.copy_from_slice(source);
    }

    /// A number that depends on every byte.
    pub(super) fn read(lines: &[Line]) -> i64 {
        lines
            .iter()
            .flat_map(|line| line.0.as_chunks::<8>().0)
            .map(|part| i64::from_ne_bytes(*part))
            .fold(0, |a, b| a | b)
    }
}

#[cfg(test)]
mod tests {
    use super::{LINE, Line, Memory, Pass, run};

    #[test]
    fn a_copy_copies_and_a_read_reads_every_byte() {
        let source: Vec<Line> = (0..21).map(|at: u8| Line([at + 1; LINE])).collect();
        for pass in [Pass::Copy, Pass::StreamingCopy] {
            let mut target = vec![Line([0; LINE]); 21];
            run(pass, &source, &mut target);
            assert!(target.iter().zip(&source).all(|(a, b)| a.0 == b.0), "{pass:?}");
        }
        for at in 0..21 {
            let mut lines = vec![Line([0; LINE]); 21];
            assert_eq!(super::wide::read(&lines), 0);
            lines[at].0[if cfg!(target_arch = "x86_64") { 0 } else { 63 }] = 4;
            assert_ne!(super::wide::read(&lines), 0, "line {at}");
        }
    }

    #[test]
    fn bandwidths_are_numbers_of_this_world() {
        let mut memory = Memory::new(1 << 20);
        for pass in [Pass::Copy, Pass::StreamingCopy, Pass::Read] {
            for threads in [1, 2] {
                let Some(rate) = memory.bandwidth(pass, 1 << 18, threads) else { continue };
                assert!((1e7..1e14).contains(&rate), "{pass:?} by {threads}: {rate}");
            }
        }
        assert_eq!(memory.bandwidth(Pass::Copy, 64, 1), None, "half a line each way");
    }
}
