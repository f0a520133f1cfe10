//! Holds a shader's text to its declaration, before a driver sees it.

use wgpu::naga;

use super::error::printable;
use super::{Device, GpuError};
use crate::dtype::DType;
use crate::manifest::{Access, ShaderBinding, ShaderSignature};

/// Workgroup variables are laid out in units of this many bytes, as the WebGPU limit counts them.
const WORKGROUP_UNIT: u64 = 16;

/// The scalar that a storage binding is an array of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Element(naga::Scalar);

impl Element {
    /// Whether a tensor of `dtype` can be read as an array of it.
    ///
    /// `u32` also serves as plain words: bf16, f16 and u8 tensors are packed into them, first element in the low bits.
    pub(super) fn accepts(self, dtype: DType) -> bool {
        match (self.0.kind, self.0.width) {
            (naga::ScalarKind::Float, 8) => dtype == DType::F64,
            (naga::ScalarKind::Float, 4) => dtype == DType::F32,
            (naga::ScalarKind::Float, 2) => dtype == DType::F16,
            (naga::ScalarKind::Sint, 8) => dtype == DType::I64,
            (naga::ScalarKind::Sint, 4) => dtype == DType::I32,
            (naga::ScalarKind::Uint, 4) => {
                matches!(dtype, DType::U32 | DType::Bf16 | DType::F16 | DType::I8 | DType::U8)
            }
            _ => false,
        }
    }

    /// The dtypes that it accepts, for messages.
    pub(super) fn accepted(self) -> String {
        let names: Vec<_> = DType::ALL.into_iter().filter(|dtype| self.accepts(*dtype)).map(DType::as_str).collect();
        if names.is_empty() { "no dtype".to_owned() } else { names.join(" or ") }
    }
}

/// Checks `source` against its declaration and the device; gives the element of each declared tensor, in order.
pub(super) fn inspect(
    device: &Device,
    binding: &ShaderBinding,
    signature: &ShaderSignature,
    source: &str,
) -> Result<Vec<Element>, GpuError> {
    let file = binding.file.as_str();
    let invalid = |message: &str| GpuError::Wgsl { file: file.to_owned(), message: printable(message) };
    let module =
        naga::front::wgsl::parse_str(source).map_err(|error| invalid(&error.emit_to_string_with_path(source, file)))?;
    // With every capability: which of them this device has is wgpu's to check, and its message names the feature.
    let info = naga::valid::Validator::new(naga::valid::ValidationFlags::all(), naga::valid::Capabilities::all())
        .validate(&module)
        .map_err(|error| invalid(&error.emit_to_string_with_path(source, file)))?;
    let shader = Shader { module: &module, file };
    let position = shader.entry_point(binding)?;
    let uses = info.get_entry_point(position);
    // The variables that the entry point reaches, also through functions: a file may hold several entry points.
    let variables: Vec<_> =
        module.global_variables.iter().filter(|(handle, _)| !uses[*handle].is_empty()).map(|(_, v)| v).collect();
    let elements = shader.tensors(signature, &variables)?;
    check_workgroup(device, binding, shader.workgroup_bytes(&variables))?;
    Ok(elements)
}

/// A valid module and its name.
struct Shader<'a> {
    module: &'a naga::Module,
    file: &'a str,
}

impl Shader<'_> {
    fn mismatch(&self, what: &str, declared: &str, actual: String) -> GpuError {
        GpuError::Mismatch { file: self.file.to_owned(), what: what.to_owned(), declared: declared.to_owned(), actual }
    }

    /// Position of the declared entry point, with the declared workgroup size.
    fn entry_point(&self, binding: &ShaderBinding) -> Result<usize, GpuError> {
        let entries = &self.module.entry_points;
        if !self.module.overrides.is_empty() {
            let actual = format!("{} override constants", self.module.overrides.len());
            return Err(self.mismatch("what the host sets", "bindings and params only", actual));
        }
        let is_compute = |entry: &naga::EntryPoint| entry.stage == naga::ShaderStage::Compute;
        let Some(position) = entries.iter().position(|entry| is_compute(entry) && entry.name == binding.entry) else {
            let found = entries.iter().filter(|entry| is_compute(entry)).map(|entry| entry.name.clone()).collect();
            return Err(GpuError::MissingEntry { file: self.file.to_owned(), entry: binding.entry.clone(), found });
        };
        let actual = entries[position].workgroup_size;
        if actual != binding.workgroup {
            let declared = format!("{:?}", binding.workgroup);
            return Err(self.mismatch("the workgroup size", &declared, format!("{actual:?}")));
        }
        Ok(position)
    }

    /// The element of each declared tensor; every bound variable is declared, and every declared one is used.
    fn tensors(
        &self,
        signature: &ShaderSignature,
        variables: &[&naga::GlobalVariable],
    ) -> Result<Vec<Element>, GpuError> {
        let mut elements = vec![None; signature.tensors.len()];
        // A shader without parameters has no block to use.
        let mut uses_params = signature.params.is_empty();
        for variable in variables {
            let actual = self.describe(variable);
            let Some(at) = &variable.binding else {
                if variable.space == naga::AddressSpace::Immediate {
                    return Err(self.mismatch("what the host sets", "bindings and params only", actual));
                }
                continue;
            };
            let what = format!("group {}, binding {}", at.group, at.binding);
            let slot = at.binding as usize;
            let declared = match signature.tensors.get(slot) {
                _ if at.group != 0 => "nothing".to_owned(),
                Some(tensor) => storage(&tensor.name, tensor.access == Access::Write, ELEMENTS),
                None if slot == signature.tensors.len() && !signature.params.is_empty() => {
                    uniform(signature.params.iter().map(|param| (param.name.as_str(), param.kind.as_str())))
                }
                None => "nothing".to_owned(),
            };
            if actual != declared {
                return Err(self.mismatch(&what, &declared, actual));
            }
            match elements.get_mut(slot) {
                Some(element) => *element = self.element(variable),
                None => uses_params = true,
            }
        }
        let unused = |slot: usize, declared: &str| {
            self.mismatch(&format!("group 0, binding {slot}"), declared, "no use of it".to_owned())
        };
        if !uses_params {
            return Err(unused(signature.tensors.len(), "the parameter block"));
        }
        let slots = elements.into_iter().zip(&signature.tensors).enumerate();
        slots.map(|(slot, (element, tensor))| element.ok_or_else(|| unused(slot, &tensor.name))).collect()
    }

    /// Workgroup memory, in bytes.
    fn workgroup_bytes(&self, variables: &[&naga::GlobalVariable]) -> u64 {
        let shared = variables.iter().filter(|variable| variable.space == naga::AddressSpace::WorkGroup);
        shared.fold(0, |bytes, variable| {
            let size = self.module.types[variable.ty].inner.try_size(self.module.to_ctx()).map_or(u64::MAX, u64::from);
            bytes.saturating_add(size.div_ceil(WORKGROUP_UNIT).saturating_mul(WORKGROUP_UNIT))
        })
    }

    /// The scalar of an array of scalars, vectors or atomics that lie without gaps, as a tensor's elements do: an array
    /// of `vec3` has gaps.
    fn element(&self, variable: &naga::GlobalVariable) -> Option<Element> {
        let naga::TypeInner::Array { base, stride, .. } = self.module.types[variable.ty].inner else { return None };
        let inner = &self.module.types[base].inner;
        match *inner {
            naga::TypeInner::Scalar(scalar)
            | naga::TypeInner::Vector { scalar, .. }
            | naga::TypeInner::Atomic(scalar)
                if inner.try_size(self.module.to_ctx()) == Some(stride) =>
            {
                Some(Element(scalar))
            }
            _ => None,
        }
    }

    /// A variable, for comparison and for messages.
    fn describe(&self, variable: &naga::GlobalVariable) -> String {
        let name = variable.name.as_deref().unwrap_or("");
        let inner = &self.module.types[variable.ty].inner;
        match (variable.space, inner) {
            (naga::AddressSpace::Uniform, naga::TypeInner::Struct { members, .. }) => {
                uniform(members.iter().enumerate().map(|(index, member)| {
                    // A field that an attribute moved lies elsewhere than the host writes it.
                    let in_place = u32::try_from(index * 4) == Ok(member.offset);
                    let kind = match self.module.types[member.ty].inner {
                        naga::TypeInner::Scalar(naga::Scalar::U32) if in_place => "u32",
                        naga::TypeInner::Scalar(naga::Scalar::F32) if in_place => "f32",
                        _ => "another type or offset",
                    };
                    (member.name.as_deref().unwrap_or(""), kind)
                }))
            }
            (naga::AddressSpace::Storage { access }, _) => {
                let kind = if self.element(variable).is_some() { ELEMENTS } else { "another type" };
                storage(name, access.contains(naga::StorageAccess::STORE), kind)
            }
            (space, _) => format!("the variable {name:?} in {space:?}"),
        }
    }
}

/// The words for what a tensor can be bound to.
const ELEMENTS: &str = "an array of scalars or gapless vectors";

fn storage(name: &str, is_written: bool, kind: &str) -> String {
    format!("var<storage, {}> {name}: {kind}", if is_written { "read_write" } else { "read" })
}

fn uniform<'a>(fields: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let fields: Vec<_> = fields.map(|(name, kind)| format!("{name}: {kind}")).collect();
    format!("var<uniform> struct {{ {} }}", fields.join(", "))
}

fn check_workgroup(device: &Device, binding: &ShaderBinding, workgroup_bytes: u64) -> Result<(), GpuError> {
    let (file, limits) = (binding.file.as_str(), device.limits());
    let invocations = binding.workgroup.iter().fold(1_u64, |all, axis| all.saturating_mul(u64::from(*axis)));
    let size = binding.workgroup.map(u64::from);
    for (limit, unit, requested, maximum) in [
        ("max_compute_workgroup_size_x", "invocations", size[0], limits.max_compute_workgroup_size_x),
        ("max_compute_workgroup_size_y", "invocations", size[1], limits.max_compute_workgroup_size_y),
        ("max_compute_workgroup_size_z", "invocations", size[2], limits.max_compute_workgroup_size_z),
        (
            "max_compute_invocations_per_workgroup",
            "invocations",
            invocations,
            limits.max_compute_invocations_per_workgroup,
        ),
        // wgpu does not hold a shader to this one.
        ("max_compute_workgroup_storage_size", "bytes", workgroup_bytes, limits.max_compute_workgroup_storage_size),
        (
            "max_storage_buffers_per_shader_stage",
            "bindings",
            binding.bindings.len() as u64,
            limits.max_storage_buffers_per_shader_stage,
        ),
    ] {
        device.check_limit(file, (limit, unit), requested, u64::from(maximum))?;
    }
    Ok(())
}
