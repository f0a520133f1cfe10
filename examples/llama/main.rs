//! Answers a prompt with a Llama-family model, its layers taken over by kernels.
//!
//! ```text
//! cargo run --release --example llama -- --model FILE.gguf --prompt "What is the capital of France?"
//! ```

#![allow(clippy::print_stderr, reason = "a program that talks to its user")]

use anyhow::Context as _;
use clap::Parser;
use kernelhub::hub::{CONFIG_FILE, Hub};
use kernelhub::swap::KernelConfig;

#[path = "mod.rs"]
mod llama;

/// Answer a prompt with a Llama-family model.
#[derive(Parser)]
struct Options {
    #[command(flatten)]
    generate: llama::options::GenerateOptions,
    /// Take the layers over by kernels: those that kernels.toml beside the weights says, else the default mapping.
    #[arg(long)]
    use_kernels: bool,
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    // Before anything that starts a thread. Without it the program is slower, and right.
    if let Err(error) = kernelhub::system::retain_freed_memory(1 << 30) {
        eprintln!("{error}");
    }
    let (model, tokenizer) = options.generate.load().context("cannot load the model")?;
    if options.use_kernels {
        let hub = Hub::builder().build()?;
        let path = &options.generate.model;
        let folder = if path.is_dir() { path } else { path.parent().context("the model's file has no folder")? };
        let config = match KernelConfig::load(folder)? {
            Some(config) => {
                eprintln!("kernels are those of {}", folder.join(CONFIG_FILE).display());
                config
            }
            None => KernelConfig::standard()?,
        };
        let report = model.use_kernels(&hub, &config)?;
        eprintln!("{report}");
    }
    let result = options.generate.answer(&model, &tokenizer)?;
    eprintln!("{result}");
    Ok(())
}
