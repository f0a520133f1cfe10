//! Bringing up the CPU kernels, with everything that was decided on the way.

use kernelhub::bind::Code;
use kernelhub::fetch::{FetchOptions, Fetcher, Location};
use kernelhub::hub::Hub;
use kernelhub::swap::Report;
use kernelhub::variant::DeviceKey;
use serde_json::{Value, json};

use super::Options;
use super::progress::Bar;

const KERNELS: [&str; 6] = [
    "kernelhub/embedding",
    "kernelhub/rmsnorm",
    "kernelhub/linear",
    "kernelhub/rotary",
    "kernelhub/flash-attn2",
    "kernelhub/activation",
];

/// Sums over the kernels.
#[derive(Default)]
pub struct Totals {
    pub fetch_ms: f64,
    pub verify_ms: f64,
    pub load_ms: f64,
    pub bytes_fetched: u64,
}

/// A hub with the cache and the manifests of the options.
pub fn hub(options: &Options) -> anyhow::Result<Hub> {
    let mut fetch = FetchOptions::from_env()?;
    fetch.offline |= options.offline;
    let fetcher = Fetcher::new(fetch.clone());
    let mut builder = Hub::builder().offline(fetch.offline).progress(Bar::default());
    if let Some(cache) = &options.cache {
        builder = builder.cache(cache);
    }
    for manifest in &options.manifest {
        let location: Location = manifest.parse()?;
        builder = builder.manifest(fetcher.fetch_manifest(&location)?, location);
    }
    Ok(builder.build()?)
}

/// Resolves, fetches, verifies and loads all of them, and prints what became of each.
pub fn get_all(hub: &Hub) -> anyhow::Result<Totals> {
    let mut totals = Totals::default();
    for repo in KERNELS {
        let kernel = hub.get(&repo.parse()?, 1, DeviceKey::Cpu)?;
        let (snapshot, fetched, times) = (kernel.snapshot(), kernel.fetched(), kernel.times());
        println!("{repo}@v{}", snapshot.version());
        for line in kernel.resolution().to_string().lines() {
            println!("  {line}");
        }
        let from = match (kernel.repaired(), fetched.from_cache) {
            (true, _) => "fetched again, the cached files were damaged".to_owned(),
            (false, true) => "in the cache".to_owned(),
            (false, false) => format!("downloaded, {} bytes", fetched.bytes_fetched),
        };
        println!("  fetch    {:>8.2} ms  {from}", times.fetch_ms);
        let (files, bytes, archive) = (snapshot.files(), snapshot.bytes(), snapshot.anchor().revision());
        println!("  verify   {:>8.2} ms  {files} files, {bytes} bytes, anchored by {archive}", times.verify_ms);
        if let Code::Native(library) = kernel.code() {
            let (path, sha256) = (library.path().display(), library.sha256());
            println!("  load     {:>8.2} ms  {path}\n                        sha256 {sha256}", times.load_ms);
        }
        totals.fetch_ms += times.fetch_ms;
        totals.verify_ms += times.verify_ms;
        totals.load_ms += times.load_ms;
        totals.bytes_fetched += fetched.bytes_fetched;
    }
    Ok(totals)
}

/// The kernels that took layers.
pub fn as_json(report: &Report) -> Vec<Value> {
    let kernels = report.kernels().into_iter().map(|kernel| {
        json!({
            "name": kernel.repo,
            "version": kernel.version,
            "variant": kernel.variant,
            "layer": kernel.layer,
            "path": kernel.path,
            "sha256": kernel.sha256,
        })
    });
    kernels.collect()
}
