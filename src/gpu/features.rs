//! The device features that a shader pack can ask for.

/// (name in `layers.toml` and in reports, wgpu's flag).
///
/// Stable features of compute shaders only: an experimental one has no fixed meaning that a published pack could rely
/// on.
const TABLE: [(&str, wgpu::Features); 7] = [
    ("SHADER_F16", wgpu::Features::SHADER_F16),
    ("SHADER_F64", wgpu::Features::SHADER_F64),
    ("SHADER_I16", wgpu::Features::SHADER_I16),
    ("SHADER_INT64", wgpu::Features::SHADER_INT64),
    ("SUBGROUP", wgpu::Features::SUBGROUP),
    ("SUBGROUP_BARRIER", wgpu::Features::SUBGROUP_BARRIER),
    ("TIMESTAMP_QUERY", wgpu::Features::TIMESTAMP_QUERY),
];

/// Every name, in the table's order.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    TABLE.iter().map(|(name, _)| *name)
}

/// The flag of a name.
pub(super) fn flag(name: &str) -> Option<wgpu::Features> {
    TABLE.iter().find(|(known, _)| *known == name).map(|(_, flag)| *flag)
}

/// The part of `offered` that a pack can ask for; a device is opened with all of it.
pub(super) fn usable(offered: wgpu::Features) -> wgpu::Features {
    let known = TABLE.iter().fold(wgpu::Features::empty(), |all, (_, flag)| all | *flag);
    offered & known
}

/// The names of the table's features in `offered`.
pub(super) fn names_of(offered: wgpu::Features) -> Vec<&'static str> {
    TABLE.iter().filter(|(_, flag)| offered.contains(*flag)).map(|(name, _)| *name).collect()
}
