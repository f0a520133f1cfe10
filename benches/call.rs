//! What a call costs beside the work: RMSNorm of `[1, 16]` in f32, which is next to no work.
//!
//! Each step adds one part of the path:
//! - `direct`: the arithmetic in Rust, into memory that exists.
//! - `bound_noop`: a bound kernel that does next to nothing, through the C ABI, our checks included, with the views
//!   made in the call, into memory that exists: what a framework-free host pays beside the kernel.
//! - `bound`: the same with the real kernel, which checks its arguments itself and then normalises the row.
//! - `slice_noop`: what a program without a framework and without kernels does for such a layer: it makes the two
//!   arrays of the slice host, compares their shapes as the host's own reference code does, and calls a function that
//!   it was given and that does what the no-op kernel does.
//! - `slice_layer_noop`: the slice host's layer on the same two arrays, made in the call, with the no-op kernel, under
//!   a plan that the model pinned.
//! - `slice_layer_noop_pin`: the same, pinning the plan itself.
//! - `candle_noop`: a candle custom operation of two inputs that only allocates and fills its output: what candle
//!   itself costs.
//! - `layer_noop`: the candle layer with the no-op kernel, under a plan that the model pinned.
//! - `layer_in`: the candle layer with the real kernel, under a plan that the model pinned.
//! - `layer`: the same, pinning the plan itself.
//! - `layer_scope`: the same inside a scope of the model, from which it reads the plan.
//! - `candle`: the candle layer with kernels off, which is candle's own fused operation.
//! - `pin`: pinning the plan alone, which a model does once per forward.
//! - `scope`: entering and leaving a scope, which a model of drop-in layers does once per forward.
//!
//! Our overhead is `slice_layer_noop` less `slice_noop` without a framework, and `layer_noop` less `candle_noop` in
//! candle: each takes away what the host does in any case, and the call of a function that writes the output, so that
//! what is left is the plan, our views and checks, and the C ABI. What the pack's own checks cost is `bound` less
//! `bound_noop` and `direct`. One thread: the input is far below what a pack splits.

mod support;

use std::hint::black_box;

use candle_core::{CpuStorage, CustomOp2, DType, Device, Layout, Result, Shape, Tensor};
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion};
use kernelhub::bind::{LayerKernel, RmsNormKernel, TensorMut, TensorRef};
use kernelhub::host::candle::RmsNorm;
use kernelhub::host::slice::{self, Array, ArrayMut, SliceError};
use kernelhub::hub::Hub;
use kernelhub::swap::{KernelConfig, Slots};
use kernelhub::variant::DeviceKey;
use support::{Registry, ms};

const WIDTH: usize = 16;
const SHAPE: [usize; 2] = [1, WIDTH];
const EPS: f32 = 1e-5;

fn main() -> anyhow::Result<()> {
    support::run(calls)
}

/// A custom operation that does nothing but make its output, of as many inputs as RMSNorm has.
struct Noop;

impl CustomOp2 for Noop {
    fn name(&self) -> &'static str {
        "noop"
    }

    fn cpu_fwd(&self, _: &CpuStorage, layout: &Layout, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        Ok((CpuStorage::F32(vec![0.0; layout.shape().elem_count()]), layout.shape().clone()))
    }
}

/// RMSNorm of one row. Not inlined, as the kernel's function is not.
#[inline(never)]
fn rms_norm(out: &mut [f32], x: &[f32], weight: &[f32], eps: f32) {
    let mean_square = x.iter().map(|x| x * x).sum::<f32>() / x.len() as f32;
    let scale = (mean_square + eps).sqrt().recip();
    for ((out, x), weight) in out.iter_mut().zip(x).zip(weight) {
        *out = x * scale * weight;
    }
}

/// Does what the no-op kernel does: writes 16 zeros.
#[inline(never)]
fn noop(out: &mut [f32], _: &[f32], _: &[f32], _: f32) {
    if let Some(out) = out.first_chunk_mut::<WIDTH>() {
        *out = [0.0; WIDTH];
    }
}

/// A layer over slices whose function is known when it runs, as a kernel's is.
struct NoopNorm {
    weight: Vec<f32>,
    function: fn(&mut [f32], &[f32], &[f32], f32),
}

impl NoopNorm {
    fn forward(&self, out: &mut ArrayMut<'_, f32>, x: &Array<'_, f32>) -> std::result::Result<(), SliceError> {
        if x.shape().last() != Some(&self.weight.len()) || out.shape() != x.shape() {
            return Err(SliceError::OtherModel { layer: "a norm of other shapes" });
        }
        (self.function)(out.data_mut(), x.data(), &self.weight, EPS);
        Ok(())
    }
}

/// The two arrays of a call.
fn arrays<'a>(out: &'a mut [f32], x: &'a [f32]) -> (ArrayMut<'a, f32>, Array<'a, f32>) {
    (ArrayMut::new(out, &SHAPE).expect("it fits"), Array::new(x, &SHAPE).expect("it fits"))
}

/// The kernel of an RMSNorm.
fn rms_norm_of(kernel: &LayerKernel) -> anyhow::Result<&RmsNormKernel> {
    match kernel {
        LayerKernel::RmsNorm(kernel) => Ok(kernel),
        other => anyhow::bail!("no RMSNorm: {}", other.meta().identity),
    }
}

/// A candle layer with the kernel `kernel`, and its model.
fn swapped(hub: &Hub, kernel: &str, weight: &Tensor) -> anyhow::Result<(RmsNorm, Slots)> {
    let slots = Slots::new(DeviceKey::Cpu);
    let layer = RmsNorm::new(weight.clone(), EPS, &slots, "norm")?;
    let config = KernelConfig::builder().kernel("RMSNorm", DeviceKey::Cpu, kernel)?.build();
    anyhow::ensure!(slots.use_kernels(hub, &config)?.swapped() == 1, "the norm has no kernel");
    Ok((layer, slots))
}

/// The calls of the slice host, with and without us.
fn slice_calls(group: &mut BenchmarkGroup<'_, WallTime>, hub: &Hub, kernel: &str) -> anyhow::Result<()> {
    let (x, mut out) = ([0.5_f32; WIDTH], [1.0_f32; WIDTH]);
    let without = NoopNorm { weight: vec![1.5; WIDTH], function: black_box(noop) };
    let slots = Slots::new(DeviceKey::Cpu);
    let layer = slice::RmsNorm::new(vec![1.5_f32; WIDTH], EPS, &slots, "norm");
    let config = KernelConfig::builder().kernel("RMSNorm", DeviceKey::Cpu, kernel)?.build();
    anyhow::ensure!(slots.use_kernels(hub, &config)?.swapped() == 1, "the norm has no kernel");
    let plan = slots.pin();
    {
        let (mut out, x) = arrays(&mut out, &x);
        layer.forward_in(&plan, &mut out, &x)?;
    }
    anyhow::ensure!(out.iter().all(|value| *value == 0.0), "the no-op kernel did not run");
    group.bench_function("slice_noop", |bencher| {
        let without = black_box(&without);
        bencher.iter(|| {
            let (mut out, x) = arrays(black_box(&mut out), black_box(&x));
            // A number, for criterion would copy the whole of an error's room.
            without.forward(&mut out, &x).is_ok()
        });
    });
    group.bench_function("slice_layer_noop", |bencher| {
        bencher.iter(|| {
            let (mut out, x) = arrays(black_box(&mut out), black_box(&x));
            layer.forward_in(&plan, &mut out, &x).is_ok()
        });
    });
    group.bench_function("slice_layer_noop_pin", |bencher| {
        bencher.iter(|| {
            let (mut out, x) = arrays(black_box(&mut out), black_box(&x));
            layer.forward(&mut out, &x).is_ok()
        });
    });
    Ok(())
}

fn calls(criterion: &mut Criterion, registry: &Registry) -> anyhow::Result<()> {
    const REAL: &str = "kernelhub/rmsnorm@v1:RMSNorm";
    const NOOP: &str = "kernelhub-bench/noop@v1:RMSNorm";
    let folder = tempfile::tempdir()?;
    let (hub, noop_hub) = (registry.hub()?, support::noop_hub(folder.path())?);
    let real = hub.layer(&REAL.parse()?, "RMSNorm", DeviceKey::Cpu)?;
    let noop = noop_hub.layer(&NOOP.parse()?, "RMSNorm", DeviceKey::Cpu)?;
    let (real, noop) = (rms_norm_of(&real)?, rms_norm_of(&noop)?);

    let (x, weight, mut out) = ([0.5_f32; WIDTH], [1.5_f32; WIDTH], [0.0_f32; WIDTH]);
    let input = Tensor::new(&x, &Device::Cpu)?.reshape(&SHAPE)?;
    let scale = Tensor::new(&weight, &Device::Cpu)?;
    anyhow::ensure!(input.dtype() == DType::F32, "the input is f32");
    let (layer, slots) = swapped(&hub, REAL, &scale)?;
    let (layer_noop, noop_slots) = swapped(&noop_hub, NOOP, &scale)?;
    let reference = RmsNorm::new(scale.clone(), EPS, &Slots::new(DeviceKey::Cpu), "norm")?;
    let (plan, noop_plan) = (slots.pin(), noop_slots.pin());

    let mut group = support::group(criterion, "call", (ms(300), ms(1_500), 50));
    group.bench_function("direct", |bencher| {
        bencher.iter(|| rms_norm(black_box(&mut out), black_box(&x), black_box(&weight), EPS));
    });
    for (name, kernel) in [("bound_noop", noop), ("bound", real)] {
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let x = TensorRef::contiguous(black_box(&x), &SHAPE).expect("it fits");
                let weight = TensorRef::contiguous(black_box(&weight), &[WIDTH]).expect("it fits");
                let mut out = TensorMut::contiguous(black_box(&mut out), &SHAPE).expect("it fits");
                // A number, for criterion would copy the whole of an error's room.
                kernel.forward(&mut out, &x, &weight, f64::from(EPS), 0.0).is_ok()
            });
        });
    }
    slice_calls(&mut group, &noop_hub, NOOP)?;
    group.bench_function("candle_noop", |bencher| bencher.iter(|| black_box(&input).apply_op2_no_bwd(&scale, &Noop)));
    group.bench_function("layer_noop", |bencher| bencher.iter(|| layer_noop.forward_in(&noop_plan, black_box(&input))));
    group.bench_function("layer_in", |bencher| bencher.iter(|| layer.forward_in(&plan, black_box(&input))));
    group.bench_function("layer", |bencher| bencher.iter(|| layer.forward(black_box(&input))));
    group.bench_function("layer_scope", |bencher| {
        slots.scope(|_| bencher.iter(|| layer.forward(black_box(&input))));
    });
    group.bench_function("candle", |bencher| bencher.iter(|| reference.forward(black_box(&input))));
    group.bench_function("pin", |bencher| bencher.iter(|| slots.pin().mode()));
    group.bench_function("scope", |bencher| bencher.iter(|| slots.scope(|plan| plan.mode())));
    group.finish();
    Ok(())
}
