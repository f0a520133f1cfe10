//! Text to tokens and back, and the chat form that instruction-tuned models expect.

use std::fs;
use std::path::Path;

use candle_core::quantized::gguf_file::{Content, Value as GgufValue};
use serde_json::Value;
use tokenizers::decoders::byte_level::ByteLevel as ByteLevelDecoder;
use tokenizers::models::bpe::BPE;
use tokenizers::normalizers::unicode::NFC;
use tokenizers::pre_tokenizers::PreTokenizerWrapper;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::tokenizer::SplitDelimiterBehavior;
use tokenizers::{AddedToken, Tokenizer};

use super::config::{Gguf, token_ids};
use super::error::{ModelError, Result};
use super::weights::Weights;

const START: &str = "<|im_start|>";
const END: &str = "<|im_end|>";

/// A model's tokenizer, with what its files say about chats and the ends of texts.
pub struct ChatTokenizer {
    inner: Tokenizer,
    eos: Vec<u32>,
    /// Put before a raw prompt, where the model wants it and the tokenizer does not do it.
    bos: Option<u32>,
    /// The system message that the chat template uses when none is given.
    default_system: Option<String>,
}

impl ChatTokenizer {
    /// The tokenizer of the model at `path`: `tokenizer.json` beside the weights, else the one inside the GGUF file.
    pub fn open(path: &Path, weights: &Weights) -> Result<Self> {
        let folder = if path.is_dir() { path } else { path.parent().unwrap_or(Path::new(".")) };
        let file = folder.join("tokenizer.json");
        let gguf = weights.gguf();
        let mut eos = weights.config().eos.clone();
        if !file.exists()
            && let Some(content) = gguf
        {
            return Self::from_gguf(content, &path.display().to_string(), eos);
        }
        let bytes = fs::read(&file).map_err(ModelError::io(&file))?;
        let inner = Tokenizer::from_bytes(&bytes).map_err(|source| ModelError::Format {
            path: file,
            format: "tokenizer",
            source,
        })?;
        let generation = optional_json(&folder.join("generation_config.json"))?;
        eos.extend(token_ids(generation.as_ref().and_then(|json| json.get("eos_token_id"))));
        let settings = optional_json(&folder.join("tokenizer_config.json"))?;
        let template = settings.as_ref().and_then(|json| json.get("chat_template")).and_then(Value::as_str);
        let default_system = template.and_then(default_system);
        Ok(Self::finish(inner, eos, None, default_system))
    }

    /// From the metadata of a GGUF file; `origin` names it in errors.
    pub fn from_gguf(content: &Content, origin: &str, eos: Vec<u32>) -> Result<Self> {
        let keys = Gguf { metadata: &content.metadata, origin };
        let model = keys.text("tokenizer.ggml.model")?;
        if model != "gpt2" {
            let what = format!("tokenizer {model:?}; only gpt2 (BPE) is read from GGUF, others need a tokenizer.json");
            return Err(ModelError::unsupported(origin, what));
        }
        let tokens = strings(&keys, "tokenizer.ggml.tokens")?;
        let merges = strings(&keys, "tokenizer.ggml.merges")?.into_iter().map(|merge| {
            let parts = merge.split_once(' ').map(|(left, right)| (left.to_owned(), right.to_owned()));
            parts.ok_or_else(|| ModelError::unsupported(origin, format!("merge {merge:?} is not two parts")))
        });
        let merges = merges.collect::<Result<Vec<_>>>()?;
        let numbered = |tokens: &[String]| -> Result<Vec<(String, u32)>> {
            let ids = tokens.iter().zip(0u32..).map(|(token, id)| (token.clone(), id)).collect::<Vec<_>>();
            if ids.len() == tokens.len() { Ok(ids) } else { Err(ModelError::unsupported(origin, "too many tokens")) }
        };
        let vocabulary: tokenizers::models::bpe::Vocab = numbered(&tokens)?.into_iter().collect();
        let (pre_tokenizer, whole_words, compose) = pre_tokenizer(keys.text("tokenizer.ggml.pre")?, origin)?;
        let bpe = BPE::builder().vocab_and_merges(vocabulary, merges).ignore_merges(whole_words).build();
        let mut inner = Tokenizer::new(bpe.map_err(ModelError::Tokenizer)?);
        if compose {
            inner.with_normalizer(Some(NFC)).map_err(ModelError::Tokenizer)?;
        }
        inner.with_pre_tokenizer(Some(pre_tokenizer));
        inner.with_decoder(Some(ByteLevelDecoder::default()));
        inner.add_special_tokens(control_tokens(&keys, &tokens)?).map_err(ModelError::Tokenizer)?;

        let wants_bos = matches!(content.metadata.get("tokenizer.ggml.add_bos_token"), Some(GgufValue::Bool(true)));
        let bos = if wants_bos { keys.optional_size("tokenizer.ggml.bos_token_id")? } else { None };
        let bos = bos.and_then(|id| u32::try_from(id).ok());
        let template = content.metadata.get("tokenizer.chat_template");
        let default_system = match template {
            Some(GgufValue::String(template)) => default_system(template),
            _ => None,
        };
        Ok(Self::finish(inner, eos, bos, default_system))
    }

    fn finish(mut inner: Tokenizer, mut eos: Vec<u32>, bos: Option<u32>, default_system: Option<String>) -> Self {
        // A user's text must not be able to close its own turn: only the chat form writes control tokens.
        inner.set_encode_special_tokens(true);
        // Chat models end a turn with it, whatever their files call the end of a text.
        eos.extend(inner.token_to_id(END));
        eos.sort_unstable();
        eos.dedup();
        Self { inner, eos, bos, default_system }
    }

    /// Tokens that end a text.
    pub fn eos(&self) -> &[u32] {
        &self.eos
    }

    /// The tokens of `text` as it is, control tokens read as plain text.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let encoding = self.inner.encode_fast(text, false).map_err(ModelError::Tokenizer)?;
        Ok(encoding.get_ids().to_vec())
    }

    /// A prompt to be continued, not answered.
    pub fn raw_prompt(&self, text: &str) -> Result<Vec<u32>> {
        let mut tokens = match self.bos {
            Some(bos) => vec![bos],
            None => Vec::new(),
        };
        let encoding = self.inner.encode_fast(text, true).map_err(ModelError::Tokenizer)?;
        tokens.extend(encoding.get_ids());
        Ok(tokens)
    }

    /// One user turn in `ChatML`, open for the answer. `system` stands in for the template's own system message.
    pub fn chat_prompt(&self, user: &str, system: Option<&str>) -> Result<Vec<u32>> {
        let control = |token| {
            let what = || format!("no token {token}: it has no ChatML chat form, give it a raw prompt");
            self.inner.token_to_id(token).ok_or_else(|| ModelError::unsupported("the model", what()))
        };
        let (start, end) = (control(START)?, control(END)?);
        let mut tokens = Vec::new();
        let system = system.or(self.default_system.as_deref()).map(|text| ("system", text));
        for (role, text) in system.into_iter().chain([("user", user)]) {
            tokens.push(start);
            tokens.extend(self.encode(&format!("{role}\n{text}"))?);
            tokens.push(end);
            tokens.extend(self.encode("\n")?);
        }
        tokens.push(start);
        tokens.extend(self.encode("assistant\n")?);
        Ok(tokens)
    }

    /// The text of `tokens`, control tokens left out.
    pub fn decode(&self, tokens: &[u32]) -> Result<String> {
        self.inner.decode(tokens, true).map_err(ModelError::Tokenizer)
    }

    /// Text as it comes, token by token.
    pub fn stream(&self) -> TextStream<'_> {
        TextStream { tokenizer: self, tokens: Vec::new(), shown: 0 }
    }
}

/// Turns tokens into text as they arrive. A character can take several tokens; it comes out when it is whole.
pub struct TextStream<'a> {
    tokenizer: &'a ChatTokenizer,
    /// Tokens since the last break, and how many bytes of their text were given out.
    tokens: Vec<u32>,
    shown: usize,
}

impl TextStream<'_> {
    /// The text that `token` completes, which may be empty.
    pub fn push(&mut self, token: u32) -> Result<String> {
        self.tokens.push(token);
        let text = self.tokenizer.decode(&self.tokens)?;
        // The mark of an incomplete character at the end: the rest of it may follow.
        if text.ends_with(char::REPLACEMENT_CHARACTER) {
            return Ok(String::new());
        }
        let new = text.get(self.shown..).unwrap_or_default().to_owned();
        if new.ends_with('\n') {
            self.tokens.clear();
            self.shown = 0;
        } else {
            self.shown = text.len();
        }
        Ok(new)
    }

    /// What is left at the end, incomplete characters as replacement marks.
    pub fn finish(self) -> Result<String> {
        let text = self.tokenizer.decode(&self.tokens)?;
        Ok(text.get(self.shown..).unwrap_or_default().to_owned())
    }
}

/// How text is cut before BPE, by the name that GGUF files use: the steps, whether a piece that is itself a token is
/// taken whole, and whether characters are composed first (NFC). An unknown name is an error, for a wrong cut gives
/// tokens that the model never saw.
fn pre_tokenizer(name: &str, origin: &str) -> Result<(PreTokenizerWrapper, bool, bool)> {
    const CONTRACTIONS_AND_WORDS: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+";
    const REST: &str = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    let byte_level = |own_split| ByteLevel::new(false, true, own_split);
    let split = |digits: &str| {
        let pattern = SplitPattern::Regex(format!("{CONTRACTIONS_AND_WORDS}|{digits}|{REST}"));
        Split::new(pattern, SplitDelimiterBehavior::Isolated, false).map_err(ModelError::Tokenizer)
    };
    let steps: Vec<PreTokenizerWrapper> = match name {
        "gpt-2" | "gpt2" => vec![byte_level(true).into()],
        "smollm" => vec![Digits::new(true).into(), byte_level(true).into()],
        "qwen2" => vec![split(r"\p{N}")?.into(), byte_level(false).into()],
        "llama-bpe" | "llama3" | "llama-v3" => vec![split(r"\p{N}{1,3}")?.into(), byte_level(false).into()],
        other => {
            let what = format!("pre-tokenizer {other:?}; known: gpt-2, smollm, qwen2, llama-bpe");
            return Err(ModelError::unsupported(origin, what));
        }
    };
    let llama3 = matches!(name, "llama-bpe" | "llama3" | "llama-v3");
    Ok((Sequence::new(steps).into(), llama3, name == "qwen2"))
}

/// The tokens that are never part of ordinary text (types 3, control, and 4, user-defined).
fn control_tokens(keys: &Gguf<'_>, tokens: &[String]) -> Result<Vec<AddedToken>> {
    const KEY: &str = "tokenizer.ggml.token_type";
    let kinds = match keys.metadata.get(KEY) {
        Some(GgufValue::Array(kinds)) if kinds.len() == tokens.len() => kinds,
        Some(other) => return Err(keys.bad(KEY, &format!("an array of {}", tokens.len()), other)),
        None => return Err(keys.missing(KEY)),
    };
    let control = |kind: &GgufValue| match kind {
        GgufValue::I32(kind) => Some(*kind == 3),
        GgufValue::U32(kind) => Some(*kind == 3),
        _ => None,
    };
    let user_defined = |kind: &GgufValue| matches!(kind, GgufValue::I32(4) | GgufValue::U32(4));
    let chosen = tokens.iter().zip(kinds).filter_map(|(token, kind)| match control(kind) {
        None => Some(Err(keys.bad(KEY, "whole numbers", kind))),
        Some(special) => (special || user_defined(kind)).then(|| Ok(AddedToken::from(token.clone(), special))),
    });
    chosen.collect()
}

fn strings(keys: &Gguf<'_>, key: &str) -> Result<Vec<String>> {
    let Some(value) = keys.metadata.get(key) else { return Err(keys.missing(key)) };
    let GgufValue::Array(values) = value else { return Err(keys.bad(key, "an array of strings", value)) };
    let text = |value: &GgufValue| match value {
        GgufValue::String(text) => Ok(text.clone()),
        other => Err(keys.bad(key, "an array of strings", other)),
    };
    values.iter().map(text).collect()
}

/// The system message that a `ChatML` template writes when the chat has none: the literal text of its system turn.
fn default_system(template: &str) -> Option<String> {
    // A template writes line breaks as themselves or, inside a Jinja string, as `\n`.
    let (_, after) = template
        .split_once(&format!("{START}system\n"))
        .or_else(|| template.split_once(&format!("{START}system\\n")))?;
    let (text, _) = after.split_once(END)?;
    // Quotes or braces mean that the template goes on to compute the text: there is no literal one.
    let literal = !text.is_empty() && !text.contains(['{', '}', '\'', '"', '+']);
    literal.then(|| text.replace("\\n", "\n"))
}

fn optional_json(path: &Path) -> Result<Option<Value>> {
    if !path.exists() {
        return Ok(None);
    }
    let text = fs::read_to_string(path).map_err(ModelError::io(path))?;
    let json = serde_json::from_str(&text).map_err(|source| ModelError::Format {
        path: path.to_owned(),
        format: "JSON",
        source: source.into(),
    })?;
    Ok(Some(json))
}
