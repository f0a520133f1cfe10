//! Running a model token by token.

use std::time::{Duration, Instant};

use candle_core::Tensor;

use super::error::{ModelError, Result};
use super::model::{Cache, Llama};
use super::sampler::Sampler;

/// Why a generation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// The model ended its text.
    EndOfText,
    /// As many tokens as were asked for.
    MaxTokens,
    /// No room left in the model's context.
    ContextFull,
}

/// What a run produced and how long its two phases took.
#[derive(Debug, Clone)]
pub struct Generation {
    /// The new tokens, the one that ended the text included.
    pub tokens: Vec<u32>,
    pub stop: Stop,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// From the prompt to the first new token's logits.
    pub prefill: Duration,
    /// All forwards after that, with sampling.
    pub decode: Duration,
    /// Forwards that `decode` covers.
    pub decoded: usize,
}

impl Generation {
    /// Decoding speed; `None` when nothing was decoded.
    pub fn tokens_per_second(&self) -> Option<f64> {
        (self.decoded > 0).then(|| self.decoded as f64 / self.decode.as_secs_f64())
    }
}

/// Continues `prompt` until an end token, `max_tokens` or the end of the context. `on_token` sees each new token at
/// once.
pub fn generate(
    model: &Llama,
    prompt: &[u32],
    max_tokens: usize,
    eos: &[u32],
    sampler: &mut Sampler,
    mut on_token: impl FnMut(u32) -> Result<()>,
) -> Result<Generation> {
    let context = model.config().max_positions;
    let mut cache = model.cache(prompt.len().saturating_add(max_tokens));
    let (mut logits, prefill) = prefill(model, prompt, &mut cache)?;
    let (mut tokens, mut decoded) = (Vec::new(), 0);
    let start = Instant::now();
    let stop = loop {
        if tokens.len() >= max_tokens {
            break Stop::MaxTokens;
        }
        let token = sampler.sample(&logits)?;
        tokens.push(token);
        on_token(token)?;
        if eos.contains(&token) {
            break Stop::EndOfText;
        }
        if tokens.len() >= max_tokens {
            break Stop::MaxTokens;
        }
        if cache.len() >= context {
            break Stop::ContextFull;
        }
        logits = step(model, token, &mut cache)?;
        decoded += 1;
    };
    let decode = start.elapsed();
    Ok(Generation { tokens, stop, prompt_tokens: prompt.len(), prefill, decode, decoded })
}

/// Runs `prompt` and then exactly the tokens of `forced`, whatever the model would have said: the same work in every
/// run, for measuring. The result's `tokens` are the model's own greedy choices along the way, for comparing.
pub fn forced(model: &Llama, prompt: &[u32], forced: &[u32]) -> Result<Generation> {
    let mut sampler = Sampler::new(super::sampler::Sampling::GREEDY)?;
    let mut cache = model.cache(prompt.len().saturating_add(forced.len()));
    let (logits, prefill) = prefill(model, prompt, &mut cache)?;
    let mut tokens = vec![sampler.sample(&logits)?];
    let start = Instant::now();
    for token in forced {
        let logits = step(model, *token, &mut cache)?;
        tokens.push(sampler.sample(&logits)?);
    }
    let decode = start.elapsed();
    let prompt_tokens = prompt.len();
    Ok(Generation { tokens, stop: Stop::MaxTokens, prompt_tokens, prefill, decode, decoded: forced.len() })
}

fn prefill(model: &Llama, prompt: &[u32], cache: &mut Cache) -> Result<(Tensor, Duration)> {
    if prompt.is_empty() {
        return Err(ModelError::Request("the prompt has no tokens".to_owned()));
    }
    let vocabulary = model.config().vocabulary;
    if let Some(token) = prompt.iter().find(|token| usize::try_from(**token).is_ok_and(|token| token >= vocabulary)) {
        let text = format!("token {token} is outside of the model's vocabulary of {vocabulary}");
        return Err(ModelError::Request(text));
    }
    let start = Instant::now();
    let tokens = Tensor::new(prompt, model.device())?.unsqueeze(0)?;
    let logits = model.forward(&tokens, cache)?.squeeze(0)?;
    Ok((logits, start.elapsed()))
}

fn step(model: &Llama, token: u32, cache: &mut Cache) -> Result<Tensor> {
    let tokens = Tensor::new(&[[token]], model.device())?;
    Ok(model.forward(&tokens, cache)?.squeeze(0)?)
}

impl std::fmt::Display for Generation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let prefill = self.prefill.as_secs_f64() * 1e3;
        write!(f, "{} prompt tokens in {prefill:.1} ms, {} new tokens", self.prompt_tokens, self.tokens.len())?;
        if let Some(speed) = self.tokens_per_second() {
            write!(f, " at {speed:.1} tokens/s")?;
        }
        write!(f, ", ended by {:?}", self.stop)
    }
}
