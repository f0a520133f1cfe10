//! Swapping while forwards run: every forward sees one plan, and none sees an error or another result.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread::ScopedJoinHandle;
use std::time::Instant;

use candle_core::{DType, Device, Tensor};
use kernelhub::bind::{LayerKernel, TensorMut, TensorRef};
use kernelhub::host::candle::RmsNorm;
use kernelhub::hub::Hub;
use kernelhub::swap::{KernelConfig, Slots};
use kernelhub::variant::DeviceKey;

use super::config;
use crate::llama::config::Config;
use crate::llama::model::Llama;
use crate::support::embedded;
use crate::support::native::{NativePack, compile, norm_layer};

const LAYERS: usize = 5;
const WIDTH: usize = 8;

/// A pack whose norm counts its calls for each thread.
struct Colour {
    hub: Hub,
    config: KernelConfig,
    calls: Arc<LayerKernel>,
    /// Keeps the files.
    _pack: NativePack,
}

impl Colour {
    fn new(name: &str) -> Self {
        let library = compile("colour", name, &[]);
        let layers = norm_layer("RMSNorm", "rms_norm") + &norm_layer("Calls", "calls");
        let pack = NativePack::new(name, &layers, &[("libcolour.so", &library)]);
        let (hub, calls) = (pack.hub(), pack.layer("Calls").unwrap());
        let config = config(&[("RMSNorm", &format!("kernelhub-tests/{name}@v1:RMSNorm"))]);
        Self { hub, config, calls, _pack: pack }
    }

    /// How often its norm was called on this thread.
    fn calls(&self) -> usize {
        let LayerKernel::RmsNorm(kernel) = &*self.calls else { panic!("{:?}", self.calls) };
        let (one, mut out) = ([1.0_f32], [0.0_f32]);
        let tensor = TensorRef::contiguous(&one, &[1]).unwrap();
        kernel.forward(&mut TensorMut::contiguous(&mut out, &[1]).unwrap(), &tensor, &tensor, 0.0, 0.0).unwrap();
        // A whole number, as the kernel counts.
        out[0].to_string().parse().unwrap()
    }
}

/// Norms one after another, called as drop-in layers are.
struct Model {
    slots: Slots,
    norms: Vec<RmsNorm>,
    input: Tensor,
    expected: Vec<f32>,
}

impl Model {
    fn new(colour: &Colour) -> Self {
        let slots = Slots::new(DeviceKey::Cpu);
        let norm = |index: usize| {
            let weight: Vec<f32> = (0..WIDTH).map(|i| 1.0 + (i * index) as f32 / 10.0).collect();
            RmsNorm::new(Tensor::new(weight, &Device::Cpu).unwrap(), 1e-5, &slots, format!("norms.{index}")).unwrap()
        };
        let norms = (0..LAYERS).map(norm).collect();
        let input = Tensor::new(&[[1.0_f32, -2.0, 3.0, 0.5, 7.0, -0.1, 0.0, 2.0]], &Device::Cpu).unwrap();
        let mut model = Self { slots, norms, input, expected: Vec::new() };
        assert_eq!(model.slots.use_kernels(&colour.hub, &colour.config).unwrap().swapped(), LAYERS);
        model.expected = model.forward();
        model
    }

    fn forward(&self) -> Vec<f32> {
        let output = self.slots.scope(|_| {
            self.norms.iter().try_fold(self.input.clone(), |x, norm| {
                let x = norm.forward(&x);
                // Here a swap could get between two layers.
                std::thread::yield_now();
                x
            })
        });
        output.unwrap().flatten_all().unwrap().to_vec1().unwrap()
    }

    /// One forward; returns which of the colours all of its layers had.
    fn checked_forward(&self, colours: &[Colour; 2]) -> usize {
        let calls = || colours.each_ref().map(Colour::calls);
        let before = calls();
        assert_eq!(self.forward(), self.expected);
        let after = calls();
        match [0, 1].map(|colour| after[colour] - before[colour]) {
            [LAYERS, 0] => 0,
            [0, LAYERS] => 1,
            mixed => panic!("a forward of {LAYERS} layers under two plans: {mixed:?} calls"),
        }
    }
}

/// Forwards on `threads` threads while this one swaps `swaps` times, and on until both colours were run often.
fn forwards_see_one_colour(threads: usize, swaps: usize, names: [&str; 2]) {
    let colours = names.map(Colour::new);
    let model = Model::new(&colours[0]);
    let (is_over, seen) = (AtomicBool::new(false), [AtomicUsize::new(0), AtomicUsize::new(0)]);
    std::thread::scope(|scope| {
        let forward = || {
            while !is_over.load(SeqCst) {
                seen[model.checked_forward(&colours)].fetch_add(1, SeqCst);
            }
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(forward)).collect();
        let are_enough = || seen.iter().all(|forwards| forwards.load(SeqCst) >= 100);
        // A worker ends before its time only by a failure.
        let have_failed = || workers.iter().any(ScopedJoinHandle::is_finished);
        for (index, Colour { hub, config, .. }) in colours.iter().rev().cycle().enumerate() {
            if (index >= swaps && are_enough()) || have_failed() {
                break;
            }
            let report = model.slots.use_kernels(hub, config);
            if report.as_ref().is_ok_and(|report| report.swapped() == LAYERS) {
                continue;
            }
            is_over.store(true, SeqCst);
            panic!("swap {index}: {report:?}");
        }
        is_over.store(true, SeqCst);
        assert!(workers.into_iter().all(|worker| worker.join().is_ok()));
    });
}

#[test]
fn one_thread_forwards_while_another_swaps_ten_thousand_times() {
    forwards_see_one_colour(1, 10_000, ["red", "blue"]);
}

#[test]
fn eight_threads_forward_while_another_swaps() {
    forwards_see_one_colour(8, 1_000, ["green", "yellow"]);
}

/// A forward in flight finishes on the plan that it started with.
#[test]
fn a_forward_in_flight_keeps_its_kernels() {
    let colours = ["cyan", "magenta"].map(Colour::new);
    let model = Model::new(&colours[0]);
    let calls = || colours.each_ref().map(Colour::calls);
    let before = calls();
    model.slots.scope(|_| {
        let mut x = model.norms[0].forward(&model.input).unwrap();
        model.slots.use_kernels(&colours[1].hub, &colours[1].config).unwrap();
        for norm in &model.norms[1..] {
            x = norm.forward(&x).unwrap();
        }
        assert_eq!(x.flatten_all().unwrap().to_vec1::<f32>().unwrap(), model.expected);
    });
    let after = calls();
    assert_eq!([after[0] - before[0], after[1] - before[1]], [LAYERS, 0]);
    assert_eq!(model.checked_forward(&colours), 1, "the next forward is under the new plan");
}

/// The kernels of a plan are those of the last: planning again brings nothing up, and is quick enough for a swap
/// between two tokens. The bound leaves room for a debug build on a busy machine; the benchmark `plan` measures it.
#[test]
fn a_qwen3_is_planned_in_a_moment_and_gives_the_same_while_it_is_swapped() {
    let Some(hub) = embedded::hub() else { return };
    let model = Llama::random(Config::narrow_qwen3(), 3, DType::F32, &Device::Cpu).unwrap();
    let standard = KernelConfig::standard().unwrap();
    let report = model.use_kernels(hub, &standard).unwrap();
    // Two norms, two more over heads, four projections, a rotary embedding, an attention and the three parts of a
    // feed-forward block in each; the embedding, the last norm and the head.
    assert_eq!((report.swapped(), report.total()), (28 * 13 + 3, 28 * 13 + 3), "{report}");
    let tokens = Tensor::new(&[[5_u32, 17, 3, 99]], &Device::Cpu).unwrap();
    let logits = || model.forward_all(&tokens, None).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
    let (expected, is_over) = (logits(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            while !is_over.load(SeqCst) {
                assert_eq!(logits(), expected);
            }
        });
        let mut times = Vec::new();
        for _ in 0..200 {
            let clock = Instant::now();
            assert_eq!(model.use_kernels(hub, &standard).unwrap(), report);
            times.push(clock.elapsed());
        }
        is_over.store(true, SeqCst);
        assert!(worker.join().is_ok());
        times.sort_unstable();
        assert!(times[times.len() / 2].as_millis() < 50, "{times:?}");
    });
}
