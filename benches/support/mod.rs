//! What the benchmarks share: the registry of packs, hubs over it, and criterion's settings.
//!
//! The packs come from the registry that `cargo xtask bench` builds and names in `KERNELHUB_TEST_REGISTRY`. Without it
//! `cargo bench` fails, for there is nothing to measure; `cargo test`, which runs each benchmark once, says why it
//! skips.

#![allow(dead_code, reason = "each benchmark uses its part")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, SamplingMode};
use kernelhub::fetch::{FetchOptions, Fetcher, Location};
use kernelhub::hub::Hub;
use kernelhub::manifest::{BackendInfo, KernelManifest};
use kernelhub::names::RepoId;
use kernelhub::pack::{self, PackSpec};
use kernelhub::policy::{Level, Policy};
use kernelhub::swap::KernelRef;
use kernelhub::system::SystemInfo;
use kernelhub::variant::Variant;

const REGISTRY: &str = "KERNELHUB_TEST_REGISTRY";

/// The packs' names below `kernelhub/`.
pub(crate) const PACKS: [&str; 6] = ["rmsnorm", "rotary", "activation", "flash-attn2", "linear", "embedding"];

/// A hub with one kernel, `kernelhub-bench/noop@v1:RMSNorm`, whose function does next to nothing: what a call costs is
/// then the host's part alone.
pub(crate) fn noop_hub(folder: &Path) -> anyhow::Result<Hub> {
    let files = folder.join("files");
    fs::create_dir_all(&files)?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/support/noop.rs");
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc.args(["--crate-type", "cdylib", "--edition", "2024", "-O", "-o"]).arg(files.join("libnoop.so")).arg(source);
    anyhow::ensure!(rustc.status()?.success(), "the no-op kernel does not compile");
    let layers = "schema = 1\n\n[[layer]]\nname = \"RMSNorm\"\ncontract = \"rms_norm\"\ndtypes = [\"f32\"]\n\
        forward = { function = \"noop_rms_norm\", args = [\"out\", \"x\", \"weight\", \"eps\"] }\n";
    fs::write(files.join("layers.toml"), layers)?;
    let variant: Variant = format!("tvm-ffi01-cpu-{}-{}", std::env::consts::ARCH, std::env::consts::OS).parse()?;
    let spec = PackSpec {
        repo: "kernelhub-bench/noop".parse()?,
        version: 1,
        license: "Apache-2.0".to_owned(),
        description: None,
        variant,
        backend: BackendInfo::of(&variant),
        provenance: None,
    };
    let packed = pack::pack_variant(&files, &spec, folder)?;
    let manifest = pack::manifest(&spec, std::slice::from_ref(&packed), folder)?;
    pack::write_manifest(&manifest, folder)?;
    let location = Location::Local(folder.join("noop.toml"));
    let mut policy = Policy::builtin();
    let text = "schema = 1\n[[repo]]\nname = \"kernelhub-bench/noop\"\ntrust = true\nfrom = [\"archive\"]\n";
    policy.add(text, Level::Program, Path::new("the benchmark"))?;
    let builder = Hub::builder().cache(folder.join("cache")).offline(true).policy(policy);
    Ok(builder.manifest(manifest, location).build()?)
}

/// The packs' manifests and a cache folder for this run.
pub(crate) struct Registry {
    manifests: Vec<(KernelManifest, Location)>,
    cache: tempfile::TempDir,
    system: SystemInfo,
}

impl Registry {
    fn open(folder: &Path) -> anyhow::Result<Self> {
        let fetcher = Fetcher::new(FetchOptions { offline: true, ..FetchOptions::default() });
        let manifest = |name| {
            let location = Location::Local(folder.join(format!("{name}.toml")));
            Ok((fetcher.fetch_manifest(&location)?, location))
        };
        let manifests = PACKS.into_iter().map(manifest).collect::<anyhow::Result<_>>()?;
        let cache = tempfile::tempdir().context("cannot make a folder for the cache")?;
        Ok(Self { manifests, cache, system: SystemInfo::probe() })
    }

    /// This machine, probed once.
    pub(crate) fn system(&self) -> &SystemInfo {
        &self.system
    }

    /// The registry's folder, for a child process.
    pub(crate) fn cache(&self) -> &Path {
        self.cache.path()
    }

    /// A hub that has brought up nothing yet, over the cache that all hubs of this run share.
    pub(crate) fn hub(&self) -> anyhow::Result<Hub> {
        self.hub_in(self.cache.path())
    }

    /// [`Self::hub`] over another cache.
    pub(crate) fn hub_in(&self, cache: &Path) -> anyhow::Result<Hub> {
        let builder = Hub::builder().cache(cache).offline(true).system(self.system.clone());
        let with_all = |builder, (manifest, location): &(KernelManifest, Location)| {
            kernelhub::hub::HubBuilder::manifest(builder, manifest.clone(), location.clone())
        };
        Ok(self.manifests.iter().fold(builder, with_all).build()?)
    }
}

/// A pack's repo.
pub(crate) fn repo(pack: &str) -> anyhow::Result<RepoId> {
    Ok(format!("kernelhub/{pack}").parse()?)
}

/// A layer of a pack.
pub(crate) fn layer(pack: &str, layer: &str) -> anyhow::Result<KernelRef> {
    Ok(format!("kernelhub/{pack}@v1:{layer}").parse()?)
}

/// Opens the registry and runs `benches`; `cargo test` without a registry is told why nothing runs.
///
/// # Errors
/// When `cargo bench` has no registry, or a benchmark cannot be set up.
#[expect(clippy::print_stderr, reason = "a skip says why")]
pub(crate) fn run(benches: impl FnOnce(&mut Criterion, &Registry) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let Some(folder) = std::env::var_os(REGISTRY).map(PathBuf::from) else {
        anyhow::ensure!(
            !std::env::args().any(|argument| argument == "--bench"),
            "{REGISTRY} names no registry of packs; `cargo xtask bench` builds one and sets it"
        );
        eprintln!("skipped: {REGISTRY} names no registry of packs");
        return Ok(());
    };
    let mut criterion = Criterion::default().configure_from_args().without_plots();
    benches(&mut criterion, &Registry::open(&folder)?)?;
    criterion.final_summary();
    Ok(())
}

/// A group of `samples` samples within about `measure`, after `warm_up`.
pub(crate) fn group<'a>(
    criterion: &'a mut Criterion,
    name: &str,
    (warm_up, measure, samples): (Duration, Duration, usize),
) -> BenchmarkGroup<'a, WallTime> {
    let mut group = criterion.benchmark_group(name);
    // Flat: every sample has as many iterations, so that long ones don't take minutes.
    group.sampling_mode(SamplingMode::Flat).warm_up_time(warm_up).measurement_time(measure).sample_size(samples);
    group
}

/// Milliseconds, for [`group`].
pub(crate) const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}
