//! What a call costs beside the work: RMSNorm of `[1, 16]` in f32, which is next to no work.
//!
//! Each step adds one part of the path:
//! - `direct`: the arithmetic in Rust, into memory that exists.
//! - `bound`: the bound kernel through the C ABI, checks included, with the views made in the call, into memory that
//!   exists.
//! - `candle_noop`: a candle custom operation that only allocates and fills its output: what candle itself costs.
//! - `layer_in`: the candle layer with kernels on, under a plan that the model pinned.
//! - `layer`: the same, pinning the plan itself.
//! - `candle`: the candle layer with kernels off, which is candle's own fused operation.
//! - `pin`: pinning the plan alone, which a model does once per forward.
//!
//! The overhead of a swapped layer is `layer_in` less `candle_noop`, of which `direct` is the work. One thread: the
//! input is far below what a pack splits.

mod support;

use std::hint::black_box;

use candle_core::{CpuStorage, CustomOp1, DType, Device, Layout, Result, Shape, Tensor};
use criterion::Criterion;
use kernelhub::bind::{LayerKernel, TensorMut, TensorRef};
use kernelhub::host::candle::RmsNorm;
use kernelhub::swap::{KernelConfig, Slots};
use kernelhub::variant::DeviceKey;
use support::{Registry, layer, ms};

const WIDTH: usize = 16;
const SHAPE: [usize; 2] = [1, WIDTH];
const EPS: f32 = 1e-5;

fn main() -> anyhow::Result<()> {
    support::run(calls)
}

/// A custom operation that does nothing but make its output.
struct Noop;

impl CustomOp1 for Noop {
    fn name(&self) -> &'static str {
        "noop"
    }

    fn cpu_fwd(&self, _: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
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

fn calls(criterion: &mut Criterion, registry: &Registry) -> anyhow::Result<()> {
    let hub = registry.hub()?;
    let bound = hub.layer(&layer("rmsnorm", "RMSNorm")?, "RMSNorm", DeviceKey::Cpu)?;
    let LayerKernel::RmsNorm(kernel) = &*bound else { anyhow::bail!("the rmsnorm pack serves no RMSNorm") };

    let (x, weight, mut out) = ([0.5_f32; WIDTH], [1.5_f32; WIDTH], [0.0_f32; WIDTH]);
    let input = Tensor::new(&x, &Device::Cpu)?.reshape(&SHAPE)?;
    let scale = Tensor::new(&weight, &Device::Cpu)?;
    let (on, off) = (Slots::new(DeviceKey::Cpu), Slots::new(DeviceKey::Cpu));
    let swapped = RmsNorm::new(scale.clone(), EPS, &on, "norm")?;
    let reference = RmsNorm::new(scale, EPS, &off, "norm")?;
    let config = KernelConfig::builder().kernel("RMSNorm", DeviceKey::Cpu, "kernelhub/rmsnorm@v1:RMSNorm")?;
    anyhow::ensure!(on.use_kernels(&hub, &config.build())?.swapped() == 1, "the norm has no kernel");
    anyhow::ensure!(input.dtype() == DType::F32, "the input is f32");
    let plan = on.pin();

    let mut group = support::group(criterion, "call", (ms(300), ms(1_500), 50));
    group.bench_function("direct", |bencher| {
        bencher.iter(|| rms_norm(black_box(&mut out), black_box(&x), black_box(&weight), EPS));
    });
    group.bench_function("bound", |bencher| {
        bencher.iter(|| {
            let x = TensorRef::contiguous(black_box(&x), &SHAPE)?;
            let weight = TensorRef::contiguous(black_box(&weight), &[WIDTH])?;
            let mut out = TensorMut::contiguous(black_box(&mut out), &SHAPE)?;
            kernel.forward(&mut out, &x, &weight, f64::from(EPS), 0.0)
        });
    });
    group.bench_function("candle_noop", |bencher| bencher.iter(|| black_box(&input).apply_op1_no_bwd(&Noop)));
    group.bench_function("layer_in", |bencher| bencher.iter(|| swapped.forward_in(&plan, black_box(&input))));
    group.bench_function("layer", |bencher| bencher.iter(|| swapped.forward(black_box(&input))));
    group.bench_function("candle", |bencher| bencher.iter(|| reference.forward(black_box(&input))));
    group.bench_function("pin", |bencher| bencher.iter(|| on.pin().mode()));
    group.finish();
    Ok(())
}
