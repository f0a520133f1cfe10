//! `cargo xtask bench`: stages and calls by criterion, and the published set of kernels beside their peers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use clap::{Args, ValueEnum};

use crate::peers::{Llama, Torch};
use crate::process::{cargo, run as run_command};
use crate::published::Published;
use crate::{model, packs, paths, published, registry, results, rows};

#[derive(Args)]
pub(crate) struct Options {
    /// Only benchmarks of criterion whose name contains this. Nothing is written then.
    #[arg(conflicts_with_all = ["json", "only"])]
    filter: Option<String>,
    /// Write the rows of the published set into a file, too.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Only one part: criterion's stages and calls, or the published set of kernels.
    #[arg(long)]
    only: Option<Part>,
    /// The Python that may have `PyTorch`. Default: `KERNELHUB_BENCH_PYTHON`, else `python3`.
    #[arg(long, value_name = "PROGRAM")]
    python: Option<PathBuf>,
    /// Threads of kernels, candle and peers. Default: one for each core.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// The most time for one side of one case of the published set, but for three samples.
    #[arg(long, default_value_t = 0.1, value_name = "SECONDS")]
    seconds: f64,
    /// Only packs whose name contains this; benches/RESULTS.md and its plots stay as they are.
    #[arg(long, value_name = "NAME")]
    pack: Option<String>,
    /// Take the programs and packs that an earlier run built, as they are.
    #[arg(long)]
    no_build: bool,
    /// candle as cargo compiles it by default, for any processor of the architecture, instead of for this one.
    #[arg(long)]
    generic: bool,
    /// Try the published set at the smallest effort: whether it runs, not what it says. Writes nothing but --json.
    #[arg(long)]
    smoke: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Stages,
    Kernels,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    if !options.no_build {
        registry::build_kernelhub(false)?;
        packs::build(&registry::kernelhub())?;
    }
    if let Some(filter) = &options.filter {
        return run_command(criterion().args(["--", filter]));
    }
    let is_wanted = |part: Part| options.only.is_none_or(|only| only == part);
    if is_wanted(Part::Stages) && !options.smoke && options.pack.is_none() {
        stages()?;
    }
    if is_wanted(Part::Kernels) {
        kernels(options)?;
    }
    Ok(())
}

fn criterion() -> Command {
    let mut command = cargo(["bench", "--package", "kernelhub"]);
    command.env("KERNELHUB_TEST_REGISTRY", paths::registry()).env("KERNELHUB_POLICY", paths::policy());
    command.args(["--bench", "stages", "--bench", "call", "--bench", "forward"]);
    command
}

fn stages() -> anyhow::Result<()> {
    // Built apart, so that the load average is the others' and not the compiler's.
    run_command(criterion().arg("--no-run"))?;
    // The table is of one run: nothing of an earlier one may be left.
    let old = results::folder();
    if old.exists() {
        fs::remove_dir_all(&old).with_context(|| format!("cannot remove {}", old.display()))?;
    }
    let before = results::load_average();
    run_command(&mut criterion())?;
    let written = results::write([before, results::load_average()])?;
    println!("wrote {}", written.display());
    Ok(())
}

/// The program whose candle is compiled for this processor, as a user who cares compiles it. The packs are the same: they
/// choose instructions when they are loaded. In a folder of its own, so that the usual build stays as it is.
fn native(is_built: bool) -> anyhow::Result<PathBuf> {
    let target = paths::target().join("native");
    let program = target.join("release").join(format!("kernelhub{}", std::env::consts::EXE_SUFFIX));
    if is_built {
        anyhow::ensure!(program.is_file(), "there is no {} yet; leave out --no-build", program.display());
        return Ok(program);
    }
    let arguments = ["build", "--release", "--package", "kernelhub", "--bin", "kernelhub", "--no-default-features"];
    let mut command = cargo(arguments);
    command.args(["--features", "cli", "--target-dir"]).arg(&target).env("RUSTFLAGS", "-C target-cpu=native");
    run_command(&mut command)?;
    Ok(program)
}

fn kernels(options: &Options) -> anyhow::Result<()> {
    let program = if options.generic { registry::kernelhub() } else { native(options.no_build)? };
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = options.threads.map_or(cores, usize::from);
    let python = options.python.clone().or_else(|| std::env::var_os("KERNELHUB_BENCH_PYTHON").map(PathBuf::from));
    let torch = Torch::find(python.unwrap_or_else(|| "python3".into()), threads);
    let is_whole = options.pack.is_none() && !options.smoke;
    let plots = if is_whole { paths::root().join("benches/plots") } else { paths::target().join("bench-plots") };
    if plots.exists() {
        fs::remove_dir_all(&plots).with_context(|| format!("cannot remove {}", plots.display()))?;
    }
    let set = published::Set {
        program: &program,
        threads,
        seconds: if options.smoke { 0.01 } else { options.seconds },
        only: options.pack.as_deref(),
        plots: &plots,
        torch: torch.as_ref(),
        is_smoke: options.smoke,
    };
    let mut published = set.run()?;
    if is_whole {
        published.llama = llama(threads)?;
        let (command, output) = set.example()?;
        println!("wrote {}", rows::write_readme(&command, &output)?.display());
    }
    write(options, &published, is_whole)?;
    anyhow::ensure!(published.faults.is_empty(), "what was measured is written; {}", published.faults.join("; "));
    Ok(())
}

fn write(options: &Options, published: &Published, is_whole: bool) -> anyhow::Result<()> {
    if let Some(path) = &options.json {
        write_json(path, published)?;
        println!("wrote {}", path.display());
    }
    if is_whole {
        let written = rows::write(published)?;
        println!("wrote {}", written.display());
    } else {
        println!("{}", rows::table(&published.rows));
    }
    Ok(())
}

fn write_json(path: &Path, published: &Published) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(published)? + "\n";
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// llama.cpp on the demo's model, where there is one.
fn llama(threads: usize) -> anyhow::Result<Option<Llama>> {
    if !Llama::is_there() {
        println!("llama.cpp: no llama-bench on PATH; left out");
        return Ok(None);
    }
    let Some(model) = model::fetch(false)? else { return Ok(None) };
    Llama::run(&model, threads)
}
