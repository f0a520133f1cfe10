//! The formats that describe kernels: `layers.toml`, `metadata.json`, `kernel-manifests/*.toml`, `kernels.lock` with
//! its sidecar, and what a project declares in its own files.
//!
//! Owns: one current model of each format, its parser and its writer; older editions are converted on reading.
//! Refuses: I/O. Texts come in, typed values go out, and nothing here trusts what a text says about itself.
//!
//! In our own formats (`layers.toml`, manifests, locks) an unknown key is an error: a typing mistake must not silently
//! drop an option. In `metadata.json`, which newer builders extend, unknown keys are ignored.

mod benchmark;
mod builtin;
mod commit;
mod dependency;
mod error;
mod grid;
mod kernel;
mod layers;
mod lock;
mod lock_sidecar;
mod metadata;
mod metadata_json;
mod shader;
mod strict_json;

pub use benchmark::BenchmarkShape;
pub use builtin::hub_manifests;
pub use commit::{Commit, CommitError};
pub use dependency::{CargoKernels, Dependency, KernelVersion, cargo_kernels, pyproject_kernels};
pub use error::ManifestError;
pub(crate) use error::unknown_key_hint;
pub use grid::{GridError, GridExpression};
pub use kernel::{
    Artifact, ArtifactUrl, KernelInfo, KernelManifest, MANIFEST_SCHEMA, MAX_MANIFEST_BYTES, Source, UrlError,
};
pub use layers::{FunctionBinding, LAYERS_FILE, LAYERS_SCHEMA, LayerSpec, LayersFile, Limits, ShaderBinding};
pub use lock::{KernelLock, KernelsLock, LOCK_FILE, LockEdition, MAX_LOCK_BYTES, VariantHash};
pub use lock_sidecar::{HubBuild, LockSidecar, Pin, PinnedKernel, SIDECAR_FILE, SIDECAR_SCHEMA};
pub(crate) use metadata::is_outside_digest;
pub use metadata::{
    BackendInfo, DigestTable, MAX_METADATA_BYTES, METADATA_FILE, MINISIGN_FILE, Metadata, SIGNATURE_FILE,
    SIGNATURE_FILES,
};
pub use shader::{
    Access, ParamDeclaration, ParamType, ShaderSignature, SignatureError, SignatureFault, TensorDeclaration,
};
pub(crate) use strict_json::parse as parse_json_strict;
