//! The whole product on a real model: kernels resolved, downloaded, verified, loaded and swapped in; the same answer
//! with and without them, faster with them. `cargo xtask demo` builds what it needs and runs it.

#![allow(clippy::print_stdout, reason = "a program that talks to its user")]
#![allow(unreachable_pub, reason = "modules of a program, not of a library")]

mod first_forward;
mod gpu;
mod kernels;
#[path = "../llama/mod.rs"]
mod llama;
mod measure;
mod progress;
mod questions;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use candle_core::Device;
use clap::Parser;
use kernelhub::swap::{KernelConfig, Report};
use serde_json::json;

use llama::config::Config;
use llama::model::Llama;
use llama::options::Precision;
use llama::tokenizer::ChatTokenizer;
use llama::weights::Weights;

#[derive(Parser)]
struct Options {
    /// The model, a GGUF file or a folder; a small random one when absent.
    #[arg(long)]
    model: Option<PathBuf>,
    /// What to ask it.
    #[arg(long, default_value = "What is the capital of France?")]
    question: String,
    /// Most new tokens of an answer.
    #[arg(long, default_value_t = 64)]
    max_tokens: usize,
    /// Element type to compute in.
    #[arg(long, value_enum, default_value_t = Precision::F32)]
    dtype: Precision,
    /// Manifests of the kernels; without any, the cache's own records are used.
    #[arg(long, value_name = "URL|FILE")]
    manifest: Vec<String>,
    /// Open no socket.
    #[arg(long)]
    offline: bool,
    /// Keep kernels below this folder instead of the default cache.
    #[arg(long)]
    cache: Option<PathBuf>,
    /// Write the results here, as JSON.
    #[arg(long)]
    json: Option<PathBuf>,
    /// Only load the kernels and run one forward of a tiny model; for timing a program's start.
    #[arg(long, hide = true)]
    first_forward: bool,
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    if options.first_forward {
        return first_forward::run(&options);
    }

    heading("Devices");
    let mut system = kernelhub::system::SystemInfo::probe();
    #[cfg(feature = "wgpu")]
    system.probe_adapters();
    println!("{system}");

    heading("Kernels");
    let hub = kernels::hub(&options)?;
    let totals = kernels::get_all(&hub)?;

    heading("Model");
    let clock = Instant::now();
    let (model, tokenizer) = load_model(&options)?;
    let config = model.config();
    println!(
        "{} layers, hidden {}, {} heads, {} KV heads, vocabulary {}, {:?}; loaded in {:.1} s",
        config.layers,
        config.hidden,
        config.heads,
        config.kv_heads,
        config.vocabulary,
        model.dtype(),
        clock.elapsed().as_secs_f64()
    );

    heading("Questions");
    let standard = KernelConfig::standard()?;
    let questions = questions::Questions::new(&options, &model, tokenizer.as_ref())?;
    let off = questions.ask("kernels off")?;
    let clock = Instant::now();
    let report = model.use_kernels(&hub, &standard)?;
    let swap_ms = clock.elapsed().as_secs_f64() * 1e3;
    print_report(&report);
    let on = questions.ask("kernels on")?;
    print_report(&model.train());
    let training = questions.ask("training mode")?;
    print_report(&model.eval());
    let back = questions.ask("inference again")?;
    for (name, answer) in [("kernels on", &on), ("training mode", &training), ("inference again", &back)] {
        ensure!(
            answer.tokens == off.tokens,
            "{name} gave other tokens than kernels off: {:?}, not {:?}",
            answer.tokens,
            off.tokens
        );
    }
    println!("the same {} tokens all four times", off.tokens.len());

    heading("Shader kernels");
    let gpu = gpu::check(&hub)?;

    heading("Speed");
    let speed = measure::compare(&model, &hub, &standard)?;
    let first_forward_ms = first_forward::measure(&options)?;
    let rows = [
        ("decode, 128 tokens (tokens/s)", speed.decode.off, speed.decode.on, speed.decode.on / speed.decode.off),
        ("prefill, 512 tokens (ms)", speed.prefill.off, speed.prefill.on, speed.prefill.off / speed.prefill.on),
    ];
    println!("{:32}{:>12}{:>12}{:>10}", "", "kernels off", "kernels on", "speed-up");
    for (name, off, on, ratio) in rows {
        println!("{name:32}{off:>12.1}{on:>12.1}{ratio:>9.2}x");
    }
    println!("medians of {} interleaved runs each, {} threads", measure::RUNS, rayon::current_num_threads());
    println!("layers swapped                  {:>12} of {}", report.swapped(), report.total());
    println!("verify / load (ms)              {:>12.2} / {:.2}", totals.verify_ms, totals.load_ms);
    println!("swap (ms)                       {swap_ms:>12.3}");
    println!("start to first swapped forward  {first_forward_ms:>12.2} ms");

    if let Some(path) = &options.json {
        let results = json!({
            "answer": off.text,
            "tokens_off": off.tokens,
            "tokens_on": on.tokens,
            "tokens_training": training.tokens,
            "tokens_inference_again": back.tokens,
            "layers_total": report.total(),
            "layers_swapped": report.swapped(),
            "kernels": kernels::as_json(&report),
            "decode_tokens_per_s": speed.decode,
            "prefill_ms": speed.prefill,
            "fetch_ms": totals.fetch_ms,
            "bytes_fetched": totals.bytes_fetched,
            "verify_ms": totals.verify_ms,
            "load_ms": totals.load_ms,
            "swap_ms": swap_ms,
            "first_forward_ms": first_forward_ms,
            "gpu": gpu,
            "dtype": format!("{:?}", model.dtype()).to_lowercase(),
            "threads": rayon::current_num_threads(),
            "model": options.model,
        });
        let text = serde_json::to_string_pretty(&results)?;
        std::fs::write(path, text + "\n").with_context(|| format!("cannot write {}", path.display()))?;
        println!("\nwrote {}", path.display());
    }
    Ok(())
}

fn load_model(options: &Options) -> anyhow::Result<(Llama, Option<ChatTokenizer>)> {
    let dtype = options.dtype.dtype();
    let Some(path) = &options.model else {
        return Ok((Llama::random(Config::tiny(), 0, dtype, &Device::Cpu)?, None));
    };
    let weights = Weights::open(path, dtype, &Device::Cpu)?;
    let tokenizer = ChatTokenizer::open(path, &weights)?;
    Ok((Llama::load(&weights)?, Some(tokenizer)))
}

fn heading(name: &str) {
    println!("\n-- {name} --");
}

fn print_report(report: &Report) {
    println!("{report}\n");
}
