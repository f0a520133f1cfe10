//! The project's chores: `cargo xtask <command>`.

#![expect(clippy::print_stdout, reason = "a program that talks to its user")]

mod bench;
mod beside;
mod demo;
mod fuzz;
mod memcheck;
mod model;
mod packs;
mod paths;
mod peers;
mod process;
mod published;
mod python;
mod registry;
mod results;
mod row;
mod rows;
mod server;
mod steps;
mod test;

use clap::{Parser, Subcommand};

/// kernelhub's chores.
#[derive(Parser)]
#[command(name = "cargo xtask", about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show the whole product on a real model: fetch, verify, load, swap, generate, compare.
    Demo(demo::Options),
    /// Run every check and test of the project.
    Test(test::Options),
    /// Build the embedded kernels, publish them on a loopback server and fetch them as a user would.
    FetchKernels(registry::Options),
    /// Measure downloads and the start of kernels, beside curl.
    BenchDownload(test::BenchDownloadOptions),
    /// Measure what verification costs, beside OpenSSL.
    BenchVerify(test::BenchDownloadOptions),
    /// Run the fuzz targets: every parser of outside bytes.
    Fuzz(fuzz::Options),
    /// Swap libraries under the loader, 10,000 times: foreign code must never run.
    Race(fuzz::RaceOptions),
    /// Run the CPU packs as they ship in valgrind's memcheck, by their tests.
    Memcheck(memcheck::Options),
    /// Measure the library's stages, and the published set of kernels beside candle, PyTorch and llama.cpp.
    Bench(bench::Options),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Demo(options) => demo::run(&options),
        Command::Test(options) => test::run(&options),
        Command::FetchKernels(options) => registry::run(&options),
        Command::BenchDownload(options) => test::bench_download(&options),
        Command::BenchVerify(options) => test::bench_verify(&options),
        Command::Fuzz(options) => fuzz::run(&options),
        Command::Race(options) => fuzz::race(&options),
        Command::Memcheck(options) => memcheck::run(&options),
        Command::Bench(options) => bench::run(&options),
    }
}
