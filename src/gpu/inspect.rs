//! Holds a shader's text to its declaration, before a driver sees it.

use wgpu::naga;

use super::{Device, GpuError};
use crate::dtype::DType;
use crate::manifest::{Access, ShaderBinding, ShaderSignature};

/// Longest compiler message kept, in characters: a message quotes the shader, whose lines can be of any length.
const MAX_MESSAGE_CHARS: usize = 4000;
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
            (naga::ScalarKind::Uint, 4) => matches!(dtype, DType::U32 | DType::Bf16 | DType::F16 | DType::U8),
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
    let mismatch = |what: String, declared: String, actual: String| GpuError::Mismatch {
        file: file.to_owned(),
        what,
        declared,
        actual,
    };
    let module =
        naga::front::wgsl::parse_str(source).map_err(|error| invalid(&error.emit_to_string_with_path(source, file)))?;
    // With every capability: which of them this device has is wgpu's to check, and its message names the feature.
    let info = naga::valid::Validator::new(naga::valid::ValidationFlags::all(), naga::valid::Capabilities::all())
        .validate(&module)
        .map_err(|error| invalid(&error.emit_to_string_with_path(source, file)))?;
    if !module.overrides.is_empty() {
        let actual = format!("{} override constants", module.overrides.len());
        return Err(mismatch("what the host sets".to_owned(), "bindings and params only".to_owned(), actual));
    }
    let compute = |entry: &&naga::EntryPoint| entry.stage == naga::ShaderStage::Compute;
    let Some(position) = module.entry_points.iter().position(|e| compute(&e) && e.name == binding.entry) else {
        let found = module.entry_points.iter().filter(compute).map(|entry| entry.name.clone()).collect();
        return Err(GpuError::MissingEntry { file: file.to_owned(), entry: binding.entry.clone(), found });
    };
    let entry = &module.entry_points[position];
    if entry.workgroup_size != binding.workgroup {
        return Err(mismatch(
            "the workgroup size".to_owned(),
            format!("{:?}", binding.workgroup),
            format!("{:?}", entry.workgroup_size),
        ));
    }
    let entry_info = info.get_entry_point(position);
    let used = module.global_variables.iter().filter(|(handle, _)| !entry_info[*handle].is_empty());
    let mut elements = vec![None; signature.tensors.len()];
    let mut has_params = false;
    let mut workgroup_bytes = 0_u64;
    for (_, variable) in used {
        if variable.space == naga::AddressSpace::WorkGroup {
            let size = module.types[variable.ty].inner.try_size(module.to_ctx()).map_or(u64::MAX, u64::from);
            workgroup_bytes = workgroup_bytes
                .saturating_add(size.saturating_add(WORKGROUP_UNIT - 1) / WORKGROUP_UNIT * WORKGROUP_UNIT);
        }
        let name = variable.name.as_deref().unwrap_or("");
        let Some(at) = &variable.binding else {
            if variable.space == naga::AddressSpace::Immediate {
                let declared = "bindings and params only".to_owned();
                return Err(mismatch("what the host sets".to_owned(), declared, format!("the immediate {name:?}")));
            }
            continue;
        };
        let what = format!("group {}, binding {}", at.group, at.binding);
        let slot = at.binding as usize;
        let actual = describe(&module, variable);
        if at.group == 0 && slot < signature.tensors.len() {
            let tensor = &signature.tensors[slot];
            let element = element_of(&module, variable);
            let right_access = match (variable.space, tensor.access) {
                (naga::AddressSpace::Storage { access }, Access::Read) => access == naga::StorageAccess::LOAD,
                (naga::AddressSpace::Storage { access }, Access::Write) => access.contains(naga::StorageAccess::STORE),
                _ => false,
            };
            if name != tensor.name || !right_access || element.is_none() {
                let access = if tensor.access == Access::Read { "read" } else { "read_write" };
                return Err(mismatch(
                    what,
                    format!("var<storage, {access}> {}: array of scalars", tensor.name),
                    actual,
                ));
            }
            elements[slot] = element;
        } else if at.group == 0 && slot == signature.tensors.len() && !signature.params.is_empty() {
            let declared = block(signature.params.iter().map(|param| (param.name.as_str(), param.kind.as_str())));
            if variable.space != naga::AddressSpace::Uniform || actual != format!("var<uniform> {declared}") {
                return Err(mismatch(what, format!("var<uniform> {declared}"), actual));
            }
            has_params = true;
        } else {
            return Err(mismatch(what, "nothing".to_owned(), actual));
        }
    }
    if !has_params && !signature.params.is_empty() {
        let what = format!("group 0, binding {}", signature.tensors.len());
        return Err(mismatch(what, "the parameter block".to_owned(), "no use of it".to_owned()));
    }
    check_workgroup(device, binding, workgroup_bytes)?;
    let tensors = elements.into_iter().zip(&signature.tensors).enumerate();
    tensors
        .map(|(slot, (element, tensor))| {
            let (what, declared) = (format!("group 0, binding {slot}"), format!("the tensor {:?}", tensor.name));
            element.ok_or_else(|| mismatch(what, declared, "no use of it".to_owned()))
        })
        .collect()
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

/// The scalar of an array of scalars, vectors or atomics.
fn element_of(module: &naga::Module, variable: &naga::GlobalVariable) -> Option<Element> {
    let naga::TypeInner::Array { base, .. } = module.types[variable.ty].inner else { return None };
    match module.types[base].inner {
        naga::TypeInner::Scalar(scalar) | naga::TypeInner::Vector { scalar, .. } | naga::TypeInner::Atomic(scalar) => {
            Some(Element(scalar))
        }
        _ => None,
    }
}

/// A parameter block, for comparison and for messages.
fn block<'a>(fields: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let fields: Vec<_> = fields.map(|(name, kind)| format!("{name}: {kind}")).collect();
    format!("struct {{ {} }}", fields.join(", "))
}

/// A variable, for comparison and for messages.
fn describe(module: &naga::Module, variable: &naga::GlobalVariable) -> String {
    let name = variable.name.as_deref().unwrap_or("");
    let inner = &module.types[variable.ty].inner;
    match (variable.space, inner) {
        (naga::AddressSpace::Uniform, naga::TypeInner::Struct { members, .. }) => {
            let fields = members.iter().enumerate().map(|(index, member)| {
                // A field that an attribute moved lies elsewhere than the host writes it.
                let in_place = u32::try_from(index * 4) == Ok(member.offset);
                let kind = match module.types[member.ty].inner {
                    naga::TypeInner::Scalar(naga::Scalar::U32) if in_place => "u32",
                    naga::TypeInner::Scalar(naga::Scalar::F32) if in_place => "f32",
                    _ => "another type or offset",
                };
                (member.name.as_deref().unwrap_or(""), kind)
            });
            format!("var<uniform> {}", block(fields))
        }
        (naga::AddressSpace::Storage { access }, _) => {
            let access = if access.contains(naga::StorageAccess::STORE) { "read_write" } else { "read" };
            let kind = if element_of(module, variable).is_some() { "array of scalars" } else { "another type" };
            format!("var<storage, {access}> {name}: {kind}")
        }
        (space, _) => format!("the variable {name:?} in {space:?}"),
    }
}

/// A compiler's message without control characters that a hostile text could smuggle into a terminal.
pub(super) fn printable(message: &str) -> String {
    let clean = |c: char| if c.is_control() && c != '\n' { char::REPLACEMENT_CHARACTER } else { c };
    message.trim().chars().take(MAX_MESSAGE_CHARS).map(clean).collect()
}
