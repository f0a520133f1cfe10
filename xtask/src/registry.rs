//! `cargo xtask fetch-kernels`.

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;

use crate::paths;
use crate::process::{self, cargo};
use crate::server::Server;
use crate::{packs, packs::PACKS};

#[derive(Args, Default, Clone)]
pub(crate) struct Options {
    /// Fetch by these manifests (a file, a folder, a URL) instead of building the embedded kernels. `kernel-manifests`
    /// is the folder of the Hub's kernels.
    #[arg(long, value_name = "FILE|DIR|URL")]
    manifest: Vec<String>,
    /// Every build that the manifests list, not only those for this machine.
    #[arg(long)]
    all_variants: bool,
    /// These builds, for whatever machine they are. May be given more than once.
    #[arg(long, value_name = "VARIANT", conflicts_with = "all_variants")]
    variant: Vec<String>,
    /// Every build for this kind of device, such as cpu or wgpu.
    #[arg(long, value_name = "DEVICE", conflicts_with_all = ["all_variants", "variant"])]
    backend: Option<String>,
    /// Open no socket.
    #[arg(long)]
    offline: bool,
    /// Keep kernels below this folder instead of the default cache.
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
}

/// `policy`: the one to fetch by, in the place of the user's.
fn fetch(options: &Options, manifests: &[String], policy: Option<&Path>) -> anyhow::Result<()> {
    let mut command = Command::new(kernelhub());
    if let Some(policy) = policy {
        command.env("KERNELHUB_POLICY", policy);
    }
    command.current_dir(paths::root()).arg("fetch");
    for manifest in manifests {
        command.arg("--manifest").arg(manifest);
    }
    if options.all_variants {
        command.arg("--all-variants");
    }
    for variant in &options.variant {
        command.arg("--variant").arg(variant);
    }
    if let Some(backend) = &options.backend {
        command.arg("--backend").arg(backend);
    }
    if options.offline {
        command.arg("--offline");
    }
    if let Some(cache) = &options.cache {
        command.arg("--cache").arg(cache);
    }
    process::run(&mut command)
}

/// Makes the cache remember the embedded registry's folder: the loopback server's port is gone tomorrow, and the folder
/// is still there for a repair.
pub(crate) fn record_locally(cache: Option<&Path>) -> anyhow::Result<()> {
    record(&Options { cache: cache.map(Path::to_path_buf), ..Options::default() }, Some(&paths::policy()))
}

fn record(options: &Options, policy: Option<&Path>) -> anyhow::Result<()> {
    println!("recording {} as the place to repair these kernels from", paths::registry().display());
    fetch(options, &[paths::registry().display().to_string()], policy)
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    build_kernelhub(options.offline)?;
    if !options.manifest.is_empty() {
        return fetch(options, &options.manifest, None);
    }
    packs::build(&kernelhub())?;
    println!("these packs are signed with {}; your policy is to trust its public key:", paths::signing_key().display());
    packs::trust(&kernelhub(), None)?;
    if options.offline {
        return fetch(options, &[paths::registry().display().to_string()], None);
    }
    let server = Server::start(paths::registry())?;
    println!("serving {} at {}", paths::registry().display(), server.url(""));
    fetch(options, &manifest_urls(&server), None)?;
    // The same builds, which are all cached now.
    record(options, None)
}

/// The embedded registry's manifests, as a server gives them.
pub(crate) fn manifest_urls(server: &Server) -> Vec<String> {
    PACKS.iter().map(|pack| server.url(&format!("{}.toml", pack.name))).collect()
}

/// Builds the program in release mode.
pub(crate) fn build_kernelhub(offline: bool) -> anyhow::Result<()> {
    let mut command = cargo(["build", "--release", "--package", "kernelhub", "--bin", "kernelhub"]);
    if offline {
        command.arg("--offline");
    }
    process::run(&mut command)
}

/// The program that [`build_kernelhub`] built.
pub(crate) fn kernelhub() -> PathBuf {
    paths::target().join("release").join(format!("kernelhub{}", std::env::consts::EXE_SUFFIX))
}
