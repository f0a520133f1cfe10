//! A model that decodes while another thread swaps its kernels, again and again.
//!
//! ```text
//! cargo run --release --example hot_swap -- --seconds 10 --json
//! ```
//!
//! Two sets of the same kernels are brought up, so that a swap changes every layer's kernel and no result. One thread
//! decodes the same tokens over and over; every result is compared with that of a run before any swap. The time is cut
//! into windows, in turn with a thread that swaps and without, so that both are measured under the same conditions.
//! `p99_us_swapping` and `p99_us_still` are the 99th percentiles of a forward's time, in microseconds. The kernels are
//! those of `cargo xtask fetch-kernels`, the model is the demo's, or a narrow one of Qwen3's shape with random weights
//! where that is absent.

#![allow(clippy::print_stdout, reason = "a program that talks to its user")]

#[path = "llama/mod.rs"]
mod llama;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use candle_core::{DType, Device, Tensor};
use clap::Parser;
use kernelhub::fetch::{FetchOptions, Fetcher, Location};
use kernelhub::hub::Hub;
use kernelhub::swap::KernelConfig;
use serde_json::json;

use llama::config::Config;
use llama::model::{Cache, Llama};
use llama::weights::Weights;

/// Tokens of the prompt, and tokens decoded after it before the cache starts anew.
const PROMPT: [u32; 8] = [1, 17, 42, 5, 99, 23, 64, 7];
const DECODED: usize = 24;
/// How long a window with swaps, or without, lasts.
const WINDOW: Duration = Duration::from_millis(500);
/// Between two swaps: many within each forward of the real model, and time left for the forward on two cores.
const PAUSE: Duration = Duration::from_millis(1);

/// Decode while another thread swaps the kernels.
#[derive(Parser)]
struct Options {
    /// How long to run.
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    /// The model, a GGUF file or a folder.
    #[arg(long)]
    model: Option<PathBuf>,
    /// The folder with the kernels' manifests.
    #[arg(long, default_value = "target/registry")]
    registry: PathBuf,
}

/// What was counted in the windows of one kind.
#[derive(Default)]
struct Measured {
    forwards: Vec<Duration>,
    swaps: usize,
    mismatches: usize,
    /// The first error's text stands for all.
    errors: Vec<String>,
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    ensure!(options.seconds > 0.0 && options.seconds <= 3600.0, "--seconds must be above 0 and at most 3600");
    let (model, name) = load(options.model.as_deref())?;
    let hubs = [hub(&options.registry)?, hub(&options.registry)?];
    let config = KernelConfig::standard()?;
    let report = model.use_kernels(&hubs[0], &config)?;
    ensure!(report.swapped() > 0, "no layer was swapped:\n{report}");
    let expected = decode(&model, &mut model.cache(PROMPT.len() + DECODED), |_| {})?;

    let (mut still, mut swapping) = (Measured::default(), Measured::default());
    let end = Instant::now() + Duration::from_secs_f64(options.seconds);
    while Instant::now() < end {
        window(&model, &expected, None, &mut still);
        window(&model, &expected, Some((&hubs, &config)), &mut swapping);
    }

    let p99 = [&mut swapping, &mut still].map(|measured| p99_us(&mut measured.forwards));
    let (calls, swaps) = (still.forwards.len() + swapping.forwards.len(), swapping.swaps);
    let errors: Vec<_> = [&still, &swapping].into_iter().flat_map(|measured| &measured.errors).collect();
    let mismatches = still.mismatches + swapping.mismatches;
    let result = json!({
        "calls": calls,
        "calls_swapping": swapping.forwards.len(),
        "swaps": swaps,
        "errors": errors.len(),
        "first_error": errors.first(),
        "mismatches": mismatches,
        "p99_us_swapping": p99[0],
        "p99_us_still": p99[1],
        "layers_swapped": report.swapped(),
        "layers_total": report.total(),
        "model": name,
    });
    if options.json {
        println!("{}", serde_json::to_string_pretty(&result)?);
    } else {
        println!("{name}: {} of {} layers swapped", report.swapped(), report.total());
        println!("{calls} forwards, {swaps} swaps, {} errors, {mismatches} mismatches", errors.len());
        println!(
            "p99 of a forward: {} us while swapping, {} us without",
            result["p99_us_swapping"], result["p99_us_still"]
        );
    }
    ensure!(errors.is_empty() && mismatches == 0, "a swap was seen by a forward");
    ensure!(swaps > 0 && !swapping.forwards.is_empty(), "nothing was measured; run longer");
    Ok(())
}

/// One window: forwards on this thread, and on another one swaps, where it is given what to swap.
fn window(model: &Llama, expected: &[u32], swap: Option<(&[Hub; 2], &KernelConfig)>, measured: &mut Measured) {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|threads| {
        let swapper = swap.map(|(hubs, config)| {
            threads.spawn(|| {
                let (mut swaps, mut errors) = (0, Vec::new());
                for hub in hubs.iter().cycle() {
                    if is_over.load(Relaxed) {
                        break;
                    }
                    match model.use_kernels(hub, config) {
                        Ok(_) => swaps += 1,
                        Err(error) => errors.push(error.to_string()),
                    }
                    std::thread::sleep(PAUSE);
                }
                (swaps, errors)
            })
        });
        let end = Instant::now() + WINDOW;
        let mut cache = model.cache(PROMPT.len() + DECODED);
        while Instant::now() < end {
            cache.reset();
            match decode(model, &mut cache, |time| measured.forwards.push(time)) {
                Ok(tokens) => measured.mismatches += usize::from(tokens != expected),
                Err(error) => measured.errors.push(error.to_string()),
            }
        }
        is_over.store(true, Relaxed);
        if let Some((swaps, errors)) = swapper.and_then(|swapper| swapper.join().ok()) {
            measured.swaps += swaps;
            measured.errors.extend(errors);
        }
    });
}

/// Runs the prompt and then the model's own likeliest tokens; returns them. `forward` sees how long each forward took,
/// the prompt's, which is longer than the others, left out.
fn decode(model: &Llama, cache: &mut Cache, mut forward: impl FnMut(Duration)) -> anyhow::Result<Vec<u32>> {
    let likeliest = |logits: Tensor| -> anyhow::Result<u32> { Ok(logits.squeeze(0)?.argmax(0)?.to_scalar::<u32>()?) };
    let prompt = Tensor::new(&PROMPT, model.device())?.unsqueeze(0)?;
    let mut tokens = vec![likeliest(model.forward(&prompt, cache)?)?];
    for index in 0..DECODED - 1 {
        let token = Tensor::new(&[[tokens[index]]], model.device())?;
        let clock = Instant::now();
        let logits = model.forward(&token, cache)?;
        forward(clock.elapsed());
        tokens.push(likeliest(logits)?);
    }
    Ok(tokens)
}

/// The 99th percentile, in microseconds, to a tenth.
fn p99_us(times: &mut [Duration]) -> Option<f64> {
    times.sort_unstable();
    let time = times.get((times.len() * 99).div_ceil(100).checked_sub(1)?)?;
    Some((time.as_secs_f64() * 1e7).round() / 10.0)
}

/// The model that was asked for, else the demo's where it was downloaded, else a random one; and its name.
fn load(path: Option<&Path>) -> anyhow::Result<(Llama, String)> {
    let downloaded = || -> Option<PathBuf> {
        let files = std::fs::read_dir("target/models").ok()?.filter_map(|entry| Some(entry.ok()?.path()));
        files.filter(|file| file.extension().is_some_and(|extension| extension == "gguf")).min()
    };
    let Some(path) = path.map(Path::to_path_buf).or_else(downloaded) else {
        let model = Llama::random(Config::narrow_qwen3(), 0, DType::F32, &Device::Cpu)?;
        return Ok((model, "a narrow Qwen3 with random weights".to_owned()));
    };
    let weights = Weights::open(&path, DType::F32, &Device::Cpu)?;
    Ok((Llama::load(&weights)?, path.display().to_string()))
}

/// A hub with every kernel of the registry, which has brought up nothing yet.
fn hub(registry: &Path) -> anyhow::Result<Hub> {
    let fetcher = Fetcher::new(FetchOptions { offline: true, ..FetchOptions::default() });
    let files = std::fs::read_dir(registry)
        .with_context(|| format!("{} has no kernels; `cargo xtask fetch-kernels` makes them", registry.display()))?;
    let mut builder = Hub::builder().offline(true).cache(registry.join("../hot-swap-cache"));
    for file in files {
        let path = file?.path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            let location = Location::Local(path);
            builder = builder.manifest(fetcher.fetch_manifest(&location)?, location);
        }
    }
    Ok(builder.build()?)
}
