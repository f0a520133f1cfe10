//! A model file that was written on `candle_nn`, and the same file with its imports changed: the second takes kernels,
//! and both say the same.
//!
//! ```text
//! cargo run --release --example dropin -- --model FILE.gguf [--manifest KERNEL.toml]...
//! ```
//!
//! `plain.rs` is the file as it was, `adopted.rs` the file with `candle_nn` exchanged for `kernelhub::host::candle::nn`
//! in its imports; a test holds them to that. The rest of this folder reads weights and compares.

#![allow(clippy::print_stdout, reason = "a program that talks to its user")]
#![allow(unreachable_pub, reason = "modules of a program, not of a library")]

#[allow(
    clippy::cast_possible_truncation,
    clippy::needless_pass_by_value,
    clippy::struct_field_names,
    reason = "candle's style"
)]
mod adopted;
#[path = "../llama/mod.rs"]
mod llama;
#[allow(
    clippy::cast_possible_truncation,
    clippy::needless_pass_by_value,
    clippy::struct_field_names,
    reason = "candle's style"
)]
mod plain;
mod weights;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use candle_core::Device;
use clap::Parser;
use kernelhub::fetch::Location;
use kernelhub::host::candle::Kernelized;
use kernelhub::hub::Hub;
use kernelhub::manifest::KernelManifest;
use kernelhub::swap::KernelConfig;

use llama::options::Precision;
use llama::weights::Weights;

/// Run one model file as it was and with its imports changed.
#[derive(Parser)]
struct Options {
    /// The model: a GGUF file, or a folder with config.json and safetensors, its output tied to its embedding.
    #[arg(long)]
    model: PathBuf,
    /// Tokens of the prompt.
    #[arg(long, value_delimiter = ',', default_values_t = [504, 3575, 282, 4649, 314])]
    prompt: Vec<u32>,
    /// New tokens.
    #[arg(long, default_value_t = 32)]
    tokens: usize,
    /// Element type to compute in.
    #[arg(long, value_enum, default_value_t = Precision::F32)]
    dtype: Precision,
    /// Manifests of the kernels; without any, the cache's own records and the Hub are used.
    #[arg(long, value_name = "FILE")]
    manifest: Vec<PathBuf>,
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    // Before anything that starts a thread. Without it the program is slower, and right.
    if let Err(error) = kernelhub::system::retain_freed_memory(1 << 30) {
        println!("{error}");
    }
    let open = || Weights::open(&options.model, options.dtype.dtype(), &Device::Cpu);
    let config = weights::config(&open()?, options.prompt.len() + options.tokens);
    let clock = Instant::now();
    let plain = plain::Llama::new(&config, weights::builder(open()?))?;
    let expected = plain.greedy(&options.prompt, options.tokens, &Device::Cpu)?;
    println!("plain candle_nn      {:.2} s  {expected:?}", clock.elapsed().as_secs_f64());

    let config = adopted::Config::from(&config);
    let model = Kernelized::build(weights::builder(open()?), |vb| adopted::Llama::new(&config, vb))?;
    let greedy = || model.run(|model| model.greedy(&options.prompt, options.tokens, &Device::Cpu));
    let clock = Instant::now();
    let off = greedy()?;
    println!("adopted, kernels off {:.2} s  {off:?}", clock.elapsed().as_secs_f64());

    let mut hub = Hub::builder();
    for path in &options.manifest {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let manifest = KernelManifest::parse(&text, &path.display().to_string())?;
        hub = hub.manifest(manifest, Location::Local(path.clone()));
    }
    let report = model.use_kernels(&hub.build()?, &KernelConfig::standard()?)?;
    let clock = Instant::now();
    let on = greedy()?;
    println!("adopted, kernels on  {:.2} s  {on:?}", clock.elapsed().as_secs_f64());
    println!("{report}");
    ensure!(off == expected, "the adopted file gives other tokens with kernels off");
    ensure!(on == expected, "the adopted file gives other tokens with kernels on");
    Ok(())
}

impl From<&plain::Config> for adopted::Config {
    fn from(config: &plain::Config) -> Self {
        let plain::Config { hidden, intermediate, layers, heads, kv_heads, head_dim, .. } = *config;
        let plain::Config { vocabulary, positions, eps, theta, .. } = *config;
        Self { hidden, intermediate, layers, heads, kv_heads, head_dim, vocabulary, positions, eps, theta }
    }
}
