//! From verified code to a layer's kernel.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

use super::native::{Absent, NativeBinding, NativeRoute};
use super::parity::Parity;
use super::{
    ActivationKernel, AddRmsNormKernel, AttentionKernel, AttentionPagedKernel, AttentionVarlenKernel, BindError,
    Contract, CrossEntropyKernel, EmbeddingKernel, GatedActivationKernel, GatedLinearKernel, LayerNormKernel,
    LinearKernel, Parameter, RmsNormKernel, RotaryKernel, Rounding, SoftmaxKernel,
};
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
    /// Where it rounds to the dtype of its tensors.
    pub rounding: Rounding,
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
    /// Whether it has a backward pass: a backward function was bound, or the contract is its own backward.
    pub has_backward: bool,
    /// Whether its calls may be recorded and replayed.
    pub can_compile: bool,
    pub(super) absent: Absent,
    pub(super) backward_absent: Absent,
    pub(super) parity: Parity,
}

impl LayerMeta {
    /// The first of these optional parameters that the kernel's forward does not take, if any. A name that the contract
    /// does not have is lacking, too. A kernel must not take a layer that passes other values than the defaults for
    /// what it lacks.
    #[must_use]
    pub fn lacks(&self, options: &[&'static str]) -> Option<&'static str> {
        first_lacking(self.contract.forward(), self.absent, options)
    }

    /// As [`Self::lacks`], of those options that concern the backward function. `None` as well when there is no such
    /// function.
    #[must_use]
    pub fn backward_lacks(&self, options: &[&'static str]) -> Option<&'static str> {
        let table = self.contract.backward().filter(|_| self.has_backward)?;
        // What only the forward knows was seen to by `lacks`.
        options.iter().find_map(|option| {
            let known = table.iter().any(|parameter| parameter.name == *option);
            known.then(|| first_lacking(table, self.backward_absent, &[option])).flatten()
        })
    }
}

fn first_lacking(table: &[Parameter], absent: Absent, options: &[&'static str]) -> Option<&'static str> {
    options.iter().copied().find(|option| {
        let index = table.iter().position(|parameter| parameter.name == *option);
        index.is_none_or(|index| absent.has(index))
    })
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
    Native(NativeRoute),
    #[cfg(feature = "wgpu")]
    Shader(Box<super::shader::ShaderRoute>),
}

impl Route {
    /// The native forward function, for tensors in host memory.
    #[inline]
    pub(super) fn native(&self, meta: &LayerMeta) -> Result<&NativeBinding, BindError> {
        Ok(&self.functions(meta)?.forward)
    }

    /// Whether it runs on a GPU's memory.
    pub(super) fn is_shader(&self) -> bool {
        !matches!(self, Self::Native(_))
    }

    /// The native backward function, for tensors in host memory.
    pub(super) fn native_backward(&self, meta: &LayerMeta) -> Result<&NativeBinding, BindError> {
        let backward = self.functions(meta)?.backward.as_ref();
        backward.ok_or_else(|| BindError::NoBackward { kernel: meta.identity.to_string() })
    }

    #[cfg_attr(
        not(feature = "wgpu"),
        expect(clippy::unnecessary_wraps, unused_variables, reason = "without shaders every kernel is native")
    )]
    fn functions(&self, meta: &LayerMeta) -> Result<&NativeRoute, BindError> {
        match self {
            Self::Native(native) => Ok(native),
            #[cfg(feature = "wgpu")]
            Self::Shader(_) => {
                Err(BindError::Memory { kernel: meta.identity.to_string(), code: "shader", memory: "host" })
            }
        }
    }
}

/// Declares [`LayerKernel`] with a variant per contract family.
macro_rules! layer_kernels {
    ($($variant:ident($face:ident) for $contract:pat, $documented:ident;)*) => {
        /// A kernel bound to the contract of one layer.
        #[derive(Debug)]
        #[non_exhaustive]
        pub enum LayerKernel {
            $(
                #[doc = concat!("Serves [`Contract::", stringify!($documented), "`].")]
                $variant($face),
            )*
        }

        impl LayerKernel {
            /// What the kernel is and demands.
            #[must_use]
            pub fn meta(&self) -> &LayerMeta {
                match self {
                    $(Self::$variant(kernel) => kernel.meta(),)*
                }
            }

            fn new(meta: LayerMeta, route: Route) -> Self {
                match meta.contract {
                    $($contract => Self::$variant($face { meta, route }),)*
                }
            }
        }
    };
}

layer_kernels! {
    RmsNorm(RmsNormKernel) for Contract::RmsNorm, RmsNorm;
    AddRmsNorm(AddRmsNormKernel) for Contract::AddRmsNorm, AddRmsNorm;
    LayerNorm(LayerNormKernel) for Contract::LayerNorm, LayerNorm;
    Rotary(RotaryKernel) for Contract::Rotary, Rotary;
    Activation(ActivationKernel) for Contract::Activation(_), Activation;
    GatedActivation(GatedActivationKernel) for Contract::GatedActivation(_), GatedActivation;
    Softmax(SoftmaxKernel) for Contract::Softmax, Softmax;
    Attention(AttentionKernel) for Contract::Attention, Attention;
    AttentionVarlen(AttentionVarlenKernel) for Contract::AttentionVarlen, AttentionVarlen;
    AttentionPaged(AttentionPagedKernel) for Contract::AttentionPaged, AttentionPaged;
    Linear(LinearKernel) for Contract::Linear, Linear;
    GatedLinear(GatedLinearKernel) for Contract::GatedLinear(_), GatedLinear;
    Embedding(EmbeddingKernel) for Contract::Embedding, Embedding;
    CrossEntropy(CrossEntropyKernel) for Contract::CrossEntropy, CrossEntropy;
}

/// Binds the layer `layer` of a verified snapshot to its contract, on code loaded from that same snapshot.
///
/// # Errors
/// [`BindError::LayerMissing`], [`BindError::UnknownContract`], [`BindError::Arguments`],
/// [`BindError::BackwardRefused`] and [`BindError::Rounding`] when `layers.toml` does not fit the contracts;
/// [`BindError::Load`] when the library lacks a declared function; [`BindError::Incomplete`] when the layer has no
/// function for native code, or no shader for a device; [`BindError::Shader`] when the shader does not compile.
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
        known: Contract::all().iter().map(|contract| contract.as_str()).collect(),
    })?;
    let rounding = Rounding::of_layer(spec.rounding.as_deref(), contract, &kernel)?;
    let (route, function, path, sha256, handshake) = match code {
        Code::Native(library) => {
            let forward = spec.forward.as_ref().ok_or_else(|| BindError::Incomplete {
                kernel: kernel.clone(),
                reason: "the layer declares no native forward function".to_owned(),
            })?;
            let native = NativeRoute::new(library, forward, spec.backward.as_ref(), contract, &kernel)?;
            let function = native.forward.name().to_owned();
            let library = native.forward.library();
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
        rounding,
        handshake,
    };
    Ok(LayerKernel::new(meta(spec, identity, contract, &route), route))
}

fn meta(spec: &LayerSpec, identity: KernelIdentity, contract: Contract, route: &Route) -> LayerMeta {
    let (has_backward, absent, backward_absent) = match route {
        Route::Native(native) => {
            let backward = native.backward.as_ref();
            let has_backward = backward.is_some() || contract.is_own_backward();
            (has_backward, native.forward.absent(), backward.map(NativeBinding::absent).unwrap_or_default())
        }
        #[cfg(feature = "wgpu")]
        Route::Shader(shader) => (false, shader.absent(), Absent::default()),
    };
    LayerMeta {
        identity,
        contract,
        dtypes: spec.dtypes.clone(),
        limits: spec.limits.clone(),
        has_backward,
        can_compile: spec.can_compile,
        absent,
        backward_absent,
        parity: Parity::default(),
    }
}
