//! The decoder: Llama, Qwen2 and Qwen3 by its configuration.

use candle_core::{DType, Device, Tensor};
use kernelhub::host::candle::{
    Attention, CausalMasks, Embedding, GatedMlp, KvCache, Linear, QkvLinear, RmsNorm, RmsNormConfig, RotaryEmbedding,
    RotaryStyle, device_key_of,
};
use kernelhub::swap::{KernelConfig, KernelProvider, Plan, Report, Slots, SwapError};
use kernelhub::variant::DeviceKey;

use super::config::Config;
use super::error::{ModelError, Result};
use super::rope;
use super::weights::Weights;

/// A language model whose layers can be swapped for kernels through [`slots`](Self::slots).
pub struct Llama {
    embedding: Embedding,
    layers: Vec<DecoderLayer>,
    norm: RmsNorm,
    head: Linear,
    config: Config,
    dtype: DType,
    device: Device,
    slots: Slots,
}

/// What the model remembers of the positions it has seen: one cache for each layer.
pub struct Cache {
    layers: Vec<KvCache>,
}

impl Cache {
    /// Positions seen.
    pub fn len(&self) -> usize {
        self.layers.first().map_or(0, KvCache::len)
    }

    /// Whether nothing was seen yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Positions that fit.
    pub fn capacity(&self) -> usize {
        self.layers.first().map_or(0, KvCache::capacity)
    }

    /// Forgets everything.
    pub fn reset(&mut self) {
        self.layers.iter_mut().for_each(KvCache::reset);
    }
}

impl Llama {
    /// Builds the model from its tensors.
    pub fn load(weights: &Weights) -> Result<Self> {
        Self::load_into(weights, Slots::new(device_key_of(weights.device())))
    }

    /// The layers of a model, as a configuration alone tells them, for planning on any kind of device. Reads no
    /// weights, and holds none.
    pub fn outline(config: Config, dtype: DType, device: DeviceKey) -> Result<Slots> {
        let slots = Slots::new(device);
        // No layer depends on how many positions there are, and their tables are real memory.
        let config = Config { max_positions: 1, ..config };
        Self::load_into(&Weights::outline(config, dtype), slots.clone())?;
        Ok(slots)
    }

    fn load_into(weights: &Weights, slots: Slots) -> Result<Self> {
        let config = weights.config().clone();
        let (dtype, device) = (weights.dtype(), weights.device().clone());
        let tables = rope::tables(&config, config.max_positions, dtype, &device)?;
        let embedding = weights.tensor("model.embed_tokens.weight", &[config.vocabulary, config.hidden])?;
        let embedding = Embedding::new(embedding, &slots, "model.embed_tokens")?;
        let parts = Parts { weights, config: &config, slots: &slots, tables: &tables, masks: &CausalMasks::default() };
        let layers = (0..config.layers).map(|index| DecoderLayer::load(&parts, index)).collect::<Result<Vec<_>>>()?;
        let norm = parts.norm_after_add("model.norm")?;
        let tied = config.tied.unwrap_or_else(|| !weights.contains("lm_head.weight"));
        let head = if tied {
            embedding.weight().clone()
        } else {
            weights.tensor("lm_head.weight", &[config.vocabulary, config.hidden])?
        };
        let head = Linear::new(head, None, &slots, "lm_head")?;
        Ok(Self { embedding, layers, norm, head, config, dtype, device, slots })
    }

    /// A model with random weights, the same for the same seed.
    pub fn random(config: Config, seed: u64, dtype: DType, device: &Device) -> Result<Self> {
        Self::load(&Weights::random(config, seed, dtype, device))
    }

    /// Gives the layers the kernels of `config`; all or nothing.
    pub fn use_kernels(
        &self,
        provider: &dyn KernelProvider,
        config: &KernelConfig,
    ) -> std::result::Result<Report, SwapError> {
        self.slots.use_kernels(provider, config)
    }

    /// Returns every layer to its reference code.
    pub fn disable_kernels(&self) -> Report {
        self.slots.disable_kernels()
    }

    /// Readies the layers for training: only kernels with a backward stay.
    pub fn train(&self) -> Report {
        self.slots.train()
    }

    /// Readies the layers for inference.
    pub fn eval(&self) -> Report {
        self.slots.eval()
    }

    /// The layers that kernels can take over.
    pub fn slots(&self) -> &Slots {
        &self.slots
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

    /// An empty cache for `capacity` positions, at most the model's context.
    pub fn cache(&self, capacity: usize) -> Cache {
        let capacity = capacity.min(self.config.max_positions);
        Cache { layers: self.layers.iter().map(|_| KvCache::new(capacity)).collect() }
    }

    /// The logits `[batch, vocabulary]` after the last of `tokens` `[batch, seq]`, which go on from what `cache` holds.
    pub fn forward(&self, tokens: &Tensor, cache: &mut Cache) -> Result<Tensor> {
        let plan = self.slots.pin();
        let hidden = self.hidden(&plan, tokens, Some(cache))?;
        // The norm works row by row, so that only the row that is asked for needs it.
        let last = |x: &Tensor| x.narrow(1, x.dim(1)? - 1, 1)?.squeeze(1);
        let normed = self.norm.forward_add_in(&plan, &last(&hidden.x)?, &last(&hidden.added)?)?.0;
        Ok(self.head.forward_in(&plan, &normed)?)
    }

    /// The logits `[batch, seq, vocabulary]` after each of `tokens` `[batch, seq]`. Without a cache, gradients flow.
    pub fn forward_all(&self, tokens: &Tensor, cache: Option<&mut Cache>) -> Result<Tensor> {
        let plan = self.slots.pin();
        let hidden = self.hidden(&plan, tokens, cache)?;
        Ok(self.head.forward_in(&plan, &self.norm.forward_add_in(&plan, &hidden.x, &hidden.added)?.0)?)
    }

    /// The last layer's output, its two parts `[batch, seq, hidden]`.
    fn hidden(&self, plan: &Plan, tokens: &Tensor, cache: Option<&mut Cache>) -> Result<Residual> {
        let (_, seq) = tokens.dims2()?;
        if tokens.elem_count() == 0 {
            return Err(ModelError::Request("there are no tokens to run the model on".to_owned()));
        }
        let offset = cache.as_ref().map_or(0, |cache| cache.len());
        let room = cache.as_ref().map_or(self.config.max_positions, |cache| cache.capacity());
        if seq > room.saturating_sub(offset) {
            let text = format!("{seq} tokens after {offset} do not fit a context of {room} tokens");
            return Err(ModelError::Request(text));
        }
        let embedded = self.embedding.forward_in(plan, tokens)?;
        let mut caches = cache.map(|cache| cache.layers.iter_mut());
        let mut hidden = None;
        for layer in &self.layers {
            let cache = caches.as_mut().and_then(Iterator::next);
            hidden = Some(layer.forward(plan, &embedded, hidden, cache, offset)?);
        }
        hidden.ok_or_else(|| ModelError::Request("the model has no layers".to_owned()))
    }
}

/// The sum `x + added`, which the norm that comes next adds up, so that one kernel may do both.
struct Residual {
    x: Tensor,
    added: Tensor,
}

/// What the parts of a model are built from.
struct Parts<'a> {
    weights: &'a Weights,
    config: &'a Config,
    slots: &'a Slots,
    tables: &'a (Tensor, Tensor),
    masks: &'a CausalMasks,
}

impl Parts<'_> {
    fn norm(&self, path: &str, width: usize) -> Result<RmsNorm> {
        self.norm_of(path, width, self.config.rms_norm_eps.into())
    }

    /// A norm that comes after a residual add.
    fn norm_after_add(&self, path: &str) -> Result<RmsNorm> {
        let config = RmsNormConfig { after_add: true, ..self.config.rms_norm_eps.into() };
        self.norm_of(path, self.config.hidden, config)
    }

    fn norm_of(&self, path: &str, width: usize, config: RmsNormConfig) -> Result<RmsNorm> {
        let weight = self.weights.tensor(&format!("{path}.weight"), &[width])?;
        Ok(RmsNorm::new(weight, config, self.slots, path)?)
    }

    fn linear(&self, path: &str, [outputs, inputs]: [usize; 2], bias: bool) -> Result<Linear> {
        let weight = self.weights.tensor(&format!("{path}.weight"), &[outputs, inputs])?;
        let bias = bias.then(|| self.weights.tensor(&format!("{path}.bias"), &[outputs])).transpose()?;
        Ok(Linear::new(weight, bias, self.slots, path)?)
    }
}

struct DecoderLayer {
    input_norm: RmsNorm,
    attention: SelfAttention,
    mlp_norm: RmsNorm,
    mlp: GatedMlp,
}

impl DecoderLayer {
    fn load(parts: &Parts<'_>, index: usize) -> Result<Self> {
        let path = format!("model.layers.{index}");
        let (hidden, intermediate) = (parts.config.hidden, parts.config.intermediate);
        let mlp = format!("{path}.mlp");
        let (gate, up) = (format!("{mlp}.gate_proj.weight"), format!("{mlp}.up_proj.weight"));
        let gate_up = parts.weights.fused(&[(&gate, &[intermediate, hidden]), (&up, &[intermediate, hidden])])?;
        let down = parts.weights.tensor(&format!("{mlp}.down_proj.weight"), &[hidden, intermediate])?;
        Ok(Self {
            // Of the first layer it comes after the embedding, and nothing is added before.
            input_norm: if index == 0 {
                parts.norm(&format!("{path}.input_layernorm"), hidden)?
            } else {
                parts.norm_after_add(&format!("{path}.input_layernorm"))?
            },
            attention: SelfAttention::load(parts, &format!("{path}.self_attn"))?,
            mlp_norm: parts.norm_after_add(&format!("{path}.post_attention_layernorm"))?,
            mlp: GatedMlp::new(gate_up, down, parts.slots, mlp)?,
        })
    }

    /// `before` is the output of the layer before, `embedded` what the first layer has instead.
    fn forward(
        &self,
        plan: &Plan,
        embedded: &Tensor,
        before: Option<Residual>,
        cache: Option<&mut KvCache>,
        offset: usize,
    ) -> Result<Residual> {
        let (normed, x) = match before {
            Some(before) => self.input_norm.forward_add_in(plan, &before.x, &before.added)?,
            None => (self.input_norm.forward_in(plan, embedded)?, embedded.clone()),
        };
        let attended = self.attention.forward(plan, &normed, cache, offset)?;
        let (normed, x) = self.mlp_norm.forward_add_in(plan, &x, &attended)?;
        Ok(Residual { added: self.mlp.forward_in(plan, &normed)?, x })
    }
}

struct SelfAttention {
    qkv: QkvLinear,
    output: Linear,
    /// Norms over each head of Q and of K.
    qk_norms: Option<(RmsNorm, RmsNorm)>,
    rotary: RotaryEmbedding,
    attention: Attention,
    head_dim: usize,
}

impl SelfAttention {
    fn load(parts: &Parts<'_>, path: &str) -> Result<Self> {
        let config = parts.config;
        let (hidden, head_dim) = (config.hidden, config.head_dim);
        let (q_width, kv_width) = (config.heads * head_dim, config.kv_heads * head_dim);
        let widths = [("q_proj", q_width), ("k_proj", kv_width), ("v_proj", kv_width)];
        let names = |kind: &str| widths.map(|(name, _)| format!("{path}.{name}.{kind}"));
        let joined = |[q, k, v]: [String; 3], shapes: [&[usize]; 3]| {
            parts.weights.fused(&[(&q, shapes[0]), (&k, shapes[1]), (&v, shapes[2])])
        };
        let weight = joined(names("weight"), [&[q_width, hidden], &[kv_width, hidden], &[kv_width, hidden]])?;
        let bias =
            config.qkv_bias.then(|| joined(names("bias"), [&[q_width], &[kv_width], &[kv_width]])).transpose()?;
        let norm = |name| parts.norm(&format!("{path}.{name}"), head_dim);
        let qk_norms = if config.qk_norm { Some((norm("q_norm")?, norm("k_norm")?)) } else { None };
        let (cos, sin) = parts.tables.clone();
        let rotary_path = format!("{path}.rotary_emb");
        let scale = 1.0 / (head_dim as f64).sqrt();
        let (heads, kv_heads, dtype) = (config.heads, config.kv_heads, parts.weights.dtype());
        let attention = Attention::new(heads, kv_heads, head_dim, scale, dtype, parts.slots, format!("{path}.attn"))?;
        Ok(Self {
            qkv: QkvLinear::of_merged((weight, bias), widths.map(|(_, width)| width), parts.slots, path)?,
            output: parts.linear(&format!("{path}.o_proj"), [hidden, q_width], config.output_bias)?,
            qk_norms,
            rotary: RotaryEmbedding::new(cos, sin, RotaryStyle::HalfSplit, parts.slots, rotary_path)?,
            attention: attention.with_masks(parts.masks.clone()),
            head_dim,
        })
    }

    fn forward(&self, plan: &Plan, x: &Tensor, cache: Option<&mut KvCache>, offset: usize) -> Result<Tensor> {
        let [mut q, mut k, v] = self.qkv.forward_heads_in(plan, x, self.head_dim)?;
        if let Some((q_norm, k_norm)) = &self.qk_norms {
            (q, k) = (q_norm.forward_in(plan, &q)?, k_norm.forward_in(plan, &k)?);
        }
        let (q, k) = self.rotary.forward_in(plan, &q, &k, offset)?;
        let (k, v) = match cache {
            Some(cache) => cache.append(&k, &v)?,
            None => (k, v),
        };
        Ok(self.output.forward_in(plan, &self.attention.forward_in(plan, &q, &k, &v, true)?)?)
    }
}
