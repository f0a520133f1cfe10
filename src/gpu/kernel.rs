//! A compiled shader.

use std::fmt;

use super::guard::on_deep_stack;
use super::inspect::{Element, inspect};
use super::{Device, GpuError, features};
use crate::manifest::{Access, ShaderBinding, ShaderSignature};

/// Longest shader text accepted, in bytes.
///
/// A compiler's recursion is as deep as the text is long, so this bounds the stack that compiling it reserves: 1 GiB
/// for the longest text, 16 MiB for one of 1 KiB.
pub const MAX_SOURCE_BYTES: usize = 64 << 10;

/// A compute shader that was checked against its declaration and compiled for one device.
pub struct ShaderKernel {
    pub(super) device: Device,
    /// The file and entry point, for messages.
    pub(super) label: String,
    pub(super) signature: ShaderSignature,
    /// The element of each tensor, in the signature's order.
    pub(super) elements: Vec<Element>,
    pub(super) layout: wgpu::BindGroupLayout,
    pub(super) pipeline: wgpu::ComputePipeline,
    can_compile: bool,
}

impl ShaderKernel {
    /// Checks a WGSL text against its declaration and compiles it.
    ///
    /// The entry point, its workgroup size, and the name, access and type of every binding and parameter must be those
    /// declared. Override constants and immediates are refused, for no declaration can set them. The work is done on a
    /// thread of its own with a deep stack.
    ///
    /// # Errors
    /// - [`GpuError::Declaration`] for a malformed declaration;
    /// - [`GpuError::UnknownFeature`], [`GpuError::FeatureUnsupported`];
    /// - [`GpuError::SourceTooLong`] above [`MAX_SOURCE_BYTES`];
    /// - [`GpuError::Wgsl`] for a text that is no valid shader on this device, [`GpuError::MissingEntry`],
    ///   [`GpuError::Mismatch`];
    /// - [`GpuError::LimitExceeded`] for a workgroup or its memory above the device's limits;
    /// - [`GpuError::Panicked`] where the compiler panicked, or another fault of the device.
    pub fn compile(device: &Device, binding: &ShaderBinding, source: &str) -> Result<Self, GpuError> {
        let file = binding.file.as_str();
        let signature =
            binding.signature().map_err(|source| GpuError::Declaration { file: file.to_owned(), source })?;
        if source.len() > MAX_SOURCE_BYTES {
            let bytes = source.len();
            return Err(GpuError::SourceTooLong { file: file.to_owned(), bytes, maximum: MAX_SOURCE_BYTES });
        }
        for name in &binding.features {
            let flag = features::flag(name)
                .ok_or_else(|| GpuError::UnknownFeature { file: file.to_owned(), name: name.clone() })?;
            if !device.features().contains(flag) {
                return Err(GpuError::FeatureUnsupported {
                    file: file.to_owned(),
                    name: name.clone(),
                    adapter: device.info().name.clone(),
                });
            }
        }
        let (elements, layout, pipeline) = on_deep_stack(&format!("compiling {file}"), source.len(), || {
            let elements = inspect(device, binding, &signature, source)?;
            let (layout, pipeline) = build(device, binding, &signature, source)?;
            Ok::<_, GpuError>((elements, layout, pipeline))
        })??;
        let label = format!("{file}:{}", binding.entry);
        Ok(Self { device: device.clone(), label, signature, elements, layout, pipeline, can_compile: false })
    }

    /// The same kernel with its publisher's promise that launches may be recorded and replayed, or without it. A kernel
    /// that was just compiled has none.
    #[must_use]
    pub fn with_can_compile(self, can_compile: bool) -> Self {
        Self { can_compile, ..self }
    }

    /// Whether its launches may be recorded into a [`super::CommandGraph`].
    #[must_use]
    pub fn can_compile(&self) -> bool {
        self.can_compile
    }

    /// How it is called.
    #[must_use]
    pub fn signature(&self) -> &ShaderSignature {
        &self.signature
    }

    /// The device that it was compiled for.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }
}

impl fmt::Debug for ShaderKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShaderKernel").field("label", &self.label).field("device", &self.device).finish_non_exhaustive()
    }
}

fn build(
    device: &Device,
    binding: &ShaderBinding,
    signature: &ShaderSignature,
    source: &str,
) -> Result<(wgpu::BindGroupLayout, wgpu::ComputePipeline), GpuError> {
    let file = binding.file.as_str();
    let module = device.guarded(&format!("compiling {file}"), |device, _| {
        device.create_shader_module(wgpu::ShaderModuleDescriptor {
            label: Some(file),
            source: wgpu::ShaderSource::Wgsl(source.into()),
        })
    });
    let module = module.map_err(|error| match error {
        GpuError::Validation { message, .. } => GpuError::Wgsl { file: file.to_owned(), message },
        other => other,
    })?;
    let entry = |slot: usize, kind| wgpu::BindGroupLayoutEntry {
        binding: u32::try_from(slot).unwrap_or(u32::MAX),
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer { ty: kind, has_dynamic_offset: false, min_binding_size: None },
        count: None,
    };
    let mut entries: Vec<_> = signature
        .tensors
        .iter()
        .enumerate()
        .map(|(slot, tensor)| {
            entry(slot, wgpu::BufferBindingType::Storage { read_only: tensor.access == Access::Read })
        })
        .collect();
    if !signature.params.is_empty() {
        entries.push(entry(signature.tensors.len(), wgpu::BufferBindingType::Uniform));
    }
    device.guarded(&format!("building the pipeline of {file}"), |device, _| {
        let layout =
            device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: Some(file), entries: &entries });
        let pipeline_layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
            label: Some(file),
            bind_group_layouts: &[Some(&layout)],
            immediate_size: 0,
        });
        let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label: Some(file),
            layout: Some(&pipeline_layout),
            module: &module,
            entry_point: Some(&binding.entry),
            compilation_options: wgpu::PipelineCompilationOptions::default(),
            cache: None,
        });
        (layout, pipeline)
    })
}
