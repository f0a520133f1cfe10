//! Command-line options of a program that answers a prompt.

use std::io::Write as _;
use std::path::PathBuf;

use candle_core::{DType, Device};
use clap::{Args, ValueEnum};

use super::error::{ModelError, Result};
use super::generate::{Generation, generate};
use super::model::Llama;
use super::sampler::{Sampler, Sampling};
use super::tokenizer::ChatTokenizer;
use super::weights::Weights;

/// Which model to ask what, and how.
#[derive(Args)]
pub struct GenerateOptions {
    /// A GGUF file, or a folder with config.json, safetensors and tokenizer.json.
    #[arg(long)]
    pub model: PathBuf,
    /// The question, as a chat's user turn.
    #[arg(long)]
    pub prompt: String,
    /// A system message instead of the model's own.
    #[arg(long, conflicts_with = "raw")]
    pub system: Option<String>,
    /// Continue the prompt as it is, without the chat form.
    #[arg(long)]
    pub raw: bool,
    /// Most new tokens.
    #[arg(long, default_value_t = 256)]
    pub max_tokens: usize,
    /// 0 takes the likeliest token each time.
    #[arg(long, default_value_t = 0.0)]
    pub temperature: f64,
    /// Keep the likeliest tokens whose probabilities add up to this.
    #[arg(long, default_value_t = 1.0)]
    pub top_p: f64,
    /// Keep this many of the likeliest tokens; 0 keeps all.
    #[arg(long, default_value_t = 0)]
    pub top_k: usize,
    /// Seed of the random draws.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Element type to compute in.
    #[arg(long, value_enum, default_value_t = Precision::F32)]
    pub dtype: Precision,
    /// Print the new tokens' ids after the text.
    #[arg(long)]
    pub ids: bool,
}

/// An element type that a model can run in.
#[derive(Clone, Copy, ValueEnum)]
pub enum Precision {
    F32,
    Bf16,
    F16,
}

impl Precision {
    /// candle's name for it.
    pub fn dtype(self) -> DType {
        match self {
            Self::F32 => DType::F32,
            Self::Bf16 => DType::BF16,
            Self::F16 => DType::F16,
        }
    }
}

impl GenerateOptions {
    /// The model and its tokenizer.
    pub fn load(&self) -> Result<(Llama, ChatTokenizer)> {
        let weights = Weights::open(&self.model, self.dtype.dtype(), &Device::Cpu)?;
        let tokenizer = ChatTokenizer::open(&self.model, &weights)?;
        Ok((Llama::load(&weights)?, tokenizer))
    }

    /// Answers the prompt, streamed to standard output.
    pub fn answer(&self, model: &Llama, tokenizer: &ChatTokenizer) -> Result<Generation> {
        let sampling =
            Sampling { temperature: self.temperature, top_p: self.top_p, top_k: self.top_k, seed: self.seed };
        let mut sampler = Sampler::new(sampling)?;
        let prompt = if self.raw {
            tokenizer.raw_prompt(&self.prompt)?
        } else {
            tokenizer.chat_prompt(&self.prompt, self.system.as_deref())?
        };
        let mut text = tokenizer.stream();
        let on_token = |token| show(&text.push(token)?);
        let result = generate(model, &prompt, self.max_tokens, tokenizer.eos(), &mut sampler, on_token)?;
        show(&text.finish()?)?;
        show("\n")?;
        if self.ids {
            show(&format!("{:?}\n", result.tokens))?;
        }
        Ok(result)
    }
}

/// Writes a piece of the answer. A reader that goes away, as with `| head -1`, wants no more of it, which is no error.
fn show(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(source) if source.kind() != std::io::ErrorKind::BrokenPipe => Err(ModelError::Output { source }),
        _ => Ok(()),
    }
}
