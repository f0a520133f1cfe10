//! The `kernelhub` program.
//!
//! Exit codes: 0 when what was asked for is there and whole, 1 when it isn't, 2 when the command line is wrong.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program that talks to its user")]

mod devices;
mod failure;
mod fetch;
mod generate;
mod get;
mod kernel_name;
#[path = "../../../examples/llama/mod.rs"]
mod llama;
mod manifests;
mod pack;
mod progress;
mod push;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use failure::Failure;

/// The Kernel Hub for Rust: fetch, verify, load and swap compute kernels.
#[derive(Parser)]
#[command(name = "kernelhub", version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show the devices of this machine.
    Devices(devices::Options),
    /// Resolve, fetch, verify and load one kernel.
    Get(get::Options),
    /// Bring kernels into the cache by their manifests, without loading them.
    Fetch(fetch::Options),
    /// Make an archive and its manifest from a kernel's files.
    Pack(pack::Options),
    /// Publish a packed kernel to an OCI registry or into a folder.
    Push(push::Options),
    /// Answer a prompt with a Llama-family model.
    Generate(generate::Options),
    /// Download one file whose digest is known.
    FetchFile(fetch::FileOptions),
}

fn main() -> ExitCode {
    let filter = tracing_subscriber::EnvFilter::try_from_env("KERNELHUB_LOG").unwrap_or_else(|_| "warn".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let outcome: Result<(), Failure> = match Cli::parse().command {
        Command::Devices(options) => devices::run(&options),
        Command::Get(options) => get::run(&options),
        Command::Fetch(options) => fetch::run(&options),
        Command::Pack(options) => pack::run(&options),
        Command::Push(options) => push::run(&options),
        Command::Generate(options) => generate::run(&options),
        Command::FetchFile(options) => fetch::run_file(&options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprint!("{failure}");
            ExitCode::FAILURE
        }
    }
}
