//! The manifests of Hub kernels that ship with this crate: data, read when asked for.

use super::KernelManifest;

const HUB_MANIFESTS: [(&str, &str); 4] = [
    ("kernel-manifests/rmsnorm.toml", include_str!("../../kernel-manifests/rmsnorm.toml")),
    ("kernel-manifests/rotary.toml", include_str!("../../kernel-manifests/rotary.toml")),
    ("kernel-manifests/activation.toml", include_str!("../../kernel-manifests/activation.toml")),
    ("kernel-manifests/flash-attn2.toml", include_str!("../../kernel-manifests/flash-attn2.toml")),
];

/// The shipped manifests. One that is broken is left out with a diagnostic: it must not harm a program that asks for
/// another kernel. A test holds all of them whole.
pub fn hub_manifests() -> impl Iterator<Item = KernelManifest> {
    HUB_MANIFESTS.into_iter().filter_map(|(origin, text)| match KernelManifest::parse(text, origin) {
        Ok(manifest) => Some(manifest),
        Err(error) => {
            tracing::error!(origin, %error, "a shipped manifest is broken");
            None
        }
    })
}

#[cfg(test)]
mod tests {
    use super::{HUB_MANIFESTS, hub_manifests};

    #[test]
    fn every_shipped_manifest_is_whole() {
        assert_eq!(hub_manifests().count(), HUB_MANIFESTS.len());
    }
}
