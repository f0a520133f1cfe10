//! One layer of every kind, with its weights as variables and as plain tensors.

use candle_core::{DType, Device, Result, Tensor, Var};
use kernelhub::host::candle::{
    Activation, ActivationLayer, CrossEntropy, Embedding, GatedActivation, GatedActivationLayer, GatedMlp, LayerNorm,
    Linear, QkvLinear, RmsNorm, RmsNormConfig, RotaryEmbedding, RotaryStyle, Softmax,
};
use kernelhub::swap::Slots;

use super::ramp;

type Forward = Box<dyn Fn(&Tensor) -> Result<Tensor>>;

/// A layer that takes `[a, b, c, d]`.
pub(super) struct Layer {
    pub(super) forward: Forward,
    pub(super) weights: Vec<(&'static str, Var)>,
}

pub(super) struct Case {
    /// The layer's name in kernel mappings.
    pub(super) name: &'static str,
    pub(super) shape: [usize; 4],
    /// Whether the fixture's kernel has a backward.
    pub(super) has_backward: bool,
    /// Whether the layer's input carries gradients; numbers of rows do not.
    pub(super) has_input: bool,
    /// With weights that are variables.
    pub(super) build: fn(&Slots, DType) -> Layer,
    /// With weights that are none.
    pub(super) frozen: fn(&Slots, DType) -> Layer,
}

/// Weights for a layer: variables that are remembered, or plain tensors.
struct Weights {
    dtype: DType,
    variables: Option<Vec<(&'static str, Var)>>,
}

impl Weights {
    fn get(&mut self, name: &'static str, shape: &[usize]) -> Tensor {
        let tensor = ramp(shape).to_dtype(self.dtype).unwrap();
        let Some(variables) = &mut self.variables else { return tensor };
        let variable = Var::from_tensor(&tensor).unwrap();
        let tensor = variable.as_tensor().clone();
        variables.push((name, variable));
        tensor
    }
}

/// Declares a case from a function of slots and weights to a forward.
macro_rules! case {
    ($name:literal, $shape:expr, $backward:literal, $input:literal, $build:ident) => {
        Case {
            name: $name,
            shape: $shape,
            has_backward: $backward,
            has_input: $input,
            build: |slots, dtype| {
                let mut weights = Weights { dtype, variables: Some(Vec::new()) };
                let forward = $build(slots, &mut weights);
                Layer { forward, weights: weights.variables.unwrap() }
            },
            frozen: |slots, dtype| {
                let forward = $build(slots, &mut Weights { dtype, variables: None });
                Layer { forward, weights: Vec::new() }
            },
        }
    };
}

pub(super) const CASES: &[Case] = &[
    case!("RMSNorm", [2, 3, 4, 8], true, true, rms_norm),
    case!("RMSNorm", [2, 3, 4, 8], true, true, rms_norm_with_offset),
    case!("RMSNorm", [2, 3, 4, 8], true, true, add_rms_norm),
    case!("LayerNorm", [2, 3, 4, 8], false, true, layer_norm),
    case!("LayerNorm", [2, 3, 4, 8], false, true, layer_norm_without_bias),
    case!("RotaryEmbedding", [2, 3, 4, 8], true, true, rotary_of_queries),
    case!("RotaryEmbedding", [2, 3, 4, 8], true, true, rotary_of_keys),
    case!("Silu", [2, 3, 4, 8], false, true, activation),
    case!("Softmax", [2, 3, 4, 8], false, true, softmax),
    case!("SiluAndMul", [2, 3, 4, 8], true, true, gated_activation),
    case!("SiluAndMul", [2, 3, 4, 8], true, true, gated_mlp),
    case!("SiluAndMul", [2, 3, 4, 8], true, true, gated_mlp_of_projections),
    case!("Linear", [2, 3, 4, 8], false, true, linear),
    case!("Linear", [2, 3, 4, 8], false, true, linear_without_bias),
    case!("Linear", [2, 3, 4, 8], false, true, qkv_linear),
    case!("Linear", [2, 3, 4, 8], false, true, qkv_heads),
    case!("Embedding", [1, 2, 2, 3], false, false, embedding),
    case!("CrossEntropy", [1, 5, 2, 6], true, true, cross_entropy),
];

fn rms_norm(slots: &Slots, weights: &mut Weights) -> Forward {
    let norm = RmsNorm::new(weights.get("weight", &[8]), 1e-5, slots, "norm").unwrap();
    Box::new(move |x| norm.forward(x))
}

fn rms_norm_with_offset(slots: &Slots, weights: &mut Weights) -> Forward {
    let config = RmsNormConfig { offset: 1.0, ..1e-5_f64.into() };
    let norm = RmsNorm::new(weights.get("weight", &[8]), config, slots, "norm").unwrap();
    Box::new(move |x| norm.forward(x))
}

fn add_rms_norm(slots: &Slots, weights: &mut Weights) -> Forward {
    let config = RmsNormConfig { after_add: true, ..1e-5_f64.into() };
    let norm = RmsNorm::new(weights.get("weight", &[8]), config, slots, "norm").unwrap();
    Box::new(move |x| Ok(norm.forward_add(x, &x.affine(-0.5, 0.25)?)?.0))
}

fn layer_norm(slots: &Slots, weights: &mut Weights) -> Forward {
    let bias = Some(weights.get("bias", &[8]));
    let norm = LayerNorm::new(weights.get("weight", &[8]), bias, 1e-5, slots, "norm").unwrap();
    Box::new(move |x| norm.forward(x))
}

fn layer_norm_without_bias(slots: &Slots, weights: &mut Weights) -> Forward {
    let norm = LayerNorm::new(weights.get("weight", &[8]), None, 1e-5, slots, "norm").unwrap();
    Box::new(move |x| norm.forward(x))
}

fn tables(dtype: DType) -> (Tensor, Tensor) {
    let table = |shift: f64| ramp(&[9, 4]).affine(1.0, shift).unwrap().to_dtype(dtype).unwrap();
    (table(0.0), table(0.3))
}

fn rotary_of_queries(slots: &Slots, weights: &mut Weights) -> Forward {
    let (cos, sin) = tables(weights.dtype);
    let rotary = RotaryEmbedding::new(cos, sin, RotaryStyle::HalfSplit, slots, "rotary").unwrap();
    Box::new(move |x| Ok(rotary.forward(x, &x.detach(), 2)?.0))
}

fn rotary_of_keys(slots: &Slots, weights: &mut Weights) -> Forward {
    let (cos, sin) = tables(weights.dtype);
    let rotary = RotaryEmbedding::new(cos, sin, RotaryStyle::Interleaved, slots, "rotary").unwrap();
    Box::new(move |x| Ok(rotary.forward(&x.detach(), x, 2)?.1))
}

fn activation(slots: &Slots, weights: &mut Weights) -> Forward {
    let layer = ActivationLayer::new(Activation::Silu, 8, weights.dtype, slots, "act").unwrap();
    Box::new(move |x| layer.forward(x))
}

fn softmax(slots: &Slots, weights: &mut Weights) -> Forward {
    let layer = Softmax::new(8, weights.dtype, slots, "softmax").unwrap();
    Box::new(move |x| layer.forward(x))
}

fn gated_activation(slots: &Slots, weights: &mut Weights) -> Forward {
    let layer = GatedActivationLayer::new(GatedActivation::Silu, 4, weights.dtype, slots, "act").unwrap();
    Box::new(move |x| layer.forward(x))
}

fn gated_mlp(slots: &Slots, weights: &mut Weights) -> Forward {
    let (gate_up, down) = (weights.get("gate_up", &[12, 8]), weights.get("down", &[8, 6]));
    let mlp = GatedMlp::new(gate_up, down, slots, "mlp").unwrap();
    Box::new(move |x| mlp.forward(x))
}

fn gated_mlp_of_projections(slots: &Slots, weights: &mut Weights) -> Forward {
    let (gate, up) = (weights.get("gate", &[6, 8]), weights.get("up", &[6, 8]));
    let down = weights.get("down", &[8, 6]);
    let mlp = GatedMlp::of_projections(GatedActivation::Silu, [gate, up], down, slots, "mlp").unwrap();
    Box::new(move |x| mlp.forward(x))
}

fn linear(slots: &Slots, weights: &mut Weights) -> Forward {
    let bias = Some(weights.get("bias", &[5]));
    let linear = Linear::new(weights.get("weight", &[5, 8]), bias, slots, "linear").unwrap();
    Box::new(move |x| linear.forward(x))
}

fn linear_without_bias(slots: &Slots, weights: &mut Weights) -> Forward {
    let linear = Linear::new(weights.get("weight", &[5, 8]), None, slots, "linear").unwrap();
    Box::new(move |x| linear.forward(x))
}

fn qkv_linear(slots: &Slots, weights: &mut Weights) -> Forward {
    let mut projection = |weight, bias, width| (weights.get(weight, &[width, 8]), Some(weights.get(bias, &[width])));
    let projections =
        [projection("q_weight", "q_bias", 6), projection("k_weight", "k_bias", 3), projection("v_weight", "v_bias", 3)];
    let linear = QkvLinear::new(projections, slots, "attention").unwrap();
    Box::new(move |x| Tensor::cat(&linear.forward(x)?, 3))
}

/// Merged before they were variables: the three are views of one.
fn qkv_heads(slots: &Slots, weights: &mut Weights) -> Forward {
    let merged = (weights.get("weight", &[12, 8]), Some(weights.get("bias", &[12])));
    let (linear, slots) = (QkvLinear::of_merged(merged, [6, 2, 4], slots, "attention").unwrap(), slots.clone());
    Box::new(move |x| {
        let [q, k, v] = linear.forward_heads_in(&slots.pin(), &x.flatten(0, 1)?, 2)?;
        Tensor::cat(&[q, k, v], 1)
    })
}

fn embedding(slots: &Slots, weights: &mut Weights) -> Forward {
    let embedding = Embedding::new(weights.get("weight", &[7, 8]), slots, "embedding").unwrap();
    Box::new(move |_| embedding.forward(&Tensor::new(&[[3_u32, 0, 3], [6, 1, 2]], &Device::Cpu)?))
}

/// Rows of six classes, one of them ignored.
fn cross_entropy(slots: &Slots, weights: &mut Weights) -> Forward {
    let loss = CrossEntropy::new(6, weights.dtype, slots, "loss").unwrap();
    let targets = Tensor::new(&[0_i64, 5, -100, 2, 2, 1, 4, 3, 0, 5], &Device::Cpu).unwrap();
    Box::new(move |x| {
        let mut logits = x.reshape((10, 6))?;
        if !x.is_contiguous() {
            // Rows that are no neighbours.
            logits = Tensor::cat(&[&logits, &logits], 1)?.narrow(1, 6, 6)?;
        }
        loss.forward(&logits, &targets)
    })
}
