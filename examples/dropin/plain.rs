//! A Llama decoder as one writes it for candle: nothing below the imports knows about kernels.

use candle_core::{D, Device, Result, Tensor};
use candle_nn::kv_cache::KvCache;
use candle_nn::{Embedding, Linear, Module, RmsNorm, VarBuilder, embedding, linear_no_bias, ops, rms_norm, rotary_emb};

/// The shape of the model.
#[derive(Debug, Clone)]
pub struct Config {
    pub hidden: usize,
    pub intermediate: usize,
    pub layers: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub vocabulary: usize,
    pub positions: usize,
    pub eps: f64,
    pub theta: f64,
}

/// Cosines and sines by position, `[positions, head_dim / 2]`.
struct Rotary {
    cos: Tensor,
    sin: Tensor,
}

impl Rotary {
    fn new(config: &Config, vb: &VarBuilder) -> Result<Self> {
        let half = config.head_dim / 2;
        let step = |pair: usize| config.theta.powf(-2.0 * pair as f64 / config.head_dim as f64);
        let angles = (0..config.positions).flat_map(|at| (0..half).map(move |pair| at as f64 * step(pair)));
        let (sin, cos): (Vec<f32>, Vec<f32>) = angles.map(|angle| (angle.sin() as f32, angle.cos() as f32)).unzip();
        let table = |of| Tensor::from_vec(of, (config.positions, half), vb.device())?.to_dtype(vb.dtype());
        Ok(Self { cos: table(cos)?, sin: table(sin)? })
    }

    /// Turns `x` `[batch, heads, seq, head_dim]`, whose first position is `offset`.
    fn apply(&self, x: &Tensor, offset: usize) -> Result<Tensor> {
        let seq = x.dim(2)?;
        let rows = |table: &Tensor| table.narrow(0, offset, seq);
        rotary_emb::rope(&x.contiguous()?, &rows(&self.cos)?, &rows(&self.sin)?)
    }
}

struct Attention {
    q_proj: Linear,
    k_proj: Linear,
    v_proj: Linear,
    o_proj: Linear,
    config: Config,
}

impl Attention {
    fn new(config: &Config, vb: VarBuilder) -> Result<Self> {
        let (hidden, q, kv) = (config.hidden, config.heads * config.head_dim, config.kv_heads * config.head_dim);
        Ok(Self {
            q_proj: linear_no_bias(hidden, q, vb.pp("q_proj"))?,
            k_proj: linear_no_bias(hidden, kv, vb.pp("k_proj"))?,
            v_proj: linear_no_bias(hidden, kv, vb.pp("v_proj"))?,
            o_proj: linear_no_bias(q, hidden, vb.pp("o_proj"))?,
            config: config.clone(),
        })
    }

    fn forward(&self, x: &Tensor, rotary: &Rotary, cache: &mut KvCache) -> Result<Tensor> {
        let (batch, seq, _) = x.dims3()?;
        let Config { heads, kv_heads, head_dim, .. } = self.config;
        let split = |x: Tensor, heads| x.reshape((batch, seq, heads, head_dim))?.transpose(1, 2);
        let offset = cache.k_cache().current_seq_len();
        let q = rotary.apply(&split(self.q_proj.forward(x)?, heads)?, offset)?;
        let k = rotary.apply(&split(self.k_proj.forward(x)?, kv_heads)?, offset)?;
        let v = split(self.v_proj.forward(x)?, kv_heads)?.contiguous()?;
        let (k, v) = cache.append(&k, &v)?;
        let repeat = |x: Tensor| {
            let (batch, kv_heads, len, head_dim) = x.dims4()?;
            let repeated = x.unsqueeze(2)?.expand((batch, kv_heads, heads / kv_heads, len, head_dim))?;
            repeated.reshape((batch, heads, len, head_dim))
        };
        let (k, v) = (repeat(k)?, repeat(v)?);
        let mut scores = (q.matmul(&k.t()?)? / (head_dim as f64).sqrt())?;
        if seq > 1 {
            scores = scores.broadcast_add(&causal(seq, k.dim(2)?, x)?)?;
        }
        let mixed = ops::softmax_last_dim(&scores)?.matmul(&v)?;
        self.o_proj.forward(&mixed.transpose(1, 2)?.reshape((batch, seq, heads * head_dim))?)
    }
}

/// Negative infinity where a query must not see a key, `[seq, len]`.
fn causal(seq: usize, len: usize, like: &Tensor) -> Result<Tensor> {
    let sees = |query: usize, key: usize| key + seq <= query + len;
    let mask: Vec<f32> = (0..seq * len).map(|i| if sees(i / len, i % len) { 0.0 } else { f32::NEG_INFINITY }).collect();
    Tensor::from_vec(mask, (seq, len), like.device())?.to_dtype(like.dtype())
}

struct Mlp {
    gate_proj: Linear,
    up_proj: Linear,
    down_proj: Linear,
}

impl Mlp {
    fn new(config: &Config, vb: VarBuilder) -> Result<Self> {
        Ok(Self {
            gate_proj: linear_no_bias(config.hidden, config.intermediate, vb.pp("gate_proj"))?,
            up_proj: linear_no_bias(config.hidden, config.intermediate, vb.pp("up_proj"))?,
            down_proj: linear_no_bias(config.intermediate, config.hidden, vb.pp("down_proj"))?,
        })
    }
}

impl Module for Mlp {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let gated = (ops::silu(&self.gate_proj.forward(x)?)? * self.up_proj.forward(x)?)?;
        self.down_proj.forward(&gated)
    }
}

struct Layer {
    input_layernorm: RmsNorm,
    self_attn: Attention,
    post_attention_layernorm: RmsNorm,
    mlp: Mlp,
}

impl Layer {
    fn new(config: &Config, vb: VarBuilder) -> Result<Self> {
        Ok(Self {
            input_layernorm: rms_norm(config.hidden, config.eps, vb.pp("input_layernorm"))?,
            self_attn: Attention::new(config, vb.pp("self_attn"))?,
            post_attention_layernorm: rms_norm(config.hidden, config.eps, vb.pp("post_attention_layernorm"))?,
            mlp: Mlp::new(config, vb.pp("mlp"))?,
        })
    }

    fn forward(&self, x: &Tensor, rotary: &Rotary, cache: &mut KvCache) -> Result<Tensor> {
        let x = (x + self.self_attn.forward(&self.input_layernorm.forward(x)?, rotary, cache)?)?;
        &x + self.mlp.forward(&self.post_attention_layernorm.forward(&x)?)?
    }
}

/// A decoder with its output projection tied to the embedding.
pub struct Llama {
    embed_tokens: Embedding,
    layers: Vec<Layer>,
    norm: RmsNorm,
    lm_head: Linear,
    rotary: Rotary,
    config: Config,
}

impl Llama {
    pub fn new(config: &Config, vb: VarBuilder) -> Result<Self> {
        let vb = vb.pp("model");
        let embed_tokens = embedding(config.vocabulary, config.hidden, vb.pp("embed_tokens"))?;
        let lm_head = Linear::new(embed_tokens.embeddings().clone(), None);
        let layer = |index: usize| Layer::new(config, vb.pp("layers").pp(index));
        let layers = (0..config.layers).map(layer).collect::<Result<Vec<_>>>()?;
        let norm = rms_norm(config.hidden, config.eps, vb.pp("norm"))?;
        Ok(Self { embed_tokens, layers, norm, lm_head, rotary: Rotary::new(config, &vb)?, config: config.clone() })
    }

    /// An empty cache for each layer.
    pub fn cache(&self) -> Vec<KvCache> {
        vec![KvCache::new(2, self.config.positions); self.layers.len()]
    }

    /// The logits `[batch, vocabulary]` after the last of `tokens` `[batch, seq]`.
    pub fn forward(&self, tokens: &Tensor, cache: &mut [KvCache]) -> Result<Tensor> {
        let mut x = self.embed_tokens.forward(tokens)?;
        for (layer, cache) in self.layers.iter().zip(cache) {
            x = layer.forward(&x, &self.rotary, cache)?;
        }
        let last = x.narrow(1, x.dim(1)? - 1, 1)?.squeeze(1)?;
        self.lm_head.forward(&self.norm.forward(&last)?)
    }

    /// The `count` likeliest tokens after `prompt`, each given those before it.
    pub fn greedy(&self, prompt: &[u32], count: usize, device: &Device) -> Result<Vec<u32>> {
        let (mut cache, mut tokens, mut next) = (self.cache(), Vec::new(), prompt.to_vec());
        for _ in 0..count {
            let logits = self.forward(&Tensor::new(next.as_slice(), device)?.unsqueeze(0)?, &mut cache)?;
            let token = logits.argmax(D::Minus1)?.to_vec1::<u32>()?[0];
            tokens.push(token);
            next = vec![token];
        }
        Ok(tokens)
    }
}
