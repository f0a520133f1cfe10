//! Where things stand.

use std::path::{Path, PathBuf};

/// The repository's root.
pub(crate) fn root() -> &'static Path {
    // xtask's manifest stands one folder below it.
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// Cargo's target folder.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), |folder| root().join(folder))
}

/// The secret key that signs the project's own packs on this machine. Made once; its public key stands beside it.
pub(crate) fn signing_key() -> PathBuf {
    target().join("signing/kernelhub.key")
}

/// The public key, where the registry has it.
pub(crate) fn public_key() -> PathBuf {
    registry().join("kernelhub.pub")
}

/// The policy of demos, tests and benchmarks: it trusts that key and nothing else. The user's own policy is left alone.
pub(crate) fn policy() -> PathBuf {
    target().join("policy.toml")
}

/// The embedded registry: archives and manifests of the project's own packs.
pub(crate) fn registry() -> PathBuf {
    target().join("registry")
}
