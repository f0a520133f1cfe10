//! Small native kernels, compiled from `tests/it/fixtures` by the compiler that builds the tests, and packed and served
//! as any other, so that what the tests load are real libraries.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, LazyLock};

use kernelhub::bind::{BindError, LayerKernel};
use kernelhub::fetch::Location;
use kernelhub::hub::{Hub, HubBuilder, HubError, Kernel};
use kernelhub::manifest::{BackendInfo, KernelManifest};
use kernelhub::pack::{self, PackSpec};
use kernelhub::variant::{DeviceKey, Variant};
use tempfile::TempDir;

pub(crate) const VARIANT: &str = "tvm-ffi01-cpu-x86_64-linux";

/// Compiles a fixture to a shared library and returns its bytes. `options` are for `rustc`; `value` is what the fixture
/// reads as `FIXTURE_VALUE`.
pub(crate) fn compile(fixture: &str, value: &str, options: &[&str]) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = compile_to(folder.path(), fixture, value, options);
    fs::read(path).unwrap()
}

/// Compiles a fixture to `lib<fixture>.so` in a folder.
pub(crate) fn compile_to(folder: &Path, fixture: &str, value: &str, options: &[&str]) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixtures").join(format!("{fixture}.rs"));
    let library = folder.join(format!("lib{fixture}.so"));
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let mut command = Command::new(rustc);
    command.args(["--crate-type", "cdylib", "--edition", "2024", "--cap-lints", "allow", "-C", "strip=debuginfo"]);
    command.args(options).arg("-o").arg(&library).arg(source).env("FIXTURE_VALUE", value);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{fixture}: {}", String::from_utf8_lossy(&output.stderr));
    library
}

/// Compiles a fixture in C or C++ to a shared library and returns its bytes. `value` is its macro `FIXTURE_VALUE`, a
/// text.
pub(crate) fn compile_c(fixture: &str, value: &str, options: &[&str]) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixtures").join(fixture);
    let library = folder.path().join("library.so");
    let compiler = if source.extension().is_some_and(|extension| extension == "cpp") { "c++" } else { "cc" };
    let mut command = Command::new(compiler);
    command.args(["-shared", "-fPIC", "-O1"]).arg(format!("-DFIXTURE_VALUE={value:?}"));
    // Libraries stand behind the source that needs them.
    command.arg("-o").arg(&library).arg(source).args(options);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{fixture}: {}", String::from_utf8_lossy(&output.stderr));
    fs::read(library).unwrap()
}

/// The library of `fixtures/kit.rs`.
pub(crate) static KIT: LazyLock<Vec<u8>> = LazyLock::new(|| compile("kit", "", &[]));

/// A `[[layer]]` of a native kernel in f32.
pub(crate) fn layer(name: &str, contract: &str, function: &str, arguments: &[&str]) -> String {
    let arguments = arguments.join("\", \"");
    format!(
        "[[layer]]\nname = \"{name}\"\ncontract = \"{contract}\"\ndtypes = [\"f32\"]\n\
         forward = {{ function = \"{function}\", args = [\"{arguments}\"] }}\n"
    )
}

/// An RMSNorm layer whose function has the arguments of the contract.
pub(crate) fn norm_layer(name: &str, function: &str) -> String {
    layer(name, "rms_norm", function, &["out", "x", "weight", "eps"])
}

/// A packed kernel beside its manifest, and a cache for it.
pub(crate) struct NativePack {
    folder: TempDir,
    cache: TempDir,
    manifest: KernelManifest,
}

impl NativePack {
    /// `kernelhub-tests/<name>` version 1.
    pub(crate) fn new(name: &str, layers: &str, libraries: &[(&str, &[u8])]) -> Self {
        Self::version(name, 1, layers, libraries)
    }

    pub(crate) fn version(name: &str, version: u32, layers: &str, libraries: &[(&str, &[u8])]) -> Self {
        Self::build(name, version, VARIANT, layers, libraries)
    }

    /// A shader build, for any adapter.
    #[cfg(feature = "wgpu")]
    pub(crate) fn shader(name: &str, layers: &str, texts: &[(&str, &[u8])]) -> Self {
        Self::build(name, 1, "wgsl-universal", layers, texts)
    }

    fn build(name: &str, version: u32, variant: &str, layers: &str, contents: &[(&str, &[u8])]) -> Self {
        let (files, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(files.path().join("layers.toml"), format!("schema = 1\n\n{layers}")).unwrap();
        for (name, bytes) in contents {
            fs::write(files.path().join(name), bytes).unwrap();
        }
        let variant: Variant = variant.parse().unwrap();
        let spec = PackSpec {
            repo: format!("kernelhub-tests/{name}").parse().unwrap(),
            version,
            license: "Apache-2.0".to_owned(),
            description: None,
            variant,
            backend: BackendInfo::of(&variant),
            provenance: None,
        };
        let packed = pack::pack_variant(files.path(), &spec, folder.path()).unwrap();
        let manifest = pack::manifest(&spec, std::slice::from_ref(&packed), folder.path()).unwrap();
        pack::write_manifest(&manifest, folder.path()).unwrap();
        Self { folder, cache: tempfile::tempdir().unwrap(), manifest }
    }

    /// The kit's library under these layers.
    pub(crate) fn kit(name: &str, layers: &str) -> Self {
        Self::new(name, layers, &[("libkit.so", &KIT)])
    }

    pub(crate) fn manifest(&self) -> &KernelManifest {
        &self.manifest
    }

    /// The folder of the archive and the manifest.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Its cache.
    pub(crate) fn cache(&self) -> &Path {
        self.cache.path()
    }

    /// The build's folder in the cache, once it was fetched.
    pub(crate) fn unpacked(&self) -> PathBuf {
        let artifact = &self.manifest.artifacts[0];
        let archive = self.cache.path().join("archives").join(artifact.sha256.to_string());
        archive.join("build").join(artifact.variant.to_string())
    }

    pub(crate) fn location(&self) -> Location {
        Location::Local(self.folder.path().join(format!("{}.toml", self.manifest.kernel.repo.name())))
    }

    /// A new hub on this pack's own cache, without the network.
    pub(crate) fn hub(&self) -> Hub {
        self.hub_with(|builder| builder)
    }

    /// As [`Self::hub`], with further settings.
    pub(crate) fn hub_with(&self, set: impl FnOnce(HubBuilder) -> HubBuilder) -> Hub {
        let builder = Hub::builder()
            .cache(self.cache.path())
            .offline(true)
            .policy(super::trust::policy())
            .manifest(self.manifest.clone(), self.location());
        set(builder).build().unwrap()
    }

    /// Brings the kernel up in a new hub.
    pub(crate) fn get(&self) -> Result<Arc<Kernel>, HubError> {
        self.hub().get(&self.manifest.kernel.repo, self.manifest.kernel.version, DeviceKey::Cpu)
    }

    /// Binds one of its layers in a new hub.
    pub(crate) fn layer(&self, layer: &str) -> Result<Arc<LayerKernel>, HubError> {
        let kernel = format!("{}@v{}", self.manifest.kernel.repo, self.manifest.kernel.version);
        self.hub().layer(&kernel.parse().unwrap(), layer, DeviceKey::Cpu)
    }
}

/// The cause of a failure to bind.
#[track_caller]
pub(crate) fn bind_error(result: Result<Arc<LayerKernel>, HubError>) -> BindError {
    match result {
        Err(HubError::Bind(error)) => error,
        other => panic!("expected a BindError, got {other:?}"),
    }
}
