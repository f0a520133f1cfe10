//! The shapes at which a contract is measured.

use std::collections::BTreeMap;
use std::fmt;

use kernelhub::bind::Contract;

use super::error::BenchmarkError;

/// The most that the extents of a shape may multiply to.
const MOST: u64 = 1 << 55;

/// The axes of a contract's shapes, in the order of their text; `None` for a contract that nothing here measures.
pub(crate) fn axes_of(contract: Contract) -> Option<&'static [&'static str]> {
    Some(match contract {
        Contract::RmsNorm | Contract::AddRmsNorm | Contract::LayerNorm => &["rows", "hidden"],
        // The width of the input: a gated activation's output has half of it.
        Contract::Activation(_) | Contract::GatedActivation(_) | Contract::Softmax => &["rows", "width"],
        Contract::Rotary => &["batch", "heads", "kv_heads", "seq", "head_dim"],
        Contract::Attention => &["batch", "heads", "kv_heads", "head_dim", "q_len", "kv_len"],
        Contract::AttentionVarlen => &["batch", "heads", "kv_heads", "head_dim", "max_len"],
        Contract::AttentionPaged => &["batch", "heads", "kv_heads", "head_dim", "q_len", "kv_len", "block_size"],
        Contract::Linear | Contract::GatedLinear(_) => &["rows", "in_features", "out_features"],
        Contract::Embedding => &["rows", "vocab", "hidden"],
        Contract::CrossEntropy => &["rows", "vocab"],
        _ => return None,
    })
}

/// The shapes of a kernel that ships none: those of a small decoder and of a larger one.
fn usual_texts(contract: Contract) -> &'static [&'static str] {
    match contract {
        Contract::RmsNorm | Contract::AddRmsNorm | Contract::LayerNorm => &["1x576", "32x576", "512x2048", "2048x4096"],
        Contract::Activation(_) => &["1x1536", "32x1536", "512x5632"],
        Contract::GatedActivation(_) => &["1x3072", "32x3072", "512x11264"],
        // The last is the scores of 9 heads over 512 positions.
        Contract::Softmax => &["32x576", "512x2048", "2048x4096", "4608x512"],
        Contract::Rotary => &["1x9x3x1x64", "1x9x3x32x64", "1x32x8x512x64", "1x32x8x2048x128"],
        Contract::Attention => &["1x9x3x64x1x512", "1x32x8x128x1x4096", "1x9x3x64x512x512"],
        Contract::AttentionVarlen => &["4x9x3x64x256"],
        Contract::AttentionPaged => &["4x9x3x64x1x512x16"],
        Contract::Linear | Contract::GatedLinear(_) => &["1x576x1536", "32x576x1536", "512x576x1536"],
        Contract::Embedding => &["1x49152x576", "512x49152x576"],
        Contract::CrossEntropy => &["1x49152", "64x49152"],
        _ => &[],
    }
}

/// A shape of one contract: the extent of each of its axes, in elements, all above 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shape {
    axes: &'static [&'static str],
    extents: Vec<usize>,
    is_gated: bool,
}

impl Shape {
    /// The shape that a text such as `32x576` says, for the layer `layer` of a contract.
    pub(crate) fn parse(layer: &str, contract: Contract, text: &str) -> Result<Self, BenchmarkError> {
        let axes = known_axes(layer, contract)?;
        let fault = |reason: String| shape_fault(layer, contract, text, axes, reason);
        let parts: Vec<&str> = text.split('x').collect();
        if parts.len() != axes.len() {
            return Err(fault(format!("it has {} axes, and {} are expected", parts.len(), axes.len())));
        }
        let extent = |part: &&str| part.parse().ok().filter(|extent| (1..=u32::MAX as usize).contains(extent));
        let extents: Option<Vec<usize>> = parts.iter().map(extent).collect();
        let extents = extents.ok_or_else(|| fault(format!("an extent is a whole number from 1 to {}", u32::MAX)))?;
        Self { axes, extents, is_gated: matches!(contract, Contract::GatedActivation(_)) }.checked().map_err(fault)
    }

    /// The shape that a kernel's `layers.toml` says.
    pub(crate) fn from_table(
        layer: &str,
        contract: Contract,
        table: &BTreeMap<String, u32>,
    ) -> Result<Self, BenchmarkError> {
        let axes = known_axes(layer, contract)?;
        let text = table.iter().map(|(axis, extent)| format!("{axis} = {extent}")).collect::<Vec<_>>().join(", ");
        let fault = |reason: String| shape_fault(layer, contract, &text, axes, reason);
        if let Some(stranger) = table.keys().find(|axis| !axes.contains(&axis.as_str())) {
            return Err(fault(format!("it has no axis {stranger:?}")));
        }
        let extent = |axis: &&str| {
            let extent = table.get(*axis).ok_or_else(|| fault(format!("the axis {axis} is missing")))?;
            Ok(*extent as usize)
        };
        let extents = axes.iter().map(extent).collect::<Result<_, _>>()?;
        Self { axes, extents, is_gated: matches!(contract, Contract::GatedActivation(_)) }.checked().map_err(fault)
    }

    /// The usual shapes of a contract.
    pub(crate) fn usual(layer: &str, contract: Contract) -> Result<Vec<Self>, BenchmarkError> {
        known_axes(layer, contract)?;
        usual_texts(contract).iter().map(|text| Self::parse(layer, contract, text)).collect()
    }

    /// The extent of an axis. Its contract has it.
    pub(crate) fn of(&self, axis: &str) -> usize {
        self.axes.iter().position(|name| *name == axis).map_or(1, |at| self.extents[at])
    }

    /// Names and extents, in the contract's order.
    pub(crate) fn named(&self) -> impl Iterator<Item = (&'static str, usize)> {
        self.axes.iter().copied().zip(self.extents.iter().copied())
    }

    /// Lengths of packed sequences of [`Contract::AttentionVarlen`]: evenly from short to `max_len`, 1 at least.
    pub(crate) fn sequence_lengths(&self) -> Vec<usize> {
        let (batch, longest) = (self.of("batch"), self.of("max_len"));
        (1..=batch).map(|at| (longest * at).div_ceil(batch)).collect()
    }

    fn checked(self) -> Result<Self, String> {
        // Whatever is counted of a shape is a part of this, but for a few bits.
        let all = self.extents.iter().try_fold(1_u64, |all, extent| all.checked_mul(*extent as u64));
        if all.is_none_or(|all| all > MOST) {
            return Err("no machine has memory for so much".to_owned());
        }
        let has = |axis: &str| self.axes.contains(&axis);
        if has("heads") && !self.of("heads").is_multiple_of(self.of("kv_heads")) {
            return Err("heads is no multiple of kv_heads".to_owned());
        }
        if has("q_len") && self.of("q_len") > self.of("kv_len") {
            return Err("q_len is more than kv_len: the queries are the last of the keys' positions".to_owned());
        }
        if has("width") && self.is_gated && !self.of("width").is_multiple_of(2) {
            return Err("width is odd, and the output is half of it".to_owned());
        }
        if has("seq") && !self.of("head_dim").is_multiple_of(2) {
            return Err("head_dim is odd, and its halves turn together".to_owned());
        }
        Ok(self)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let extents: Vec<String> = self.extents.iter().map(ToString::to_string).collect();
        f.pad(&extents.join("x"))
    }
}

fn known_axes(layer: &str, contract: Contract) -> Result<&'static [&'static str], BenchmarkError> {
    axes_of(contract)
        .ok_or_else(|| BenchmarkError::Contract { layer: layer.to_owned(), contract: contract.as_str().to_owned() })
}

fn shape_fault(
    layer: &str,
    contract: Contract,
    text: &str,
    axes: &'static [&'static str],
    reason: String,
) -> BenchmarkError {
    let (layer, text) = (layer.to_owned(), text.to_owned());
    BenchmarkError::Shape { layer, contract: contract.as_str(), text, reason, axes }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use kernelhub::bind::{Contract, GatedActivation};
    use kernelhub::hint::Hint as _;

    use super::{Shape, axes_of};

    #[test]
    fn texts_and_tables_name_the_same_shapes() {
        let shape = Shape::parse("RMSNorm", Contract::RmsNorm, "32x576").unwrap();
        assert_eq!((shape.of("rows"), shape.of("hidden"), shape.to_string()), (32, 576, "32x576".to_owned()));
        let table: BTreeMap<String, u32> = [("hidden".to_owned(), 576), ("rows".to_owned(), 32)].into();
        assert_eq!(Shape::from_table("RMSNorm", Contract::RmsNorm, &table).unwrap(), shape);
    }

    #[test]
    fn every_contract_has_axes_and_usual_shapes() {
        for contract in Contract::all() {
            assert!(axes_of(*contract).is_some(), "{contract}");
            assert!(!Shape::usual("L", *contract).unwrap().is_empty(), "{contract}");
        }
    }

    #[test]
    fn what_is_no_shape_is_refused_with_the_axes() {
        for (contract, text, words) in [
            (Contract::RmsNorm, "32", "it has 1 axes, and 2 are expected"),
            (Contract::RmsNorm, "32x", "a whole number from 1 to 4294967295"),
            (Contract::RmsNorm, "0x32", "a whole number from 1 to 4294967295"),
            (Contract::RmsNorm, "3x-2", "a whole number from 1 to 4294967295"),
            (Contract::Linear, "4000000000x4000000000x4000000000", "no machine has memory"),
            (Contract::RmsNorm, "3x5000000000", "a whole number from 1 to 4294967295"),
            (Contract::Attention, "1x9x2x64x1x512", "heads is no multiple"),
            (Contract::Attention, "1x9x3x64x513x512", "q_len is more than kv_len"),
            (Contract::Rotary, "1x9x3x1x63", "head_dim is odd"),
            (Contract::GatedActivation(GatedActivation::Silu), "2x7", "width is odd"),
        ] {
            let error = Shape::parse("L", contract, text).unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
            assert!(error.hint().unwrap().contains(axes_of(contract).unwrap()[0]), "{error}");
        }
        let table = |axes: &[&str]| axes.iter().map(|axis| ((*axis).to_owned(), 2)).collect::<BTreeMap<String, u32>>();
        let gated = Contract::GatedActivation(GatedActivation::Silu);
        let error = Shape::from_table("L", gated, &table(&["rows", "hidden"])).unwrap_err();
        assert!(error.to_string().contains("no axis \"hidden\""), "{error}");
        let error = Shape::from_table("L", gated, &table(&["rows"])).unwrap_err();
        assert!(error.to_string().contains("the axis width is missing"), "{error}");
    }

    #[test]
    fn packed_sequences_differ_and_none_is_empty() {
        let shape = Shape::parse("L", Contract::AttentionVarlen, "4x2x1x8x10").unwrap();
        assert_eq!(shape.sequence_lengths(), [3, 5, 8, 10]);
        let shape = Shape::parse("L", Contract::AttentionVarlen, "4x2x1x8x1").unwrap();
        assert_eq!(shape.sequence_lengths(), [1, 1, 1, 1]);
    }
}
