//! The shape of a model, from a Hugging Face `config.json` or from GGUF metadata.

use std::collections::HashMap;

use candle_core::quantized::gguf_file::Value as GgufValue;
use serde_json::Value;

use super::error::{ModelError, Result};
use super::rope::RopeScaling;

/// A decoder of the Llama family.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent property of a model's files")]
pub struct Config {
    pub hidden: usize,
    pub intermediate: usize,
    pub layers: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub vocabulary: usize,
    pub max_positions: usize,
    pub rms_norm_eps: f32,
    pub rope_theta: f64,
    pub rope_scaling: RopeScaling,
    /// Whether the output projection is the embedding. `None`: it is when the files have no output projection.
    pub tied: Option<bool>,
    /// Norms over each head of Q and K (Qwen3).
    pub qk_norm: bool,
    /// Biases on Q, K and V (Qwen2).
    pub qkv_bias: bool,
    /// A bias on the attention's output projection.
    pub output_bias: bool,
    /// Whether the file's Q and K rows are in the order of interleaved `RoPE` (GGUF files of Llama).
    pub permuted_qk: bool,
    /// Tokens that end a text.
    pub eos: Vec<u32>,
}

impl Config {
    /// A model small enough to run everywhere, for tests and for a demo without downloads.
    pub fn tiny() -> Self {
        Self {
            hidden: 64,
            intermediate: 96,
            layers: 2,
            heads: 4,
            kv_heads: 2,
            head_dim: 16,
            vocabulary: 128,
            max_positions: 256,
            rms_norm_eps: 1e-5,
            rope_theta: 10_000.0,
            rope_scaling: RopeScaling::None,
            tied: Some(true),
            qk_norm: false,
            qkv_bias: false,
            output_bias: false,
            permuted_qk: false,
            eos: Vec::new(),
        }
    }

    /// A model with the layers of Qwen3-0.6B, 28 decoders with norms over each head of Q and of K, narrow enough to run
    /// in a moment.
    pub fn narrow_qwen3() -> Self {
        Self { layers: 28, rms_norm_eps: 1e-6, rope_theta: 1e6, qk_norm: true, ..Self::tiny() }
    }

    /// From the text of a `config.json`; `origin` names it in errors.
    pub fn from_json(text: &str, origin: &str) -> Result<Self> {
        let json: Value = serde_json::from_str(text).map_err(|source| ModelError::Format {
            path: origin.into(),
            format: "JSON",
            source: source.into(),
        })?;
        let keys = Json { json: &json, origin };
        let architecture = json.pointer("/architectures/0").and_then(Value::as_str).unwrap_or("none");
        let (qk_norm, qwen2) = match architecture {
            "LlamaForCausalLM" | "MistralForCausalLM" => (false, false),
            "Qwen2ForCausalLM" => (false, true),
            "Qwen3ForCausalLM" => (true, false),
            other => {
                let known = "LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM";
                return Err(ModelError::unsupported(origin, format!("architecture {other:?}; known: {known}")));
            }
        };
        keys.refuse_what_would_change_the_result(architecture)?;
        let (hidden, heads) = (keys.size("hidden_size")?, keys.size("num_attention_heads")?);
        let bias = json.get("attention_bias").and_then(Value::as_bool).unwrap_or(false);
        // Older files have `rope_theta` and `rope_scaling`, newer ones both in `rope_parameters`.
        let parameters = json.get("rope_parameters").filter(|value| !value.is_null());
        let theta = parameters.and_then(|table| table.get("rope_theta")).or_else(|| json.get("rope_theta"));
        let config = Self {
            hidden,
            intermediate: keys.size("intermediate_size")?,
            layers: keys.size("num_hidden_layers")?,
            heads,
            kv_heads: keys.optional_size("num_key_value_heads")?.unwrap_or(heads),
            head_dim: keys.optional_size("head_dim")?.unwrap_or_else(|| hidden.checked_div(heads).unwrap_or(0)),
            vocabulary: keys.size("vocab_size")?,
            max_positions: keys.size("max_position_embeddings")?,
            rms_norm_eps: keys.number("rms_norm_eps")? as f32,
            rope_theta: match theta {
                None | Some(Value::Null) => 10_000.0,
                Some(value) => value.as_f64().ok_or_else(|| keys.bad("rope_theta", "a number", value))?,
            },
            rope_scaling: RopeScaling::from_json(parameters.or_else(|| json.get("rope_scaling")), origin)?,
            tied: Some(json.get("tie_word_embeddings").and_then(Value::as_bool).unwrap_or(false)),
            qk_norm,
            qkv_bias: bias || qwen2,
            output_bias: bias,
            permuted_qk: false,
            eos: token_ids(json.get("eos_token_id")),
        };
        config.checked(origin)
    }

    /// From the metadata of a GGUF file; `origin` names it in errors.
    pub fn from_gguf(metadata: &HashMap<String, GgufValue>, origin: &str) -> Result<Self> {
        let keys = Gguf { metadata, origin };
        let architecture = keys.text("general.architecture")?;
        let (permuted_qk, qk_norm) = match architecture {
            "llama" => (true, false),
            "qwen2" => (false, false),
            "qwen3" => (false, true),
            other => {
                let what = format!("architecture {other:?}; known: llama, qwen2, qwen3");
                return Err(ModelError::unsupported(origin, what));
            }
        };
        let key = |name: &str| format!("{architecture}.{name}");
        if keys.optional_size(&key("expert_count"))?.is_some_and(|count| count > 0) {
            return Err(ModelError::unsupported(origin, "mixture-of-experts models are not supported"));
        }
        let (hidden, heads) = (keys.size(&key("embedding_length"))?, keys.size(&key("attention.head_count"))?);
        let head_dim = match keys.optional_size(&key("attention.key_length"))? {
            Some(length) => length,
            None => hidden.checked_div(heads).unwrap_or(0),
        };
        if let Some(rotated) = keys.optional_size(&key("rope.dimension_count"))?
            && rotated != head_dim
        {
            let what = format!("rotates {rotated} of {head_dim} elements of a head; partial rotation is not supported");
            return Err(ModelError::unsupported(origin, what));
        }
        let vocabulary = match metadata.get("tokenizer.ggml.tokens") {
            Some(GgufValue::Array(tokens)) => tokens.len(),
            _ => keys.size(&key("vocab_size"))?,
        };
        let config = Self {
            hidden,
            intermediate: keys.size(&key("feed_forward_length"))?,
            layers: keys.size(&key("block_count"))?,
            heads,
            kv_heads: keys.optional_size(&key("attention.head_count_kv"))?.unwrap_or(heads),
            head_dim,
            vocabulary,
            max_positions: keys.size(&key("context_length"))?,
            rms_norm_eps: keys.number(&key("attention.layer_norm_rms_epsilon"))? as f32,
            rope_theta: match metadata.get(&key("rope.freq_base")) {
                None => 10_000.0,
                Some(_) => keys.number(&key("rope.freq_base"))?,
            },
            rope_scaling: RopeScaling::from_gguf(metadata, architecture, origin)?,
            tied: None,
            qk_norm,
            qkv_bias: architecture == "qwen2",
            output_bias: false,
            permuted_qk,
            eos: keys
                .optional_size("tokenizer.ggml.eos_token_id")?
                .and_then(|id| id.try_into().ok())
                .into_iter()
                .collect(),
        };
        config.checked(origin)
    }

    /// Refuses sizes that no layer could be built from.
    fn checked(self, origin: &str) -> Result<Self> {
        let refuse = |what: String| Err(ModelError::unsupported(origin, what));
        let sizes = [
            ("hidden size", self.hidden),
            ("feed-forward size", self.intermediate),
            ("layers", self.layers),
            ("heads", self.heads),
            ("key-value heads", self.kv_heads),
            ("head size", self.head_dim),
            ("vocabulary", self.vocabulary),
            ("context length", self.max_positions),
        ];
        if self.max_positions > 1 << 22 {
            return refuse(format!("context length is {}", self.max_positions));
        }
        // Far above any model; keeps products of two sizes within the address space.
        if let Some((name, size)) = sizes.into_iter().find(|(_, size)| *size == 0 || *size > 1 << 28) {
            return refuse(format!("{name} is {size}"));
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            return refuse(format!("{} heads cannot be divided among {} key-value heads", self.heads, self.kv_heads));
        }
        if !self.head_dim.is_multiple_of(2) {
            return refuse(format!("a head of {} elements cannot be rotated in pairs", self.head_dim));
        }
        if !(self.rope_theta.is_finite() && self.rope_theta > 0.0 && self.rms_norm_eps.is_finite()) {
            return refuse(format!(
                "rope theta {} or norm epsilon {} is no usable number",
                self.rope_theta, self.rms_norm_eps
            ));
        }
        Ok(self)
    }
}

/// One id or a list of ids, as `eos_token_id` comes in configuration files.
pub fn token_ids(value: Option<&Value>) -> Vec<u32> {
    let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
    match value {
        Some(Value::Array(ids)) => ids.iter().filter_map(id).collect(),
        Some(one) => id(one).into_iter().collect(),
        None => Vec::new(),
    }
}

struct Json<'a> {
    json: &'a Value,
    origin: &'a str,
}

impl Json<'_> {
    fn bad(&self, key: &str, expected: &str, actual: &Value) -> ModelError {
        let (origin, actual) = (self.origin.to_owned(), actual.to_string());
        ModelError::BadValue { origin, key: key.to_owned(), expected: expected.to_owned(), actual }
    }

    fn optional_size(&self, key: &str) -> Result<Option<usize>> {
        match self.json.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => {
                let size = value.as_u64().and_then(|size| usize::try_from(size).ok());
                size.map(Some).ok_or_else(|| self.bad(key, "a whole number", value))
            }
        }
    }

    fn size(&self, key: &str) -> Result<usize> {
        self.optional_size(key)?.ok_or_else(|| self.missing(key))
    }

    fn number(&self, key: &str) -> Result<f64> {
        let value = self.json.get(key).ok_or_else(|| self.missing(key))?;
        value.as_f64().ok_or_else(|| self.bad(key, "a number", value))
    }

    fn missing(&self, key: &str) -> ModelError {
        ModelError::MissingKey { origin: self.origin.to_owned(), key: key.to_owned() }
    }

    /// Options that this model does not implement: running on without them would give wrong text.
    fn refuse_what_would_change_the_result(&self, architecture: &str) -> Result<()> {
        let set = |key: &str| self.json.get(key).is_some_and(|value| !value.is_null() && value != &Value::Bool(false));
        // Qwen2 and Qwen3 carry a window's size that counts only with `use_sliding_window`.
        let window = set("use_sliding_window") || (architecture == "MistralForCausalLM" && set("sliding_window"));
        let activation = self.json.get("hidden_act").and_then(Value::as_str).unwrap_or("silu");
        let partial = self.json.get("partial_rotary_factor").and_then(Value::as_f64).is_some_and(|part| part < 1.0);
        let refused = [
            (window, "sliding-window attention is not supported".to_owned()),
            (set("quantization_config"), "quantized safetensors are not supported".to_owned()),
            (set("mlp_bias"), "biases in the feed-forward block are not supported".to_owned()),
            (partial, "partial rotation is not supported".to_owned()),
            (activation != "silu", format!("activation {activation:?}; only silu is supported")),
        ];
        match refused.into_iter().find(|(refuse, _)| *refuse) {
            Some((_, what)) => Err(ModelError::unsupported(self.origin, what)),
            None => Ok(()),
        }
    }
}

/// Typed look-ups in GGUF metadata.
pub struct Gguf<'a> {
    pub metadata: &'a HashMap<String, GgufValue>,
    pub origin: &'a str,
}

impl<'a> Gguf<'a> {
    pub fn missing(&self, key: &str) -> ModelError {
        ModelError::MissingKey { origin: self.origin.to_owned(), key: key.to_owned() }
    }

    pub fn bad(&self, key: &str, expected: &str, actual: &GgufValue) -> ModelError {
        // An array may be a whole vocabulary.
        let actual = match actual {
            GgufValue::Array(values) => format!("an array of {}", values.len()),
            other => format!("{other:?}"),
        };
        let origin = self.origin.to_owned();
        ModelError::BadValue { origin, key: key.to_owned(), expected: expected.to_owned(), actual }
    }

    pub fn text(&self, key: &str) -> Result<&'a str> {
        match self.metadata.get(key) {
            Some(GgufValue::String(text)) => Ok(text),
            Some(other) => Err(self.bad(key, "a string", other)),
            None => Err(self.missing(key)),
        }
    }

    pub fn optional_size(&self, key: &str) -> Result<Option<usize>> {
        let Some(value) = self.metadata.get(key) else { return Ok(None) };
        let size = match *value {
            GgufValue::U8(n) => Some(u64::from(n)),
            GgufValue::U16(n) => Some(u64::from(n)),
            GgufValue::U32(n) => Some(u64::from(n)),
            GgufValue::U64(n) => Some(n),
            GgufValue::I8(n) => n.try_into().ok(),
            GgufValue::I16(n) => n.try_into().ok(),
            GgufValue::I32(n) => n.try_into().ok(),
            GgufValue::I64(n) => n.try_into().ok(),
            _ => None,
        };
        let size = size.and_then(|size| usize::try_from(size).ok());
        size.map(Some).ok_or_else(|| self.bad(key, "a whole number", value))
    }

    pub fn size(&self, key: &str) -> Result<usize> {
        self.optional_size(key)?.ok_or_else(|| self.missing(key))
    }

    pub fn number(&self, key: &str) -> Result<f64> {
        match self.metadata.get(key) {
            Some(GgufValue::F32(number)) => Ok(f64::from(*number)),
            Some(GgufValue::F64(number)) => Ok(*number),
            Some(other) => Err(self.bad(key, "a floating-point number", other)),
            None => Err(self.missing(key)),
        }
    }
}
