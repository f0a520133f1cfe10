//! What both sides compute on: numbers that are the same in every run.

use candle_core::{DType, Device, Result, Tensor};
use kernelhub::bind::Contract;

use super::shape::Shape;

/// The input tensors of a contract, in the order in which [`super::sides`] and [`super::alone`] take them; floats are in
/// `dtype`.
pub(crate) fn inputs(contract: Contract, shape: &Shape, dtype: DType) -> Result<Vec<Tensor>> {
    let mut noise = Noise(2026);
    let of = |axis: &str| shape.of(axis);
    let mut floats = |extents: &[usize], scale: f32| noise.floats(extents, scale, dtype);
    let (batch, heads, kv_heads, head_dim) = (of("batch"), of("heads"), of("kv_heads"), of("head_dim"));
    Ok(match contract {
        Contract::RmsNorm => vec![floats(&[of("rows"), of("hidden")], 1.0)?, floats(&[of("hidden")], 1.0)?],
        Contract::AddRmsNorm | Contract::LayerNorm => {
            let rows = [of("rows"), of("hidden")];
            if contract == Contract::LayerNorm {
                vec![floats(&rows, 1.0)?, floats(&rows[1..], 1.0)?, floats(&rows[1..], 1.0)?]
            } else {
                vec![floats(&rows, 1.0)?, floats(&rows, 1.0)?, floats(&rows[1..], 1.0)?]
            }
        }
        Contract::Activation(_) | Contract::GatedActivation(_) => vec![floats(&[of("rows"), of("width")], 3.0)?],
        Contract::Rotary => {
            let (seq, half) = (of("seq"), head_dim / 2);
            let [cos, sin] = angles(seq, half, dtype)?;
            vec![
                floats(&[batch, heads, seq, head_dim], 1.0)?,
                floats(&[batch, kv_heads, seq, head_dim], 1.0)?,
                cos,
                sin,
            ]
        }
        Contract::Attention | Contract::AttentionPaged => {
            let keys = [batch, kv_heads, of("kv_len"), head_dim];
            vec![floats(&[batch, heads, of("q_len"), head_dim], 1.0)?, floats(&keys, 1.0)?, floats(&keys, 1.0)?]
        }
        Contract::AttentionVarlen => {
            let total = shape.sequence_lengths().into_iter().sum();
            let keys = [total, kv_heads, head_dim];
            vec![floats(&[total, heads, head_dim], 1.0)?, floats(&keys, 1.0)?, floats(&keys, 1.0)?]
        }
        Contract::GatedLinear(_) => {
            let (rows, inputs, outputs) = (of("rows"), of("in_features"), of("out_features"));
            // The rows of the gate, then those of the other factor; products of about 1, where the curve bends.
            vec![floats(&[rows, inputs], 1.0)?, floats(&[2 * outputs, inputs], 3.0 / (inputs as f32).sqrt())?]
        }
        Contract::Linear => {
            let (rows, inputs, outputs) = (of("rows"), of("in_features"), of("out_features"));
            vec![floats(&[rows, inputs], 1.0)?, floats(&[outputs, inputs], 1.0)?]
        }
        Contract::Embedding => {
            let ids = noise.indices(of("rows"), of("vocab"))?;
            vec![ids, noise.floats(&[of("vocab"), of("hidden")], 1.0, dtype)?]
        }
        Contract::CrossEntropy => {
            let targets = noise.indices(of("rows"), of("vocab"))?;
            vec![noise.floats(&[of("rows"), of("vocab")], 4.0, dtype)?, targets]
        }
        // `Shape` knows no axes of others.
        _ => Vec::new(),
    })
}

/// The same inputs with every float in f32, where it has the same value.
pub(crate) fn wide(inputs: &[Tensor]) -> Result<Vec<Tensor>> {
    let is_float = |tensor: &Tensor| matches!(tensor.dtype(), DType::BF16 | DType::F16 | DType::F32);
    inputs.iter().map(|input| if is_float(input) { input.to_dtype(DType::F32) } else { Ok(input.clone()) }).collect()
}

/// Cosines and sines of rotary positions, `[seq, half]` each.
fn angles(seq: usize, half: usize, dtype: DType) -> Result<[Tensor; 2]> {
    let angle = |at: usize| (at / half) as f32 * 10_000_f32.powf(-((at % half) as f32) / half as f32);
    let table = |of: fn(f32) -> f32| {
        let numbers: Vec<f32> = (0..seq * half).map(|at| of(angle(at))).collect();
        Tensor::from_vec(numbers, (seq, half), &Device::Cpu)?.to_dtype(dtype)
    };
    Ok([table(f32::cos)?, table(f32::sin)?])
}

/// Numbers that look random (splitmix64).
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Numbers from `-scale` to `scale`.
    fn floats(&mut self, extents: &[usize], scale: f32, dtype: DType) -> Result<Tensor> {
        let count = extents.iter().product();
        let mut numbers = Vec::with_capacity(count);
        while numbers.len() < count {
            // Two numbers of 24 bits from one of 64.
            let bits = self.next();
            for bits in [bits >> 40, (bits >> 16) & 0xff_ffff] {
                numbers.push((bits as f32 / (1 << 23) as f32 - 1.0) * scale);
            }
        }
        numbers.truncate(count);
        Tensor::from_vec(numbers, extents, &Device::Cpu)?.to_dtype(dtype)
    }

    /// `count` numbers below `bound`.
    fn indices(&mut self, count: usize, bound: usize) -> Result<Tensor> {
        let index = |_| u32::try_from(self.next() % bound as u64).unwrap_or_default();
        Tensor::from_vec((0..count).map(index).collect::<Vec<u32>>(), count, &Device::Cpu)
    }
}
