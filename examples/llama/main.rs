//! Answers a prompt with a Llama-family model.
//!
//! ```text
//! cargo run --release --example llama -- --model FILE.gguf --prompt "What is the capital of France?"
//! ```

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program that talks to its user")]

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Context as _;
use candle_core::{DType, Device};
use clap::{Parser, ValueEnum};

#[path = "mod.rs"]
mod llama;

use llama::error::ModelError;
use llama::generate::generate;
use llama::model::Llama;
use llama::sampler::{Sampler, Sampling};
use llama::tokenizer::ChatTokenizer;
use llama::weights::Weights;

/// Answer a prompt with a Llama-family model.
#[derive(Parser)]
struct Options {
    /// A GGUF file, or a folder with config.json, safetensors and tokenizer.json.
    #[arg(long)]
    model: PathBuf,
    /// The question, as a chat's user turn.
    #[arg(long)]
    prompt: String,
    /// A system message instead of the model's own.
    #[arg(long, conflicts_with = "raw")]
    system: Option<String>,
    /// Continue the prompt as it is, without the chat form.
    #[arg(long)]
    raw: bool,
    /// Most new tokens.
    #[arg(long, default_value_t = 256)]
    max_tokens: usize,
    /// 0 takes the likeliest token each time.
    #[arg(long, default_value_t = 0.0)]
    temperature: f64,
    /// Keep the likeliest tokens whose probabilities add up to this.
    #[arg(long, default_value_t = 1.0)]
    top_p: f64,
    /// Keep this many of the likeliest tokens; 0 keeps all.
    #[arg(long, default_value_t = 0)]
    top_k: usize,
    /// Seed of the random draws.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Element type to compute in.
    #[arg(long, value_enum, default_value_t = Precision::F32)]
    dtype: Precision,
    /// Print the new tokens' ids after the text.
    #[arg(long)]
    ids: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Precision {
    F32,
    Bf16,
    F16,
}

impl Precision {
    fn dtype(self) -> DType {
        match self {
            Self::F32 => DType::F32,
            Self::Bf16 => DType::BF16,
            Self::F16 => DType::F16,
        }
    }
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    let sampling =
        Sampling { temperature: options.temperature, top_p: options.top_p, top_k: options.top_k, seed: options.seed };
    let mut sampler = Sampler::new(sampling)?;
    let weights =
        Weights::open(&options.model, options.dtype.dtype(), &Device::Cpu).context("cannot open the model")?;
    let tokenizer = ChatTokenizer::open(&options.model, &weights).context("cannot open the tokenizer")?;
    let model = Llama::load(&weights).context("cannot build the model")?;
    drop(weights);

    let prompt = if options.raw {
        tokenizer.raw_prompt(&options.prompt)?
    } else {
        tokenizer.chat_prompt(&options.prompt, options.system.as_deref())?
    };
    let mut text = tokenizer.stream();
    let show = |text: &str| -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()
    };
    let on_token = |token| {
        let new = text.push(token)?;
        show(&new).map_err(|source| ModelError::Io { path: "standard output".into(), source })
    };
    let result = generate(&model, &prompt, options.max_tokens, tokenizer.eos(), &mut sampler, on_token)?;
    println!("{}", text.finish()?);
    if options.ids {
        println!("{:?}", result.tokens);
    }
    eprintln!(
        "{} prompt tokens in {:.1} ms, {} new tokens{}, ended by {:?}",
        result.prompt_tokens,
        result.prefill.as_secs_f64() * 1e3,
        result.tokens.len(),
        result.tokens_per_second().map_or_else(String::new, |speed| format!(" at {speed:.1} tokens/s")),
        result.stop,
    );
    Ok(())
}
