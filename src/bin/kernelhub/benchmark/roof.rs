//! What the machine can do at most, measured in the same run.
//!
//! A call that passes over `b` bytes and computes `f` operations takes at least `b` over the bandwidth and `f` over the
//! rate of arithmetic: the longer of the two is its ceiling. The bandwidth is that of a copy of as many bytes, plain or
//! past the caches, by one thread or by all, whichever is fastest; of a pass that hardly writes, that of a read. Both
//! are called as kernels are, so that waking the threads is in them.

use kernelhub::dtype::DType;
use kernelhub_ceiling::{Memory, Pass, bf16_dot_rate, f32_fma_rate};
use serde::{Deserialize, Serialize};

use super::amounts::Amounts;

/// The smallest and the largest pass that is measured, in bytes.
const SMALLEST: u64 = 4 << 10;
const LARGEST: u64 = 256 << 20;
/// A pass is a read when it reads this many times what it writes.
const READ_RATIO: u64 = 8;

/// The ceilings of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Ceilings {
    /// Threads that the passes and rates with more than one thread were measured with.
    pub(crate) threads: usize,
    /// By bytes and then threads, ascending.
    pub(crate) bandwidth: Vec<Bandwidth>,
    /// Of products with sums (FMA) in f32, by all threads.
    pub(crate) f32_fma_gflop_per_s: f64,
    /// Of bf16 dot products, by all threads; null where the processor has no instruction for them.
    pub(crate) bf16_dot_gflop_per_s: Option<f64>,
}

/// Bandwidths of passes over some bytes, in GB/s of bytes read and written together; null where they cannot be measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Bandwidth {
    /// Bytes passed over: of a copy, both halves together.
    pub(crate) bytes: u64,
    pub(crate) threads: usize,
    pub(crate) copy_gb_per_s: Option<f64>,
    /// By stores past the caches.
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
}

/// What a call cannot go beyond.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Bound {
    /// Copying as many bytes.
    Copy,
    /// Reading as many bytes.
    Read,
    /// The products and sums.
    Arithmetic,
}

impl Bound {
    pub(crate) fn unit(self) -> &'static str {
        if self == Self::Arithmetic { "GFLOP/s" } else { "GB/s" }
    }
}

impl Ceilings {
    /// Measures them by rayon's pool, for calls that pass over `bytes` bytes at most. Takes a second or two, and 256 MiB
    /// at most.
    pub(crate) fn measure(bytes: u64) -> Self {
        let threads = rayon::current_num_threads();
        let largest = bytes.next_power_of_two().clamp(4 * SMALLEST, LARGEST);
        let sizes = std::iter::successors(Some(SMALLEST), |size| Some(size * 2)).take_while(|size| *size < largest);
        let sizes: Vec<u64> = sizes.chain([largest]).collect();
        let as_size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let mut memory = Memory::new(as_size(largest));
        let mut bandwidth = Vec::new();
        for bytes in sizes {
            for threads in if threads > 1 { vec![1, threads] } else { vec![1] } {
                let mut of = |pass| memory.bandwidth(pass, as_size(bytes), threads).map(|rate| rate / 1e9);
                bandwidth.push(Bandwidth {
                    bytes,
                    threads,
                    copy_gb_per_s: of(Pass::Copy),
                    streaming_copy_gb_per_s: of(Pass::StreamingCopy),
                    read_gb_per_s: of(Pass::Read),
                });
            }
        }
        Self {
            threads,
            bandwidth,
            f32_fma_gflop_per_s: f32_fma_rate(threads) / 1e9,
            bf16_dot_gflop_per_s: bf16_dot_rate(threads).map(|rate| rate / 1e9),
        }
    }

    /// The fastest pass over `bytes` bytes, in GB/s: between two measured sizes by their logarithms, beyond the ends as
    /// at the ends.
    pub(crate) fn gb_per_s(&self, bound: Bound, bytes: u64) -> f64 {
        let mut best: Vec<(f64, f64)> = Vec::new();
        for row in &self.bandwidth {
            let rates = match bound {
                Bound::Read => [row.read_gb_per_s, None],
                Bound::Copy | Bound::Arithmetic => [row.copy_gb_per_s, row.streaming_copy_gb_per_s],
            };
            let rate = rates.into_iter().flatten().fold(0.0, f64::max);
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

    /// The rate of products and sums for tensors of `dtype`, in GFLOP/s.
    pub(crate) fn gflop_per_s(&self, dtype: DType) -> f64 {
        match (dtype, self.bf16_dot_gflop_per_s) {
            (DType::Bf16, Some(rate)) => rate,
            _ => self.f32_fma_gflop_per_s,
        }
    }

    /// The ceiling of a call.
    pub(crate) fn of(&self, amounts: &Amounts, dtype: DType) -> Ceiling {
        let is_read = amounts.bytes_read >= READ_RATIO * amounts.bytes_written;
        let bound = if is_read { Bound::Read } else { Bound::Copy };
        let limit = self.gb_per_s(bound, amounts.bytes());
        let memory = Ceiling { bound, limit, least_us: amounts.bytes() as f64 / limit / 1e3 };
        let Some(flop) = amounts.flop else { return memory };
        let limit = self.gflop_per_s(dtype);
        let arithmetic = Ceiling { bound: Bound::Arithmetic, limit, least_us: flop as f64 / limit / 1e3 };
        if arithmetic.least_us > memory.least_us { arithmetic } else { memory }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use kernelhub::dtype::DType;

    use super::super::amounts::Amounts;
    use super::{Bandwidth, Bound, Ceilings};

    pub(crate) fn example() -> Ceilings {
        let row = |bytes, threads, copy, streaming, read| Bandwidth {
            bytes,
            threads,
            copy_gb_per_s: Some(copy),
            streaming_copy_gb_per_s: streaming,
            read_gb_per_s: Some(read),
        };
        Ceilings {
            threads: 2,
            bandwidth: vec![
                row(1 << 12, 1, 100.0, Some(50.0), 120.0),
                row(1 << 12, 2, 4.0, Some(4.0), 4.0),
                row(1 << 16, 1, 80.0, None, 90.0),
                row(1 << 16, 2, 60.0, Some(180.0), 70.0),
            ],
            f32_fma_gflop_per_s: 200.0,
            bf16_dot_gflop_per_s: Some(400.0),
        }
    }

    #[test]
    fn the_bandwidth_is_the_best_pass_of_the_size() {
        let ceilings = example();
        for (bound, bytes, expected) in [
            (Bound::Copy, 1 << 12, 100.0),
            (Bound::Copy, 1 << 16, 180.0),
            (Bound::Copy, 1 << 14, 140.0),
            (Bound::Copy, 64, 100.0),
            (Bound::Copy, 1 << 30, 180.0),
            (Bound::Read, 1 << 16, 90.0),
        ] {
            let rate = ceilings.gb_per_s(bound, bytes);
            assert!((rate - expected).abs() < 1e-9, "{bound:?} of {bytes}: {rate}");
        }
    }

    #[test]
    fn the_longer_of_memory_and_arithmetic_is_the_ceiling() {
        let ceilings = example();
        let of = |bytes_read, bytes_written, flop, dtype| {
            let ceiling = ceilings.of(&Amounts { bytes_read, bytes_written, flop }, dtype);
            (ceiling.bound, ceiling.limit, ceiling.least_us)
        };
        // 4096 bytes at 100 GB/s.
        let close = |(bound, limit, least): (Bound, f64, f64), expected: (Bound, f64, f64)| {
            assert_eq!(bound, expected.0);
            assert!((limit - expected.1).abs() < 1e-9 && (least - expected.2).abs() < 1e-9, "{limit} {least}");
        };
        close(of(2048, 2048, None, DType::F32), (Bound::Copy, 100.0, 0.040_96));
        close(of(4096 - 64, 64, Some(10), DType::F32), (Bound::Read, 120.0, 4096.0 / 120.0 / 1e3));
        close(of(2048, 2048, Some(1_000_000), DType::F32), (Bound::Arithmetic, 200.0, 5.0));
        close(of(2048, 2048, Some(1_000_000), DType::Bf16), (Bound::Arithmetic, 400.0, 2.5));
        close(of(2048, 2048, Some(1_000_000), DType::F16), (Bound::Arithmetic, 200.0, 5.0));
    }

    #[test]
    fn measured_ceilings_cover_the_sizes_that_they_were_asked_for() {
        let ceilings = Ceilings::measure(300_000);
        let sizes: Vec<u64> = ceilings.bandwidth.iter().map(|row| row.bytes).collect();
        assert_eq!((sizes.first(), sizes.last()), (Some(&(4 << 10)), Some(&(512 << 10))));
        assert!(sizes.is_sorted());
        assert!(ceilings.gb_per_s(Bound::Copy, 300_000) > 0.01 && ceilings.f32_fma_gflop_per_s > 0.01);
    }
}
