//! Shader packs through the hub. Without an adapter each test prints why it did nothing.
#![expect(clippy::print_stdout, reason = "a test that skips says why")]

use std::path::Path;
use std::sync::Arc;

use kernelhub::bind::{BindError, LayerKernel, TensorMut, TensorRef};
use kernelhub::dtype::DType;
use kernelhub::gpu::{self, Device, GpuError, GpuTensor};
use kernelhub::hint::Hint as _;
use kernelhub::hub::Hub;
use kernelhub::variant::DeviceKey::{Cpu, Wgpu};

use crate::support::embedded;
use crate::support::native::NativePack;

fn has_adapter() -> bool {
    match gpu::adapters() {
        Ok(_) => true,
        Err(error @ GpuError::NoAdapter { .. }) => {
            println!("skipped: {error}; {}", error.hint().unwrap());
            false
        }
        Err(error) => panic!("{error}"),
    }
}

/// The shared hub, where there are an adapter and our packs.
fn hub() -> Option<&'static Hub> {
    if has_adapter() { embedded::hub() } else { None }
}

fn layer(hub: &Hub, kernel: &str, layer: &str) -> Arc<LayerKernel> {
    hub.layer(&format!("kernelhub/{kernel}@v1").parse().unwrap(), layer, Wgpu).unwrap()
}

fn upload(device: &Device, shape: &[usize], values: &[f32]) -> GpuTensor {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    device.upload(DType::F32, shape, &bytes).unwrap()
}

fn download(tensor: &GpuTensor) -> Vec<f32> {
    tensor.download().unwrap().chunks_exact(4).map(|word| f32::from_le_bytes(word.try_into().unwrap())).collect()
}

fn ramp(count: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 7919 % 2003) as f32 - 1001.0) / 250.0).collect()
}

#[track_caller]
fn assert_close(actual: &[f32], expected: &[f64], what: &str) {
    assert_eq!(actual.len(), expected.len(), "{what}");
    for (at, (actual, expected)) in actual.iter().zip(expected).enumerate() {
        let error = (f64::from(*actual) - expected).abs();
        assert!(error <= 1e-5 * expected.abs().max(1.0), "{what}, element {at}: {actual} is not {expected}");
    }
}

#[test]
fn rms_norm_on_the_gpu_is_the_formula() {
    let Some(hub) = hub() else { return };
    let kernel = layer(hub, "rmsnorm", "RMSNorm");
    assert_eq!(kernel.meta().identity.variant.to_string(), "wgsl-universal");
    assert_eq!(kernel.meta().identity.handshake, None);
    let LayerKernel::RmsNorm(kernel) = &*kernel else { panic!("{kernel:?}") };
    let device = hub.gpu(Wgpu).unwrap();
    for (rows, width) in [(1, 1), (3, 7), (5, 257), (0, 8), (300, 64)] {
        let (x, weight) = (ramp(rows * width), ramp(width));
        let shape = [rows, 1, width];
        let out =
            kernel.forward_gpu(&upload(&device, &shape, &x), &upload(&device, &[width], &weight), 1e-5, 0.0).unwrap();
        assert_eq!(out.shape(), shape);
        let expected: Vec<f64> = x
            .chunks(width)
            .flat_map(|row| {
                let mean = row.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / width as f64;
                let scale = (mean + 1e-5).sqrt();
                row.iter().zip(&weight).map(move |(x, w)| f64::from(*x) / scale * f64::from(*w)).collect::<Vec<_>>()
            })
            .collect();
        assert_close(&download(&out), &expected, &format!("{rows} rows of {width}"));
    }
}

#[test]
fn silu_and_mul_on_the_gpu_is_the_formula() {
    let Some(hub) = hub() else { return };
    let kernel = layer(hub, "activation", "SiluAndMul");
    let LayerKernel::GatedActivation(kernel) = &*kernel else { panic!("{kernel:?}") };
    let device = hub.gpu(Wgpu).unwrap();
    for (rows, width) in [(1, 1), (3, 7), (5, 257), (0, 8), (2, 1408)] {
        let x = ramp(rows * 2 * width);
        let out = kernel.forward_gpu(&upload(&device, &[rows, 2 * width], &x)).unwrap();
        assert_eq!(out.shape(), [rows, width]);
        let expected: Vec<f64> = x
            .chunks(2 * width)
            .flat_map(|row| {
                let (gate, up) = row.split_at(width);
                gate.iter().zip(up).map(|(g, u)| f64::from(*g) / (1.0 + (-f64::from(*g)).exp()) * f64::from(*u))
            })
            .collect();
        assert_close(&download(&out), &expected, &format!("{rows} rows of {width}"));
    }
}

#[test]
fn shaders_take_gpu_tensors_only_and_native_code_host_tensors_only() {
    let Some(hub) = hub() else { return };
    let data = ramp(16);
    let (x, weight) =
        (TensorRef::contiguous(&data, &[2, 8]).unwrap(), TensorRef::contiguous(&data[..8], &[8]).unwrap());
    let shader = layer(hub, "rmsnorm", "RMSNorm");
    let LayerKernel::RmsNorm(shader) = &*shader else { panic!("{shader:?}") };
    let mut out = [0.0_f32; 16];
    let error =
        shader.forward(&mut TensorMut::contiguous(&mut out, &[2, 8]).unwrap(), &x, &weight, 1e-5, 0.0).unwrap_err();
    assert!(matches!(&error, BindError::Memory { code: "shader", memory: "host", .. }), "{error:?}");
    assert_eq!(
        error.to_string(),
        "kernelhub/rmsnorm@v1:RMSNorm is a shader kernel and cannot run on tensors in host memory"
    );
    assert!(error.hint().unwrap().contains("the device that its tensors are on"));

    let device = hub.gpu(Wgpu).unwrap();
    let (x, weight) = (upload(&device, &[2, 8], &data), upload(&device, &[8], &data[..8]));
    let native = hub.layer(&"kernelhub/rmsnorm@v1".parse().unwrap(), "RMSNorm", Cpu).unwrap();
    let LayerKernel::RmsNorm(native) = &*native else { panic!("{native:?}") };
    let error = native.forward_gpu(&x, &weight, 1e-5, 0.0).unwrap_err();
    assert!(matches!(&error, BindError::Memory { code: "native", memory: "wgpu", .. }), "{error:?}");
}

#[test]
fn wrong_gpu_tensors_are_refused_by_name() {
    let Some(hub) = hub() else { return };
    let device = {
        layer(hub, "rmsnorm", "RMSNorm");
        hub.gpu(Wgpu).unwrap()
    };
    let (norm, gated) = (layer(hub, "rmsnorm", "RMSNorm"), layer(hub, "activation", "SiluAndMul"));
    let (LayerKernel::RmsNorm(norm), LayerKernel::GatedActivation(gated)) = (&*norm, &*gated) else { panic!() };
    let empty = |dtype, shape: &[usize]| device.empty(dtype, shape).unwrap();
    let f32 = |shape: &[usize]| empty(DType::F32, shape);
    let error = norm.forward_gpu(&f32(&[2, 8]), &f32(&[7]), 1e-5, 0.0).unwrap_err();
    assert!(matches!(&error, BindError::Shape { argument: "weight", actual, .. } if *actual == [7]), "{error:?}");
    let error = norm.forward_gpu(&empty(DType::F16, &[2, 8]), &f32(&[8]), 1e-5, 0.0).unwrap_err();
    assert!(matches!(&error, BindError::Dtype { argument: "x", actual: DType::F16, .. }), "{error:?}");
    let error = norm.forward_gpu(&f32(&[2, 8]), &empty(DType::F16, &[8]), 1e-5, 0.0).unwrap_err();
    assert!(matches!(&error, BindError::Dtype { argument: "weight", .. }), "{error:?}");
    let error = norm.forward_gpu(&f32(&[]), &f32(&[1]), 1e-5, 0.0).unwrap_err();
    assert!(matches!(&error, BindError::Shape { argument: "x", .. }), "{error:?}");
    let error = gated.forward_gpu(&f32(&[2, 7])).unwrap_err();
    assert!(matches!(&error, BindError::Shape { argument: "x", .. }), "{error:?}");
    // No row, whatever the product of the other axes.
    let huge = f32(&[usize::MAX, 2, 0, 8]);
    assert_eq!(norm.forward_gpu(&huge, &f32(&[8]), 1e-5, 0.0).unwrap().shape(), huge.shape());
}

#[test]
fn a_shaders_width_rule_holds_on_the_gpu() {
    if !has_adapter() {
        return;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels/wgsl");
    let read = |name: &str| std::fs::read_to_string(source.join(name)).unwrap();
    let limited = |layers: &str| {
        layers
            .replace("schema = 1\n", "")
            .replace("dtypes = [\"f32\"]\n", "dtypes = [\"f32\"]\nlimits = { last_dim_multiple_of = 4 }\n")
    };
    let layers = limited(&read("layers/rmsnorm.toml")) + &limited(&read("layers/activation.toml"));
    let (norm, gated) = (read("rms_norm.wgsl"), read("silu_and_mul.wgsl"));
    let files = [("rms_norm.wgsl", norm.as_bytes()), ("silu_and_mul.wgsl", gated.as_bytes())];
    let pack = NativePack::shader("limited", &layers, &files);
    let hub = pack.hub();
    let bound = |layer: &str| hub.layer(&"kernelhub-tests/limited@v1".parse().unwrap(), layer, Wgpu).unwrap();
    let (norm, gated) = (bound("RMSNorm"), bound("SiluAndMul"));
    let (LayerKernel::RmsNorm(norm), LayerKernel::GatedActivation(gated)) = (&*norm, &*gated) else { panic!() };
    let device = hub.gpu(Wgpu).unwrap();
    let tensor = |shape: &[usize]| device.empty(DType::F32, shape).unwrap();
    let error = norm.forward_gpu(&tensor(&[2, 6]), &tensor(&[6]), 1e-5, 0.0).unwrap_err();
    assert!(
        matches!(&error, BindError::Limit { argument: "x", limit, .. } if limit.contains("6 elements is no multiple of 4")),
        "{error:?}"
    );
    let error = gated.forward_gpu(&tensor(&[2, 12])).unwrap_err();
    assert!(matches!(&error, BindError::Limit { argument: "out", .. }), "{error:?}");
    assert!(norm.forward_gpu(&tensor(&[2, 8]), &tensor(&[8]), 1e-5, 0.0).is_ok());
    assert!(gated.forward_gpu(&tensor(&[2, 8])).is_ok());
}

/// All tensors of a call are on the kernel's device: a tensor of another device is refused, by name, and no work is
/// sent to the device that happens to be the first.
#[test]
fn f52_tensors_of_another_device_are_refused() {
    let Some(hub) = hub() else { return };
    let (norm, gated) = (layer(hub, "rmsnorm", "RMSNorm"), layer(hub, "activation", "SiluAndMul"));
    let (LayerKernel::RmsNorm(norm), LayerKernel::GatedActivation(gated)) = (&*norm, &*gated) else { panic!() };
    let own = hub.gpu(Wgpu).unwrap();
    let adapters = gpu::adapters().unwrap();
    let other = Device::open(&adapters[0]).unwrap();
    let foreign = |error: BindError, expected: &str| {
        let BindError::Shader { source, .. } = &error else { panic!("{error:?}") };
        assert!(matches!(&**source, GpuError::ForeignDevice { name, .. } if name == expected), "{source:?}");
    };
    let on = |device: &Device, shape: &[usize]| upload(device, shape, &ramp(shape.iter().product()));
    foreign(norm.forward_gpu(&on(&other, &[2, 8]), &on(&own, &[8]), 1e-5, 0.0).unwrap_err(), "x");
    foreign(norm.forward_gpu(&on(&own, &[2, 8]), &on(&other, &[8]), 1e-5, 0.0).unwrap_err(), "weight");
    foreign(norm.forward_gpu(&on(&other, &[2, 8]), &on(&other, &[8]), 1e-5, 0.0).unwrap_err(), "x");
    foreign(gated.forward_gpu(&on(&other, &[2, 8])).unwrap_err(), "x");
    assert!(norm.forward_gpu(&on(&own, &[2, 8]), &on(&own, &[8]), 1e-5, 0.0).is_ok());
    let error = norm.forward_gpu(&on(&own, &[2, 8]), &on(&own, &[8]), 1e-5, 1.0).unwrap_err();
    assert!(matches!(&error, BindError::Option { option: "offset", .. }), "{error:?}");
}
