//! From verified code to a layer's kernel.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

use super::native::NativeBinding;
use super::{AttentionKernel, BindError, Contract, GatedActivationKernel, RmsNormKernel, RotaryKernel};
use crate::digest::Sha256Digest;
use crate::dtype::DType;
use crate::load::{Handshake, KernelLibrary};
use crate::manifest::{LayerSpec, Limits};
use crate::names::RepoId;
use crate::variant::Variant;
use crate::verify::VerifiedSnapshot;

/// Which code serves a layer: everything that a report needs to name it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KernelIdentity {
    /// The kernel repo.
    pub repo: RepoId,
    /// The kernel's version.
    pub version: u32,
    /// The build.
    pub variant: Variant,
    /// The layer's name in the kernel.
    pub layer: String,
    /// The function or the shader's entry point.
    pub function: String,
    /// The file that holds the code, in the cache.
    pub path: PathBuf,
    /// The digest of that file, as verified.
    pub sha256: Sha256Digest,
    /// How the ABI was checked; absent for shaders, which have none.
    pub handshake: Option<Handshake>,
}

impl fmt::Display for KernelIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@v{}:{}", self.repo, self.version, self.layer)
    }
}

/// What a kernel is and demands.
#[derive(Debug, Clone)]
pub struct LayerMeta {
    /// Which code it is.
    pub identity: KernelIdentity,
    /// The contract that it fulfils.
    pub contract: Contract,
    /// Element types that it computes.
    pub dtypes: Vec<DType>,
    /// Shapes that it accepts.
    pub limits: Limits,
    /// Whether it declares a backward pass.
    pub has_backward: bool,
    /// Whether its calls may be recorded and replayed.
    pub can_compile: bool,
}

/// Loaded code that layers are bound to.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Code {
    /// A native library.
    Native(&'static KernelLibrary),
    /// Shader text, to be compiled for this device.
    #[cfg(feature = "wgpu")]
    Shader(crate::gpu::Device),
}

/// How a kernel is called.
#[derive(Debug)]
pub(super) enum Route {
    Native(NativeBinding),
    #[cfg(feature = "wgpu")]
    Shader(Box<super::shader::ShaderRoute>),
}

impl Route {
    /// The native function, for tensors in host memory.
    #[cfg_attr(
        not(feature = "wgpu"),
        expect(clippy::unnecessary_wraps, unused_variables, reason = "without shaders every kernel is native")
    )]
    pub(super) fn native(&self, meta: &LayerMeta) -> Result<&NativeBinding, BindError> {
        match self {
            Self::Native(native) => Ok(native),
            #[cfg(feature = "wgpu")]
            Self::Shader(_) => {
                Err(BindError::Memory { kernel: meta.identity.to_string(), code: "shader", memory: "host" })
            }
        }
    }
}

/// A kernel bound to the contract of one layer.
#[derive(Debug)]
#[non_exhaustive]
pub enum LayerKernel {
    /// Serves [`Contract::RmsNorm`].
    RmsNorm(RmsNormKernel),
    /// Serves [`Contract::Rotary`].
    Rotary(RotaryKernel),
    /// Serves [`Contract::GatedActivation`].
    GatedActivation(GatedActivationKernel),
    /// Serves [`Contract::Attention`].
    Attention(AttentionKernel),
}

impl LayerKernel {
    /// What the kernel is and demands.
    #[must_use]
    pub fn meta(&self) -> &LayerMeta {
        match self {
            Self::RmsNorm(kernel) => kernel.meta(),
            Self::Rotary(kernel) => kernel.meta(),
            Self::GatedActivation(kernel) => kernel.meta(),
            Self::Attention(kernel) => kernel.meta(),
        }
    }
}

/// Binds the layer `layer` of a verified snapshot to its contract, on code loaded from that same snapshot.
///
/// # Errors
/// [`BindError::LayerMissing`], [`BindError::UnknownContract`], [`BindError::Arguments`] when `layers.toml` does not fit
/// the contracts; [`BindError::Load`] when the library lacks the function; [`BindError::Incomplete`] when the layer has
/// no function for native code, or no shader for a device; [`BindError::Shader`] when the shader does not compile.
pub fn bind(snapshot: &VerifiedSnapshot, layer: &str, code: &Code) -> Result<LayerKernel, BindError> {
    let kernel = format!("{}@v{}", snapshot.repo(), snapshot.version());
    let layers = &snapshot.layers().layers;
    let spec = layers.iter().find(|spec| spec.name == layer).ok_or_else(|| BindError::LayerMissing {
        kernel: kernel.clone(),
        layer: layer.to_owned(),
        available: layers.iter().map(|spec| spec.name.clone()).collect(),
    })?;
    let kernel = format!("{kernel}:{layer}");
    let contract = Contract::from_name(&spec.contract).ok_or_else(|| BindError::UnknownContract {
        kernel: kernel.clone(),
        contract: spec.contract.clone(),
        known: Contract::ALL.map(Contract::as_str).to_vec(),
    })?;
    let (route, function, path, sha256, handshake) = match code {
        Code::Native(library) => {
            let forward = spec.forward.as_ref().ok_or_else(|| BindError::Incomplete {
                kernel: kernel.clone(),
                reason: "the layer declares no native forward function".to_owned(),
            })?;
            let native = NativeBinding::new(library, forward, contract, &kernel)?;
            let function = native.name().to_owned();
            let library = native.library();
            let (path, sha256) = (library.path().to_owned(), library.sha256());
            (Route::Native(native), function, path, sha256, Some(library.handshake()))
        }
        #[cfg(feature = "wgpu")]
        Code::Shader(device) => {
            let shader = super::shader::ShaderRoute::new(snapshot, spec, contract, device, &kernel)?;
            let (function, path, sha256) = shader.code();
            (Route::Shader(Box::new(shader)), function, path, sha256, None)
        }
    };
    let identity = KernelIdentity {
        repo: snapshot.repo().clone(),
        version: snapshot.version(),
        variant: *snapshot.variant(),
        layer: layer.to_owned(),
        function,
        path,
        sha256,
        handshake,
    };
    Ok(with_contract(meta(spec, identity, contract), route))
}

fn meta(spec: &LayerSpec, identity: KernelIdentity, contract: Contract) -> LayerMeta {
    LayerMeta {
        identity,
        contract,
        dtypes: spec.dtypes.clone(),
        limits: spec.limits.clone(),
        has_backward: spec.backward.is_some(),
        can_compile: spec.can_compile,
    }
}

fn with_contract(meta: LayerMeta, route: Route) -> LayerKernel {
    match meta.contract {
        Contract::RmsNorm => LayerKernel::RmsNorm(RmsNormKernel { meta, route }),
        Contract::Rotary => LayerKernel::Rotary(RotaryKernel { meta, route }),
        Contract::GatedActivation(_) => LayerKernel::GatedActivation(GatedActivationKernel { meta, route }),
        Contract::Attention => LayerKernel::Attention(AttentionKernel { meta, route }),
    }
}
