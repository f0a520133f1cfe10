//! `cargo xtask demo`.

use std::path::PathBuf;
use std::process::Command;

use clap::Args;

use crate::process::{self, cargo};
use crate::server::Server;
use crate::{model, packs, paths, registry};

#[derive(Args, Default)]
pub(crate) struct Options {
    /// What to ask the model.
    #[arg(long)]
    question: Option<String>,
    /// Most new tokens of an answer.
    #[arg(long)]
    max_tokens: Option<usize>,
    /// Element type to compute in: f32, bf16 or f16.
    #[arg(long)]
    dtype: Option<String>,
    /// Measured rounds, of which the median counts.
    #[arg(long)]
    runs: Option<usize>,
    /// Leave memory as the system has it: large outputs are made of fresh pages, and weights lie in small ones.
    #[arg(long)]
    fresh_memory: bool,
    /// Open no socket: everything must be here from an earlier run.
    #[arg(long)]
    offline: bool,
    /// Keep kernels below this folder instead of the default cache.
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
}

impl Options {
    /// The whole demo with its kernels in a cache of its own.
    pub(crate) fn with_cache(cache: PathBuf) -> Self {
        Self { cache: Some(cache), ..Self::default() }
    }
}

/// Builds the program and the demo in release mode, in one go: alone, the program's dependencies have other features,
/// and a part of them would be built twice.
pub(crate) fn build(offline: bool) -> anyhow::Result<()> {
    let mut build = cargo(["build", "--release", "--package", "kernelhub", "--bin", "kernelhub", "--example", "demo"]);
    if offline {
        build.arg("--offline");
    }
    process::run(&mut build)
}

pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    println!("== building (release) ==");
    build(options.offline)?;

    let mut demo = Command::new(paths::target().join("release/examples").join("demo"));
    demo.current_dir(paths::root()).env("KERNELHUB_POLICY", paths::policy());
    // The server lives until the demo has fetched what it needs.
    let server = if options.offline {
        None
    } else {
        println!("\n== publishing the embedded kernels on a loopback server ==");
        packs::build(&registry::kernelhub())?;
        Some(Server::start(paths::registry())?)
    };
    for url in server.iter().flat_map(registry::manifest_urls) {
        demo.arg("--manifest").arg(url);
    }
    println!("\n== the model ==");
    match model::fetch(options.offline)? {
        Some(path) => {
            demo.arg("--model").arg(path);
        }
        None => println!("model: a small random one is used instead, so the answer means nothing"),
    }
    if let Some(question) = &options.question {
        demo.args(["--question", question]);
    }
    if let Some(tokens) = options.max_tokens {
        demo.args(["--max-tokens", &tokens.to_string()]);
    }
    if let Some(dtype) = &options.dtype {
        demo.args(["--dtype", dtype]);
    }
    if let Some(runs) = options.runs {
        demo.args(["--runs", &runs.to_string()]);
    }
    if options.fresh_memory {
        demo.arg("--fresh-memory");
    }
    if options.offline {
        demo.arg("--offline");
    }
    if let Some(cache) = &options.cache {
        demo.arg("--cache").arg(cache);
    }
    demo.arg("--json").arg(paths::target().join("demo.json"));
    println!("\n== the demo ==");
    process::run(&mut demo)?;
    if server.is_some() {
        registry::record_locally(options.cache.as_deref())?;
    }
    Ok(())
}
