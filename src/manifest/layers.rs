//! `layers.toml`: which layers a kernel serves, and how each is called.
//!
//! Written by a kernel's publisher and covered by the digest in its `metadata.json`. For Hub kernels, whose knowledge
//! stands in Python files, the same `[[layer]]` tables stand in a kernel manifest.

use serde::{Deserialize, Serialize};

use super::ManifestError;
use super::benchmark::{BenchmarkShape, check_benchmarks};
use super::shader::check_shader;
use crate::dtype::DType;
use crate::names::RelativePath;

/// The file's name, in the variant's folder.
pub const LAYERS_FILE: &str = "layers.toml";
/// The edition of `layers.toml` that this version reads and writes.
pub const LAYERS_SCHEMA: u32 = 1;
const FORMAT: &str = "layers.toml";

/// A whole `layers.toml`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayersFile {
    /// The edition; [`LAYERS_SCHEMA`].
    pub schema: u32,
    /// The layers served. Names are unique.
    #[serde(rename = "layer")]
    pub layers: Vec<LayerSpec>,
}

/// One layer that a kernel serves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerSpec {
    /// The name that host layers ask for, such as `RMSNorm`.
    pub name: String,
    /// The op contract that the functions fulfil, such as `rms_norm`; see [`crate::bind`].
    pub contract: String,
    /// Element types that the kernel computes. Never empty.
    pub dtypes: Vec<DType>,
    /// The publisher's promise that a call allocates nothing, waits for nothing and depends on shapes only, so that it
    /// may be recorded and replayed. Absent means no promise.
    #[serde(default)]
    pub can_compile: bool,
    /// Where the kernel rounds to the tensor's dtype, such as `f32-weight-f32`. Absent: the contract's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounding: Option<String>,
    /// Shapes that the kernel accepts beyond its contract's own rules.
    #[serde(default)]
    pub limits: Limits,
    /// The native function of the forward pass. Present in native packs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward: Option<FunctionBinding>,
    /// The native function of the backward pass. Absent: the layer has no backward and is never used where a gradient
    /// is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backward: Option<FunctionBinding>,
    /// The compute shader of the forward pass. Present in shader packs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shader: Option<ShaderBinding>,
    /// Shapes at which the publisher measures the layer. Empty: the contract's usual ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub benchmark: Vec<BenchmarkShape>,
}

/// What a kernel demands of its tensors. Every limit is met by "no demand" when absent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// The last axis must be a multiple of this many elements. 1: no demand. Smaller is better.
    pub last_dim_multiple_of: u32,
    /// The first element's address must be a multiple of this many bytes. 1: no demand. Smaller is better.
    pub alignment_bytes: u32,
    /// Attention head sizes that the kernel supports, in elements. Empty: all up to `max_head_size`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub head_sizes: Vec<u32>,
    /// The largest attention head size, in elements. Absent: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_head_size: Option<u32>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { last_dim_multiple_of: 1, alignment_bytes: 1, head_sizes: Vec::new(), max_head_size: None }
    }
}

/// A native function and the order of its arguments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FunctionBinding {
    /// The function's name, without the ABI's prefix.
    pub function: String,
    /// The contract's parameter names in the order in which the function takes them.
    pub args: Vec<String>,
}

/// A compute shader and how it is launched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShaderBinding {
    /// The WGSL file, relative to the variant's folder. Listed in the digest.
    pub file: RelativePath,
    /// The entry point's name.
    pub entry: String,
    /// The workgroup size that the shader declares, in invocations per axis.
    pub workgroup: [u32; 3],
    /// Storage bindings of group 0 in order, each `<tensor>:read` or `<tensor>:write`. The shader's variables carry the
    /// same names, so that two bindings of one type cannot be swapped unseen; so do the parameter block's fields.
    pub bindings: Vec<String>,
    /// Fields of the uniform parameter block at the binding after the last tensor, in order, each `<name>:u32` or
    /// `<name>:f32`.
    pub params: Vec<String>,
    /// Workgroups per axis, as [expressions](super::GridExpression) over the integer parameters: `rows`,
    /// `ceil(width / 256)`, `1`. What they say is what is launched; nothing folds a long axis. An axis has at most
    /// 65,535 workgroups on every device, so a shader that needs more spreads them over two axes itself:
    /// `["ceil(rows / max(ceil(rows / 65535), 1))", "ceil(rows / 65535)", "1"]`, read in the shader as
    /// `workgroup_id.y * num_workgroups.x + workgroup_id.x`.
    pub grid: [String; 3],
    /// wgpu features that the shader needs, such as `SUBGROUP`. Empty: none.
    #[serde(default)]
    pub features: Vec<String>,
}

impl LayersFile {
    /// Parses and checks a `layers.toml`. `origin` names the file in errors.
    ///
    /// # Errors
    /// [`ManifestError::Toml`] for syntax, an unknown key or a missing field, [`ManifestError::Schema`] for another
    /// edition, [`ManifestError::Invalid`] for values outside the format: no layer, a name twice, no dtype, a zero
    /// limit, a layer with neither a function nor a shader, a benchmark's shape of nothing.
    pub fn parse(text: &str, origin: &str) -> Result<Self, ManifestError> {
        #[derive(Deserialize)]
        struct Edition {
            schema: u32,
        }
        let toml_error =
            |source| ManifestError::Toml { origin: origin.to_owned(), format: FORMAT, source: Box::new(source) };
        // The edition decides before the keys do: a newer edition has keys that this one does not know.
        let Edition { schema } = toml::from_str(text).map_err(toml_error)?;
        if schema != LAYERS_SCHEMA {
            return Err(ManifestError::Schema {
                origin: origin.to_owned(),
                format: FORMAT,
                found: schema,
                supported: LAYERS_SCHEMA,
            });
        }
        let file: Self = toml::from_str(text).map_err(toml_error)?;
        check_layers(&file.layers, origin)?;
        Ok(file)
    }
}

/// Checks the `[[layer]]` tables of a `layers.toml` or a manifest.
pub(super) fn check_layers(layers: &[LayerSpec], origin: &str) -> Result<(), ManifestError> {
    let invalid = |field: String, reason: &str| {
        Err(ManifestError::Invalid { origin: origin.to_owned(), field, reason: reason.to_owned() })
    };
    if layers.is_empty() {
        return invalid("layer".to_owned(), "a kernel serves at least one layer");
    }
    for (index, layer) in layers.iter().enumerate() {
        let field = |name: &str| format!("layer[{index}].{name}");
        let is_name = |name: &str| {
            !name.is_empty()
                && name.len() <= 128
                && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.'))
        };
        if !is_name(&layer.name) {
            return invalid(field("name"), "expected letters, digits, '_' and '.'");
        }
        if layers[..index].iter().any(|earlier| earlier.name == layer.name) {
            return invalid(field("name"), "this name stands twice");
        }
        if layer.dtypes.is_empty() {
            return invalid(field("dtypes"), "expected at least one dtype");
        }
        if layer.limits.last_dim_multiple_of == 0 || layer.limits.alignment_bytes == 0 {
            return invalid(field("limits"), "a limit of 0 can never be met; 1 means no demand");
        }
        if layer.forward.is_none() && layer.shader.is_none() {
            return invalid(field("forward"), "a layer needs a forward function or a shader");
        }
        for (name, binding) in [("forward", &layer.forward), ("backward", &layer.backward)] {
            let Some(binding) = binding else { continue };
            if !is_name(&binding.function) {
                return invalid(field(&format!("{name}.function")), "expected letters, digits, '_' and '.'");
            }
            if binding.args.is_empty() || !binding.args.iter().all(|arg| is_name(arg)) {
                return invalid(field(&format!("{name}.args")), "expected one or more parameter names");
            }
        }
        if let Some(shader) = &layer.shader {
            check_shader(shader, &field("shader"), origin)?;
        }
        check_benchmarks(layer, index, origin)?;
    }
    Ok(())
}
