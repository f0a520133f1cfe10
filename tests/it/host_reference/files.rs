//! Model files: the two formats give the same model, and a bad one says what is wrong with it.

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::Path;

use candle_core::quantized::gguf_file::{self, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{DType, Device, Tensor};
use serde_json::json;

use super::{assert_close, flat};
use crate::llama::config::Config;
use crate::llama::model::Llama;
use crate::llama::tokenizer::ChatTokenizer;
use crate::llama::weights::Weights;

const SEED: u64 = 11;

fn untied() -> Config {
    Config { tied: Some(false), ..Config::tiny() }
}

fn logits(model: &Llama) -> Vec<f64> {
    let tokens = Tensor::new(&[[3u32, 1, 4, 1, 5]], &Device::Cpu).unwrap();
    flat(&model.forward_all(&tokens, None).unwrap())
}

/// The tensors of the random model, by name and apart.
fn tensors() -> HashMap<String, Tensor> {
    let weights = Weights::random(untied(), SEED, DType::F32, &Device::Cpu).trainable();
    Llama::load(&weights).unwrap();
    let mut tensors = HashMap::new();
    for (names, variable) in weights.variables() {
        let (parts, mut start) = (names.split('+').collect::<Vec<_>>(), 0);
        for part in &parts {
            // Of what was joined, the keys' and the values' projections are narrower than the rest.
            let rows = match (parts.len(), part.contains(".k_proj.") || part.contains(".v_proj.")) {
                (3, true) => 32,
                (3, false) => 64,
                (count, _) => variable.dim(0).unwrap() / count,
            };
            let rows_of = variable.as_tensor().narrow(0, start, rows).unwrap();
            tensors.insert((*part).to_owned(), rows_of.force_contiguous().unwrap());
            start += rows;
        }
        assert_eq!(start, variable.dim(0).unwrap(), "{names}");
    }
    tensors
}

fn config_json() -> serde_json::Value {
    json!({
        "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 128, "max_position_embeddings": 256,
        "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": false, "eos_token_id": [1, 2]
    })
}

fn open(path: &Path) -> Result<Llama, String> {
    let load = || Llama::load(&Weights::open(path, DType::F32, &Device::Cpu)?);
    load().map_err(|error| error.to_string())
}

fn folder(config: &serde_json::Value, shards: &[(&str, HashMap<String, Tensor>)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    for (name, tensors) in shards {
        candle_core::safetensors::save(tensors, folder.path().join(name)).unwrap();
    }
    folder
}

#[test]
fn safetensors_whole_and_in_shards() {
    let expected = logits(&Llama::random(untied(), SEED, DType::F32, &Device::Cpu).unwrap());
    let whole = folder(&config_json(), &[("model.safetensors", tensors())]);
    assert_eq!(logits(&open(whole.path()).unwrap()), expected);

    let (first, second): (HashMap<_, _>, HashMap<_, _>) =
        tensors().into_iter().partition(|(name, _)| name.contains("layers.0"));
    let map: HashMap<_, _> = (first.keys().map(|name| (name.clone(), "a.safetensors")))
        .chain(second.keys().map(|name| (name.clone(), "b.safetensors")))
        .collect();
    let sharded = folder(&config_json(), &[("a.safetensors", first), ("b.safetensors", second)]);
    let index = sharded.path().join("model.safetensors.index.json");
    fs::write(&index, json!({ "weight_map": map }).to_string()).unwrap();
    assert_eq!(logits(&open(sharded.path()).unwrap()), expected);

    fs::write(&index, json!({ "weight_map": { "x": "../other.safetensors" } }).to_string()).unwrap();
    assert!(open(sharded.path()).err().unwrap().ends_with("is not a valid safetensors index file"));
}

#[test]
fn a_bad_folder_says_what_is_missing() {
    let mut lacking = tensors();
    lacking.remove("model.layers.1.self_attn.k_proj.weight");
    let missing = folder(&config_json(), &[("model.safetensors", lacking)]);
    let text = open(missing.path()).err().unwrap();
    assert!(text.ends_with("has no tensor \"model.layers.1.self_attn.k_proj.weight\""), "{text}");

    let mut wrong = tensors();
    wrong.insert("model.norm.weight".to_owned(), Tensor::zeros(63, DType::F32, &Device::Cpu).unwrap());
    let text = open(folder(&config_json(), &[("model.safetensors", wrong)]).path()).err().unwrap();
    assert!(text.ends_with("tensor \"model.norm.weight\" must be [64], got [63]"), "{text}");

    let empty = tempfile::tempdir().unwrap();
    assert!(open(empty.path()).err().unwrap().starts_with("cannot read"));
    fs::write(empty.path().join("config.json"), config_json().to_string()).unwrap();
    fs::write(empty.path().join("model.safetensors"), b"not tensors").unwrap();
    assert!(open(empty.path()).err().unwrap().ends_with("model.safetensors is not a valid safetensors file"));
}

#[test]
fn a_config_that_would_give_wrong_text_is_refused() {
    let refused = |key: &str, value: serde_json::Value| {
        let mut config = config_json();
        config[key] = value;
        Config::from_json(&config.to_string(), "config.json").unwrap_err().to_string()
    };
    assert_eq!(refused("hidden_size", json!(null)), "config.json has no \"hidden_size\"");
    assert_eq!(refused("hidden_size", json!("64")), "config.json: \"hidden_size\" must be a whole number, got \"64\"");
    assert!(refused("architectures", json!(["GPT2LMHeadModel"])).contains("architecture \"GPT2LMHeadModel\"; known: "));
    assert!(refused("rope_scaling", json!({ "rope_type": "yarn", "factor": 4.0 })).contains("rope scaling \"yarn\""));
    assert!(refused("rope_scaling", json!({ "type": "linear" })).contains("rope_scaling.factor"));
    assert!(refused("hidden_act", json!("gelu")).contains("activation \"gelu\""));
    assert!(refused("use_sliding_window", json!(true)).contains("sliding-window"));
    assert!(refused("quantization_config", json!({})).contains("quantized safetensors"));
    assert!(refused("num_attention_heads", json!(0)).contains("is 0"));
    assert!(refused("num_key_value_heads", json!(3)).contains("4 heads cannot be divided among 3"));
    assert!(refused("head_dim", json!(15)).contains("15 elements cannot be rotated in pairs"));
    assert!(Config::from_json("{", "config.json").unwrap_err().to_string().contains("not a valid JSON file"));
    let config = Config::from_json(&config_json().to_string(), "config.json").unwrap();
    assert_eq!(config, Config { eos: vec![1, 2], ..untied() });
}

fn metadata() -> Vec<(&'static str, Value)> {
    // Byte-level characters of printable ASCII stand for themselves; \u{120} for a space, \u{10a} for a line break.
    let mut tokens: Vec<String> =
        ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "\u{120}", "\u{10a}", "12", "he"].map(str::to_owned).to_vec();
    tokens.extend((b'!'..=b'~').map(|byte| char::from(byte).to_string()));
    tokens.extend((tokens.len()..128).map(|id| format!("unused {id}")));
    let kinds = (0..128).map(|id| Value::I32(if id < 3 { 3 } else { 1 })).collect();
    let texts = |texts: &[&str]| Value::Array(texts.iter().map(|text| Value::String((*text).to_owned())).collect());
    let template = "{{ '<|im_start|>system\nBe kind<|im_end|>\n' }}";
    vec![
        ("general.architecture", Value::String("llama".to_owned())),
        ("llama.embedding_length", Value::U32(64)),
        ("llama.feed_forward_length", Value::U32(96)),
        ("llama.block_count", Value::U32(2)),
        ("llama.attention.head_count", Value::U32(4)),
        ("llama.attention.head_count_kv", Value::U32(2)),
        ("llama.context_length", Value::U32(256)),
        ("llama.attention.layer_norm_rms_epsilon", Value::F32(1e-5)),
        ("tokenizer.ggml.model", Value::String("gpt2".to_owned())),
        ("tokenizer.ggml.pre", Value::String("smollm".to_owned())),
        ("tokenizer.ggml.tokens", Value::Array(tokens.into_iter().map(Value::String).collect())),
        ("tokenizer.ggml.token_type", Value::Array(kinds)),
        ("tokenizer.ggml.merges", texts(&["1 2", "h e"])),
        ("tokenizer.ggml.eos_token_id", Value::U32(0)),
        ("tokenizer.chat_template", Value::String(template.to_owned())),
    ]
}

/// A Llama GGUF file as llama.cpp's converter lays it out: other names, and pairs of Q and K rows side by side.
fn gguf(folder: &Path, metadata: &[(&'static str, Value)], left_out: &str) -> std::path::PathBuf {
    let names = [
        ("model.embed_tokens", "token_embd"),
        ("model.norm", "output_norm"),
        ("lm_head", "output"),
        ("model.layers", "blk"),
        ("input_layernorm", "attn_norm"),
        ("post_attention_layernorm", "ffn_norm"),
        ("self_attn.q_proj", "attn_q"),
        ("self_attn.k_proj", "attn_k"),
        ("self_attn.v_proj", "attn_v"),
        ("self_attn.o_proj", "attn_output"),
        ("mlp.gate_proj", "ffn_gate"),
        ("mlp.up_proj", "ffn_up"),
        ("mlp.down_proj", "ffn_down"),
    ];
    let renamed = |name: &str| names.iter().fold(name.to_owned(), |name, (from, to)| name.replace(from, to));
    let stored: Vec<_> = tensors()
        .into_iter()
        .map(|(name, tensor)| {
            let heads = if name.contains("q_proj") { 4 } else { 2 };
            let tensor = if name.contains("q_proj") || name.contains("k_proj") {
                let halves = tensor.reshape((heads, 2, 8, 64)).unwrap();
                halves.transpose(1, 2).unwrap().contiguous().unwrap().reshape(tensor.dims()).unwrap()
            } else {
                tensor
            };
            (renamed(&name), QTensor::quantize(&tensor, GgmlDType::F32).unwrap())
        })
        .filter(|(name, _)| name != left_out)
        .collect();
    let path = folder.join("model.gguf");
    let metadata: Vec<_> = metadata.iter().map(|(key, value)| (*key, value)).collect();
    let tensors: Vec<_> = stored.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    gguf_file::write(&mut File::create(&path).unwrap(), &metadata, &tensors).unwrap();
    path
}

#[test]
fn gguf_gives_the_same_model() {
    let folder = tempfile::tempdir().unwrap();
    let path = gguf(folder.path(), &metadata(), "");
    let expected = Llama::random(untied(), SEED, DType::F32, &Device::Cpu).unwrap();
    let tokens = Tensor::new(&[[3u32, 1, 4, 1, 5]], &Device::Cpu).unwrap();
    let actual = open(&path).unwrap().forward_all(&tokens, None).unwrap();
    assert_close(&actual, &logits(&expected), 1e-5, "from GGUF");
    // Without an output projection, the embedding serves.
    let path = gguf(folder.path(), &metadata(), "output.weight");
    assert_ne!(logits(&open(&path).unwrap()), logits(&expected));
}

#[test]
fn a_bad_gguf_says_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let text = open(&gguf(folder.path(), &metadata(), "blk.1.ffn_up.weight")).err().unwrap();
    assert!(text.ends_with("has no tensor \"blk.1.ffn_up.weight\""), "{text}");
    for key in ["general.architecture", "llama.block_count", "llama.attention.layer_norm_rms_epsilon"] {
        let metadata: Vec<_> = metadata().into_iter().filter(|(name, _)| *name != key).collect();
        let text = open(&gguf(folder.path(), &metadata, "")).err().unwrap();
        assert!(text.ends_with(&format!("has no {key:?}")), "{text}");
    }
    let whole = fs::read(gguf(folder.path(), &metadata(), "")).unwrap();
    let path = folder.path().join("cut.gguf");
    for length in [0, 3, 20, 500, whole.len() / 2, whole.len() - 40] {
        fs::write(&path, &whole[..length]).unwrap();
        let text = open(&path).err().unwrap();
        assert!(text.contains("is not a valid GGUF file") || text.contains("cannot be read"), "{length}: {text}");
    }
}

fn tokenizer(folder: &Path, metadata: &[(&'static str, Value)]) -> Result<ChatTokenizer, String> {
    let path = gguf(folder, metadata, "");
    let weights = Weights::open(&path, DType::F32, &Device::Cpu).unwrap();
    ChatTokenizer::open(&path, &weights).map_err(|error| error.to_string())
}

#[test]
fn a_tokenizer_inside_a_gguf_file() {
    let folder = tempfile::tempdir().unwrap();
    let smollm = tokenizer(folder.path(), &metadata()).unwrap();
    let of = |text: &str| smollm.encode(text).unwrap();
    // "he" is merged, "12" is not: digits stand alone. Neither a leading space nor anything else is added.
    assert_eq!(of("he"), [6]);
    assert_eq!(of("12").len(), 2);
    assert_eq!(smollm.decode(&of("he said 12\n!")).unwrap(), "he said 12\n!");
    assert_eq!(smollm.eos(), [0, 2]);

    // The template's own system turn, then the user's, who cannot write control tokens.
    let prompt = smollm.chat_prompt("<|im_end|>", None).unwrap();
    assert_eq!(prompt.iter().filter(|token| **token == 1).count(), 3);
    assert_eq!(prompt.iter().filter(|token| **token == 2).count(), 2);
    let text = smollm.decode(&prompt).unwrap();
    assert_eq!(text, "system\nBe kind\nuser\n<|im_end|>\nassistant\n");
    let own = smollm.chat_prompt("hi", Some("Be brief")).unwrap();
    assert_eq!(smollm.decode(&own).unwrap(), "system\nBe brief\nuser\nhi\nassistant\n");

    let mut other = metadata();
    other.iter_mut().filter(|(key, _)| *key == "tokenizer.ggml.pre").for_each(|(_, value)| {
        *value = Value::String("gpt-2".to_owned());
    });
    assert_eq!(tokenizer(folder.path(), &other).unwrap().encode("12").unwrap(), [5]);
    other.iter_mut().filter(|(key, _)| *key == "tokenizer.ggml.pre").for_each(|(_, value)| {
        *value = Value::String("unheard-of".to_owned());
    });
    assert!(tokenizer(folder.path(), &other).err().unwrap().contains("pre-tokenizer \"unheard-of\"; known: "));
}

#[test]
fn text_streams_in_whole_characters() {
    let folder = tempfile::tempdir().unwrap();
    // The bytes of U+00E9, C3 A9, are two tokens: the byte-level characters U+00C3 and U+00A9.
    let mut own = metadata();
    for (key, value) in &mut own {
        if let ("tokenizer.ggml.tokens", Value::Array(tokens)) = (*key, value) {
            tokens[126] = Value::String("\u{c3}".to_owned());
            tokens[127] = Value::String("\u{a9}".to_owned());
        }
    }
    let tokenizer = tokenizer(folder.path(), &own).unwrap();
    let tokens = tokenizer.encode("he\u{e9} \n\u{e9}").unwrap();
    let mut stream = tokenizer.stream();
    let pieces: Vec<_> = tokens.iter().map(|token| stream.push(*token).unwrap()).collect();
    assert_eq!(pieces, ["he", "", "\u{e9}", " ", "\n", "", "\u{e9}"]);
    assert_eq!(stream.finish().unwrap(), "");
    let mut cut = tokenizer.stream();
    assert_eq!(cut.push(126).unwrap(), "");
    assert_eq!(cut.finish().unwrap(), "\u{fffd}");
}
