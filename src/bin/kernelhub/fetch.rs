//! `kernelhub fetch` and `kernelhub fetch-file`.

use std::path::PathBuf;

use clap::Args;
use kernelhub::digest::Sha256Digest;
use kernelhub::fetch::{FetchOptions, Fetcher, Location};
use kernelhub::hub::{Prefetched, Selection};
use kernelhub::manifest::BackendInfo;
use kernelhub::variant::{DeviceKey, Variant};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::manifests::HubOptions;
use crate::progress::Bars;

#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    hub: HubOptions,
    /// Every build that the manifests list, not only those for this machine.
    #[arg(long)]
    all_variants: bool,
    /// These builds, for whatever machine they are. May be given more than once.
    #[arg(long, value_name = "VARIANT", conflicts_with = "all_variants")]
    variant: Vec<Variant>,
    /// Every build for this kind of device: cpu, cuda, rocm, xpu, hpu, mps, npu, neuron, tpu or wgpu.
    #[arg(long, value_name = "DEVICE", conflicts_with_all = ["all_variants", "variant"])]
    backend: Option<DeviceKey>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let (hub, manifests) = options.hub.hub()?;
    if manifests.is_empty() {
        return Err(Failure::new("no manifest was given", Some("name one with --manifest FILE|DIR|URL")));
    }
    let is_named = !options.variant.is_empty() || options.backend.is_some();
    let selection = if options.all_variants || is_named { Selection::AllVariants } else { Selection::ThisMachine };
    let wanted = |variant: &Variant| {
        let named = options.variant.is_empty() || options.variant.contains(variant);
        named && options.backend.is_none_or(|key| is_for(variant, key))
    };
    let mut rows = Vec::new();
    for manifest in &manifests {
        let revision = manifest.kernel.version.into();
        for build in hub.prefetch_where(&manifest.kernel.repo, &revision, selection, &wanted)? {
            if !options.json {
                println!("{}", build_line(&build));
            }
            rows.push(build_json(&build));
        }
    }
    if rows.is_empty() {
        return Err(Failure::new(
            "the manifests list no such build",
            Some("`kernelhub info ORG/NAME@vN` shows the builds of a kernel"),
        ));
    }
    if options.json {
        crate::print_json(&rows)?;
    }
    Ok(())
}

/// Whether a build is for a kind of device, by its name.
fn is_for(variant: &Variant, key: DeviceKey) -> bool {
    let kind = BackendInfo::of(variant).kind;
    kind.parse() == Ok(key) || (kind == "universal" && key == DeviceKey::Wgpu)
}

/// A build that was brought, for programs.
pub(crate) fn build_json(build: &Prefetched) -> Value {
    let Prefetched { snapshot, fetched, repaired, times, .. } = build;
    json!({
        "repo": snapshot.repo(),
        "version": snapshot.version(),
        "revision": snapshot.anchor().revision(),
        "source": build.source,
        "variant": snapshot.variant(),
        "path": snapshot.root(),
        "trust": crate::get::trust(snapshot),
        "from_cache": fetched.from_cache,
        "repaired": repaired,
        "requests": fetched.requests,
        "bytes_fetched": fetched.bytes_fetched,
        "notes": build.notes,
        "ms": { "fetch": times.fetch_ms, "verify": times.verify_ms },
    })
}

/// A build that was brought, for people.
pub(crate) fn build_line(build: &Prefetched) -> String {
    let Prefetched { snapshot, fetched, repaired, .. } = build;
    let how = match (repaired, fetched.from_cache) {
        (true, _) => "repaired",
        (false, true) => "cached",
        (false, false) => "fetched",
    };
    let kernel = format!("{}@v{}", snapshot.repo(), snapshot.version());
    format!(
        "{how:8}  {kernel:26}  {:32}  {:>8} bytes fetched, {} files verified",
        snapshot.variant().to_string(),
        fetched.bytes_fetched,
        snapshot.files()
    )
}

#[derive(Args)]
pub(crate) struct FileOptions {
    /// Where the file is: an http, https or file URL, or a path.
    url: String,
    /// Its sha256, 64 hexadecimal digits. Another file is refused.
    #[arg(long)]
    sha256: Sha256Digest,
    /// Its size, in bytes.
    #[arg(long)]
    size: u64,
    /// How long to wait for a connection and for each piece of the answer, in seconds.
    #[arg(long, default_value_t = 30, value_name = "SECONDS")]
    timeout: u64,
    /// Where to put it.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

pub(crate) fn run_file(options: &FileOptions) -> Result<(), Failure> {
    let location: Location = options.url.parse()?;
    let timeout = std::time::Duration::from_secs(options.timeout);
    let fetcher = Fetcher::new(FetchOptions { timeout, answer_timeout: timeout, ..FetchOptions::from_env()? });
    fetcher.fetch_file(&location, options.size, options.sha256, &options.out, &Bars::default())?;
    Ok(())
}
