//! The strings of a `shader` table, read: tensors, parameters and grid.

use super::ManifestError;
use super::grid::{GridError, GridExpression};
use super::layers::ShaderBinding;

/// What a shader may do with a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Reads only: `var<storage, read>`.
    Read,
    /// Writes, and may read: `var<storage, read_write>`.
    Write,
}

/// The type of a shader parameter. Each takes 4 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParamType {
    /// An unsigned 32-bit integer. Grid expressions can use it.
    U32,
    /// A single-precision number.
    F32,
}

impl ParamType {
    /// The type's name in `params` and in WGSL.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::U32 => "u32",
            Self::F32 => "f32",
        }
    }
}

/// One storage binding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorDeclaration {
    /// The tensor's name in the op contract.
    pub name: String,
    /// Whether the shader writes it.
    pub access: Access,
}

/// One field of the parameter block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParamDeclaration {
    /// The parameter's name in the op contract.
    pub name: String,
    /// Its type.
    pub kind: ParamType,
}

/// How a shader is called: a [`ShaderBinding`]'s strings, parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShaderSignature {
    /// Storage bindings of group 0, in order from binding 0. Never empty; at least one is written.
    pub tensors: Vec<TensorDeclaration>,
    /// Fields of the uniform block at the binding after the last tensor. Empty: there is no block.
    pub params: Vec<ParamDeclaration>,
    /// Workgroups per axis. They use `u32` parameters only.
    pub grid: [GridExpression; 3],
}

/// Which string of a `shader` table is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {fault}")]
pub struct SignatureError {
    /// The field, as a path below the table such as `grid[1]`.
    pub field: String,
    /// What is wrong with it.
    pub fault: SignatureFault,
}

/// What can be wrong with a string of a `shader` table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SignatureFault {
    /// Not `<name>:<word>`, with a name of letters, digits and `_`.
    #[error("expected {expected}, found {found:?}")]
    Form {
        /// The form.
        expected: &'static str,
        /// The string.
        found: String,
    },
    /// A tensor or parameter stands twice.
    #[error("the name {name:?} stands twice")]
    Repeated {
        /// The name.
        name: String,
    },
    /// No tensor is written, so the shader can have no result.
    #[error("no tensor is written")]
    NoOutput,
    /// A workgroup axis of 0.
    #[error("a workgroup has at least one invocation on every axis")]
    EmptyWorkgroup,
    /// A grid expression.
    #[error(transparent)]
    Grid(#[from] GridError),
}

/// A name that WGSL and grid expressions can both hold.
fn is_identifier(name: &str) -> bool {
    name.len() <= 128
        && name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

impl ShaderBinding {
    /// Reads the table's strings.
    ///
    /// # Errors
    /// [`SignatureError`] with the first wrong field.
    pub fn signature(&self) -> Result<ShaderSignature, SignatureError> {
        let error = |field: String, fault: SignatureFault| SignatureError { field, fault };
        let form = |expected, found: &str| SignatureFault::Form { expected, found: found.to_owned() };
        if !is_identifier(&self.entry) {
            return Err(error("entry".to_owned(), form("an identifier", &self.entry)));
        }
        if self.workgroup.contains(&0) {
            return Err(error("workgroup".to_owned(), SignatureFault::EmptyWorkgroup));
        }
        let mut names: Vec<&str> = Vec::new();
        let mut tensors = Vec::new();
        for (index, text) in self.bindings.iter().enumerate() {
            let (name, access) = match text.split_once(':') {
                Some((name, "read")) if is_identifier(name) => (name, Access::Read),
                Some((name, "write")) if is_identifier(name) => (name, Access::Write),
                _ => return Err(error(format!("bindings[{index}]"), form("<tensor>:read or <tensor>:write", text))),
            };
            if names.contains(&name) {
                let fault = SignatureFault::Repeated { name: name.to_owned() };
                return Err(error(format!("bindings[{index}]"), fault));
            }
            names.push(name);
            tensors.push(TensorDeclaration { name: name.to_owned(), access });
        }
        if !tensors.iter().any(|tensor| tensor.access == Access::Write) {
            return Err(error("bindings".to_owned(), SignatureFault::NoOutput));
        }
        let mut params = Vec::new();
        for (index, text) in self.params.iter().enumerate() {
            let (name, kind) = match text.split_once(':') {
                Some((name, "u32")) if is_identifier(name) => (name, ParamType::U32),
                Some((name, "f32")) if is_identifier(name) => (name, ParamType::F32),
                _ => return Err(error(format!("params[{index}]"), form("<name>:u32 or <name>:f32", text))),
            };
            if names.contains(&name) {
                let fault = SignatureFault::Repeated { name: name.to_owned() };
                return Err(error(format!("params[{index}]"), fault));
            }
            names.push(name);
            params.push(ParamDeclaration { name: name.to_owned(), kind });
        }
        for (index, name) in self.features.iter().enumerate() {
            let is_feature = !name.is_empty()
                && name.len() <= 64
                && name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
            if !is_feature {
                return Err(error(format!("features[{index}]"), form("a feature name such as SUBGROUP", name)));
            }
        }
        let axis = |index: usize| {
            let text = self.grid[index].as_str();
            let in_field = |fault: GridError| error(format!("grid[{index}]"), fault.into());
            let expression = GridExpression::parse(text).map_err(in_field)?;
            for name in expression.parameters() {
                if !params.iter().any(|param| param.name == name && param.kind == ParamType::U32) {
                    return Err(in_field(GridError::UnknownParameter { text: text.to_owned(), name: name.to_owned() }));
                }
            }
            Ok(expression)
        };
        let grid = [axis(0)?, axis(1)?, axis(2)?];
        Ok(ShaderSignature { tensors, params, grid })
    }
}

/// Checks a layer's `shader` table on parsing, so that a malformed one never gets as far as a device.
pub(super) fn check_shader(shader: &ShaderBinding, prefix: &str, origin: &str) -> Result<(), ManifestError> {
    match shader.signature() {
        Ok(_) => Ok(()),
        Err(SignatureError { field, fault }) => Err(ManifestError::Invalid {
            origin: origin.to_owned(),
            field: format!("{prefix}.{field}"),
            reason: fault.to_string(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::{Access, ParamType};
    use crate::manifest::{LayersFile, ManifestError};

    fn layers(entry: &str, bindings: &str, params: &str, grid: &str) -> Result<LayersFile, ManifestError> {
        let text = format!(
            "schema = 1\n[[layer]]\nname = \"L\"\ncontract = \"c\"\ndtypes = [\"f32\"]\n\
             shader = {{ file = \"a.wgsl\", entry = \"{entry}\", workgroup = [64, 1, 1], bindings = {bindings}, \
             params = {params}, grid = {grid} }}\n"
        );
        LayersFile::parse(&text, "layers.toml")
    }

    #[test]
    fn a_table_is_read_in_its_order() {
        let file = layers(
            "main",
            r#"["x:read", "out:write"]"#,
            r#"["rows:u32", "eps:f32"]"#,
            r#"["rows", "ceil(rows / 2)", "1"]"#,
        )
        .unwrap();
        let signature = file.layers[0].shader.as_ref().unwrap().signature().unwrap();
        let tensors: Vec<_> = signature.tensors.iter().map(|t| (t.name.as_str(), t.access)).collect();
        let params: Vec<_> = signature.params.iter().map(|p| (p.name.as_str(), p.kind)).collect();
        assert_eq!(tensors, [("x", Access::Read), ("out", Access::Write)]);
        assert_eq!(params, [("rows", ParamType::U32), ("eps", ParamType::F32)]);
        assert_eq!(signature.grid[1].to_string(), "ceil(rows / 2)");
    }

    #[test]
    fn a_malformed_table_is_refused_on_parsing_and_its_field_is_named() {
        let (bindings, params, grid) =
            (r#"["x:read", "out:write"]"#, r#"["rows:u32", "eps:f32"]"#, r#"["1", "1", "1"]"#);
        for (entry, bindings, params, grid, field) in [
            ("ma in", bindings, params, grid, "entry"),
            ("main", r#"["x", "out:write"]"#, params, grid, "bindings[0]"),
            ("main", r#"["x:read", "out:rw"]"#, params, grid, "bindings[1]"),
            ("main", r#"["x:read", "x:write"]"#, params, grid, "bindings[1]"),
            ("main", r#"["x:read"]"#, params, grid, "bindings"),
            ("main", bindings, r#"["rows:i32"]"#, grid, "params[0]"),
            ("main", bindings, r#"["rows:u32", "rows:u32"]"#, grid, "params[1]"),
            ("main", bindings, r#"["x:u32"]"#, grid, "params[0]"),
            ("main", bindings, params, r#"["1", "cols", "1"]"#, "grid[1]"),
            ("main", bindings, params, r#"["1", "1", "eps"]"#, "grid[2]"),
            ("main", bindings, params, r#"["rows /", "1", "1"]"#, "grid[0]"),
        ] {
            match layers(entry, bindings, params, grid) {
                Err(ManifestError::Invalid { field: named, .. }) => {
                    assert_eq!(named, format!("layer[0].shader.{field}"));
                }
                other => panic!("{field}: {other:?}"),
            }
        }
    }
}
