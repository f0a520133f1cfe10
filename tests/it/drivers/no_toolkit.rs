//! Nothing of any vendor's is needed to build this crate or to start its program.

use std::fs;
use std::path::Path;

#[test]
fn f56_no_crate_of_ours_has_a_build_script() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut manifests = 0;
    for folder in [".", "kernels/abi", "kernels/cpu", "xtask", "fuzz/targets", "fuzz"] {
        let folder = root.join(folder);
        let Ok(manifest) = fs::read_to_string(folder.join("Cargo.toml")) else { continue };
        manifests += 1;
        let manifest: toml::Table = manifest.parse().unwrap();
        let package = manifest["package"].as_table().unwrap();
        assert!(!package.contains_key("build") && !package.contains_key("links"), "{}", folder.display());
        assert!(!manifest.contains_key("build-dependencies"), "{}", folder.display());
        assert!(!folder.join("build.rs").exists(), "{}", folder.display());
    }
    assert!(manifests >= 5, "the crates are where they were");
}

#[cfg(all(feature = "cli", target_os = "linux"))]
#[test]
fn f56_the_program_needs_no_driver_and_no_toolkit() {
    use kernelhub::elf::{Depth, ElfFacts};

    let program = env!("CARGO_BIN_EXE_kernelhub");
    let facts = ElfFacts::from_bytes(&fs::read(program).unwrap(), Depth::Whole).unwrap();
    let vendors = [
        "cuda",
        "nvidia",
        "nvrtc",
        "hip",
        "hsa",
        "rocm",
        "ze_loader",
        "sycl",
        "ascend",
        "neuron",
        "tpu",
        "torch",
        "vulkan",
    ];
    for needed in &facts.needed {
        assert!(vendors.iter().all(|vendor| !needed.contains(vendor)), "it needs {needed}");
    }
    assert!(facts.needed.iter().any(|needed| needed.starts_with("libc.")), "{:?}", facts.needed);
    // Without a compiler, a toolkit or any other command in reach.
    for arguments in [&["--help"][..], &["devices", "--json"]] {
        let home = tempfile::tempdir().unwrap();
        let mut command = std::process::Command::new(program);
        let output = command.args(arguments).env_clear().env("HOME", home.path()).output().unwrap();
        assert!(output.status.success() && !output.stdout.is_empty(), "{arguments:?}: {output:?}");
    }
}
