//! The project's own kernels, as `cargo xtask fetch-kernels` packs them.
#![expect(clippy::print_stdout, reason = "a test that skips says why")]

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use kernelhub::bind::LayerKernel;
use kernelhub::fetch::Location;
use kernelhub::hub::{Hub, HubBuilder};
use kernelhub::manifest::KernelManifest;
use kernelhub::policy::{Policy, PublicKey};
use kernelhub::variant::DeviceKey;

use super::trust;

/// Names the folder of archives and manifests. Set: a kernel that is absent is a failure. Unset: the workspace's own
/// registry is taken when it is there, and the tests that need it skip with a reason when it isn't.
const VARIABLE: &str = "KERNELHUB_TEST_REGISTRY";
/// The public key of the registry's packs.
const PUBLIC_KEY: &str = "kernelhub.pub";

pub(crate) const NAMES: [&str; 4] = ["rmsnorm", "rotary", "activation", "flash-attn2"];

/// Kernels that a registry of an older build lacks.
pub(crate) const NEWER: [&str; 5] = ["layer-norm", "linear", "embedding", "cross-entropy", "softmax"];

/// The registry's folder, or `None` with a printed reason.
pub(crate) fn registry() -> Option<PathBuf> {
    let named = std::env::var_os(VARIABLE).map(PathBuf::from);
    let folder = named.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("target/registry"));
    (present(&folder, &NAMES).len() == NAMES.len()).then_some(folder)
}

/// Those of [`NEWER`] that a registry has. The others are left out with a printed reason.
pub(crate) fn newer(registry: &Path) -> Vec<&'static str> {
    present(registry, &NEWER)
}

/// The kernels whose manifests a registry has. Where it lacks one, that is a failure, or is printed.
fn present(registry: &Path, names: &[&'static str]) -> Vec<&'static str> {
    let (present, absent): (Vec<_>, Vec<_>) =
        names.iter().partition(|name| registry.join(format!("{name}.toml")).is_file());
    if !absent.is_empty() {
        let reason =
            format!("{} lacks the manifests of {absent:?}; `cargo xtask fetch-kernels` makes them", registry.display());
        assert!(std::env::var_os(VARIABLE).is_none(), "{VARIABLE} is set, and {reason}");
        println!("skipped: {reason}");
    }
    present
}

/// A hub's settings with the manifests of the registry.
pub(crate) fn builder(registry: &Path) -> HubBuilder {
    NAMES.into_iter().chain(newer(registry)).fold(
        Hub::builder().offline(true).policy(policy(registry)),
        |builder, name| {
            let (manifest, location) = manifest(registry, name);
            builder.manifest(manifest, location)
        },
    )
}

/// The registry's packs are trusted by the key that signed them, and by nothing else.
pub(crate) fn policy(registry: &Path) -> Policy {
    trust::policy_of(&policy_text(registry))
}

/// The text of that policy.
pub(crate) fn policy_text(registry: &Path) -> String {
    let path = registry.join(PUBLIC_KEY);
    let key = std::fs::read_to_string(&path).unwrap_or_else(|error| {
        panic!("{}: {error}; `cargo xtask fetch-kernels` signs the packs with a key and puts it there", path.display())
    });
    let key: PublicKey = key.parse().unwrap();
    format!("schema = 1\n[[publisher]]\nname = \"kernelhub\"\nkeys = [\"{key}\"]\n")
}

pub(crate) fn manifest(registry: &Path, name: &str) -> (KernelManifest, Location) {
    let path = registry.join(format!("{name}.toml"));
    let text = std::fs::read_to_string(&path).unwrap();
    (KernelManifest::parse(&text, name).unwrap(), Location::Local(path))
}

/// One hub for all tests of the process, on a cache that stays between runs. `None` with a printed reason without the
/// packs.
pub(crate) fn hub() -> Option<&'static Hub> {
    static HUB: OnceLock<Hub> = OnceLock::new();
    let registry = registry()?;
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("embedded-cache");
    Some(HUB.get_or_init(|| builder(&registry).cache(cache).build().unwrap()))
}

/// One of our layers, bound for the processor.
pub(crate) fn layer(hub: &Hub, kernel: &str, layer: &str) -> Arc<LayerKernel> {
    hub.layer(&format!("kernelhub/{kernel}@v1").parse().unwrap(), layer, DeviceKey::Cpu).unwrap()
}
