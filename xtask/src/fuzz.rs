//! `cargo xtask fuzz` and `cargo xtask race`.

use std::process::{Command, Stdio};

use clap::Args;

use crate::paths;
use crate::process::{cargo, run as run_command, run_all};

#[derive(Args)]
pub(crate) struct Options {
    /// How long to run each target.
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    seconds: u64,
    /// Only this target.
    #[arg(long)]
    target: Option<String>,
    /// Use the runner that needs no nightly compiler, whatever is installed. It has no coverage to go by.
    #[arg(long)]
    stable: bool,
}

/// The most memory that a target may take, in MiB, and the longest time for one input, in seconds.
const LIMITS: (u64, u64) = (2048, 10);

/// Runs the fuzz targets: by libFuzzer where a nightly compiler and cargo-fuzz are installed, else by our own runner.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    if options.stable || !has_cargo_fuzz() {
        if !options.stable {
            println!("no nightly compiler with cargo-fuzz: using the runner without coverage");
        }
        return run_stable(options.seconds, options.target.as_deref());
    }
    let names = match &options.target {
        Some(name) => vec![name.clone()],
        None => names(&mut cargo(["run", "--quiet", "--package", "kernelhub-fuzz", "--"]))?,
    };
    let corpus = paths::root().join("fuzz/corpus");
    run_command(cargo(["run", "--quiet", "--package", "kernelhub-fuzz", "--", "--write-seeds"]).arg(&corpus))?;
    for name in names {
        let (memory, time) = LIMITS;
        run_command(cargo(["+nightly", "fuzz", "run", &name]).args([
            "--".to_owned(),
            format!("-max_total_time={}", options.seconds),
            format!("-rss_limit_mb={memory}"),
            format!("-timeout={time}"),
        ]))?;
    }
    Ok(())
}

/// The runner that every compiler builds.
fn run_stable(seconds: u64, target: Option<&str>) -> anyhow::Result<()> {
    let mut command = cargo(["run", "--quiet", "--package", "kernelhub-fuzz", "--"]);
    command.args(stable_options(seconds));
    run_command(command.args(target.map(|target| format!("--target={target}"))))
}

fn stable_options(seconds: u64) -> [String; 3] {
    let (memory, time) = LIMITS;
    [format!("--seconds={seconds}"), format!("--rss-limit-mb={memory}"), format!("--timeout={time}")]
}

/// Every target by that runner, after the tests: built of the crates that they were built of, which `cargo run` of the
/// one package would build again with fewer features. As many targets at a time as there are processors.
pub(crate) fn run_after_tests(seconds: u64, features: &[&str]) -> anyhow::Result<()> {
    // The example brings the features of development dependencies, as the tests have them.
    let build = ["build", "--quiet", "--workspace", "--bin", "kernelhub-fuzz", "--example", "demo"];
    run_command(cargo(build).args(features))?;
    let runner = paths::target().join("debug").join(format!("kernelhub-fuzz{}", std::env::consts::EXE_SUFFIX));
    run_all(names(&mut Command::new(&runner))?.into_iter().map(|name| {
        let mut command = Command::new(&runner);
        command.current_dir(paths::root()).args(stable_options(seconds)).arg(format!("--target={name}"));
        command
    }))
}

fn has_cargo_fuzz() -> bool {
    let mut command = cargo(["+nightly", "fuzz", "--version"]);
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// The targets, as the runner lists them in the order of its table.
fn names(runner: &mut Command) -> anyhow::Result<Vec<String>> {
    let output = runner.arg("--list").output()?;
    anyhow::ensure!(output.status.success(), "kernelhub-fuzz --list: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?.lines().map(str::to_owned).collect())
}

#[derive(Args)]
pub(crate) struct RaceOptions {
    /// How often a library is swapped under the loader.
    #[arg(long, default_value_t = 10_000)]
    tries: u32,
}

/// Loads kernels while another process swaps their files.
pub(crate) fn race(options: &RaceOptions) -> anyhow::Result<()> {
    let test = "scan::race::a_file_that_is_swapped_between_check_and_load_never_loads";
    let mut command: Command = cargo(["test", "--package", "kernelhub", "--test", "it", "--"]);
    command.args([test, "--exact", "--nocapture"]).env("KERNELHUB_RACE_TRIES", options.tries.to_string());
    run_command(&mut command)
}
