//! `kernelhub-fuzz`: runs the fuzz targets without libFuzzer.
//!
//! Changes inputs at random, from a seed that is printed, and keeps those that made something new happen. A panic, an
//! input that takes too long and a process that grows too large each leave the input in a file and end the program.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program that talks to its user")]

mod mutate;
mod watch;

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::Parser;
use kernelhub_fuzz::{TARGETS, Target, target};

use mutate::Mutator;
use watch::Watch;

/// Runs fuzz targets without a nightly compiler.
#[derive(Parser)]
#[command(name = "kernelhub-fuzz", max_term_width = 100)]
struct Options {
    /// The target. All of them, one after the other, when it is left out.
    #[arg(long)]
    target: Option<String>,
    /// How long to run each target.
    #[arg(long, default_value_t = 10, value_name = "SECONDS")]
    seconds: u64,
    /// Where the random numbers start. The same seed makes the same inputs.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The longest time that one input may take, in seconds.
    #[arg(long, default_value_t = 10, value_name = "SECONDS")]
    timeout: u64,
    /// The most memory that the process may hold, in MiB.
    #[arg(long, default_value_t = 2048, value_name = "MIB")]
    rss_limit_mb: u64,
    /// Where an input that fails is left.
    #[arg(long, default_value = "fuzz/artifacts", value_name = "DIR")]
    artifacts: PathBuf,
    /// Write the seeds of every target into folders of this one, for libFuzzer, and run nothing.
    #[arg(long, value_name = "DIR")]
    write_seeds: Option<PathBuf>,
    /// Print the targets' names, and run nothing.
    #[arg(long)]
    list: bool,
    /// Run these inputs once each, in place of a search.
    #[arg(value_name = "FILE", requires = "target")]
    files: Vec<PathBuf>,
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    if let Some(folder) = &options.write_seeds {
        return write_seeds(folder);
    }
    if options.list {
        for target in TARGETS {
            println!("{}", target.name);
        }
        return Ok(());
    }
    let chosen: Vec<&Target> = match &options.target {
        Some(name) => vec![target(name).with_context(|| format!("no target {name:?}; there are {}", all_names()))?],
        None => TARGETS.iter().collect(),
    };
    for target in chosen {
        let watch = Watch::start(target.name, &options.artifacts, options.timeout, options.rss_limit_mb);
        if options.files.is_empty() {
            search(target, &options, &watch)?;
            continue;
        }
        for file in &options.files {
            let input = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
            let told = run(target, &input, &watch)?;
            println!("{}: {told}", file.display());
        }
    }
    Ok(())
}

fn all_names() -> String {
    TARGETS.iter().map(|target| target.name).collect::<Vec<_>>().join(", ")
}

fn write_seeds(folder: &std::path::Path) -> anyhow::Result<()> {
    for target in TARGETS {
        let place = folder.join(target.name);
        std::fs::create_dir_all(&place).with_context(|| format!("cannot make {}", place.display()))?;
        for (index, seed) in target.seeds().iter().enumerate() {
            let file = place.join(format!("seed-{index:02}"));
            std::fs::write(&file, seed).with_context(|| format!("cannot write {}", file.display()))?;
        }
    }
    Ok(())
}

/// The most inputs that are kept of one target.
const MAX_KEPT: usize = 4096;

fn search(target: &Target, options: &Options, watch: &Watch) -> anyhow::Result<()> {
    let mut mutator = Mutator::new(options.seed, target.words, target.longest);
    let mut kept = target.seeds();
    let mut seen = HashSet::new();
    for seed in &kept {
        seen.insert(run(target, seed, watch)?);
    }
    let (start, limit) = (Instant::now(), Duration::from_secs(options.seconds));
    let mut count = 0_u64;
    while start.elapsed() < limit {
        // Reading the clock costs more than some targets do.
        for _ in 0..32 {
            let input = mutator.next(&kept);
            let told = run(target, &input, watch)?;
            count += 1;
            if kept.len() < MAX_KEPT && seen.insert(told) {
                kept.push(input);
            }
        }
    }
    println!(
        "{:16} {count} inputs in {} s, {} outcomes, seed {}",
        target.name,
        options.seconds,
        seen.len(),
        options.seed
    );
    Ok(())
}

fn run(target: &Target, input: &[u8], watch: &Watch) -> anyhow::Result<String> {
    watch.begins(input);
    let outcome = std::panic::catch_unwind(|| target.run(input));
    watch.ends();
    if let Ok(told) = outcome {
        return Ok(told);
    }
    let file = watch.keep(input, "panic")?;
    bail!("{}: a panic; the input is in {}", target.name, file.display())
}
