//! `kernelhub get`.

use clap::Args;
use kernelhub::bind::Code;
use kernelhub::hub::Kernel;
use kernelhub::variant::DeviceKey;
use kernelhub::verify::VerifiedSnapshot;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::kernel_name::KernelName;
use crate::manifests::HubOptions;
use crate::probe::Limit;

#[derive(Args)]
pub(crate) struct Options {
    /// The kernel with its version, commit, branch or tag, such as kernelhub/rmsnorm@v1.
    #[arg(value_name = "ORG/NAME@REVISION")]
    kernel: KernelName,
    /// The device to load it for: cpu, cuda, rocm, xpu, hpu, mps, npu, neuron, tpu or wgpu.
    #[arg(long, default_value = "cpu")]
    device: DeviceKey,
    /// Have a process of its own load the kernel first, so that one that crashes or hangs takes only that down.
    #[arg(long)]
    probe: bool,
    #[command(flatten)]
    limit: Limit,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    hub: HubOptions,
}

pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let KernelName { repo, revision } = &options.kernel;
    let probe = options.probe.then(|| options.limit.options()).transpose()?;
    let (hub, _) = options.hub.hub_with(|builder| match probe {
        Some(probe) => builder.probe(probe),
        None => builder,
    })?;
    let revision = match revision {
        Some(revision) => revision.clone(),
        None => hub.default_revision(repo)?,
    };
    let kernel = match hub.get(repo, revision, options.device) {
        Ok(kernel) => kernel,
        Err(error) => {
            if options.json && !error.violations().is_empty() {
                crate::print_json(&json!({ "repo": repo, "violations": error.violations() }))?;
            }
            return Err(error.into());
        }
    };
    if options.json {
        return crate::print_json(&as_json(&kernel));
    }
    let (snapshot, fetched, times) = (kernel.snapshot(), kernel.fetched(), kernel.times());
    println!("{}@v{}", snapshot.repo(), snapshot.version());
    println!("{}", kernel.resolution());
    println!("path      {}", snapshot.root().display());
    let from = match (kernel.repaired(), fetched.from_cache) {
        (true, _) => "fetched again: the cached files were damaged",
        (false, true) => "the cache",
        (false, false) => "fetched",
    };
    println!("from      {from} ({} requests, {} bytes)", fetched.requests, fetched.bytes_fetched);
    println!("verified  {} files, {} bytes, against {}", snapshot.files(), snapshot.bytes(), anchor(&kernel));
    println!("trusted   {}", snapshot.admission());
    println!("signed    {}", snapshot.signature());
    match kernel.code() {
        Code::Native(library) => {
            println!("loaded    {} (sha256 {})", library.path().display(), library.sha256());
        }
        #[cfg(feature = "wgpu")]
        Code::Shader(device) => println!("loaded    as shaders for {}", device.info().name),
        _ => {}
    }
    if let Some(probe) = kernel.probe() {
        println!("probed    by a process of its own first, in {:.0} ms", probe.ms);
    }
    println!(
        "ms        resolve {:.2}, fetch {:.2}, verify {:.2}, load {:.2}",
        times.resolve_ms, times.fetch_ms, times.verify_ms, times.load_ms
    );
    Ok(())
}

fn anchor(kernel: &Kernel) -> String {
    let own = if kernel.snapshot().has_digest() { "" } else { ", which it does not have" };
    format!("{}{own}", kernel.snapshot().anchor())
}

/// Why the publisher was trusted, and what is known of the signature, for programs.
pub(crate) fn trust(snapshot: &VerifiedSnapshot) -> Value {
    let (admission, signature) = (snapshot.admission(), snapshot.signature());
    json!({
        "publisher": admission.repo().owner(),
        "from": admission.origin().kind(),
        "basis": admission.basis().to_string(),
        "signature": {
            "mode": admission.signature().mode(),
            "is_right": signature.signer().is_some(),
            "signer": signature.signer(),
            "status": signature.to_string(),
        },
    })
}

fn as_json(kernel: &Kernel) -> Value {
    let (snapshot, fetched) = (kernel.snapshot(), kernel.fetched());
    let library = match kernel.code() {
        Code::Native(library) => {
            json!({ "path": library.path(), "sha256": library.sha256(), "handshake": library.handshake() })
        }
        _ => Value::Null,
    };
    let dependencies: Vec<_> = kernel
        .dependencies()
        .iter()
        .map(|build| {
            let snapshot = &build.snapshot;
            json!({
                "repo": snapshot.repo(),
                "version": snapshot.version(),
                "revision": snapshot.anchor().revision(),
                "variant": snapshot.variant(),
                "path": snapshot.root(),
                "trust": trust(snapshot),
            })
        })
        .collect();
    let layers: Vec<_> = snapshot.layers().layers.iter().map(|layer| layer.name.as_str()).collect();
    json!({
        "repo": snapshot.repo(),
        "version": snapshot.version(),
        "revision": snapshot.anchor().revision(),
        "source": kernel.source(),
        "notes": kernel.notes(),
        "dependencies": dependencies,
        "variant": snapshot.variant(),
        "path": snapshot.root(),
        "trust": trust(snapshot),
        "from_cache": fetched.from_cache,
        "repaired": kernel.repaired(),
        "requests": fetched.requests,
        "bytes_fetched": fetched.bytes_fetched,
        "layers": layers,
        "library": library,
        "probe": kernel.probe(),
        "resolution": kernel.resolution(),
        "ms": kernel.times(),
    })
}
