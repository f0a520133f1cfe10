//! `[[layer.benchmark]]`: the shapes at which a kernel's publisher measures a layer.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{LayerSpec, ManifestError};
use crate::dtype::DType;

/// The most shapes of one layer.
const MAX_SHAPES: usize = 64;
/// The most axes of one shape.
const MAX_AXES: usize = 12;

/// One shape at which `kernelhub benchmark` measures the layer when it is asked for no others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BenchmarkShape {
    /// The extent of every axis by its name, in elements, such as `{ rows = 32, hidden = 576 }`. Which axes a layer has
    /// is its contract's to say: `docs/benchmark.md` lists them.
    pub shape: BTreeMap<String, u32>,
    /// Element types to measure it in; a part of the layer's own. Absent: all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dtypes: Option<Vec<DType>>,
}

/// Checks the shapes of one layer; `index` is its place in the file.
pub(super) fn check_benchmarks(layer: &LayerSpec, index: usize, origin: &str) -> Result<(), ManifestError> {
    let invalid = |field: String, reason: String| {
        Err(ManifestError::Invalid { origin: origin.to_owned(), field: format!("layer[{index}].{field}"), reason })
    };
    if layer.benchmark.len() > MAX_SHAPES {
        return invalid("benchmark".to_owned(), format!("expected at most {MAX_SHAPES} shapes"));
    }
    for (at, benchmark) in layer.benchmark.iter().enumerate() {
        let field = |name: &str| format!("benchmark[{at}].{name}");
        let is_axis = |name: &String| {
            !name.is_empty()
                && name.len() <= 32
                && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        };
        if benchmark.shape.is_empty() || benchmark.shape.len() > MAX_AXES {
            return invalid(field("shape"), format!("expected 1 to {MAX_AXES} axes"));
        }
        if let Some(name) = benchmark.shape.keys().find(|name| !is_axis(name)) {
            return invalid(field("shape"), format!("{name:?}: an axis has lower-case letters, digits and '_'"));
        }
        if let Some((name, _)) = benchmark.shape.iter().find(|(_, extent)| **extent == 0) {
            return invalid(field("shape"), format!("{name} is 0: there is nothing to measure"));
        }
        if let Some(dtypes) = &benchmark.dtypes {
            if dtypes.is_empty() {
                return invalid(field("dtypes"), "expected at least one dtype; absent means all".to_owned());
            }
            if let Some(dtype) = dtypes.iter().find(|dtype| !layer.dtypes.contains(dtype)) {
                return invalid(field("dtypes"), format!("the layer does not compute {dtype}"));
            }
        }
        if layer.benchmark[..at].contains(benchmark) {
            return invalid(field("shape"), "this shape stands twice".to_owned());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{LayersFile, ManifestError};
    use super::DType;

    const LAYER: &str = "schema = 1\n[[layer]]\nname = \"RMSNorm\"\ncontract = \"rms_norm\"\ndtypes = [\"f32\", \"bf16\"]\n\
        forward = { function = \"rms_norm\", args = [\"out\", \"x\"] }\n";

    fn parse(benchmarks: &str) -> Result<LayersFile, ManifestError> {
        LayersFile::parse(&format!("{LAYER}{benchmarks}"), "layers.toml")
    }

    fn refused(benchmarks: &str, words: &str) {
        let error = parse(benchmarks).unwrap_err();
        let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        assert!(format!("{error}: {source}").contains(words), "{benchmarks}: {error}: {source}");
    }

    #[test]
    fn shapes_are_read_and_written() {
        let text = "[[layer.benchmark]]\nshape = { rows = 32, hidden = 576 }\n\
            [[layer.benchmark]]\nshape = { rows = 1, hidden = 64 }\ndtypes = [\"bf16\"]\n";
        let file = parse(text).unwrap();
        let benchmarks = &file.layers[0].benchmark;
        assert_eq!(benchmarks.len(), 2);
        assert_eq!(benchmarks[0].shape.get("hidden"), Some(&576));
        assert_eq!((&benchmarks[0].dtypes, &benchmarks[1].dtypes), (&None, &Some(vec![DType::Bf16])));
        let written = toml::to_string(&file).unwrap();
        assert_eq!(LayersFile::parse(&written, "layers.toml").unwrap(), file, "{written}");
        assert!(parse("").unwrap().layers[0].benchmark.is_empty(), "none are needed");
    }

    #[test]
    fn what_cannot_be_measured_is_refused() {
        let shape = |shape: &str| format!("[[layer.benchmark]]\nshape = {{ {shape} }}\n");
        refused(&shape(""), "layer[0].benchmark[0].shape: expected 1 to 12 axes");
        refused(&shape("rows = 0"), "rows is 0");
        refused(&shape("Rows = 1"), "\"Rows\": an axis has");
        refused(&shape("rows = -1"), "invalid value");
        refused(&shape("rows = 5000000000"), "invalid value");
        refused(&shape("rows = \"1\""), "invalid type");
        refused(&format!("{}{}", shape("rows = 1"), shape("rows = 1")), "benchmark[1].shape: this shape stands twice");
        refused(&format!("{}dtypes = []\n", shape("rows = 1")), "expected at least one dtype");
        refused(&format!("{}dtypes = [\"f16\"]\n", shape("rows = 1")), "the layer does not compute f16");
        refused(&format!("{}name = \"x\"\n", shape("rows = 1")), "unknown field `name`");
        refused("[[layer.benchmark]]\n", "missing field `shape`");
        let many: String = (1..=65).map(|rows| shape(&format!("rows = {rows}"))).collect();
        refused(&many, "at most 64 shapes");
    }
}
