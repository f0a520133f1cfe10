//! `cargo xtask fetch-kernels`.

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;

use crate::paths;
use crate::process::{self, cargo};
use crate::server::Server;
use crate::{packs, packs::PACKS};

#[derive(Args, Default)]
pub(crate) struct Options {
    /// Fetch by these manifests (a file, a folder, a URL) instead of building the embedded kernels.
    #[arg(long, value_name = "FILE|DIR|URL")]
    manifest: Vec<String>,
    /// Every build that the manifests list, not only those for this machine.
    #[arg(long)]
    all_variants: bool,
    /// Open no socket.
    #[arg(long)]
    offline: bool,
    /// Keep kernels below this folder instead of the default cache.
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
}

fn fetch(options: &Options, manifests: &[String]) -> anyhow::Result<()> {
    let mut command = Command::new(kernelhub());
    command.current_dir(paths::root()).arg("fetch");
    for manifest in manifests {
        command.arg("--manifest").arg(manifest);
    }
    if options.all_variants {
        command.arg("--all-variants");
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
    println!("recording {} as the place to repair these kernels from", paths::registry().display());
    let options = Options { cache: cache.map(Path::to_path_buf), ..Options::default() };
    fetch(&options, &[paths::registry().display().to_string()])
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    build_kernelhub(options.offline)?;
    if !options.manifest.is_empty() {
        return fetch(options, &options.manifest);
    }
    packs::build(&kernelhub())?;
    if options.offline {
        return fetch(options, &[paths::registry().display().to_string()]);
    }
    let server = Server::start(paths::registry())?;
    println!("serving {} at {}", paths::registry().display(), server.url(""));
    fetch(options, &manifest_urls(&server))?;
    record_locally(options.cache.as_deref())
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
