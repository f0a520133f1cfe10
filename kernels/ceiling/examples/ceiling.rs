//! Prints this machine's ceilings: `cargo run --release -p kernelhub-ceiling --example ceiling [threads]`.
#![expect(clippy::print_stdout, reason = "prints a table")]

use kernelhub_ceiling::{Memory, Pages, Pass, Rate, bf16_dot_rate, f32_fma_rate};

fn main() {
    let all = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = std::env::args().nth(1).and_then(|threads| threads.parse().ok()).unwrap_or(all);
    println!("bytes passed over, threads: copy, streaming copy, read in GB/s (streams, lines asked for ahead)");
    for pages in [Pages::Plain, Pages::Huge] {
        println!("{pages:?} pages");
        let mut memory = Memory::new(256 << 20, pages);
        for bytes in (14..=28).step_by(2).map(|power| 1_usize << power) {
            for threads in [1, threads] {
                let rates = [Pass::Copy, Pass::StreamingCopy, Pass::Read]
                    .map(|pass| memory.fastest(pass, bytes, threads).map_or_else(|| "-".to_owned(), words));
                println!("{bytes:>11} {threads:>2}: {}", rates.join("  "));
            }
        }
    }
    for threads in [1, threads] {
        let dot = bf16_dot_rate(threads).map_or_else(|| "-".to_owned(), |rate| format!("{:.0}", rate / 1e9));
        println!("{threads} threads: f32 FMA {:.0}, bf16 dot {dot} GFLOP/s", f32_fma_rate(threads) / 1e9);
    }
}

fn words(Rate { bytes_per_second, way, .. }: Rate) -> String {
    format!("{:.1} ({}, {})", bytes_per_second / 1e9, way.streams, way.ahead)
}
