//! The formats that describe kernels: `layers.toml`, `metadata.json`, `kernel-manifests/*.toml`.
//!
//! Owns: one current model of each format, its parser and its writer; older editions are converted on reading.
//! Refuses: I/O. Texts come in, typed values go out, and nothing here trusts what a text says about itself.
//!
//! In our own formats (`layers.toml`, manifests) an unknown key is an error: a typing mistake must not silently drop an
//! option. In `metadata.json`, which newer builders extend, unknown keys are ignored.

mod error;
mod grid;
mod layers;
mod shader;

pub use error::ManifestError;
pub use grid::{GridError, GridExpression};
pub use layers::{FunctionBinding, LAYERS_SCHEMA, LayerSpec, LayersFile, Limits, ShaderBinding};
pub use shader::{
    Access, ParamDeclaration, ParamType, ShaderSignature, SignatureError, SignatureFault, TensorDeclaration,
};
