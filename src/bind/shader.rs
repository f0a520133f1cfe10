//! Shader layers: a contract's work as a compute shader, on tensors in GPU memory.

use std::path::PathBuf;

use super::kernel::Route;
use super::native::Absent;
use super::{BindError, Contract, GatedActivation, LayerMeta};
use crate::digest::Sha256Digest;
use crate::dtype::DType;
use crate::gpu::{Device, GpuError, GpuTensor, ParamValue, Recording, ShaderKernel};
use crate::hint::nearest;
use crate::manifest::LayerSpec;
use crate::verify::VerifiedSnapshot;

/// When a launch runs.
#[derive(Debug)]
pub(super) enum Launch<'a> {
    /// At once.
    Now,
    /// Whenever the graph is replayed.
    Recorded(&'a mut Recording),
}

/// A compiled shader with where its text came from.
#[derive(Debug)]
pub(super) struct ShaderRoute {
    kernel: ShaderKernel,
    entry: String,
    absent: Absent,
    path: PathBuf,
    sha256: Sha256Digest,
}

/// What a shader of a contract declares.
#[derive(Debug, Clone, Copy)]
struct Declarations {
    tensors: &'static [&'static str],
    /// Parameters that every shader declares.
    params: &'static [&'static str],
    /// Parameters that a shader may declare: the contract's optional ones.
    optional: &'static [&'static str],
}

/// `None` for a contract that has no shader form.
fn declarations(contract: Contract) -> Option<Declarations> {
    let (tensors, params, optional): (&[_], &[_], &[_]) = match contract {
        Contract::RmsNorm => (&["x", "weight", "out"], &["rows", "width", "eps"], &["offset"]),
        Contract::GatedActivation(GatedActivation::Fatrelu) => (&["x", "out"], &["rows", "width", "threshold"], &[]),
        Contract::Activation(_) | Contract::GatedActivation(_) => (&["x", "out"], &["rows", "width"], &[]),
        _ => return None,
    };
    Some(Declarations { tensors, params, optional })
}

impl ShaderRoute {
    /// Compiles the layer's shader from verified text and holds its declaration to the contract.
    pub(super) fn new(
        snapshot: &VerifiedSnapshot,
        spec: &LayerSpec,
        contract: Contract,
        device: &Device,
        kernel: &str,
    ) -> Result<Self, BindError> {
        let incomplete = |reason: String| BindError::Incomplete { kernel: kernel.to_owned(), reason };
        let binding = spec.shader.as_ref().ok_or_else(|| incomplete("the layer declares no shader".to_owned()))?;
        let text = snapshot.text(&binding.file).ok_or_else(|| {
            incomplete(format!("the shader file {} is not among the pack's verified texts", binding.file))
        })?;
        let failed = |source| BindError::Shader { kernel: kernel.to_owned(), source: Box::new(source) };
        let compiled = ShaderKernel::compile(device, binding, text).map_err(failed)?.with_can_compile(spec.can_compile);
        let Declarations { tensors, params, optional } = declarations(contract)
            .ok_or_else(|| incomplete(format!("the contract {contract} has no shader form in this version")))?;
        let signature = compiled.signature();
        let declared = signature.tensors.iter().map(|tensor| tensor.name.as_str());
        check_names(kernel, &binding.entry, contract, declared, (tensors, &[]))?;
        let declared = signature.params.iter().map(|param| param.name.as_str());
        check_names(kernel, &binding.entry, contract, declared, (params, optional))?;
        let absent = Absent::of(contract.forward(), |name| {
            let is_optional = contract.forward().iter().any(|known| known.name == name && known.kind.is_optional());
            !is_optional || signature.params.iter().any(|param| param.name == name)
        });
        Ok(Self {
            kernel: compiled,
            absent,
            entry: binding.entry.clone(),
            path: binding.file.below(snapshot.root()),
            sha256: Sha256Digest::of(text.as_bytes()),
        })
    }

    /// Entry point, file and digest, for the kernel's identity.
    pub(super) fn code(&self) -> (String, PathBuf, Sha256Digest) {
        (self.entry.clone(), self.path.clone(), self.sha256)
    }

    /// The optional parameters that the shader does not declare.
    pub(super) fn absent(&self) -> Absent {
        self.absent
    }

    /// The device that it was compiled for.
    pub(super) fn device(&self) -> &Device {
        self.kernel.device()
    }

    pub(super) fn launch(
        &self,
        meta: &LayerMeta,
        how: Launch<'_>,
        tensors: &[(&str, &GpuTensor)],
        params: &[(&str, ParamValue)],
    ) -> Result<(), BindError> {
        let result = match how {
            Launch::Now => self.kernel.launch(tensors, params),
            Launch::Recorded(recording) => recording.launch(&self.kernel, tensors, params),
        };
        result.map_err(|source| meta.shader_fault(source))
    }
}

/// The shader declares exactly the contract's names, in any order.
fn check_names<'a>(
    kernel: &str,
    entry: &str,
    contract: Contract,
    declared: impl Iterator<Item = &'a str>,
    (parameters, optional): (&'static [&'static str], &'static [&'static str]),
) -> Result<(), BindError> {
    let declared: Vec<&str> = declared.collect();
    let unknown = declared.iter().find(|name| !parameters.contains(name) && !optional.contains(name));
    let near = unknown.and_then(|name| nearest(name, parameters.iter().chain(optional).copied()));
    let suggestion = parameters.iter().chain(optional).copied().find(|name| near == Some(*name));
    let unknown = unknown.map(|name| format!("{name} is no parameter"));
    let absent = parameters.iter().find(|name| !declared.contains(name)).map(|name| format!("{name} is not declared"));
    match unknown.or(absent) {
        None => Ok(()),
        Some(reason) => Err(BindError::Arguments {
            kernel: kernel.to_owned(),
            function: entry.to_owned(),
            contract: contract.as_str(),
            reason,
            parameters: parameters.to_vec(),
            optional: optional.to_vec(),
            suggestion,
        }),
    }
}

impl Route {
    /// The shader, for tensors in GPU memory.
    pub(super) fn shader(&self, meta: &LayerMeta) -> Result<&ShaderRoute, BindError> {
        match self {
            Self::Shader(shader) => Ok(shader),
            Self::Native(_) => {
                Err(BindError::Memory { kernel: meta.identity.to_string(), code: "native", memory: "wgpu" })
            }
        }
    }
}

impl LayerMeta {
    #[cold]
    pub(super) fn shader_fault(&self, source: GpuError) -> BindError {
        BindError::Shader { kernel: self.identity.to_string(), source: Box::new(source) }
    }

    pub(super) fn check_gpu_dtype(
        &self,
        argument: &'static str,
        tensor: &GpuTensor,
        expected: &[DType],
    ) -> Result<(), BindError> {
        if expected.contains(&tensor.dtype()) {
            return Ok(());
        }
        let names: Vec<_> = expected.iter().map(|dtype| dtype.as_str()).collect();
        let (kernel, actual) = (self.identity.to_string(), tensor.dtype());
        Err(BindError::Dtype { kernel, argument, expected: names.join(", "), actual })
    }

    pub(super) fn gpu_shape_fault(&self, argument: &'static str, tensor: &GpuTensor, expected: String) -> BindError {
        let actual = tensor.shape().iter().map(|extent| i64::try_from(*extent).unwrap_or(i64::MAX)).collect();
        BindError::Shape { kernel: self.identity.to_string(), argument, expected, actual }
    }

    /// Rows and width as the shader's 32-bit parameters. `leading` are the extents of the axes before the last one.
    pub(super) fn gpu_extents(
        &self,
        tensor: &GpuTensor,
        leading: &[usize],
        width: usize,
    ) -> Result<[ParamValue; 2], BindError> {
        // No rows when an axis is empty, however large the others are.
        let rows = if leading.contains(&0) {
            Some(0)
        } else {
            leading.iter().try_fold(1, |rows: usize, axis| rows.checked_mul(*axis))
        };
        match (rows.and_then(|rows| u32::try_from(rows).ok()), u32::try_from(width)) {
            (Some(rows), Ok(width)) => Ok([ParamValue::U32(rows), ParamValue::U32(width)]),
            _ => Err(self.gpu_shape_fault("x", tensor, "rows and width below 2^32".to_owned())),
        }
    }
}
