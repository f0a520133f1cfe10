//! Forwards with kernels on and off: a feed-forward block, and a small Llama.
//!
//! The layers by themselves are what `kernelhub benchmark` measures; here they stand in a model, between the host's own
//! operations. `gated_mlp` is the block of the demo's model, with its matrix products. `llama` has four of that model's
//! thirty decoders and random weights: `1 token` is one token after 0 to 255 others, whose keys and values are cached,
//! `64 tokens` a prompt without a cache. "Kernels off" is the reference code of every layer.
//!
//! Both sides run on rayon's global pool with its default number of threads, and candle is compiled as cargo does it by
//! default. Before a case is timed, both sides are compared.

#[path = "../examples/llama/mod.rs"]
mod llama;
mod support;

use std::cell::RefCell;

use candle_core::{DType, Device, Result, Tensor};
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion};
use kernelhub::host::candle::GatedMlp;
use kernelhub::hub::Hub;
use kernelhub::swap::{KernelConfig, Slots};
use kernelhub::variant::DeviceKey;
use llama::config::Config;
use llama::model::Llama;
use support::ms;

const DTYPES: [(DType, &str); 2] = [(DType::F32, "f32"), (DType::BF16, "bf16")];
const SIDES: [&str; 2] = ["kernels on", "kernels off"];
const CPU: &Device = &Device::Cpu;
/// Positions that the model's cache has room for.
const CONTEXT: usize = 256;

/// One call of a side, ready to be timed.
type Call<'a> = Box<dyn Fn() -> Result<Tensor> + 'a>;

fn main() -> anyhow::Result<()> {
    support::run(|criterion, registry| {
        let hub = registry.hub()?;
        for pack in support::PACKS {
            hub.get(&support::repo(pack)?, 1, DeviceKey::Cpu)?;
        }
        gated_mlp(criterion, &hub)?;
        decoders(criterion, &hub)
    })
}

fn group<'a>(criterion: &'a mut Criterion, name: &str) -> BenchmarkGroup<'a, WallTime> {
    support::group(criterion, name, (ms(200), ms(800), 10))
}

fn compare(group: &mut BenchmarkGroup<'_, WallTime>, case: &str, sides: &[Call<'_>; 2]) -> anyhow::Result<()> {
    let outputs = [sides[0]()?, sides[1]()?];
    let [on, off] = outputs.map(|output| output.to_dtype(DType::F32)?.flatten_all());
    let (on, off) = (on?, off?);
    let largest = off.abs()?.max_all()?.to_scalar::<f32>()?;
    let difference = (on - off)?.abs()?.max_all()?.to_scalar::<f32>()?;
    anyhow::ensure!(difference <= 0.05 * largest, "{case}: the outputs differ by {difference} of {largest}");
    for (call, side) in sides.iter().zip(SIDES) {
        group.bench_function(BenchmarkId::new(side, case), |bencher| {
            bencher.iter(|| call().expect("it succeeded when the sides were compared"));
        });
    }
    Ok(())
}

/// Uniform numbers from -`scale` to `scale`.
fn numbers(shape: &[usize], scale: f32, dtype: DType) -> Result<Tensor> {
    Tensor::rand(-scale, scale, shape, CPU)?.to_dtype(dtype)
}

fn gated_mlp(criterion: &mut Criterion, hub: &Hub) -> anyhow::Result<()> {
    let (hidden, intermediate) = (576, 1_536);
    let mut group = group(criterion, "gated_mlp");
    for rows in [1, 32] {
        for (dtype, name) in DTYPES {
            let x = numbers(&[rows, hidden], 1.0, dtype)?;
            let gate_up = numbers(&[2 * intermediate, hidden], 0.1, dtype)?;
            let down = numbers(&[hidden, intermediate], 0.1, dtype)?;
            let make = |slots: &Slots| GatedMlp::new(gate_up.clone(), down.clone(), slots, "mlp");
            let (on, off) = (Slots::new(DeviceKey::Cpu), Slots::new(DeviceKey::Cpu));
            let layers = [make(&on)?, make(&off)?];
            let report = on.use_kernels(hub, &KernelConfig::standard()?)?;
            anyhow::ensure!(report.swapped() == report.layers.len(), "a layer has no kernel: {report}");
            let sides = layers.each_ref().map(|layer| Box::new(|| layer.forward(&x)) as Call<'_>);
            compare(&mut group, &format!("{name} [{rows}, {hidden}] to {intermediate}"), &sides)?;
        }
    }
    group.finish();
    Ok(())
}

fn decoders(criterion: &mut Criterion, hub: &Hub) -> anyhow::Result<()> {
    let config = Config {
        hidden: 576,
        intermediate: 1_536,
        layers: 4,
        heads: 9,
        kv_heads: 3,
        head_dim: 64,
        vocabulary: 4_096,
        ..Config::tiny()
    };
    let mut group = group(criterion, "llama");
    for (dtype, name) in DTYPES {
        let [on, off] = [(); 2].map(|()| Llama::random(config.clone(), 0, dtype, CPU));
        let models = [on?, off?];
        let report = models[0].use_kernels(hub, &KernelConfig::standard()?)?;
        anyhow::ensure!(report.swapped() == report.layers.len(), "a layer has no kernel: {report}");
        let prompt = Tensor::arange(0_u32, 64, CPU)?.unsqueeze(0)?;
        let all = models
            .each_ref()
            .map(|model| Box::new(|| model.forward_all(&prompt, None).map_err(candle_core::Error::wrap)) as Call<'_>);
        compare(&mut group, &format!("{name}, 64 tokens"), &all)?;
        let one = Tensor::new(&[[7_u32]], CPU)?;
        let caches = models.each_ref().map(|model| RefCell::new(model.cache(CONTEXT)));
        let one = &one;
        let mut sides = models.iter().zip(&caches).map(|(model, cache)| {
            Box::new(move || {
                let mut cache = cache.borrow_mut();
                if cache.len() == cache.capacity() {
                    cache.reset();
                }
                model.forward(one, &mut cache).map_err(candle_core::Error::wrap)
            }) as Call<'_>
        });
        if let (Some(on), Some(off)) = (sides.next(), sides.next()) {
            compare(&mut group, &format!("{name}, 1 token"), &[on, off])?;
        }
    }
    group.finish();
    Ok(())
}
