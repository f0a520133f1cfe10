//! How well a model foretells a text.

use candle_core::{DType, Tensor};

use super::error::{ModelError, Result};
use super::model::Llama;

/// What the model foretold of a text's tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Foretold {
    /// Tokens that were foretold: all but the first, which has none before it.
    pub tokens: usize,
    /// The sum of `-ln p` over them, `p` being what the model gave the token after those before it.
    pub surprise: f64,
}

impl Foretold {
    /// The perplexity: `exp` of the mean surprise. A model that finds `n` tokens equally likely at each step has `n`.
    pub fn perplexity(&self) -> f64 {
        (self.surprise / self.tokens as f64).exp()
    }
}

/// Runs the model over `tokens`, at least two and no more than its context, `chunk` of them in one forward: 1 takes the
/// way of decoding, more the way of a prompt, and the logits of a long text are not held at once.
pub fn foretell(model: &Llama, tokens: &[u32], chunk: usize) -> Result<Foretold> {
    if tokens.len() < 2 {
        return Err(ModelError::Request(format!("a perplexity needs two tokens or more, got {}", tokens.len())));
    }
    let (context, next) = (&tokens[..tokens.len() - 1], &tokens[1..]);
    let mut cache = model.cache(context.len());
    let mut surprise = 0.0;
    let chunk = chunk.max(1);
    for (context, next) in context.chunks(chunk).zip(next.chunks(chunk)) {
        let input = Tensor::new(context, model.device())?.unsqueeze(0)?;
        let logits = model.forward_all(&input, Some(&mut cache))?.squeeze(0)?;
        surprise += surprise_of(&logits, next)?;
    }
    Ok(Foretold { tokens: next.len(), surprise })
}

/// The sum of `-ln softmax(logits[i])[next[i]]` for logits `[positions, vocabulary]`, in f64.
pub fn surprise_of(logits: &Tensor, next: &[u32]) -> Result<f64> {
    let rows = logits.to_dtype(DType::F32)?.to_vec2::<f32>()?;
    if rows.len() != next.len() {
        return Err(ModelError::Request(format!("{} rows of logits for {} tokens", rows.len(), next.len())));
    }
    let mut sum = 0.0;
    for (row, token) in rows.iter().zip(next) {
        let Some(logit) = row.get(*token as usize) else {
            let text = format!("token {token} is outside of the model's vocabulary of {}", row.len());
            return Err(ModelError::Request(text));
        };
        let highest = f64::from(row.iter().copied().fold(f32::NEG_INFINITY, f32::max));
        let mass: f64 = row.iter().map(|logit| (f64::from(*logit) - highest).exp()).sum();
        sum += highest + mass.ln() - f64::from(*logit);
    }
    Ok(sum)
}
