//! A contract's layer of the candle host, with whatever its slot has: a kernel, or the reference code.

use candle_core::{DType, Result, Tensor};
use kernelhub::bind::{Contract, GatedActivation, GatedLinear, Rounding};
use kernelhub::host::candle::call::gated_linear as by_kernel;
use kernelhub::host::candle::{
    ActivationLayer, Attention, AttentionConfig, CrossEntropy, Embedding, GatedActivationLayer, LayerNorm, Linear,
    PagedAttention, PagedKvCache, RmsNorm, RmsNormConfig, RotaryEmbedding, RotaryStyle, SequenceStarts,
    VarlenAttention, activation_layer, dtype_of, gated_activation_layer,
};
use kernelhub::swap::{SlotSpec, Slots};
use kernelhub::variant::DeviceKey;

use super::shape::Shape;

/// The layer in kernel mappings.
const GATED_LINEAR: &str = "SiluGatedLinear";
/// What is added to a variance.
pub(crate) const EPS: f64 = 1e-5;
/// Below it, `FatreluAndMul` gives zeros.
pub(crate) const THRESHOLD: f64 = 0.1;

/// A call's output or outputs.
pub(crate) type Output = (Tensor, Option<Tensor>);
/// A call of a layer, ready to be timed: it makes its outputs, as in a model.
pub(crate) type Call = Box<dyn Fn() -> Result<Output>>;

/// The name that kernel mappings have for the host's layer of a contract; `None` where the host has none.
pub(crate) fn host_layer(contract: Contract) -> Option<&'static str> {
    Some(match contract {
        Contract::RmsNorm => "RMSNorm",
        Contract::AddRmsNorm => "AddRMSNorm",
        Contract::LayerNorm => "LayerNorm",
        Contract::Rotary => "RotaryEmbedding",
        Contract::Activation(activation) => activation_layer(activation),
        Contract::GatedActivation(activation) => gated_activation_layer(activation),
        Contract::Attention => "FlashAttention",
        Contract::AttentionVarlen => "FlashAttentionVarlen",
        Contract::AttentionPaged => "FlashAttentionPaged",
        Contract::Linear => "Linear",
        Contract::GatedLinear(GatedLinear::Silu) => GATED_LINEAR,
        Contract::Embedding => "Embedding",
        Contract::CrossEntropy => "CrossEntropy",
        _ => return None,
    })
}

/// The layer over `inputs`, in the slots of `slots`.
pub(crate) fn call(contract: Contract, shape: &Shape, inputs: &[Tensor], slots: &Slots) -> Result<Call> {
    let dtype = inputs.iter().map(Tensor::dtype).find(|dtype| *dtype != DType::U32).unwrap_or(DType::F32);
    let input = |at: usize| inputs[at].clone();
    let one = |output: Result<Tensor>| Ok((output?, None));
    Ok(match contract {
        Contract::RmsNorm => {
            let (layer, x) = (RmsNorm::new(input(1), EPS, slots, "layer")?, input(0));
            Box::new(move || one(layer.forward(&x)))
        }
        Contract::AddRmsNorm => {
            let config = RmsNormConfig { after_add: true, ..EPS.into() };
            let (layer, x, residual) = (RmsNorm::new(input(2), config, slots, "layer")?, input(0), input(1));
            Box::new(move || layer.forward_add(&x, &residual).map(|(normed, sum)| (normed, Some(sum))))
        }
        Contract::LayerNorm => {
            let (layer, x) = (LayerNorm::new(input(1), Some(input(2)), EPS, slots, "layer")?, input(0));
            Box::new(move || one(layer.forward(&x)))
        }
        Contract::Rotary => {
            let layer = RotaryEmbedding::new(input(2), input(3), RotaryStyle::HalfSplit, slots, "layer")?;
            let (q, k) = (input(0), input(1));
            Box::new(move || layer.forward(&q, &k, 0).map(|(q, k)| (q, Some(k))))
        }
        Contract::Activation(activation) => {
            let (layer, x) = (ActivationLayer::new(activation, shape.of("width"), dtype, slots, "layer")?, input(0));
            Box::new(move || one(layer.forward(&x)))
        }
        Contract::GatedActivation(activation) => {
            let (half, x) = (shape.of("width") / 2, input(0));
            let layer = if activation == GatedActivation::Fatrelu {
                GatedActivationLayer::fatrelu(THRESHOLD, half, dtype, slots, "layer")?
            } else {
                GatedActivationLayer::new(activation, half, dtype, slots, "layer")?
            };
            Box::new(move || one(layer.forward(&x)))
        }
        Contract::Attention => {
            let layer = Attention::from_config(attention(shape), dtype, slots, "layer")?;
            let (q, k, v) = (input(0), input(1), input(2));
            Box::new(move || one(layer.forward(&q, &k, &v, true)))
        }
        Contract::AttentionVarlen => {
            let layer = VarlenAttention::new(attention(shape), dtype, slots, "layer")?;
            let (q, k, v) = (input(0), input(1), input(2));
            let starts = SequenceStarts::from_lengths(&shape.sequence_lengths())?;
            Box::new(move || one(layer.forward(&q, &k, &v, [&starts, &starts], true)))
        }
        Contract::AttentionPaged => {
            let layer = PagedAttention::new(attention(shape), dtype, slots, "layer")?;
            let (q, k, v) = (input(0), input(1), input(2));
            let (cache, batch) = paged(shape, &k, &v)?;
            Box::new(move || one(layer.forward(&q, &cache, 0, &batch, true)))
        }
        Contract::Linear => {
            let (layer, x) = (Linear::new(input(1), None, slots, "layer")?, input(0));
            Box::new(move || one(layer.forward(&x)))
        }
        Contract::GatedLinear(GatedLinear::Silu) => gated_linear(shape, input(0), input(1), slots)?,
        Contract::Embedding => {
            let (layer, ids) = (Embedding::new(input(1), slots, "layer")?, input(0));
            Box::new(move || one(layer.forward(&ids)))
        }
        Contract::CrossEntropy => {
            let layer = CrossEntropy::new(shape.of("vocab"), dtype, slots, "layer")?;
            let (logits, targets, slots) = (input(0), input(1), slots.clone());
            // The loss of every row, without its mean, which is candle's on both sides.
            Box::new(move || one(layer.rows_in(&slots.pin(), &logits, &targets)))
        }
        other => candle_core::bail!("the candle host has no layer for {other}"),
    })
}

/// The first product of the host's gated feed-forward block with its activation, which has no layer of its own: a slot and
/// a call, and without a kernel what that block does, two products and the activation of one of them.
fn gated_linear(shape: &Shape, x: Tensor, weight: Tensor, slots: &Slots) -> Result<Call> {
    let (inputs, outputs) = (shape.of("in_features"), shape.of("out_features"));
    let spec = SlotSpec {
        path: "layer".to_owned(),
        layer: GATED_LINEAR.to_owned(),
        contract: Contract::GatedLinear(GatedLinear::Silu),
        dtype: dtype_of(x.dtype()).ok_or_else(|| candle_core::Error::msg("a dtype without a name"))?,
        last_dim: inputs,
        trainable: false,
        options: Vec::new(),
        rounding: Rounding::Dtype,
    };
    let (slot, slots) = (slots.slot(spec), slots.clone());
    let host = Slots::new(DeviceKey::Cpu);
    let half = |start| Linear::new(weight.narrow(0, start, outputs)?, None, &host, format!("rows {start}"));
    let (gate, up) = (half(0)?, half(outputs)?);
    Ok(Box::new(move || {
        let out = match by_kernel(&slots.pin(), &slot, &x, &weight, None)? {
            Some(out) => out,
            None => (gate.forward(&x)?.silu()? * up.forward(&x)?)?,
        };
        Ok((out, None))
    }))
}

fn attention(shape: &Shape) -> AttentionConfig {
    AttentionConfig::new(shape.of("heads"), shape.of("kv_heads"), shape.of("head_dim"))
}

/// A cache that holds the keys and values, and the batch of its sequences' last `q_len` positions.
fn paged(shape: &Shape, k: &Tensor, v: &Tensor) -> Result<(PagedKvCache, kernelhub::host::candle::PagedBatch)> {
    let (batch, q_len, kv_len) = (shape.of("batch"), shape.of("q_len"), shape.of("kv_len"));
    let block_size = shape.of("block_size");
    let blocks = batch * kv_len.div_ceil(block_size);
    let heads = [shape.of("kv_heads"), shape.of("head_dim")];
    let mut cache = PagedKvCache::new(1, [blocks, block_size], heads, k.dtype(), k.device())?;
    let sequences: Vec<_> = (0..batch).map(|_| cache.begin()).collect();
    let mut write = |start: usize, added: usize| {
        let batch = cache.reserve(&sequences, added)?;
        cache.write(0, &batch, &k.narrow(2, start, added)?, &v.narrow(2, start, added)?)?;
        Ok::<_, candle_core::Error>(batch)
    };
    if kv_len > q_len {
        write(0, kv_len - q_len)?;
    }
    let last = write(kv_len - q_len, q_len)?;
    Ok((cache, last))
}
