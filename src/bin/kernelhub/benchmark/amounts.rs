//! What a call moves and computes at least.

use kernelhub::bind::Contract;
use kernelhub::dtype::DType;
use serde::{Deserialize, Serialize};

use super::shape::Shape;

/// Bytes that a call has to read and write once each, and operations of its matrix products.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Amounts {
    pub(crate) bytes_read: u64,
    pub(crate) bytes_written: u64,
    /// Products and sums, each counted as one; `None` for what is no matrix product, whose exponentials and roots no
    /// count compares.
    pub(crate) flop: Option<u64>,
}

impl Amounts {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes_read + self.bytes_written
    }
}

/// The amounts of a contract's call.
pub(crate) fn amounts(contract: Contract, shape: &Shape, dtype: DType) -> Amounts {
    let of = |axis: &str| shape.of(axis) as u64;
    let size = dtype.size_in_bytes() as u64;
    let rows = of("rows");
    // Elements in and out, bytes of indices and statistics beside them, and operations.
    let (read, written, others_read, flop) = match contract {
        Contract::RmsNorm => (rows * of("hidden") + of("hidden"), rows * of("hidden"), 0, None),
        Contract::AddRmsNorm => (2 * rows * of("hidden") + of("hidden"), 2 * rows * of("hidden"), 0, None),
        Contract::LayerNorm => (rows * of("hidden") + 2 * of("hidden"), rows * of("hidden"), 0, None),
        Contract::Activation(_) => (rows * of("width"), rows * of("width"), 0, None),
        Contract::GatedActivation(_) => (rows * of("width"), rows * of("width") / 2, 0, None),
        Contract::Rotary => {
            let turned = of("batch") * (of("heads") + of("kv_heads")) * of("seq") * of("head_dim");
            (turned + of("seq") * of("head_dim"), turned, 0, None)
        }
        Contract::Attention | Contract::AttentionPaged => {
            let (batch, heads, width) = (of("batch"), of("heads"), of("head_dim"));
            let (q_len, kv_len) = (of("q_len"), of("kv_len"));
            let queries = batch * heads * q_len * width;
            let keys = 2 * batch * of("kv_heads") * kv_len * width;
            // Causal: the queries are the last positions.
            let pairs = q_len * (kv_len - q_len) + q_len * (q_len + 1) / 2;
            (queries + keys, queries, 0, Some(4 * batch * heads * width * pairs))
        }
        Contract::AttentionVarlen => {
            let lengths: Vec<u64> = shape.sequence_lengths().into_iter().map(|length| length as u64).collect();
            let total: u64 = lengths.iter().sum();
            let (heads, width) = (of("heads"), of("head_dim"));
            let pairs: u64 = lengths.iter().map(|length| length * (length + 1) / 2).sum();
            let keys = 2 * total * of("kv_heads") * width;
            (total * heads * width + keys, total * heads * width, 0, Some(4 * heads * width * pairs))
        }
        Contract::Linear => {
            let (inputs, outputs) = (of("in_features"), of("out_features"));
            (rows * inputs + outputs * inputs, rows * outputs, 0, Some(2 * rows * inputs * outputs))
        }
        Contract::GatedLinear(_) => {
            let (inputs, outputs) = (of("in_features"), of("out_features"));
            (rows * inputs + 2 * outputs * inputs, rows * outputs, 0, Some(4 * rows * inputs * outputs))
        }
        Contract::Embedding => (rows * of("hidden"), rows * of("hidden"), 4 * rows, None),
        Contract::CrossEntropy => {
            // The losses are f32.
            let (read, written) = (rows * of("vocab") * size + 4 * rows, 4 * rows);
            return Amounts { bytes_read: read, bytes_written: written, flop: None };
        }
        _ => (0, 0, 0, None),
    };
    Amounts { bytes_read: read * size + others_read, bytes_written: written * size, flop }
}

/// Bytes that a case needs in memory: the inputs in their dtype and in f32, and the outputs of every side.
pub(crate) fn memory(contract: Contract, shape: &Shape, dtype: DType) -> u64 {
    let Amounts { bytes_read, bytes_written, .. } = amounts(contract, shape, dtype);
    let of = |axis: &str| shape.of(axis) as u64;
    // The reference of attention holds every score, in f32, and a few of them at a time; a table is whole.
    let beside = match contract {
        Contract::Attention | Contract::AttentionPaged => {
            3 * 4 * of("batch") * of("heads") * of("q_len") * of("kv_len")
        }
        Contract::AttentionVarlen => 3 * 4 * of("heads") * of("max_len") * of("max_len"),
        Contract::Embedding => of("vocab") * of("hidden") * dtype.size_in_bytes() as u64,
        _ => 0,
    };
    let widened = if dtype == DType::F32 { 1 } else { 2 };
    (2 + widened) * bytes_read + (3 + widened) * bytes_written + (1 + widened) * beside
}

#[cfg(test)]
mod tests {
    use kernelhub::bind::{Contract, GatedActivation, GatedLinear};
    use kernelhub::dtype::DType;

    use super::{Amounts, amounts};
    use crate::benchmark::shape::Shape;

    #[test]
    fn amounts_are_those_counted_by_hand() {
        let of = |contract, text: &str, dtype| amounts(contract, &Shape::parse("L", contract, text).unwrap(), dtype);
        let expect = |bytes_read, bytes_written, flop| Amounts { bytes_read, bytes_written, flop };
        assert_eq!(of(Contract::RmsNorm, "2x8", DType::Bf16), expect(2 * (16 + 8), 32, None));
        assert_eq!(of(Contract::AddRmsNorm, "2x8", DType::F32), expect(4 * 40, 4 * 32, None));
        let silu = Contract::GatedActivation(GatedActivation::Silu);
        assert_eq!(of(silu, "2x8", DType::F32), expect(64, 32, None));
        assert_eq!(of(Contract::Linear, "3x4x5", DType::F32), expect(4 * (12 + 20), 4 * 15, Some(120)));
        assert_eq!(
            of(Contract::GatedLinear(GatedLinear::Silu), "3x4x5", DType::F32),
            expect(4 * (12 + 40), 4 * 15, Some(240))
        );
        // 2 heads over 1, of 4 elements: 2 queries see 3 and 4 of 4 keys.
        let attention = of(Contract::Attention, "1x2x1x4x2x4", DType::F32);
        assert_eq!(attention, expect(4 * (16 + 2 * 16), 64, Some(4 * 2 * 4 * 7)));
        assert_eq!(of(Contract::AttentionVarlen, "2x2x1x4x2", DType::F32).flop, Some(4 * 8 * (1 + 3)));
        assert_eq!(of(Contract::CrossEntropy, "2x8", DType::Bf16), expect(32 + 8, 8, None));
        assert_eq!(of(Contract::Embedding, "2x100x8", DType::F16), expect(32 + 8, 32, None));
        let rotary = of(Contract::Rotary, "1x2x1x3x4", DType::F32);
        assert_eq!(rotary, expect(4 * (36 + 12), 4 * 36, None), "queries, keys, and both tables");
    }
}
