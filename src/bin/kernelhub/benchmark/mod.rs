//! `kernelhub benchmark`.
//!
//! Measures a kernel's layers against the host's reference code and against what the machine can do at most, and holds
//! their results against each other. A kernel gets here as any other: resolved, fetched, verified, loaded.

mod accuracy;
mod alone;
mod amounts;
mod clock;
mod compare;
mod error;
#[cfg(feature = "wgpu")]
mod gpu;
mod inputs;
mod machine;
mod outputs;
mod passes;
mod plots;
mod process;
mod report;
mod roof;
mod run;
mod shape;
mod sides;
mod statistics;
mod tasks;
mod text;

use std::path::{Path, PathBuf};

use clap::Args;
use kernelhub::bind::Code;
use kernelhub::dtype::DType;
use kernelhub::hub::Kernel as Loaded;
use kernelhub::variant::DeviceKey;
use serde_json::{Value, json};

use self::amounts::amounts;
use self::clock::Effort;
use self::compare::Comparison;
use self::error::BenchmarkError;
use self::machine::{Machine, Reference};
use self::passes::Roof;
use self::report::{Report, SCHEMA, Settings};
use self::run::{Bench, Task};
use crate::failure::Failure;
use crate::kernel_name::KernelName;
use crate::manifests::HubOptions;

/// The exit code of a benchmark whose kernel's results are not the reference's.
const MISMATCH: u8 = 3;

#[derive(Args)]
pub(crate) struct Options {
    /// The kernel with its version, commit, branch or tag, such as kernelhub/rmsnorm@v1.
    #[arg(value_name = "ORG/NAME[@REVISION]")]
    kernel: KernelName,
    /// Only these layers of it. May be given more than once.
    #[arg(long, value_name = "LAYER", value_delimiter = ',')]
    layer: Vec<String>,
    /// The device to measure on: cpu, or one that wgpu reaches.
    #[arg(long, default_value = "cpu")]
    device: DeviceKey,
    /// Only these element types, such as f32,bf16. Default: every one that the kernel computes.
    #[arg(long, value_name = "DTYPE", value_delimiter = ',')]
    dtype: Vec<DType>,
    /// These shapes, such as 32x576,512x2048, instead of the kernel's own or the usual ones.
    #[arg(long, value_name = "SHAPE", value_delimiter = ',')]
    shapes: Vec<String>,
    /// Threads of kernels and reference. Default: `RAYON_NUM_THREADS`, or one for each core.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Samples of each side, where the time suffices.
    #[arg(long, default_value_t = 100, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    iterations: u32,
    /// Untimed samples before the first.
    #[arg(long, default_value_t = 10, value_name = "N")]
    warmup: u32,
    /// The most time for one side of one case, in seconds, but for three samples.
    #[arg(long, default_value_t = 1.0, value_name = "SECONDS", value_parser = seconds)]
    seconds: f64,
    /// Keep freed memory in the process (glibc), so that outputs are not fresh pages of the system in every call.
    #[arg(long)]
    keep_memory: bool,
    /// Leave out what the machine can do at most.
    #[arg(long)]
    no_ceilings: bool,
    /// Print every statistic of every side.
    #[arg(long)]
    details: bool,
    /// Write JSON into a file; - is standard output, which then has nothing else.
    #[arg(long, value_name = "FILE|-")]
    json: Option<PathBuf>,
    /// Say what changed since an earlier run, whose JSON this is.
    #[arg(long, value_name = "FILE")]
    compare: Option<PathBuf>,
    /// Draw the run into a folder, as SVG.
    #[arg(long, value_name = "DIR")]
    plots: Option<PathBuf>,
    #[command(flatten)]
    hub: HubOptions,
}

fn seconds(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "expected a number of seconds".to_owned())?;
    if number > 0.0 && number <= 3_600.0 { Ok(number) } else { Err("expected 0 to 3600 seconds".to_owned()) }
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    process::Needed::default().threads(options.threads.map(usize::from)).kept_memory(options.keep_memory)?.ensure()?;
    // Read before anything is measured: a wrong path is not worth a minute.
    let earlier = options.compare.as_deref().map(|path| Ok::<_, BenchmarkError>((Report::read(path)?, path)));
    let earlier = earlier.transpose()?;
    let is_json_alone = options.json.as_deref() == Some(Path::new("-"));
    outputs::check(options.json.as_deref().filter(|_| !is_json_alone), options.plots.as_deref())?;
    let KernelName { repo, revision } = &options.kernel;
    let (hub, _) = options.hub.hub()?;
    let revision = match revision {
        Some(revision) => revision.clone(),
        None => hub.default_revision(repo)?,
    };
    let loaded = hub.get(repo, revision.clone(), options.device)?;
    let name = format!("{repo}@{revision}");
    let wanted = tasks::Wanted { layers: &options.layer, dtypes: &options.dtype, shapes: &options.shapes };
    let tasks = wanted.tasks(&name, loaded.snapshot().layers())?;
    let mut machine = Machine::probe();
    tasks.iter().try_for_each(|task| task.check_memory(machine.memory_bytes))?;

    let roof = roof(options, loaded.code(), &tasks, is_json_alone);
    let mut bench = Bench {
        hub: &hub,
        kernel: name.clone(),
        device: options.device,
        code: loaded.code(),
        effort: effort(options),
        roof,
    };
    let mut results = Vec::new();
    let mut outcome = Ok(());
    for (at, task) in tasks.iter().enumerate() {
        progress(at, &tasks);
        match bench.run(task) {
            Ok(case) => results.push(case),
            Err(failure) => {
                outcome = Err(failure);
                break;
            }
        }
    }
    if results.is_empty() {
        return outcome;
    }
    machine.finish();
    let report = Report {
        schema: SCHEMA,
        kernel: kernel(&loaded, &revision.to_string()),
        device: options.device,
        device_name: device_name(loaded.code()),
        machine,
        settings: settings(options),
        reference: Reference::candle(),
        ceilings: bench.roof.map(|roof| roof.ceilings),
        results,
    };
    // What was measured before a failure is measured all the same.
    let shown = show(options, &report, earlier.as_ref().map(|(report, path)| (report, *path)), is_json_alone);
    outcome.and(shown)?;
    let failed = report.results.iter().filter(|case| !case.matched.passed).count();
    if failed > 0 {
        let mismatch = BenchmarkError::Mismatch { failed, total: report.results.len() };
        return Err(Failure::from(mismatch).with_code(MISMATCH));
    }
    Ok(())
}

/// Prints, writes, compares and draws: all that is possible of it, and then the first failure.
fn show(
    options: &Options,
    report: &Report,
    earlier: Option<(&Report, &Path)>,
    is_json_alone: bool,
) -> Result<(), Failure> {
    let compared = earlier.map(|(before, path)| Comparison::new(before, path, report)).transpose();
    let (comparison, mut outcome) = match compared {
        Ok(comparison) => (comparison, Ok(())),
        Err(error) => (None, Err(Failure::from(error))),
    };
    if !is_json_alone {
        println!("{}", text::head(report));
        println!("{}", text::results(report));
        if options.details {
            println!("{}", text::details(report));
        }
        if let (Some(comparison), Some((_, path))) = (&comparison, earlier) {
            println!("Since {}:\n{}", path.display(), text::comparison(comparison));
        }
    }
    if let Some(path) = &options.json {
        outcome = outcome.and(write_json(report, comparison.as_ref(), Some(path).filter(|_| !is_json_alone)));
    }
    if let Some(folder) = &options.plots {
        let drawn = plots::draw(report, folder).map_err(Failure::from);
        outcome = outcome.and(drawn.map(|paths| paths.iter().for_each(|path| eprintln!("drew {}", path.display()))));
    }
    outcome
}

/// Writes a run as JSON into a file, or without one to standard output.
fn write_json(report: &Report, comparison: Option<&Comparison>, path: Option<&PathBuf>) -> Result<(), Failure> {
    let mut value: Value = serde_json::to_value(report).map_err(Failure::plain)?;
    if let Some(comparison) = comparison {
        value["comparison"] = json!(comparison);
    }
    let Some(path) = path else { return crate::print_json(&value) };
    let text = serde_json::to_string_pretty(&value).map_err(Failure::plain)?;
    std::fs::write(path, text + "\n").map_err(|source| {
        let (action, path) = ("write", path.clone());
        BenchmarkError::File { action, path, source }
    })?;
    eprintln!("wrote {}", path.display());
    Ok(())
}

fn effort(options: &Options) -> Effort {
    let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
    Effort { iterations: count(options.iterations), warmup: count(options.warmup), seconds: options.seconds }
}

fn settings(options: &Options) -> Settings {
    let Effort { iterations, warmup, seconds } = effort(options);
    let (threads, kept_memory) = (rayon::current_num_threads(), process::keeps_memory());
    Settings { iterations, warmup, seconds, threads, kept_memory }
}

/// The machine's ceilings, of the processor alone.
fn roof(options: &Options, code: &Code, tasks: &[Task], is_quiet: bool) -> Option<Roof> {
    if options.no_ceilings {
        return None;
    }
    if !matches!(code, Code::Native(_)) {
        eprintln!("note: no ceilings are measured on a GPU");
        return None;
    }
    if !is_quiet {
        eprintln!("measuring what the machine can do at most");
    }
    let largest = tasks.iter().map(|task| amounts(task.contract, &task.shape, task.dtype).bytes()).max();
    Some(Roof::survey(largest.unwrap_or_default()))
}

fn kernel(loaded: &Loaded, revision: &str) -> report::Kernel {
    let snapshot = loaded.snapshot();
    report::Kernel {
        repo: snapshot.repo().to_string(),
        version: snapshot.version(),
        revision: revision.to_owned(),
        variant: snapshot.variant().to_string(),
        source: loaded.source().to_owned(),
    }
}

fn device_name(code: &Code) -> Option<String> {
    match code {
        #[cfg(feature = "wgpu")]
        Code::Shader(device) => Some(device.info().name.clone()),
        _ => None,
    }
}

/// A line for each case, on a terminal alone.
fn progress(at: usize, tasks: &[Task]) {
    use std::io::IsTerminal as _;
    if std::io::stderr().is_terminal() {
        let Task { layer, shape, dtype, .. } = &tasks[at];
        eprintln!("{} of {}: {layer} {shape} {dtype}", at + 1, tasks.len());
    }
}
