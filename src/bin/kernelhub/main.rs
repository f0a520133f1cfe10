//! The `kernelhub` program.
//!
//! Exit codes: 0 when what was asked for is there and whole, 1 when it isn't, 2 when the command line is wrong, 3 when it
//! was decided and the answer is no: no build fits, or a benchmark's kernel computes something else than its reference.

// First, so that its macros stand in the standard library's place in every module below.
#[macro_use]
mod output;

mod benchmark;
mod bundle;
mod cache;
mod check_abi;
mod completions;
mod devices;
mod doctor;
mod environment;
mod failure;
mod fetch;
mod generate;
mod get;
mod info;
mod input;
mod kernel_name;
#[path = "../../../examples/llama/mod.rs"]
mod llama;
mod lock;
mod manifests;
mod pack;
mod plan;
mod probe;
mod progress;
mod push;
mod resolve;
mod sign;
mod size;
mod trust;
mod verify;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use failure::Failure;

const EXIT_CODES: &str = "Exit codes:
  0  what was asked for is there and whole
  1  it is not: standard error says why
  2  the command line is wrong
  3  resolve: every build was decided on, and none fits; benchmark: a kernel's results are not the reference's

Results go to standard output; progress, notes and errors to standard error. Colours are used on a terminal only, and \
never where NO_COLOR is set. KERNELHUB_LOG sets what is logged.";

/// The Kernel Hub for Rust: fetch, verify, load and swap compute kernels.
#[derive(Parser)]
#[command(name = "kernelhub", version, about, max_term_width = 100, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show the devices of this machine.
    Devices(devices::Options),
    /// Check the environment, the cache, the sources, the devices and every mapped kernel's path and numbers.
    Doctor(doctor::Options),
    /// Say which build of a kernel fits a machine, and why each other one does not. Fetches no build. Exit code 3 when
    /// none fits.
    Resolve(resolve::Options),
    /// Resolve, fetch, verify and load one kernel.
    Get(get::Options),
    /// Show every version of a kernel, which builds it has, and whether one fits this machine.
    Versions(info::VersionsOptions),
    /// Describe a kernel: its metadata, licence, layers and builds.
    Info(info::InfoOptions),
    /// Bring kernels into the cache by their manifests, without loading them.
    Fetch(fetch::Options),
    /// Pin the kernels that a project declares: writes kernels.lock and kernelhub.lock.
    Lock(lock::Options),
    /// Bring what is locked into the cache, verified against the lock.
    Download(lock::DownloadOptions),
    /// Write locked kernels from the cache into one file, for a machine without a network.
    Export(bundle::ExportOptions),
    /// Take the kernels of such a file into the cache, all or none of them.
    Import(bundle::ImportOptions),
    /// Read, hash and scan what the cache has of a kernel, without loading it. Exit code 1 on any violation.
    Verify(verify::Options),
    /// Have a process of its own load a kernel, and say what became of it. Exit code 1 when it crashed, hung or
    /// refused.
    Probe(probe::Options),
    /// What the process of `probe` runs.
    #[command(name = probe::CHILD, hide = true)]
    ProbeChild,
    /// Hold a build's libraries to the limits of `manylinux_2_28`. Exit code 1 when one goes beyond them.
    CheckAbi(check_abi::Options),
    /// Make an archive and its manifest from a kernel's files.
    Pack(pack::Options),
    /// Sign builds with a key of one's own, or make such a key.
    Sign(sign::Options),
    /// Check who signed a build, without loading it.
    VerifySignature(sign::VerifyOptions),
    /// Say whom you trust: a publisher, a repo, a signing key, an endpoint. Or show what is in force.
    Trust(trust::Options),
    /// Publish a packed kernel to an OCI registry or into a folder.
    Push(push::Options),
    /// Measure a kernel against the host's own code and against what this machine can do at most. Exit code 3 when its
    /// results are not the reference's.
    Benchmark(benchmark::Options),
    /// Say which kernel takes which layer of a model, without running anything.
    Plan(plan::Options),
    /// Answer a prompt with a Llama-family model.
    Generate(generate::Options),
    /// Download one file whose digest is known.
    FetchFile(fetch::FileOptions),
    /// List, check and clean the cache.
    Cache(cache::Options),
    /// Show every environment variable that is read, and what is in force. A token is shown as set or not.
    Env(environment::Options),
    /// Print a completion script: `kernelhub completions bash > /etc/bash_completion.d/kernelhub`.
    Completions(completions::Options),
}

fn main() -> ExitCode {
    let filter = tracing_subscriber::EnvFilter::try_from_env("KERNELHUB_LOG").unwrap_or_else(|_| "warn".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(has_colours()).with_writer(std::io::stderr).init();
    let outcome: Result<(), Failure> = match Cli::parse().command {
        Command::Benchmark(options) => benchmark::run(&options),
        Command::Devices(options) => devices::run(&options),
        Command::Doctor(options) => doctor::run(&options),
        Command::Resolve(options) => resolve::run(&options),
        Command::Get(options) => get::run(&options),
        Command::Fetch(options) => fetch::run(&options),
        Command::Versions(options) => info::run_versions(&options),
        Command::Info(options) => info::run_info(&options),
        Command::Cache(options) => cache::run(&options),
        Command::Env(options) => environment::run(&options),
        Command::Lock(options) => lock::run(&options),
        Command::Download(options) => lock::run_download(&options),
        Command::Export(options) => bundle::run_export(&options),
        Command::Import(options) => bundle::run_import(&options),
        Command::Completions(options) => completions::run(&options),
        Command::Probe(options) => probe::run(&options),
        Command::ProbeChild => return ExitCode::from(kernelhub::probe::serve()),
        Command::Verify(options) => verify::run(&options),
        Command::CheckAbi(options) => check_abi::run(&options),
        Command::Pack(options) => pack::run(&options),
        Command::Plan(options) => plan::run(&options),
        Command::Push(options) => push::run(&options),
        Command::Sign(options) => sign::run(&options),
        Command::VerifySignature(options) => sign::run_verify(&options),
        Command::Trust(options) => trust::run(&options),
        Command::Generate(options) => generate::run(&options),
        Command::FetchFile(options) => fetch::run_file(&options),
    };
    match outcome.and_then(|()| output::outcome()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let text = if has_colours() { format!("{failure:#}") } else { failure.to_string() };
            output::err_as_it_is(&text);
            ExitCode::from(failure.code())
        }
    }
}

/// Whether standard error takes colours.
fn has_colours() -> bool {
    use std::io::IsTerminal as _;
    std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) && std::io::stderr().is_terminal()
}

/// Prints a result for programs.
fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(Failure::plain)?;
    println!("{}", output::plain_json(&text));
    Ok(())
}
