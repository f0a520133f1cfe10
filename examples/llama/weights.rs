//! A model's tensors, by their Hugging Face names, from safetensors, GGUF or a seed.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use candle_core::quantized::gguf_file::Content;
use candle_core::safetensors::BufferedSafetensors;
use candle_core::{DType, Device, Tensor, Var};
use kernelhub::host::candle::use_huge_pages;

use super::config::Config;
use super::error::{ModelError, Result};
use super::rope::RopeScaling;
use super::sampler::Random;

/// Where a model's tensors come from. Tensors are read one by one, so that dropping this frees what is left.
pub struct Weights {
    source: Source,
    config: Config,
    origin: String,
    dtype: DType,
    device: Device,
    /// Bytes moved into huge pages, where that was asked for.
    huge: Option<Mutex<usize>>,
    /// Set by [`trainable`](Self::trainable): every tensor handed out, as a variable.
    variables: Option<Mutex<Vec<(String, Var)>>>,
}

enum Source {
    Gguf {
        content: Content,
        file: Mutex<BufReader<File>>,
    },
    Safetensors {
        shards: Vec<BufferedSafetensors>,
        shard_of: HashMap<String, usize>,
    },
    Random {
        random: Mutex<Random>,
    },
    /// One element, seen as every tensor that is asked for.
    Outline,
}

impl Weights {
    /// Opens a GGUF file, or a folder with `config.json` and safetensors. Tensors will be of `dtype`, on `device`.
    pub fn open(path: &Path, dtype: DType, device: &Device) -> Result<Self> {
        let metadata = fs::metadata(path).map_err(ModelError::io(path))?;
        if metadata.is_dir() { Self::open_folder(path, dtype, device) } else { Self::open_gguf(path, dtype, device) }
    }

    /// Random weights of the size that keeps activations near 1; the same for the same seed.
    pub fn random(config: Config, seed: u64, dtype: DType, device: &Device) -> Self {
        let source = Source::Random { random: Mutex::new(Random::new(seed)) };
        Self {
            source,
            config,
            origin: "random weights".to_owned(),
            dtype,
            device: device.clone(),
            huge: None,
            variables: None,
        }
    }

    /// Tensors of the right shapes that hold one element each, however large they are: for a model that is planned and
    /// never run.
    pub fn outline(config: Config, dtype: DType) -> Self {
        let (source, device) = (Source::Outline, Device::Cpu);
        Self { source, config, origin: "no weights".to_owned(), dtype, device, huge: None, variables: None }
    }

    /// Hands out variables from here on, for training. They are collected in [`variables`](Self::variables).
    #[must_use]
    pub fn trainable(mut self) -> Self {
        self.variables = Some(Mutex::default());
        self
    }

    /// Moves the tensors that are handed out from here on into huge pages: loading takes longer, and running less.
    #[must_use]
    pub fn in_huge_pages(mut self) -> Self {
        self.huge = Some(Mutex::default());
        self
    }

    /// Bytes of tensors in huge pages.
    pub fn huge_bytes(&self) -> usize {
        self.huge.as_ref().map_or(0, |bytes| *bytes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The variables handed out so far, with their names; a fused weight has the names of its parts, joined by `+`.
    pub fn variables(&self) -> Vec<(String, Var)> {
        let variables = self.variables.as_ref().map(|list| list.lock().unwrap_or_else(PoisonError::into_inner).clone());
        variables.unwrap_or_default()
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    pub fn dtype(&self) -> DType {
        self.dtype
    }

    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Metadata of the GGUF file, if it is one.
    pub fn gguf(&self) -> Option<&Content> {
        match &self.source {
            Source::Gguf { content, .. } => Some(content),
            _ => None,
        }
    }

    /// Whether there is a tensor of that name. Random weights have whatever is asked for, but no separate output
    /// projection unless the configuration says so.
    pub fn contains(&self, name: &str) -> bool {
        match &self.source {
            Source::Gguf { content, .. } => {
                gguf_name(name).is_some_and(|name| content.tensor_infos.contains_key(&name))
            }
            Source::Safetensors { shard_of, .. } => shard_of.contains_key(name),
            Source::Random { .. } | Source::Outline => true,
        }
    }

    /// The tensor `name`, which must have `shape`.
    pub fn tensor(&self, name: &str, shape: &[usize]) -> Result<Tensor> {
        let tensor = self.read(name, shape)?;
        self.hand_out(name, tensor)
    }

    /// Several tensors as one, joined along their rows.
    pub fn fused(&self, parts: &[(&str, &[usize])]) -> Result<Tensor> {
        if let (Source::Outline, [(name, first), ..]) = (&self.source, parts) {
            let mut shape = first.to_vec();
            if let Some(rows) = shape.first_mut() {
                *rows = parts.iter().filter_map(|(_, shape)| shape.first()).sum();
            }
            return self.read(name, &shape);
        }
        let tensors = parts.iter().map(|(name, shape)| self.read(name, shape)).collect::<Result<Vec<_>>>()?;
        let names: Vec<_> = parts.iter().map(|(name, _)| *name).collect();
        self.hand_out(&names.join("+"), Tensor::cat(&tensors, 0)?)
    }

    fn hand_out(&self, name: &str, tensor: Tensor) -> Result<Tensor> {
        if let Some(bytes) = &self.huge {
            *bytes.lock().unwrap_or_else(PoisonError::into_inner) += use_huge_pages(&tensor);
        }
        let Some(variables) = &self.variables else { return Ok(tensor) };
        let variable = Var::from_tensor(&tensor)?;
        let tensor = variable.as_tensor().clone();
        variables.lock().unwrap_or_else(PoisonError::into_inner).push((name.to_owned(), variable));
        Ok(tensor)
    }

    fn read(&self, name: &str, shape: &[usize]) -> Result<Tensor> {
        let unreadable = |source: candle_core::Error| ModelError::Tensor {
            origin: self.origin.clone(),
            name: name.to_owned(),
            source: source.into(),
        };
        let missing = || ModelError::MissingTensor { origin: self.origin.clone(), name: name.to_owned() };
        let checked = |actual: &[usize]| {
            if actual == shape {
                return Ok(());
            }
            let (expected, actual) = (shape.to_vec(), actual.to_vec());
            Err(ModelError::TensorShape { origin: self.origin.clone(), name: name.to_owned(), expected, actual })
        };
        let tensor = match &self.source {
            Source::Random { random } => {
                let mut random = random.lock().unwrap_or_else(PoisonError::into_inner);
                random_tensor(&mut random, name, shape).map_err(unreadable)?
            }
            Source::Outline => {
                return Ok(Tensor::zeros((), self.dtype, &self.device)?.broadcast_as(shape)?);
            }
            Source::Safetensors { shards, shard_of } => {
                let view = shards[*shard_of.get(name).ok_or_else(missing)?].get(name).map_err(unreadable)?;
                checked(view.shape())?;
                candle_core::safetensors::Load::load(&view, &Device::Cpu).map_err(unreadable)?
            }
            Source::Gguf { content, file } => {
                let stored = gguf_name(name).ok_or_else(missing)?;
                let missing = || ModelError::MissingTensor { origin: self.origin.clone(), name: stored.clone() };
                let info = content.tensor_infos.get(&stored).ok_or_else(missing)?;
                checked(info.shape.dims())?;
                let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
                let quantized = info.read(&mut *file, content.tensor_data_offset, &Device::Cpu).map_err(unreadable)?;
                let tensor = quantized.dequantize(&Device::Cpu).map_err(unreadable)?;
                self.unpermuted(name, tensor).map_err(unreadable)?
            }
        };
        let placed = tensor.to_dtype(self.dtype).and_then(|tensor| tensor.to_device(&self.device));
        placed.map_err(unreadable)
    }

    /// GGUF files of Llama hold the rows of Q and K in the order that interleaved `RoPE` wants: pairs side by side.
    /// This puts the first halves of the pairs before the second, as half-split `RoPE` and Hugging Face files have it.
    fn unpermuted(&self, name: &str, tensor: Tensor) -> candle_core::Result<Tensor> {
        let heads = if name.contains("self_attn.q_proj.") {
            self.config.heads
        } else if name.contains("self_attn.k_proj.") {
            self.config.kv_heads
        } else {
            return Ok(tensor);
        };
        if !self.config.permuted_qk {
            return Ok(tensor);
        }
        let dims = tensor.dims().to_vec();
        let width: usize = dims[1..].iter().product();
        tensor.reshape((heads, self.config.head_dim / 2, 2, width))?.transpose(1, 2)?.contiguous()?.reshape(dims)
    }

    fn open_gguf(path: &Path, dtype: DType, device: &Device) -> Result<Self> {
        let mut file = BufReader::new(File::open(path).map_err(ModelError::io(path))?);
        let content = Content::read(&mut file).map_err(|source| ModelError::Format {
            path: path.to_owned(),
            format: "GGUF",
            source: source.into(),
        })?;
        let origin = path.display().to_string();
        let mut config = Config::from_gguf(&content.metadata, &origin)?;
        config.tied = Some(!content.tensor_infos.contains_key("output.weight"));
        let source = Source::Gguf { content, file: Mutex::new(file) };
        let mut weights =
            Self { source, config, origin, dtype: DType::F32, device: Device::Cpu, huge: None, variables: None };
        if weights.contains("rope_freqs.weight") {
            let divisors = weights.read("rope_freqs.weight", &[weights.config.head_dim / 2])?.to_vec1()?;
            weights.config.rope_scaling = RopeScaling::Divisors(divisors);
        }
        Ok(Self { dtype, device: device.clone(), ..weights })
    }

    fn open_folder(path: &Path, dtype: DType, device: &Device) -> Result<Self> {
        let config_file = path.join("config.json");
        let text = fs::read_to_string(&config_file).map_err(ModelError::io(&config_file))?;
        let config = Config::from_json(&text, &config_file.display().to_string())?;
        let mut shard_of = HashMap::new();
        let mut shards = Vec::new();
        for (index, file) in shard_files(path)?.into_iter().enumerate() {
            let bytes = fs::read(&file).map_err(ModelError::io(&file))?;
            let shard = BufferedSafetensors::new(bytes).map_err(|source| ModelError::Format {
                path: file.clone(),
                format: "safetensors",
                source: source.into(),
            })?;
            shard_of.extend(shard.tensors().into_iter().map(|(name, _)| (name, index)));
            shards.push(shard);
        }
        let (source, origin) = (Source::Safetensors { shards, shard_of }, path.display().to_string());
        Ok(Self { source, config, origin, dtype, device: device.clone(), huge: None, variables: None })
    }
}

/// The safetensors files of a folder: those that the index names, else the one file.
fn shard_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let index = folder.join("model.safetensors.index.json");
    if !index.exists() {
        return Ok(vec![folder.join("model.safetensors")]);
    }
    let malformed = |source: Box<dyn std::error::Error + Send + Sync>| ModelError::Format {
        path: index.clone(),
        format: "safetensors index",
        source,
    };
    let text = fs::read_to_string(&index).map_err(ModelError::io(&index))?;
    let json: serde_json::Value = serde_json::from_str(&text).map_err(|source| malformed(source.into()))?;
    let map = json
        .get("weight_map")
        .and_then(serde_json::Value::as_object)
        .ok_or_else(|| ModelError::MissingKey { origin: index.display().to_string(), key: "weight_map".to_owned() })?;
    let mut names = Vec::new();
    for name in map.values() {
        // The index is part of what was downloaded: it may name files of its own folder only.
        let name = name.as_str().filter(|name| !name.contains(['/', '\\']) && name.ends_with(".safetensors"));
        let name =
            name.ok_or_else(|| malformed("weight_map names something that is no safetensors file here".into()))?;
        names.push(folder.join(name));
    }
    names.sort();
    names.dedup();
    Ok(names)
}

/// What a tensor is called in GGUF files; `None` for a name they have no counterpart of.
fn gguf_name(name: &str) -> Option<String> {
    let whole = match name {
        "model.embed_tokens.weight" => Some("token_embd.weight"),
        "model.norm.weight" => Some("output_norm.weight"),
        "lm_head.weight" => Some("output.weight"),
        "rope_freqs.weight" => Some("rope_freqs.weight"),
        _ => None,
    };
    if let Some(whole) = whole {
        return Some(whole.to_owned());
    }
    let (layer, rest) = name.strip_prefix("model.layers.")?.split_once('.')?;
    let (module, kind) = rest.rsplit_once('.')?;
    let module = match module {
        "input_layernorm" => "attn_norm",
        "post_attention_layernorm" => "ffn_norm",
        "self_attn.q_proj" => "attn_q",
        "self_attn.k_proj" => "attn_k",
        "self_attn.v_proj" => "attn_v",
        "self_attn.o_proj" => "attn_output",
        "self_attn.q_norm" => "attn_q_norm",
        "self_attn.k_norm" => "attn_k_norm",
        "mlp.gate_proj" => "ffn_gate",
        "mlp.up_proj" => "ffn_up",
        "mlp.down_proj" => "ffn_down",
        _ => return None,
    };
    Some(format!("blk.{layer}.{module}.{kind}"))
}

fn random_tensor(random: &mut Random, name: &str, shape: &[usize]) -> candle_core::Result<Tensor> {
    let norm = name.ends_with("norm.weight");
    // Uniform values of variance 1 / inputs; norms near one, so that a norm left out would show.
    let reach = if norm { 0.1 } else { (3.0 / shape.last().copied().unwrap_or(1) as f64).sqrt() };
    let center = if norm { 1.0 } else { 0.0 };
    let count = shape.iter().product();
    let values: Vec<f32> = (0..count).map(|_| (center + reach * (2.0 * random.next_unit() - 1.0)) as f32).collect();
    Tensor::from_vec(values, shape, &Device::Cpu)
}
