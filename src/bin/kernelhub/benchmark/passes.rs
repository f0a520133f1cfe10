//! Measures what the machine can do at most.
//!
//! First a survey: passes over sizes from 4 KiB on by one thread and by all, each in several ways. Then, with each case,
//! passes that read and write as many bytes as its calls do, in the ways that the survey found fastest at the sizes around it,
//! and by the host's own threads as kernels use them. They take turns with the sides of the case: the rate of memory is
//! not the same at every time, least of all on a machine that others share.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kernelhub::load::on_threads;
use kernelhub_ceiling::{Memory, Pages, Parts, Pass, Rate, Way, bf16_dot_rate, f32_fma_rate};

use super::amounts::Amounts;
use super::roof::{Bandwidth, Bound, Ceiling, Ceilings, PlainPages, Streams, Ways};

/// The largest pass that is measured, in bytes.
const LARGEST: u64 = 256 << 20;
/// Passes of the survey, in bytes: every fourth power of two, and one between those sizes of which the smaller is in
/// the caches of many processors and the larger is not.
const SIZES: [u64; 10] =
    [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 32 << 20, 64 << 20, LARGEST];
/// From this size on, plain pages are measured beside huge ones.
const PLAIN: u64 = 4 << 20;
/// A pass that the survey found slower than this part of the fastest one is not tried with a case.
const HOPELESS: f64 = 0.6;
/// A pass by more than one thread is cut into pieces of these bytes at least, or into one for each thread.
const PIECE: usize = 1 << 20;
/// Below this, a case's pass is by one thread: the others take longer to start.
const ALONE: u64 = 64 << 10;
/// Loops by which the start of threads is measured.
const STARTS: usize = 500;

/// The ceilings of a run, and memory to measure those of a case.
pub(crate) struct Roof {
    pub(crate) ceilings: Ceilings,
    memory: Memory,
}

impl Roof {
    /// Surveys for calls that pass over `bytes` bytes at most, by as many threads as rayon's pool has. Takes some seconds
    /// and 256 MiB at most.
    pub(crate) fn survey(bytes: u64) -> Self {
        let threads = rayon::current_num_threads();
        // The least in any case: the ways of passes over fewer bytes are those that it found.
        let most = bytes.saturating_mul(4).max(SIZES[0] + 1);
        let sizes: Vec<u64> = SIZES.into_iter().filter(|size| *size < most).collect();
        let largest = sizes.last().copied().unwrap_or(SIZES[0]);
        let mut plain = (largest >= PLAIN).then(|| Memory::new(as_size(largest), Pages::Plain));
        let on_plain = plain.as_mut().map(|memory| {
            let large: Vec<u64> = sizes.iter().copied().filter(|size| *size >= PLAIN).collect();
            rows(memory, &large, threads)
        });
        drop(plain);
        let mut memory = Memory::new(as_size(largest), Pages::Huge);
        let mut bandwidth = rows(&mut memory, &sizes, threads);
        for row in &mut bandwidth {
            let same = |other: &&Bandwidth| (other.bytes, other.threads) == (row.bytes, row.threads);
            row.plain_pages = on_plain.iter().flatten().find(same).map(|plain| PlainPages {
                copy_gb_per_s: plain.copy_gb_per_s,
                streaming_copy_gb_per_s: plain.streaming_copy_gb_per_s,
                read_gb_per_s: plain.read_gb_per_s,
            });
        }
        let ceilings = Ceilings {
            threads,
            start_us: start_us(threads),
            bandwidth,
            f32_fma_gflop_per_s: f32_fma_rate(threads) / 1e9,
            bf16_dot_gflop_per_s: bf16_dot_rate(threads).map(|rate| rate / 1e9),
        };
        Self { ceilings, memory }
    }

    /// Passes over as many bytes as a call of these amounts reads and writes. `None` for less than a cache line.
    pub(crate) fn passes(&mut self, amounts: &Amounts) -> Option<Passes<'_>> {
        let bound = Bound::of(amounts);
        let tried = tried(&self.ceilings, bound, amounts.bytes());
        let threads = tried.iter().map(|(threads, _)| *threads).max().unwrap_or(1);
        let (read, written) = clamped(amounts);
        // As many for each thread, so that they end together.
        let pieces = if threads == 1 { 1 } else { threads * ((read + written) / PIECE / threads).clamp(1, 4) };
        let parts = self.memory.parts(read, written, pieces)?;
        // What was left out, because it is more than the memory or no whole lines.
        let scale = amounts.bytes() as f64 / parts.bytes() as f64;
        Some(Passes { bound, parts, tried, scale, bytes: amounts.bytes() })
    }
}

/// Ways and threads that may be the fastest ones for a call: those of the measured sizes below and above it.
fn tried(ceilings: &Ceilings, bound: Bound, bytes: u64) -> Vec<(usize, Way)> {
    let sizes = || ceilings.bandwidth.iter().map(|row| row.bytes);
    let around = [sizes().filter(|size| *size <= bytes).max(), sizes().filter(|size| *size >= bytes).min()];
    let mut all = Vec::new();
    for size in around.into_iter().flatten() {
        for way in best_ways(ceilings, bound, size) {
            if !all.contains(&way) && (way.0 == 1 || bytes >= ALONE) {
                all.push(way);
            }
        }
    }
    all
}

/// Threads and ways that were fast at a measured size.
fn best_ways(ceilings: &Ceilings, bound: Bound, size: u64) -> Vec<(usize, Way)> {
    let mut tried: Vec<(f64, usize, Way)> = Vec::new();
    for row in ceilings.bandwidth.iter().filter(|row| row.bytes == size) {
        let ways = match bound {
            Bound::Read => [(row.read_gb_per_s, row.ways.read, false), (None, None, false)],
            Bound::Copy | Bound::Arithmetic => [
                (row.copy_gb_per_s, row.ways.copy, false),
                (row.streaming_copy_gb_per_s, row.ways.streaming_copy, true),
            ],
        };
        for (rate, streams, is_streaming) in ways {
            let (Some(rate), Some(Streams { streams, ahead })) = (rate, streams) else { continue };
            tried.push((rate, row.threads, Way::new(is_streaming, streams, ahead)));
        }
    }
    // Each number of threads for itself: the survey does not know what the start of more costs.
    let best =
        |of: usize| tried.iter().filter(|(_, threads, _)| *threads == of).map(|(rate, ..)| *rate).fold(0.0, f64::max);
    let is_hopeful = |(rate, threads, _): &&(f64, usize, Way)| *rate >= HOPELESS * best(*threads);
    tried.iter().filter(is_hopeful).map(|(_, threads, way)| (*threads, *way)).collect()
}

/// The passes of a case.
pub(crate) struct Passes<'a> {
    bound: Bound,
    parts: Parts<'a>,
    /// Threads and the way of each.
    tried: Vec<(usize, Way)>,
    /// A call's bytes over a pass's.
    scale: f64,
    bytes: u64,
}

impl Passes<'_> {
    /// A function for each pass.
    pub(crate) fn calls(&self) -> Vec<impl FnMut()> {
        let call = |&(threads, way): &(usize, Way)| {
            move || {
                let (parts, count) = (&self.parts, self.parts.count());
                if threads == 1 {
                    (0..count).for_each(|index| parts.pass(index, way));
                } else {
                    on_threads(count, &|index| parts.pass(index, way));
                }
            }
        };
        self.tried.iter().map(call).collect()
    }

    /// The ceiling, of the times of the passes in their order; `None` of none.
    pub(crate) fn ceiling(&self, medians_us: impl Iterator<Item = f64>) -> Option<Ceiling> {
        let of = |(median, (threads, _)): (f64, &(usize, Way))| {
            let least_us = median * self.scale;
            let limit = self.bytes as f64 / least_us / 1e3;
            Ceiling { bound: self.bound, limit, least_us, threads: *threads }
        };
        medians_us.zip(&self.tried).map(of).min_by(|a, b| a.least_us.total_cmp(&b.least_us))
    }
}

/// Bytes read and written of a pass for these amounts, which may be more than any pass has.
fn clamped(amounts: &Amounts) -> (usize, usize) {
    // What is written is a copy of something that is read.
    let in_use = amounts.bytes_written + amounts.bytes_read.max(amounts.bytes_written);
    if in_use <= LARGEST {
        return (as_size(amounts.bytes_read), as_size(amounts.bytes_written));
    }
    // No larger than the largest, so that it fits.
    let part =
        |bytes: u64| usize::try_from(u128::from(bytes) * u128::from(LARGEST) / u128::from(in_use)).unwrap_or_default();
    (part(amounts.bytes_read), part(amounts.bytes_written))
}

fn rows(memory: &mut Memory, sizes: &[u64], threads: usize) -> Vec<Bandwidth> {
    let mut rows = Vec::new();
    for &bytes in sizes {
        for threads in if threads > 1 { vec![1, threads] } else { vec![1] } {
            let mut of = |pass| memory.fastest(pass, as_size(bytes), threads);
            let (copy, streaming, read) = (of(Pass::Copy), of(Pass::StreamingCopy), of(Pass::Read));
            let rate = |rate: Option<Rate>| rate.map(|rate| rate.bytes_per_second / 1e9);
            let way =
                |rate: Option<Rate>| rate.map(|Rate { way, .. }| Streams { streams: way.streams, ahead: way.ahead });
            rows.push(Bandwidth {
                bytes,
                threads,
                copy_gb_per_s: rate(copy),
                streaming_copy_gb_per_s: rate(streaming),
                read_gb_per_s: rate(read),
                ways: Ways { copy: way(copy), streaming_copy: way(streaming), read: way(read) },
                plain_pages: None,
            });
        }
    }
    rows
}

/// The least time, in microseconds, to start a loop on all threads of the host and to end it: that of a loop whose every
/// index waits for all others, in the fastest of many.
fn start_us(threads: usize) -> f64 {
    if threads == 1 {
        return 0.0;
    }
    let once = || {
        let arrived = AtomicUsize::new(0);
        let clock = Instant::now();
        on_threads(threads, &|_| {
            arrived.fetch_add(1, Ordering::Relaxed);
            // A host with fewer threads than it should have never brings all of them together.
            while arrived.load(Ordering::Relaxed) < threads && clock.elapsed() < Duration::from_millis(1) {
                std::hint::spin_loop();
            }
        });
        clock.elapsed().as_secs_f64() * 1e6
    };
    (0..STARTS).map(|_| once()).fold(f64::MAX, f64::min)
}

fn as_size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::amounts::Amounts;
    use super::super::roof::tests::example;
    use super::super::roof::{Bound, Streams};
    use super::{LARGEST, Roof, as_size, clamped, tried};

    fn amounts(bytes_read: u64, bytes_written: u64) -> Amounts {
        Amounts { bytes_read, bytes_written, flop: None }
    }

    #[test]
    fn a_survey_covers_the_sizes_that_it_was_asked_for_and_cases_are_measured_by_it() {
        let mut roof = Roof::survey(300_000);
        let sizes: Vec<u64> = roof.ceilings.bandwidth.iter().map(|row| row.bytes).collect();
        assert_eq!((sizes.first(), sizes.last()), (Some(&(4 << 10)), Some(&(1 << 20))));
        assert!(sizes.is_sorted());
        assert!(roof.ceilings.gb_per_s(Bound::Copy, 300_000) > 0.01 && roof.ceilings.f32_fma_gflop_per_s > 0.01);
        for amounts in [amounts(200_000, 100_000), amounts(300_000, 0), amounts(2_000, 2_000)] {
            let passes = roof.passes(&amounts).unwrap();
            let calls = passes.calls();
            assert!(!calls.is_empty());
            let count = calls.len();
            for mut call in calls {
                call();
            }
            let ceiling = passes.ceiling((1..=count).map(|at| at as f64)).unwrap();
            assert!((ceiling.least_us - 1.0).abs() < 0.01 && ceiling.threads == 1, "{ceiling:?}");
            assert!(
                (ceiling.limit * 1e3 - amounts.bytes() as f64).abs() < 0.01 * amounts.bytes() as f64,
                "{ceiling:?}"
            );
        }
        assert!(roof.passes(&amounts(10, 10)).is_none());
    }

    #[test]
    fn what_is_tried_with_a_case_are_the_best_passes_of_its_size() {
        let mut ceilings = example();
        let of = Some(Streams { streams: 4, ahead: 0 });
        for row in &mut ceilings.bandwidth {
            (row.ways.copy, row.ways.streaming_copy, row.ways.read) = (of, of, of);
        }
        let of = |bound, bytes| {
            let all = tried(&ceilings, bound, bytes);
            all.into_iter().map(|(threads, way)| (threads, way.is_streaming)).collect::<Vec<_>>()
        };
        assert_eq!(of(Bound::Copy, 4_000), [(1, false)], "more threads are not started for so little");
        assert_eq!(of(Bound::Copy, 1 << 17), [(1, false), (2, true)], "60 GB/s are hopeless beside 160");
        assert_eq!(of(Bound::Read, 1 << 17), [(1, false), (2, false)]);
    }

    #[test]
    fn a_pass_is_no_larger_than_its_memory() {
        assert_eq!(clamped(&amounts(1_000, 10)), (1_000, 10));
        let (read, written) = clamped(&amounts(3 * LARGEST, LARGEST));
        let largest = as_size(LARGEST);
        assert!(read + written <= largest && read.abs_diff(3 * written) < 8, "{read} and {written}");
        let (read, written) = clamped(&amounts(0, LARGEST));
        assert!(read == 0 && written <= largest / 2);
    }
}
