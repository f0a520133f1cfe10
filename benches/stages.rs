//! The stages of a kernel's path, from its name to a plan.
//!
//! - `resolve`: choosing among builds of which only the names are known; one of them fits.
//! - `verify`: reading and hashing every file of a build from the page cache, and sealing the library's copy. The
//!   throughput counts the files' bytes.
//! - `get`: [`Hub::get`] in a hub that has brought up nothing, with the files in the cache and the library in the
//!   process: a look into the cache, verify, and a look-up by digest.
//! - `first_get` and `first_load`: the same in a process that has loaded nothing, and its `dlopen` with the handshake
//!   alone. A child process does each once and reports its own clock, so that its start does not count.
//! - `plan`: `use_kernels` for the 333 layers of a 30-layer Llama, and the 367 of a 28-layer Qwen3 with its norms over
//!   the heads of Q and K, their groups beside them, the kernels being in the process.
//! - `swap`: what changes a model between two forwards: kernels off and on again, to training and back, and for the time
//!   of a call. Each is a plan or two of the Llama's slots, made whole and published.

mod support;

use std::hint::black_box;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use criterion::measurement::WallTime;
use criterion::{BatchSize, BenchmarkGroup, BenchmarkId, Criterion, Throughput};
use kernelhub::bind::{Contract, GatedActivation, GatedLinear, Rounding};
use kernelhub::dtype::DType;
use kernelhub::hub::Hub;
use kernelhub::resolve::{Candidate, Request, resolve};
use kernelhub::swap::{GroupSpec, KernelConfig, SlotSpec, Slots};
use kernelhub::variant::DeviceKey;
use kernelhub::verify::verify;
use support::{PACKS, Registry, ms, repo};

/// Set for a child: the cache that it reads.
const CHILD_CACHE: &str = "KERNELHUB_BENCH_CACHE";
/// Set for a child: the pack that it brings up.
const CHILD_PACK: &str = "KERNELHUB_BENCH_PACK";

fn main() -> anyhow::Result<()> {
    if let (Some(cache), Ok(pack)) = (std::env::var_os(CHILD_CACHE), std::env::var(CHILD_PACK)) {
        return first(&Hub::builder().cache(cache).offline(true).build()?, &pack);
    }
    support::run(|criterion, registry| {
        candidates(criterion, registry);
        builds(criterion, registry)?;
        first_loads(criterion, registry)?;
        plan(criterion, registry)?;
        swap(criterion, registry)
    })
}

/// `count` names of builds, the last of which is for this machine's processor.
fn names(count: usize) -> Vec<String> {
    let backends = ["cu118", "cu126", "cu128", "cu130", "rocm63", "rocm72", "xpu20253", "cpu"];
    let torches = (6..15).flat_map(|minor| backends.map(|backend| format!("torch2{minor}-cxx11-{backend}")));
    let systems = ["x86_64-linux", "aarch64-linux", "x86_64-windows"];
    let builds = torches.flat_map(|build| systems.map(|system| format!("{build}-{system}")));
    let ours = format!("tvm-ffi01-cpu-{}-{}", std::env::consts::ARCH, std::env::consts::OS);
    builds.take(count - 1).chain([ours]).collect()
}

fn candidates(criterion: &mut Criterion, registry: &Registry) {
    let mut group = support::group(criterion, "resolve", (ms(200), ms(1_000), 30));
    let request = Request::device(DeviceKey::Cpu);
    for count in [4, 20, 200] {
        let names = names(count);
        let candidates = Candidate::from_names(names.iter().map(String::as_str));
        group.bench_function(BenchmarkId::from_parameter(format!("{count} candidates")), |bencher| {
            bencher.iter(|| resolve(black_box(&candidates), registry.system(), &request));
        });
    }
    group.finish();
}

fn builds(criterion: &mut Criterion, registry: &Registry) -> anyhow::Result<()> {
    // Brings every pack into the cache and the process.
    let hub = registry.hub()?;
    let mut group = support::group(criterion, "verify", (ms(200), ms(1_000), 20));
    for pack in PACKS {
        let kernel = hub.get(&repo(pack)?, 1, DeviceKey::Cpu)?;
        group.throughput(Throughput::Bytes(kernel.snapshot().bytes()));
        group.bench_function(BenchmarkId::from_parameter(pack), |bencher| {
            bencher.iter_with_large_drop(|| {
                verify(&kernel.fetched().snapshot, kernel.snapshot().admission()).expect("verified a moment ago")
            });
        });
    }
    group.finish();

    let mut group = support::group(criterion, "get", (ms(200), ms(1_000), 20));
    for pack in PACKS {
        let repo = repo(pack)?;
        group.bench_function(BenchmarkId::from_parameter(pack), |bencher| {
            bencher.iter_batched(
                || registry.hub().expect("built before"),
                |hub| (hub.get(&repo, 1, DeviceKey::Cpu).expect("in the cache"), hub),
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
    Ok(())
}

/// A child's work: brings up one pack and prints the nanoseconds of the whole and of the load.
#[expect(clippy::print_stdout, reason = "how a child reports")]
fn first(hub: &Hub, pack: &str) -> anyhow::Result<()> {
    let repo = repo(pack)?;
    let clock = Instant::now();
    let kernel = hub.get(&repo, 1, DeviceKey::Cpu)?;
    let whole = clock.elapsed();
    let load = Duration::from_secs_f64(kernel.times().load_ms / 1e3);
    println!("{} {}", whole.as_nanos(), load.as_nanos());
    Ok(())
}

/// Has a child bring up `pack`; returns the time of the whole and of the load.
fn in_child(registry: &Registry, pack: &str) -> anyhow::Result<[Duration; 2]> {
    let mut command = Command::new(std::env::current_exe()?);
    let output = command.env(CHILD_CACHE, registry.cache()).env(CHILD_PACK, pack).output()?;
    let (text, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let mut times = text.split_whitespace().filter_map(|number| number.parse().ok().map(Duration::from_nanos));
    let pair = times.next().zip(times.next());
    pair.map(|(whole, load)| [whole, load]).with_context(|| format!("the child gave no times: {error}"))
}

fn first_loads(criterion: &mut Criterion, registry: &Registry) -> anyhow::Result<()> {
    // Recorded manifests are what a child resolves by.
    let hub = registry.hub()?;
    for pack in PACKS {
        hub.get(&repo(pack)?, 1, DeviceKey::Cpu)?;
        in_child(registry, pack)?;
    }
    for (which, name) in ["first_get", "first_load"].into_iter().enumerate() {
        let mut group = support::group(criterion, name, (ms(1), ms(300), 10));
        for pack in PACKS {
            group.bench_function(BenchmarkId::from_parameter(pack), |bencher| {
                let once = || in_child(registry, pack).expect("a child ran before")[which];
                bencher.iter_custom(|iterations| (0..iterations).map(|_| once()).sum());
            });
        }
        group.finish();
    }
    Ok(())
}

/// The slots of a decoder of `layers` layers: two norms, of which all but the first come after an add, the projections
/// of Q, K and V, which are a group, and that of the output, one rotary embedding, one attention and one feed-forward
/// block of three layers, of which two are a group, in each, with `qk_norm` two more norms over heads; the embedding, the last norm and the head.
fn decoder_slots(layers: usize, qk_norm: bool) -> anyhow::Result<Slots> {
    let slots = Slots::new(DeviceKey::Cpu);
    let spec = |path: &str, layer: &str, contract, last_dim| SlotSpec {
        path: path.to_owned(),
        layer: layer.to_owned(),
        contract,
        dtype: DType::F32,
        last_dim,
        trainable: false,
        options: Vec::new(),
        rounding: Rounding::F32WeightF32,
    };
    let claim = |path: &str, layer: &str, contract, last_dim| slots.slot(spec(path, layer, contract, last_dim));
    // The plan counts slots, held or not.
    let group = |path: &str, (layer, contract, last_dim), members| {
        slots.group(GroupSpec { fused: spec(path, layer, contract, last_dim), members }).map(drop)
    };
    let norm = |path: &str, is_after_add: bool| {
        let norm = claim(path, "RMSNorm", Contract::RmsNorm, 576);
        let fused = ("AddRMSNorm", Contract::AddRmsNorm, 576);
        if is_after_add { group(&format!("{path}.add"), fused, vec![norm]) } else { Ok(()) }
    };
    let linear = |path: String, width| claim(&path, "Linear", Contract::Linear, width);
    claim("model.embed_tokens", "Embedding", Contract::Embedding, 576);
    for index in 0..layers {
        let path = format!("model.layers.{index}");
        norm(&format!("{path}.input_layernorm"), index > 0)?;
        let qkv = ["q", "k", "v"].map(|name| linear(format!("{path}.self_attn.{name}_proj"), 576));
        group(&format!("{path}.self_attn.qkv"), ("QKVLinear", Contract::Linear, 576), qkv.to_vec())?;
        for name in ["q_norm", "k_norm"].into_iter().filter(|_| qk_norm) {
            claim(&format!("{path}.self_attn.{name}"), "RMSNorm", Contract::RmsNorm, 64);
        }
        claim(&format!("{path}.self_attn.rotary_emb"), "RotaryEmbedding", Contract::Rotary, 64);
        claim(&format!("{path}.self_attn.attn"), "FlashAttention", Contract::Attention, 64);
        linear(format!("{path}.self_attn.o_proj"), 576);
        norm(&format!("{path}.post_attention_layernorm"), true)?;
        let gated = Contract::GatedActivation(GatedActivation::Silu);
        let gate_up = linear(format!("{path}.mlp.gate_up_proj"), 576);
        let activation = claim(&format!("{path}.mlp.act_fn"), "SiluAndMul", gated, 1_536);
        let fused = ("SiluGatedLinear", Contract::GatedLinear(GatedLinear::Silu), 576);
        group(&format!("{path}.mlp"), fused, vec![gate_up, activation])?;
        linear(format!("{path}.mlp.down_proj"), 1_536);
    }
    norm("model.norm", true)?;
    linear("lm_head".to_owned(), 576);
    Ok(slots)
}

fn plan(criterion: &mut Criterion, registry: &Registry) -> anyhow::Result<()> {
    let (hub, config) = (registry.hub()?, KernelConfig::standard()?);
    let mut group: BenchmarkGroup<'_, WallTime> = support::group(criterion, "plan", (ms(200), ms(1_000), 30));
    for (layers, qk_norm, count) in [(30, false, 333), (28, true, 367)] {
        let slots = decoder_slots(layers, qk_norm)?;
        let report = slots.use_kernels(&hub, &config)?;
        anyhow::ensure!(report.swapped() == count, "not every slot has a kernel: {report}");
        group.bench_function(BenchmarkId::from_parameter(format!("use_kernels, {count} slots")), |bencher| {
            bencher.iter_with_large_drop(|| slots.use_kernels(&hub, &config).expect("planned before"));
        });
    }
    group.finish();
    Ok(())
}

fn swap(criterion: &mut Criterion, registry: &Registry) -> anyhow::Result<()> {
    let (hub, config) = (registry.hub()?, KernelConfig::standard()?);
    let slots = decoder_slots(30, false)?;
    slots.use_kernels(&hub, &config)?;
    let mut group = support::group(criterion, "swap", (ms(200), ms(1_000), 30));
    group.bench_function(BenchmarkId::from_parameter("kernels off and on"), |bencher| {
        bencher.iter_with_large_drop(|| {
            (slots.disable_kernels(), slots.use_kernels(&hub, &config).expect("planned before"))
        });
    });
    group.bench_function(BenchmarkId::from_parameter("to training and back"), |bencher| {
        bencher.iter_with_large_drop(|| (slots.train(), slots.eval()));
    });
    let other = KernelConfig::builder().kernel("RMSNorm", DeviceKey::Cpu, "kernelhub/rmsnorm@v1:RMSNorm")?.build();
    group.bench_function(BenchmarkId::from_parameter("other kernels for a call"), |bencher| {
        bencher.iter(|| slots.with_kernels(&hub, &other, |_| black_box(())).expect("the kernels are there"));
    });
    group.finish();
    Ok(())
}
