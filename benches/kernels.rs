//! Every kernel against candle's own operation, by the layers of `kernelhub::host::candle`.
//!
//! `kernelhub` is a layer whose slot has the CPU pack's kernel, `candle` the same layer with kernels off: candle's
//! fused operation where it has one, else the operations that a candle model uses. Both make a fresh output in every
//! call and free it, as in a model; outputs above 32 MiB are fresh pages from the system each time. Inputs are
//! contiguous and stay the same, so that small ones are in the processor's caches. Before a case is timed, both sides
//! are compared.
//!
//! Rotary embedding turns the queries and the keys of one layer, as models call it. The activation has no layer of its
//! own in the candle host: `silu_and_mul` calls the bound kernel on fused rows, and candle's `silu(gate) * up` on two
//! tensors, which is what each side finds in a model; `gated_mlp` is the layer, with its matrix products, which are
//! candle's on both sides. Attention is causal.
//!
//! Both sides run on rayon's global pool with its default number of threads (`RAYON_NUM_THREADS` sets another). candle
//! is compiled like the program, by cargo's defaults for a generic processor, unless `RUSTFLAGS` say otherwise; the
//! packs choose instructions when they are loaded.

mod support;

use std::cell::LazyCell;

use candle_core::{DType, Device, Result, Tensor};
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion};
use half::bf16;
use kernelhub::bind::{Element, LayerKernel, TensorRef};
use kernelhub::host::candle::{Attention, GatedMlp, RmsNorm, RotaryEmbedding, RotaryStyle};
use kernelhub::hub::Hub;
use kernelhub::swap::{KernelConfig, Slots};
use kernelhub::variant::DeviceKey;
use support::{Registry, layer, ms};

const DTYPES: [(DType, &str); 2] = [(DType::F32, "f32"), (DType::BF16, "bf16")];
const CPU: &Device = &Device::Cpu;

/// One call of a side, ready to be timed.
type Call<'a> = Box<dyn Fn() -> Result<Tensor> + 'a>;

fn main() -> anyhow::Result<()> {
    support::run(|criterion, registry| {
        let hub = registry_hub(registry)?;
        rms_norm(criterion, &hub);
        silu_and_mul(criterion, &hub)?;
        rope(criterion, &hub);
        attention(criterion, &hub);
        gated_mlp(criterion, &hub);
        Ok(())
    })
}

fn registry_hub(registry: &Registry) -> anyhow::Result<Hub> {
    let hub = registry.hub()?;
    for pack in support::PACKS {
        hub.get(&support::repo(pack)?, 1, DeviceKey::Cpu)?;
    }
    Ok(hub)
}

fn group<'a>(criterion: &'a mut Criterion, name: &str) -> BenchmarkGroup<'a, WallTime> {
    support::group(criterion, name, (ms(200), ms(800), 10))
}

/// Times the two sides that `make` makes: kernels on and off. They are made when a filter lets one of them run.
fn compare<'a>(
    group: &mut BenchmarkGroup<'_, WallTime>,
    case: &str,
    make: impl FnOnce() -> anyhow::Result<[Call<'a>; 2]>,
) {
    let sides = LazyCell::new(|| make().and_then(agreeing).unwrap_or_else(|error| panic!("{case}: {error:#}")));
    for (side, name) in ["kernelhub", "candle"].into_iter().enumerate() {
        group.bench_function(BenchmarkId::new(name, case), |bencher| {
            let call = &sides[side];
            bencher.iter(|| call().expect("it succeeded when the sides were compared"));
        });
    }
}

/// The sides, if their outputs are the same function's in the rounding of the element type.
fn agreeing(sides: [Call<'_>; 2]) -> anyhow::Result<[Call<'_>; 2]> {
    let (on, off) = (sides[0]()?, sides[1]()?);
    let tolerance = if off.dtype() == DType::BF16 { 0.05 } else { 1e-3 };
    let (on, off) = (on.to_dtype(DType::F32)?.flatten_all()?, off.to_dtype(DType::F32)?.flatten_all()?);
    let largest = off.abs()?.max_all()?.to_scalar::<f32>()?;
    let difference = (on - off)?.abs()?.max_all()?.to_scalar::<f32>()?;
    anyhow::ensure!(
        difference <= tolerance * largest,
        "the outputs differ by {difference}, the largest value being {largest}"
    );
    Ok(sides)
}

/// Uniform numbers from -`scale` to `scale`.
fn numbers(shape: &[usize], scale: f32, dtype: DType) -> Result<Tensor> {
    Tensor::rand(-scale, scale, shape, CPU)?.to_dtype(dtype)
}

/// Builds the same layer twice: with the standard kernel in its slot, and without.
fn on_and_off<L>(hub: &Hub, build: impl Fn(&Slots) -> Result<L>) -> anyhow::Result<[L; 2]> {
    let (on, off) = (Slots::new(DeviceKey::Cpu), Slots::new(DeviceKey::Cpu));
    let layers = [build(&on)?, build(&off)?];
    let report = on.use_kernels(hub, &KernelConfig::standard()?)?;
    anyhow::ensure!(report.swapped() == 1, "the layer has no kernel: {report}");
    Ok(layers)
}

fn rms_norm(criterion: &mut Criterion, hub: &Hub) {
    let mut group = group(criterion, "rms_norm");
    for shape in [[1, 576], [32, 576], [512, 2_048], [2_048, 4_096]] {
        for (dtype, name) in DTYPES {
            compare(&mut group, &format!("{name} {shape:?}"), || {
                let (x, weight) = (numbers(&shape, 1.0, dtype)?, numbers(&shape[1..], 1.0, dtype)?);
                let layers = on_and_off(hub, |slots| RmsNorm::new(weight.clone(), 1e-5, slots, "norm"))?;
                Ok(layers.map(|layer| {
                    let x = x.clone();
                    Box::new(move || layer.forward(&x)) as Call<'_>
                }))
            });
        }
    }
    group.finish();
}

fn silu_and_mul(criterion: &mut Criterion, hub: &Hub) -> anyhow::Result<()> {
    let bound = hub.layer(&layer("activation", "SiluAndMul")?, "SiluAndMul", DeviceKey::Cpu)?;
    let mut group = group(criterion, "silu_and_mul");
    for shape in [[1, 3_072], [512, 11_264], [2_048, 16_384]] {
        compare(&mut group, &format!("f32 {shape:?}"), || activation_sides::<f32>(&bound, shape));
        compare(&mut group, &format!("bf16 {shape:?}"), || activation_sides::<bf16>(&bound, shape));
    }
    group.finish();
    Ok(())
}

fn activation_sides<T: Element + candle_core::WithDType>(
    bound: &LayerKernel,
    [rows, width]: [usize; 2],
) -> anyhow::Result<[Call<'_>; 2]> {
    let LayerKernel::GatedActivation(kernel) = bound else {
        anyhow::bail!("the activation pack serves no gated activation");
    };
    let half = width / 2;
    let fused = numbers(&[rows, width], 1.0, <T as candle_core::WithDType>::DTYPE)?;
    let (gate, up) = (fused.narrow(1, 0, half)?.contiguous()?, fused.narrow(1, half, half)?.contiguous()?);
    let fused = fused.flatten_all()?.to_vec1::<T>()?;
    let on = move || {
        let shape = [rows, width];
        let x = TensorRef::contiguous(&fused, &shape).map_err(candle_core::Error::wrap)?;
        let output = kernel.forward_to_vec::<T>(&x, &[rows, half]).map_err(candle_core::Error::wrap)?;
        Tensor::from_vec(output, (rows, half), CPU)
    };
    Ok([Box::new(on), Box::new(move || gate.silu()? * &up)])
}

fn rope(criterion: &mut Criterion, hub: &Hub) {
    let mut group = group(criterion, "rope");
    for (heads, kv_heads, seq, width) in [(9, 3, 1, 64), (9, 3, 512, 64), (32, 8, 2_048, 128)] {
        for (dtype, name) in DTYPES {
            let case = format!("{name} q [1, {heads}, {seq}, {width}], k [1, {kv_heads}, {seq}, {width}]");
            compare(&mut group, &case, || {
                let (cos, sin) = (numbers(&[2_048, width / 2], 1.0, dtype)?, numbers(&[2_048, width / 2], 1.0, dtype)?);
                let query = numbers(&[1, heads, seq, width], 1.0, dtype)?;
                let key = numbers(&[1, kv_heads, seq, width], 1.0, dtype)?;
                let layers = on_and_off(hub, |slots| {
                    RotaryEmbedding::new(cos.clone(), sin.clone(), RotaryStyle::HalfSplit, slots, "rotary")
                })?;
                Ok(layers.map(|layer| {
                    let (query, key) = (query.clone(), key.clone());
                    Box::new(move || Ok(layer.forward(&query, &key, 0)?.0)) as Call<'_>
                }))
            });
        }
    }
    group.finish();
}

fn attention(criterion: &mut Criterion, hub: &Hub) {
    let mut group = group(criterion, "attention");
    // (heads, kv_heads, width of a head, queries, keys)
    let decode = [(9, 3, 64, 1, 512), (9, 3, 64, 1, 4_096), (32, 8, 128, 1, 4_096)];
    let prefill = [(9, 3, 64, 512, 512), (9, 3, 64, 2_048, 2_048), (32, 8, 128, 512, 512)];
    for (heads, kv_heads, width, queries, keys) in decode.into_iter().chain(prefill) {
        for (dtype, name) in DTYPES {
            let case = format!("{name} {heads}/{kv_heads} heads x {width}, {queries} queries, {keys} keys");
            compare(&mut group, &case, || {
                let query = numbers(&[1, heads, queries, width], 1.0, dtype)?;
                let key = numbers(&[1, kv_heads, keys, width], 1.0, dtype)?;
                let value = numbers(&[1, kv_heads, keys, width], 1.0, dtype)?;
                let scale = (width as f64).sqrt().recip();
                let layers =
                    on_and_off(hub, |slots| Attention::new(heads, kv_heads, width, scale, dtype, slots, "attention"))?;
                Ok(layers.map(|layer| {
                    let (query, key, value) = (query.clone(), key.clone(), value.clone());
                    Box::new(move || layer.forward(&query, &key, &value, true)) as Call<'_>
                }))
            });
        }
    }
    group.finish();
}

fn gated_mlp(criterion: &mut Criterion, hub: &Hub) {
    let (hidden, intermediate) = (576, 1_536);
    let mut group = group(criterion, "gated_mlp");
    for rows in [1, 32] {
        for (dtype, name) in DTYPES {
            compare(&mut group, &format!("{name} [{rows}, {hidden}] to {intermediate}"), || {
                let x = numbers(&[rows, hidden], 1.0, dtype)?;
                let gate_up = numbers(&[2 * intermediate, hidden], 0.1, dtype)?;
                let down = numbers(&[hidden, intermediate], 0.1, dtype)?;
                let layers = on_and_off(hub, |slots| GatedMlp::new(gate_up.clone(), down.clone(), slots, "mlp"))?;
                Ok(layers.map(|layer| {
                    let x = x.clone();
                    Box::new(move || layer.forward(&x)) as Call<'_>
                }))
            });
        }
    }
    group.finish();
}
