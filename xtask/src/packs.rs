//! Builds the project's own kernel packs and packs them as any publisher would, with `kernelhub pack`.

use std::env::consts::{ARCH, DLL_PREFIX, DLL_SUFFIX, OS};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::beside::Beside;
use crate::paths;
use crate::process::{cargo, run, run_beside};

const VERSION: &str = "1";
const LICENSE: &str = "Apache-2.0";

/// One published kernel.
pub(crate) struct Pack {
    /// Its repo name under `kernelhub/`, which is also the CPU crate's feature.
    pub(crate) name: &'static str,
    description: &'static str,
    /// Functions of the native build, for Python.
    functions: &'static [&'static str],
    /// WGSL files, for kernels that have a shader build.
    shaders: &'static [&'static str],
}

pub(crate) static PACKS: [Pack; 9] = [
    Pack {
        name: "rmsnorm",
        description: "RMSNorm, with and without an offset or a residual, and its gradient",
        functions: &["rms_norm", "rms_norm_with_offset", "rms_norm_backward", "add_rms_norm"],
        shaders: &["rms_norm.wgsl"],
    },
    Pack { name: "layer-norm", description: "LayerNorm", functions: &["layer_norm"], shaders: &[] },
    Pack {
        name: "rotary",
        description: "Rotary position embedding",
        functions: &["apply_rotary", "apply_rotary_pair"],
        shaders: &[],
    },
    Pack {
        name: "activation",
        description: "Activations, plain and gated",
        functions: &[
            "silu_and_mul",
            "silu_and_mul_backward",
            "mul_and_silu",
            "gelu_and_mul",
            "gelu_tanh_and_mul",
            "fatrelu_and_mul",
            "silu",
            "gelu",
            "gelu_tanh",
            "gelu_fast",
            "gelu_new",
            "gelu_quick",
        ],
        shaders: &["silu_and_mul.wgsl"],
    },
    Pack { name: "softmax", description: "Softmax of rows", functions: &["softmax"], shaders: &[] },
    Pack {
        name: "flash-attn2",
        description: "Attention with an online softmax",
        functions: &["flash_attn", "flash_attn_options", "flash_attn_varlen", "flash_attn_paged"],
        shaders: &[],
    },
    Pack {
        name: "linear",
        description: "Linear layers, plain and gated",
        functions: &["linear", "silu_gated_linear"],
        shaders: &[],
    },
    Pack { name: "embedding", description: "Rows of a table by id", functions: &["embedding"], shaders: &[] },
    Pack {
        name: "cross-entropy",
        description: "Cross entropy of logits, and its gradient",
        functions: &["cross_entropy", "cross_entropy_backward"],
        shaders: &[],
    },
];

/// Builds every pack and writes archives and manifests to the embedded registry. `kernelhub` is the program.
///
/// Each build is signed with a key of this machine, by which a policy trusts them; the policy of demos and tests is
/// written here, too.
pub(crate) fn build(kernelhub: &Path) -> anyhow::Result<()> {
    let key = signing_key(kernelhub)?;
    for pack in &PACKS {
        let mut builds = vec![native(pack)?];
        if !pack.shaders.is_empty() {
            builds.push(shader(pack)?);
        }
        let mut command = std::process::Command::new(kernelhub);
        command.current_dir(paths::root()).arg("pack");
        command.args(["--repo", &format!("kernelhub/{}", pack.name), "--version", VERSION, "--license", LICENSE]);
        command.args(["--description", pack.description]);
        command.arg("--key").arg(&key).arg("--out").arg(paths::registry());
        for (variant, folder) in &builds {
            command.arg(format!("{variant}={}", folder.display()));
        }
        run(&mut command)?;
    }
    copy(&key.with_extension("pub"), &paths::public_key())?;
    let policy = paths::policy();
    if policy.exists() {
        fs::remove_file(&policy).with_context(|| format!("cannot remove {}", policy.display()))?;
    }
    trust(kernelhub, Some(&policy))
}

/// The signing key, which is made where there is none.
fn signing_key(kernelhub: &Path) -> anyhow::Result<PathBuf> {
    let key = paths::signing_key();
    if !key.exists() {
        run(std::process::Command::new(kernelhub).args(["sign", "--new", "--key"]).arg(&key))?;
    }
    Ok(key)
}

/// Adds the key to a policy. `None`: the user's, which is said.
pub(crate) fn trust(kernelhub: &Path, policy: Option<&Path>) -> anyhow::Result<()> {
    let mut command = std::process::Command::new(kernelhub);
    command.args(["trust", "key", "kernelhub"]).arg(paths::public_key());
    if let Some(policy) = policy {
        command.env("KERNELHUB_POLICY", policy);
    }
    run(&mut command)
}

/// Compiles every pack's library on a thread beside other work, for a [`build`] after it: with one codegen unit and LTO
/// each keeps one processor busy, and a second one idle.
pub(crate) fn compile_beside() -> Beside {
    Beside::start(&PACKS, |pack| run_beside(&mut compile(pack)))
}

/// Builds every pack's library, and answers the folder that holds them as they are packed: a folder for each pack, and in
/// it one for the build.
pub(crate) fn libraries() -> anyhow::Result<PathBuf> {
    for pack in &PACKS {
        native(pack)?;
    }
    Ok(paths::target().join("packs"))
}

/// Compiles the pack's library, which is then in the profile's folder until another pack is compiled.
fn compile(pack: &Pack) -> std::process::Command {
    let arguments = ["build", "--quiet", "--profile", "pack", "--package", "kernelhub-cpu", "--no-default-features"];
    let mut command = cargo(arguments);
    command.args(["--features", pack.name]);
    command
}

/// The library for this machine's processor, with what Python needs to load it too.
fn native(pack: &Pack) -> anyhow::Result<(String, PathBuf)> {
    run(&mut compile(pack))?;
    let system = if OS == "macos" { "darwin" } else { OS };
    let variant = format!("tvm-ffi01-cpu-{ARCH}-{system}");
    let folder = fresh_folder(pack, &variant)?;
    let library = format!("{DLL_PREFIX}{}{DLL_SUFFIX}", pack.name.replace('-', "_"));
    copy(&paths::target().join("pack").join(format!("{DLL_PREFIX}kernelhub_cpu{DLL_SUFFIX}")), &folder.join(&library))?;
    let layers = paths::root().join("kernels/cpu/layers").join(format!("{}.toml", pack.name));
    copy(&layers, &folder.join("layers.toml"))?;
    write(&folder.join("__init__.py"), &python(&library, pack.functions))?;
    Ok((variant, folder))
}

/// The shader text, for any adapter.
fn shader(pack: &Pack) -> anyhow::Result<(String, PathBuf)> {
    let variant = "wgsl-universal".to_owned();
    let folder = fresh_folder(pack, &variant)?;
    let source = paths::root().join("kernels/wgsl");
    for file in pack.shaders {
        copy(&source.join(file), &folder.join(file))?;
    }
    copy(&source.join("layers").join(format!("{}.toml", pack.name)), &folder.join("layers.toml"))?;
    Ok((variant, folder))
}

/// A module for the Python package `kernels`, which loads the same files by `tvm_ffi`.
fn python(library: &str, functions: &[&str]) -> String {
    let mut text = format!(
        "from pathlib import Path\n\nimport tvm_ffi\n\n_module = tvm_ffi.load_module(str(Path(__file__).parent / \"{library}\"))\n\n"
    );
    text.extend(functions.iter().map(|function| format!("{function} = _module[\"{function}\"]\n")));
    let names: Vec<String> = functions.iter().map(|function| format!("\"{function}\"")).collect();
    text + &format!("\n__all__ = [{}]\n", names.join(", "))
}

fn fresh_folder(pack: &Pack, variant: &str) -> anyhow::Result<PathBuf> {
    let folder = paths::target().join("packs").join(pack.name).join(variant);
    if folder.exists() {
        fs::remove_dir_all(&folder).with_context(|| format!("cannot empty {}", folder.display()))?;
    }
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder)
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::copy(from, to).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    Ok(())
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}
