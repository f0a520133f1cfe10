//! Which adapters there are.

use serde::Serialize;

use super::GpuError;
use super::features;
use super::guard::caught;
use crate::system::instance;
use crate::variant::DeviceKey;

const INTEL: u32 = 0x8086;

/// What kind of processor an adapter is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum AdapterKind {
    /// A GPU with memory of its own.
    Discrete,
    /// A GPU that shares the processor's memory.
    Integrated,
    /// A GPU given to a virtual machine.
    Virtual,
    /// No GPU: the processor does the work. Right results, without speed.
    Software,
    /// The driver does not say.
    Unknown,
}

/// What an adapter offers. Larger is better for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct AdapterLimits {
    /// The largest tensor that a shader can bind, in bytes.
    pub max_storage_binding_bytes: u64,
    /// The largest buffer, in bytes.
    pub max_buffer_bytes: u64,
    /// Tensors per shader.
    pub max_storage_bindings: u32,
    /// Workgroup memory, in bytes. wgpu itself does not hold shaders to it; [`super::ShaderKernel`] does.
    pub max_workgroup_storage_bytes: u32,
    /// Invocations per workgroup, over all axes.
    pub max_workgroup_invocations: u32,
    /// Invocations per workgroup and axis.
    pub max_workgroup_size: [u32; 3],
    /// Workgroups per grid axis.
    pub max_workgroups_per_axis: u32,
}

/// One adapter, as data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct AdapterInfo {
    /// Position in [`adapters`]' list.
    pub index: usize,
    /// The driver's name for it.
    pub name: String,
    /// The graphics API, such as `vulkan`.
    pub backend: String,
    /// The driver.
    pub driver: String,
    /// The driver's version or description.
    pub driver_info: String,
    /// What it is.
    pub kind: AdapterKind,
    /// PCI vendor id; 0x10005 and up are ids that Vulkan gives to software.
    pub vendor_id: u32,
    /// PCI device id.
    pub device_id: u32,
    /// The key by which kernel mappings name it: `xpu` for Intel's, otherwise `wgpu`.
    pub device_key: DeviceKey,
    /// Features that a shader can ask for, in alphabetical order.
    pub features: Vec<&'static str>,
    /// What it offers.
    pub limits: AdapterLimits,
}

impl AdapterInfo {
    /// Whether the processor does the work, as Mesa's llvmpipe does.
    #[must_use]
    pub fn is_software(&self) -> bool {
        self.kind == AdapterKind::Software
    }
}

/// An adapter that [`super::Device::open`] can open.
#[derive(Debug, Clone)]
pub struct Adapter {
    info: AdapterInfo,
    pub(super) handle: wgpu::Adapter,
}

impl Adapter {
    /// What it is.
    #[must_use]
    pub fn info(&self) -> &AdapterInfo {
        &self.info
    }
}

/// Lists the adapters of every graphics API that this build has. Real GPUs come first, software last; otherwise the
/// drivers' order stays. Asking the drivers takes some tens of milliseconds.
///
/// # Errors
/// [`GpuError::NoAdapter`] where there is none, [`GpuError::Panicked`] where wgpu panicked on a driver.
pub fn adapters() -> Result<Vec<Adapter>, GpuError> {
    adapters_of(wgpu::Backends::all())
}

/// Lists the adapters of some graphics APIs, as [`adapters`] does. The empty set has none.
///
/// # Errors
/// As [`adapters`].
pub fn adapters_of(backends: wgpu::Backends) -> Result<Vec<Adapter>, GpuError> {
    let backends = backends & wgpu::Instance::enabled_backend_features();
    let names: Vec<String> = backends.iter_names().map(|(name, _)| name.to_lowercase()).collect();
    let none = || GpuError::NoAdapter { backends: if names.is_empty() { "none".to_owned() } else { names.join(", ") } };
    let found = caught("listing the GPU adapters", || {
        let Some(instance) = instance(backends) else { return Vec::new() };
        let handles = pollster::block_on(instance.enumerate_adapters(backends));
        handles.into_iter().map(|handle| (describe(&handle), handle)).collect::<Vec<_>>()
    })?;
    if found.is_empty() {
        return Err(none());
    }
    let mut adapters: Vec<Adapter> = found.into_iter().map(|(info, handle)| Adapter { info, handle }).collect();
    adapters.sort_by_key(|adapter| match adapter.info.kind {
        AdapterKind::Discrete => 0,
        AdapterKind::Integrated => 1,
        AdapterKind::Virtual => 2,
        AdapterKind::Unknown => 3,
        AdapterKind::Software => 4,
    });
    for (index, adapter) in adapters.iter_mut().enumerate() {
        adapter.info.index = index;
    }
    Ok(adapters)
}

fn describe(handle: &wgpu::Adapter) -> AdapterInfo {
    let info = handle.get_info();
    let limits = handle.limits();
    AdapterInfo {
        index: 0,
        name: info.name,
        backend: info.backend.to_str().to_owned(),
        driver: info.driver,
        driver_info: info.driver_info,
        kind: match info.device_type {
            wgpu::DeviceType::DiscreteGpu => AdapterKind::Discrete,
            wgpu::DeviceType::IntegratedGpu => AdapterKind::Integrated,
            wgpu::DeviceType::VirtualGpu => AdapterKind::Virtual,
            wgpu::DeviceType::Cpu => AdapterKind::Software,
            wgpu::DeviceType::Other => AdapterKind::Unknown,
        },
        vendor_id: info.vendor,
        device_id: info.device,
        device_key: if info.vendor == INTEL { DeviceKey::Xpu } else { DeviceKey::Wgpu },
        features: features::names_of(handle.features()),
        limits: AdapterLimits {
            max_storage_binding_bytes: limits.max_storage_buffer_binding_size,
            max_buffer_bytes: limits.max_buffer_size,
            max_storage_bindings: limits.max_storage_buffers_per_shader_stage,
            max_workgroup_storage_bytes: limits.max_compute_workgroup_storage_size,
            max_workgroup_invocations: limits.max_compute_invocations_per_workgroup,
            max_workgroup_size: [
                limits.max_compute_workgroup_size_x,
                limits.max_compute_workgroup_size_y,
                limits.max_compute_workgroup_size_z,
            ],
            max_workgroups_per_axis: limits.max_compute_workgroups_per_dimension,
        },
    }
}
