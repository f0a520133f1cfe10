//! What rounding does to the model: its perplexity on a text, and where its greedy answers part.

use anyhow::ensure;
use candle_core::{DType, Tensor};
use kernelhub::hub::Hub;
use kernelhub::swap::KernelConfig;
use serde::Serialize;

use super::llama::model::Llama;
use super::llama::perplexity::foretell;
use super::llama::tokenizer::ChatTokenizer;

/// A text of this project's own, which no model was trained on.
const TEXT: &str = include_str!("text.txt");
const CHUNK: usize = 64;
/// How far kernels may move the perplexity from that of candle in f32.
const TOLERANCE: f64 = 0.005;

/// Perplexities on the text.
#[derive(Serialize)]
pub struct Perplexity {
    /// Tokens that were foretold.
    pub tokens: usize,
    pub off: f64,
    pub on: f64,
    /// Kernels on, one token to a forward, as in decoding.
    pub on_by_token: f64,
    /// candle in f32: what the others are held to.
    pub off_f32: f64,
}

impl Perplexity {
    /// `perplexity` against candle's in f32, in per cent.
    pub fn change(&self, perplexity: f64) -> f64 {
        (perplexity / self.off_f32 - 1.0) * 100.0
    }
}

/// The model's perplexity with kernels off and on, beside that of `wide`, the same model in f32; `None`: it is in f32
/// itself. Without a tokenizer the text is some numbers, of which a random model knows nothing.
pub fn perplexity(
    model: &Llama,
    wide: Option<&Llama>,
    tokenizer: Option<&ChatTokenizer>,
    (hub, config): (&Hub, &KernelConfig),
) -> anyhow::Result<Perplexity> {
    let tokens = match tokenizer {
        Some(tokenizer) => tokenizer.raw_prompt(TEXT)?,
        None => (0..64_u32).map(|id| id * 7 % 128).collect(),
    };
    model.disable_kernels();
    let off = foretell(model, &tokens, CHUNK)?;
    let wide = wide.map_or(Ok(off), |wide| foretell(wide, &tokens, CHUNK))?;
    model.use_kernels(hub, config)?;
    let (on, on_by_token) = (foretell(model, &tokens, CHUNK)?, foretell(model, &tokens, 1)?);
    let perplexity = Perplexity {
        tokens: off.tokens,
        off: off.perplexity(),
        on: on.perplexity(),
        on_by_token: on_by_token.perplexity(),
        off_f32: wide.perplexity(),
    };
    for (how, on) in [("", perplexity.on), (", token by token,", perplexity.on_by_token)] {
        let change = perplexity.change(on);
        ensure!(
            change.abs() <= TOLERANCE * 100.0,
            "kernels on{how} have a perplexity of {on:.4}, {change:+.2}% from candle's in f32, {:.4}",
            perplexity.off_f32
        );
    }
    Ok(perplexity)
}

/// Where a model, led along an answer, would have said something else.
#[derive(Serialize)]
pub struct Parting {
    /// Index of the token in the answer.
    pub at: usize,
    pub answer: u32,
    pub own: u32,
    /// By how much the model's own token is ahead, in units of the last place of its logit.
    pub ahead: f64,
}

/// Most units of the last place by which a token of one's own may be ahead of the answer's, in a type narrower than
/// f32: its rounding decides between such tokens, in candle's code as in any other.
const AHEAD: f64 = 2.0;

/// Leads the model along `prompt` and `answer` as it stands, and tells where its own choice is another. In bf16 the two
/// likeliest tokens can have the very same logit.
pub fn partings(model: &Llama, prompt: &[u32], answer: &[u32]) -> anyhow::Result<Vec<Parting>> {
    let all: Vec<u32> = prompt.iter().chain(answer).copied().collect();
    let mut cache = model.cache(all.len());
    let mut partings = Vec::new();
    let mut next = prompt;
    for (at, token) in answer.iter().enumerate() {
        let logits = model.forward(&Tensor::new(next, model.device())?.unsqueeze(0)?, &mut cache)?.squeeze(0)?;
        let logits: Vec<f32> = logits.to_dtype(DType::F32)?.to_vec1()?;
        let best = (0..logits.len()).reduce(|best, at| if logits[at] > logits[best] { at } else { best });
        let best = best.unwrap_or_default();
        if best != *token as usize {
            let (own, given) = (logits[best], logits[*token as usize]);
            let ahead = f64::from(own - given) / last_place(own, model.dtype());
            partings.push(Parting { at, answer: *token, own: u32::try_from(best)?, ahead });
        }
        next = std::slice::from_ref(token);
    }
    // Numbers that are none are far, too.
    let is_near = |ahead: f64| ahead <= AHEAD;
    let far = partings.iter().find(|parting| !is_near(parting.ahead));
    if let Some(Parting { at, answer, own, ahead }) = far {
        anyhow::bail!("token {at} of the answer is {answer}, and the model says {own}, {ahead} last places ahead");
    }
    Ok(partings)
}

/// The distance of `value` from the next number of `dtype`.
fn last_place(value: f32, dtype: DType) -> f64 {
    let mantissa = match dtype {
        DType::BF16 => 7,
        DType::F16 => 10,
        _ => 23,
    };
    // The exponent of the value's power of two.
    let exponent = i32::try_from(value.to_bits() >> 23 & 0xff).unwrap_or_default() - 127;
    2.0_f64.powi(exponent - mantissa)
}
