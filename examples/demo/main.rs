//! The whole product on a real model: kernels resolved, downloaded, verified, loaded and swapped in; the same answer
//! with and without them, faster with them. `cargo xtask demo` builds what it needs and runs it.

#![allow(clippy::print_stdout, reason = "a program that talks to its user")]
#![allow(unreachable_pub, reason = "modules of a program, not of a library")]

mod first_forward;
mod foretelling;
mod gpu;
mod kernels;
#[path = "../llama/mod.rs"]
mod llama;
mod measure;
mod progress;
mod questions;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Context as _;
use candle_core::{DType, Device};
use clap::Parser;
use kernelhub::swap::{KernelConfig, Report};
use kernelhub::system::retain_freed_memory;
use serde_json::json;

use llama::config::Config;
use llama::model::Llama;
use llama::options::Precision;
use llama::tokenizer::ChatTokenizer;
use llama::weights::Weights;
use measure::Sides;
use questions::Asking;

/// Freed memory that the process keeps, in bytes: more than any tensor of the demo.
const RETAINED: usize = 1 << 30;

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
    /// Measured rounds, of which the median counts.
    #[arg(long, default_value_t = 5, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    runs: usize,
    /// Leave memory as the system has it: what is freed goes back, and large outputs are made of fresh pages; weights
    /// lie in small pages.
    #[arg(long)]
    fresh_memory: bool,
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
    // Before anything that starts a thread.
    let memory = if options.fresh_memory { Ok(false) } else { retain_freed_memory(RETAINED).map(|()| true) };

    heading("Devices");
    let mut system = kernelhub::system::SystemInfo::probe();
    #[cfg(feature = "wgpu")]
    system.probe_adapters();
    println!("{system}");
    let keeps_memory = match memory {
        Ok(keeps) => keeps,
        Err(error) => {
            println!("memory: {error}");
            false
        }
    };
    if keeps_memory {
        println!("memory: up to {RETAINED} freed bytes are kept for what comes next (--fresh-memory: they are not)");
    }

    heading("Kernels");
    let hub = kernels::hub(&options)?;
    let totals = kernels::get_all(&hub)?;

    heading("Model");
    let (model, tokenizer) = load_model(&options, options.dtype)?;
    // What the narrow types are held against.
    let is_narrow = options.dtype.dtype() != DType::F32;
    let wide = if is_narrow { Some(load_model(&options, Precision::F32)?.0) } else { None };

    heading("Questions");
    let standard = KernelConfig::standard()?;
    let mut asking = Asking::new(&options, &model, wide.as_ref(), tokenizer.as_ref())?;
    asking.ask("kernels off")?;
    let clock = Instant::now();
    let report = model.use_kernels(&hub, &standard)?;
    let swap_ms = clock.elapsed().as_secs_f64() * 1e3;
    print_report(&report);
    asking.ask("kernels on")?;
    print_report(&model.train());
    asking.ask("training mode")?;
    print_report(&model.eval());
    asking.ask("inference again")?;
    asking.conclude();

    heading("Shader kernels");
    let gpu = gpu::check(&hub)?;

    heading("Perplexity");
    let kernels = (&hub, &standard);
    let perplexity = foretelling::perplexity(&model, wide.as_ref(), tokenizer.as_ref(), kernels)?;
    println!("on {} tokens of examples/demo/text.txt", perplexity.tokens);
    let mut rows = vec![
        ("kernels off", perplexity.off),
        ("kernels on", perplexity.on),
        ("kernels on, token by token", perplexity.on_by_token),
    ];
    if is_narrow {
        rows.insert(0, ("candle in f32", perplexity.off_f32));
    }
    for (name, value) in rows {
        println!("{name:32}{value:>12.4}{:>+11.3}%", perplexity.change(value));
    }

    heading("Speed");
    let speed = measure::compare(&model, wide.as_ref(), kernels, options.runs)?;
    let first_forward_ms = first_forward::measure(&options)?;
    print_speed(&speed);
    println!("medians of {} interleaved rounds, {} threads", options.runs, rayon::current_num_threads());
    println!("layers swapped                  {:>12} of {}", report.swapped(), report.total());
    println!("verify / load (ms)              {:>12.2} / {:.2}", totals.verify_ms, totals.load_ms);
    println!("swap (ms)                       {swap_ms:>12.3}");
    println!("start to first swapped forward  {first_forward_ms:>12.2} ms");

    if let Some(path) = &options.json {
        let mut results = json!({
            "layers_total": report.total(),
            "layers_swapped": report.swapped(),
            "groups_fused": report.groups.iter().filter(|group| group.is_fused()).count(),
            "kernels": kernels::as_json(&report),
            "perplexity": perplexity,
            "decode_tokens_per_s": speed.decode,
            "prefill_ms": speed.prefill,
            "runs": options.runs,
            "keeps_freed_memory": keeps_memory,
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
        if let Some(results) = results.as_object_mut() {
            results.extend(asking.as_json());
        }
        let text = serde_json::to_string_pretty(&results)?;
        std::fs::write(path, text + "\n").with_context(|| format!("cannot write {}", path.display()))?;
        println!("\nwrote {}", path.display());
    }
    Ok(())
}

fn load_model(options: &Options, precision: Precision) -> anyhow::Result<(Llama, Option<ChatTokenizer>)> {
    let (dtype, clock) = (precision.dtype(), Instant::now());
    let (model, tokenizer) = match &options.model {
        None => (Llama::random(Config::tiny(), 0, dtype, &Device::Cpu)?, None),
        Some(path) => {
            let mut weights = Weights::open(path, dtype, &Device::Cpu)?;
            if !options.fresh_memory {
                weights = weights.in_huge_pages();
            }
            let tokenizer = ChatTokenizer::open(path, &weights)?;
            let model = Llama::load(&weights)?;
            if !options.fresh_memory {
                println!("{} MiB of weights in huge pages", weights.huge_bytes() >> 20);
            }
            (model, Some(tokenizer))
        }
    };
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
    Ok((model, tokenizer))
}

fn print_speed(speed: &measure::Speed) {
    let rows = [
        ("decode", "128 tokens (tokens/s)", &speed.decode, true),
        ("prefill", "512 tokens (ms)", &speed.prefill, false),
    ];
    let ratio = |on: f64, base: f64, more_is_better: bool| if more_is_better { on / base } else { base / on };
    println!("{:32}{:>12}{:>12}{:>10}", "", "kernels off", "kernels on", "speed-up");
    for (what, of, Sides { off, on, .. }, more) in rows {
        println!("{:32}{off:>12.1}{on:>12.1}{:>9.2}x", format!("{what}, {of}"), ratio(*on, *off, more));
    }
    for (what, _, Sides { on, wide, .. }, more) in rows {
        if let Some(wide) = wide {
            println!("{:32}{wide:>12.1}{:>12}{:>9.2}x", format!("{what}, candle in f32"), "", ratio(*on, *wide, more));
        }
    }
}

fn heading(name: &str) {
    println!("\n-- {name} --");
}

fn print_report(report: &Report) {
    println!("{report}\n");
}
