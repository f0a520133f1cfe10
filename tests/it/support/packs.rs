//! A small kernel, packed and ready to be served.

use std::fs;
use std::path::{Path, PathBuf};

use kernelhub::manifest::{Artifact, BackendInfo, KernelManifest};
use kernelhub::pack::{self, PackSpec, Packed};
use tempfile::TempDir;

pub(crate) const VARIANT: &str = "tvm-ffi01-cpu-x86_64-linux";

pub(crate) const LAYERS: &str = r#"schema = 1

[[layer]]
name = "RMSNorm"
contract = "rms_norm"
dtypes = ["f32"]
forward = { function = "rms_norm", args = ["out", "x", "weight", "eps"] }
"#;

/// The bytes that stand for a native library.
pub(crate) fn library() -> Vec<u8> {
    (0..300_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

pub(crate) fn spec() -> PackSpec {
    PackSpec {
        repo: "kernelhub/rmsnorm".parse().unwrap(),
        version: 1,
        license: "Apache-2.0".to_owned(),
        description: Some("a test".to_owned()),
        variant: VARIANT.parse().unwrap(),
        backend: BackendInfo { kind: "cpu".to_owned(), archs: Vec::new() },
        provenance: None,
    }
}

/// A packed kernel with its manifest, `rmsnorm.toml`, in one folder.
pub(crate) struct Published {
    pub(crate) folder: TempDir,
    pub(crate) manifest: KernelManifest,
    pub(crate) packed: Packed,
}

impl Published {
    pub(crate) fn new() -> Self {
        let files = tempfile::tempdir().unwrap();
        write_files(files.path());
        Self::of(files.path())
    }

    /// Packs these files.
    pub(crate) fn of(files: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let packed = pack::pack_variant(files, &spec(), folder.path()).unwrap();
        let manifest = pack::manifest(&spec(), std::slice::from_ref(&packed), folder.path()).unwrap();
        pack::write_manifest(&manifest, folder.path()).unwrap();
        Self { folder, manifest, packed }
    }

    pub(crate) fn artifact(&self) -> &Artifact {
        &self.manifest.artifacts[0]
    }

    pub(crate) fn archive_name(&self) -> String {
        self.packed.archive.file_name().unwrap().to_str().unwrap().to_owned()
    }

    pub(crate) fn manifest_path(&self) -> PathBuf {
        self.folder.path().join("rmsnorm.toml")
    }
}

/// The files of the kernel.
pub(crate) fn write_files(folder: &Path) {
    fs::create_dir_all(folder.join("doc")).unwrap();
    fs::write(folder.join("layers.toml"), LAYERS).unwrap();
    fs::write(folder.join("librmsnorm.so"), library()).unwrap();
    fs::write(folder.join("__init__.py"), "import tvm_ffi\n").unwrap();
    fs::write(folder.join("doc/notes.json"), "{}").unwrap();
}
