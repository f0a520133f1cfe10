//! What the machine can do at most, and what of it bounds a call.
//!
//! A call that passes over some bytes and computes some operations takes at least as long as the machine needs to pass
//! over them, and to compute them: the longer of the two is its ceiling. What the machine needs is measured in the same
//! run ([`super::passes`]). More than one thread have to be started for a call, which is in its ceiling: that of a small
//! call is of one thread.

use kernelhub::dtype::DType;
use serde::{Deserialize, Serialize};

use super::amounts::Amounts;

/// A pass is called a read when it reads this many times what it writes.
const READ_RATIO: u64 = 8;

/// The ceilings of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Ceilings {
    /// Threads that the passes and rates with more than one thread were measured with.
    pub(crate) threads: usize,
    /// The least time to start all threads for a loop and to end it, by the host's threads, in microseconds; 0 of one.
    #[serde(default)]
    pub(crate) start_us: f64,
    /// By bytes and then threads, ascending.
    pub(crate) bandwidth: Vec<Bandwidth>,
    /// Of products with sums (FMA) in f32, by all threads.
    pub(crate) f32_fma_gflop_per_s: f64,
    /// Of bf16 dot products, by all threads; null where the processor has no instruction for them.
    pub(crate) bf16_dot_gflop_per_s: Option<f64>,
}

/// Bandwidths of passes over some bytes, again and again, in GB/s of bytes read and written together; null where they
/// cannot be measured. All threads stand ready when the clock starts, and each passes over a part of the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Bandwidth {
    /// Bytes passed over by all threads together, which is the memory in use: of a copy, both halves.
    pub(crate) bytes: u64,
    pub(crate) threads: usize,
    pub(crate) copy_gb_per_s: Option<f64>,
    /// By stores past the caches.
    pub(crate) streaming_copy_gb_per_s: Option<f64>,
    pub(crate) read_gb_per_s: Option<f64>,
    /// How a thread passed over its part when it was fastest.
    #[serde(default)]
    pub(crate) ways: Ways,
    /// The same on the pages that the allocator gives, where that was measured: the others are on huge pages where the
    /// system has them.
    #[serde(default)]
    pub(crate) plain_pages: Option<PlainPages>,
}

/// The fastest way of each pass.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ways {
    pub(crate) copy: Option<Streams>,
    pub(crate) streaming_copy: Option<Streams>,
    pub(crate) read: Option<Streams>,
}

/// How a thread passes over its part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Streams {
    /// Places of it that are passed over at once.
    pub(crate) streams: usize,
    /// Lines of cache ahead of each that are asked for beforehand.
    pub(crate) ahead: usize,
}

/// Bandwidths on plain pages.
#[expect(clippy::struct_field_names, reason = "the names in the JSON, as of the other bandwidths")]
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct PlainPages {
    pub(crate) copy_gb_per_s: Option<f64>,
    pub(crate) streaming_copy_gb_per_s: Option<f64>,
    pub(crate) read_gb_per_s: Option<f64>,
}

/// What bounds a call, and how near it comes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Ceiling {
    pub(crate) bound: Bound,
    /// The bandwidth or rate of that bound: GB/s, or GFLOP/s.
    pub(crate) limit: f64,
    /// The least time that it allows, in microseconds.
    pub(crate) least_us: f64,
    /// Threads that reached it.
    #[serde(default)]
    pub(crate) threads: usize,
}

/// What a call cannot go beyond.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Bound {
    /// Reading as much and writing as much.
    Copy,
    /// The same, where next to nothing is written.
    Read,
    /// The products and sums.
    Arithmetic,
}

impl Bound {
    pub(crate) fn unit(self) -> &'static str {
        if self == Self::Arithmetic { "GFLOP/s" } else { "GB/s" }
    }

    /// What passing over some bytes is called.
    pub(crate) fn of(amounts: &Amounts) -> Self {
        if amounts.bytes_read >= READ_RATIO * amounts.bytes_written { Self::Read } else { Self::Copy }
    }
}

impl Ceilings {
    /// The fastest pass over `bytes` bytes in one call, in GB/s: between two measured sizes by their logarithms, beyond
    /// the ends as at the ends.
    pub(crate) fn gb_per_s(&self, bound: Bound, bytes: u64) -> f64 {
        let mut best: Vec<(f64, f64)> = Vec::new();
        for row in &self.bandwidth {
            let rates = match bound {
                Bound::Read => [row.read_gb_per_s, None],
                Bound::Copy | Bound::Arithmetic => [row.copy_gb_per_s, row.streaming_copy_gb_per_s],
            };
            let rate =
                self.in_a_call(row.threads, row.bytes as f64 / 1e3, rates.into_iter().flatten().fold(0.0, f64::max));
            let size = (row.bytes as f64).log2();
            match best.last_mut() {
                Some((last, of_last)) if (*last - size).abs() < 1e-9 => *of_last = of_last.max(rate),
                _ => best.push((size, rate)),
            }
        }
        let at = (bytes.max(1) as f64).log2();
        let above = best.partition_point(|(size, _)| *size < at);
        match (above.checked_sub(1).map(|below| best[below]), best.get(above)) {
            (Some((low, low_rate)), Some((high, high_rate))) => {
                low_rate + (high_rate - low_rate) * (at - low) / (high - low)
            }
            (Some((_, rate)), None) | (None, Some(&(_, rate))) => rate,
            (None, None) => 0.0,
        }
    }

    /// A rate of so many thousands per microsecond with the threads' start in it.
    fn in_a_call(&self, threads: usize, thousands: f64, rate: f64) -> f64 {
        let start = if threads > 1 { self.start_us } else { 0.0 };
        if rate > 0.0 { thousands / (thousands / rate + start) } else { 0.0 }
    }

    /// The rate of products and sums for tensors of `dtype`, in GFLOP/s.
    pub(crate) fn gflop_per_s(&self, dtype: DType) -> f64 {
        match (dtype, self.bf16_dot_gflop_per_s) {
            (DType::Bf16, Some(rate)) => rate,
            _ => self.f32_fma_gflop_per_s,
        }
    }

    /// The ceiling of the operations of a call, where any are counted: by one thread or by all, whichever is faster.
    pub(crate) fn arithmetic(&self, amounts: &Amounts, dtype: DType) -> Option<Ceiling> {
        let flop = amounts.flop? as f64;
        let all = self.gflop_per_s(dtype);
        let of = |threads: usize| {
            let limit = self.in_a_call(threads, flop / 1e3, all * threads as f64 / self.threads.max(1) as f64);
            Ceiling { bound: Bound::Arithmetic, limit, least_us: flop / limit / 1e3, threads }
        };
        let (one, many) = (of(1), of(self.threads.max(1)));
        Some(if many.least_us < one.least_us { many } else { one })
    }

    /// The ceiling of a call, whose bytes take `memory` at least: the longer of memory and arithmetic.
    pub(crate) fn of(&self, amounts: &Amounts, dtype: DType, memory: Ceiling) -> Ceiling {
        match self.arithmetic(amounts, dtype) {
            Some(arithmetic) if arithmetic.least_us > memory.least_us => arithmetic,
            _ => memory,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use kernelhub::dtype::DType;

    use super::super::amounts::Amounts;
    use super::{Bandwidth, Bound, Ceiling, Ceilings, PlainPages, Streams, Ways};

    pub(crate) fn example() -> Ceilings {
        let row = |bytes, threads, copy, streaming, read| Bandwidth {
            bytes,
            threads,
            copy_gb_per_s: Some(copy),
            streaming_copy_gb_per_s: streaming,
            read_gb_per_s: Some(read),
            ways: Ways { read: Some(Streams { streams: 2, ahead: 16 }), ..Ways::default() },
            plain_pages: (threads == 2).then_some(PlainPages {
                copy_gb_per_s: Some(1.0),
                streaming_copy_gb_per_s: None,
                read_gb_per_s: Some(2.0),
            }),
        };
        Ceilings {
            threads: 2,
            start_us: 0.8192,
            bandwidth: vec![
                row(1 << 12, 1, 100.0, Some(50.0), 120.0),
                row(1 << 12, 2, 200.0, Some(50.0), 240.0),
                row(1 << 16, 1, 80.0, None, 90.0),
                row(1 << 16, 2, 60.0, Some(160.0), 70.0),
            ],
            f32_fma_gflop_per_s: 200.0,
            bf16_dot_gflop_per_s: Some(400.0),
        }
    }

    /// What 4 KiB take at least in the example.
    pub(crate) fn memory() -> Ceiling {
        Ceiling { bound: Bound::Copy, limit: 100.0, least_us: 0.040_96, threads: 1 }
    }

    #[test]
    fn the_bandwidth_is_the_best_pass_of_the_size_with_the_start_of_threads() {
        let ceilings = example();
        // By two threads, 4 KiB take 0.02 microseconds and 64 KiB 0.41, and their start twice that.
        let of_two = 65_536.0 / 1e3 / (0.4096 + 0.8192);
        assert!(of_two < 80.0);
        for (bound, bytes, expected) in [
            (Bound::Copy, 1 << 12, 100.0),
            (Bound::Copy, 1 << 16, 80.0),
            (Bound::Copy, 1 << 14, 90.0),
            (Bound::Copy, 64, 100.0),
            (Bound::Copy, 1 << 30, 80.0),
            (Bound::Read, 1 << 16, 90.0),
        ] {
            let rate = ceilings.gb_per_s(bound, bytes);
            assert!((rate - expected).abs() < 1e-9, "{bound:?} of {bytes}: {rate}");
        }
        let quick = Ceilings { start_us: 0.0, ..ceilings };
        assert!((quick.gb_per_s(Bound::Copy, 1 << 16) - 160.0).abs() < 1e-9);
    }

    #[test]
    fn the_longer_of_memory_and_arithmetic_is_the_ceiling() {
        let ceilings = example();
        let of = |flop, dtype| {
            let amounts = Amounts { bytes_read: 2048, bytes_written: 2048, flop };
            ceilings.of(&amounts, dtype, memory())
        };
        let close = |ceiling: Ceiling, bound, least: f64, threads| {
            assert_eq!((ceiling.bound, ceiling.threads), (bound, threads), "{ceiling:?}");
            assert!((ceiling.least_us - least).abs() < 1e-9, "{ceiling:?}");
        };
        close(of(None, DType::F32), Bound::Copy, 0.040_96, 1);
        close(of(Some(10), DType::F32), Bound::Copy, 0.040_96, 1);
        // One thread takes 0.1 microseconds, and two are not started in that time.
        close(of(Some(10_000), DType::F32), Bound::Arithmetic, 0.1, 1);
        close(of(Some(1_000_000), DType::F32), Bound::Arithmetic, 5.8192, 2);
        close(of(Some(1_000_000), DType::Bf16), Bound::Arithmetic, 3.3192, 2);
        close(of(Some(1_000_000), DType::F16), Bound::Arithmetic, 5.8192, 2);
    }

    #[test]
    fn what_reads_much_more_than_it_writes_is_a_read() {
        let of = |bytes_read, bytes_written| Bound::of(&Amounts { bytes_read, bytes_written, flop: None });
        assert_eq!([of(2, 1), of(79, 10), of(80, 10), of(1, 0)], [Bound::Copy, Bound::Copy, Bound::Read, Bound::Read]);
    }
}
