//! Launches that are recorded once and replayed.

use kernelhub::bind::{BindError, LayerKernel};
use kernelhub::dtype::DType;
use kernelhub::gpu::{CommandGraph, Device, GpuError, GpuTensor, ParamValue, Recording, ShaderKernel};
use kernelhub::hint::Hint as _;
use kernelhub::variant::DeviceKey;

use super::{device, kernel, noise, pack_file, u32_of, upload, values};
use crate::support::native::NativePack;

const ROWS: usize = 3;
const WIDTH: usize = 40;

/// A norm, and a gated activation of what it gives.
struct Chain {
    norm: ShaderKernel,
    silu: ShaderKernel,
    x: GpuTensor,
    weight: GpuTensor,
    normed: GpuTensor,
    out: GpuTensor,
}

impl Chain {
    fn new(device: &Device) -> Self {
        let [norm, silu] = ["rmsnorm", "activation"].map(|pack| kernel(device, pack).with_can_compile(true));
        let empty = |width| device.empty(DType::F32, &[ROWS, width]).unwrap();
        let weight = upload(device, &[WIDTH], &noise(WIDTH, 2));
        Self { norm, silu, x: empty(WIDTH), weight, normed: empty(WIDTH), out: empty(WIDTH / 2) }
    }

    fn launches<E>(
        &self,
        mut launch: impl FnMut(&ShaderKernel, &[(&str, &GpuTensor)], &[(&str, ParamValue)]) -> Result<(), E>,
    ) -> Result<(), E> {
        let (rows, width) = (u32_of(ROWS), u32_of(WIDTH));
        let params = [("rows", rows), ("width", width), ("eps", ParamValue::F32(1e-5))];
        launch(&self.norm, &[("x", &self.x), ("weight", &self.weight), ("out", &self.normed)], &params)?;
        let params = [("rows", rows), ("width", u32_of(WIDTH / 2))];
        launch(&self.silu, &[("x", &self.normed), ("out", &self.out)], &params)
    }

    fn record(&self, device: &Device) -> Result<CommandGraph, GpuError> {
        device.record_graph(|recording| {
            self.launches(|kernel, tensors, params| recording.launch(kernel, tensors, params))
        })
    }

    /// Gives the graph new input.
    fn set(&self, seed: u64) {
        let bytes: Vec<u8> = noise(ROWS * WIDTH, seed).iter().flat_map(|value| value.to_le_bytes()).collect();
        self.x.write(&bytes).unwrap();
    }
}

#[test]
fn a_replay_gives_what_eager_launches_give() {
    let Some(device) = device() else { return };
    let (eager, recorded) = (Chain::new(&device), Chain::new(&device));
    let graph = recorded.record(&device).unwrap();
    assert_eq!(graph.launches(), 2);
    device.wait().unwrap();
    assert_eq!(values(&recorded.out), [0.0; ROWS * WIDTH / 2], "recording runs nothing");
    // Each seed twice, for a replay must not depend on the one before.
    for seed in [5, 6, 6, 5] {
        eager.set(seed);
        eager.launches(ShaderKernel::launch).unwrap();
        recorded.set(seed);
        graph.replay().unwrap();
        assert_eq!(values(&recorded.out), values(&eager.out), "seed {seed}");
    }
}

#[test]
fn a_graph_keeps_its_tensors() {
    let Some(device) = device() else { return };
    let chain = Chain::new(&device);
    chain.set(5);
    let graph = chain.record(&device).unwrap();
    let Chain { out, .. } = chain;
    graph.replay().unwrap();
    assert!(values(&out).iter().any(|value| *value != 0.0));
}

#[test]
fn only_a_kernel_that_promises_it_is_recorded() {
    let Some(device) = device() else { return };
    let mut chain = Chain::new(&device);
    chain.silu = chain.silu.with_can_compile(false);
    let error = chain.record(&device).unwrap_err();
    assert!(matches!(&error, GpuError::NotRecordable { kernel } if kernel == "silu_and_mul.wgsl:silu_and_mul"));
    assert!(error.hint().unwrap().contains("can_compile"));
    assert!(!kernel(&device, "rmsnorm").can_compile(), "nothing is promised unless somebody says so");
}

#[test]
fn what_a_replay_cannot_repeat_is_refused_while_recording() {
    let Some(device) = device() else { return };
    let chain = Chain::new(&device);
    let earlier = chain.record(&device).unwrap();
    let refused = |operation: &str, what: &dyn Fn(&mut Recording) -> Result<(), GpuError>| {
        let result = device.record_graph(|recording| {
            let result = what(recording);
            // Refused, and the recording goes on.
            chain.launches(|kernel, tensors, params| recording.launch(kernel, tensors, params))?;
            assert_eq!(recording.launches(), 2);
            result
        });
        let error = result.unwrap_err();
        assert!(matches!(&error, GpuError::Recording { operation: actual } if actual.contains(operation)), "{error:?}");
        assert!(error.hint().is_some());
    };
    refused("allocating a f32 tensor", &|_| device.empty(DType::F32, &[4]).map(drop));
    refused("allocating a f32 tensor", &|_| device.upload(DType::F32, &[1], &[0; 4]).map(drop));
    refused("downloading", &|_| chain.out.download().map(drop));
    refused("writing", &|_| chain.x.write(&[0; ROWS * WIDTH * 4]));
    refused("waiting", &|_| device.wait());
    refused("launching outside", &|_| chain.launches(ShaderKernel::launch));
    refused("launching outside", &|_| device.recorder().map(drop));
    refused("replaying", &|_| earlier.replay());
    refused("recording a graph", &|_| chain.record(&device).map(drop));
    // Nothing of it outlasts the recording, and another thread never saw it.
    device.empty(DType::F32, &[4]).unwrap();
    let elsewhere = device.record_graph(|_| {
        let allocate = || device.empty(DType::F32, &[4]).map(drop);
        std::thread::scope(|threads| threads.spawn(allocate).join().unwrap())
    });
    assert_eq!(elsewhere.unwrap().launches(), 0);
}

#[test]
fn a_recording_that_fails_or_panics_ends() {
    let Some(device) = device() else { return };
    let chain = Chain::new(&device);
    let wrong = device.record_graph(|recording| recording.launch(&chain.norm, &[("x", &chain.x)], &[]));
    assert!(matches!(wrong.unwrap_err(), GpuError::MissingArgument { .. }));
    device.wait().unwrap();
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        device.record_graph::<GpuError>(|_| std::panic::resume_unwind(Box::new("on purpose")))
    }));
    assert!(panic.is_err());
    device.wait().unwrap();
}

#[test]
fn an_empty_grid_and_an_empty_graph_are_replayed() {
    let Some(device) = device() else { return };
    let chain = Chain::new(&device);
    let graph = device.record_graph(|recording| {
        let tensors = [("x", &chain.normed), ("out", &chain.out)];
        recording.launch(&chain.silu, &tensors, &[("rows", u32_of(0)), ("width", u32_of(WIDTH / 2))])
    });
    let graph = graph.unwrap();
    assert_eq!(graph.launches(), 0);
    graph.replay().unwrap();
}

#[test]
fn a_tensor_takes_bytes_of_its_own_size_alone() {
    let Some(device) = device() else { return };
    for count in [1, 3, 5] {
        let tensor = device.empty(DType::U8, &[count]).unwrap();
        let bytes: Vec<u8> = (1..).take(count).collect();
        tensor.write(&bytes).unwrap();
        assert_eq!(tensor.download().unwrap(), bytes);
        let error = tensor.write(&[0; 8]).unwrap_err();
        assert!(matches!(error, GpuError::SizeMismatch { expected, actual: 8, .. } if expected == count as u64));
    }
}

/// A pack with our two shaders, which promise to bear a recording, or only the norm does.
fn pack(silu_can_compile: bool) -> NativePack {
    let layers = ["rmsnorm", "activation"].map(|pack| pack_file(&format!("layers/{pack}.toml")));
    let layers = layers.map(|text| text.split_once("[[layer]]").unwrap().1.to_owned());
    let silu = if silu_can_compile { layers[1].clone() } else { layers[1].replace("can_compile = true\n", "") };
    let layers = format!("[[layer]]{}\n[[layer]]{silu}", layers[0]);
    let texts = ["rms_norm.wgsl", "silu_and_mul.wgsl"].map(|name| (name, pack_file(name).into_bytes()));
    let texts: Vec<_> = texts.iter().map(|(name, text)| (*name, text.as_slice())).collect();
    NativePack::shader("recorded", &layers, &texts)
}

/// Bound layers: what a host calls.
#[test]
fn bound_kernels_are_recorded_by_their_own_promise() {
    if device().is_none() {
        return;
    }
    for silu_can_compile in [true, false] {
        let pack = pack(silu_can_compile);
        let hub = pack.hub();
        let layer = |name| hub.layer(&"kernelhub-tests/recorded@v1".parse().unwrap(), name, DeviceKey::Wgpu).unwrap();
        let (norm, silu) = (layer("RMSNorm"), layer("SiluAndMul"));
        assert!(norm.meta().can_compile);
        let (LayerKernel::RmsNorm(norm), LayerKernel::GatedActivation(silu)) = (&*norm, &*silu) else { panic!() };
        let device = hub.gpu(DeviceKey::Wgpu).unwrap();
        let (x, weight) =
            (upload(&device, &[ROWS, WIDTH], &noise(ROWS * WIDTH, 1)), upload(&device, &[WIDTH], &noise(WIDTH, 2)));
        let (normed, out) =
            (norm.forward_gpu(&x, &weight, 1e-5, 0.0).unwrap(), device.empty(DType::F32, &[ROWS, WIDTH / 2]).unwrap());
        let eager = values(&silu.forward_gpu(&normed).unwrap());
        let graph = device.record_graph(|recording| {
            let narrow = norm.record_gpu(recording, &out, &x, &weight, 1e-5, 0.0).unwrap_err();
            assert!(matches!(narrow, BindError::Shape { argument: "out", .. }), "{narrow}");
            assert!(silu.forward_gpu(&normed).is_err(), "a new tensor cannot be made here");
            norm.record_gpu(recording, &normed, &x, &weight, 1e-5, 0.0).map_err(unwrapped)?;
            silu.record_gpu(recording, &out, &normed, None).map_err(unwrapped)
        });
        if !silu_can_compile {
            assert!(matches!(graph.unwrap_err(), GpuError::NotRecordable { .. }));
            continue;
        }
        graph.unwrap().replay().unwrap();
        assert_eq!(values(&out), eager);
    }
}

fn unwrapped(error: BindError) -> GpuError {
    match error {
        BindError::Shader { source, .. } => *source,
        other => panic!("{other}"),
    }
}
