//! Devices and their memory.

use kernelhub::dtype::DType;
use kernelhub::gpu::{self, GpuError, ParamValue, ShaderKernel};
use kernelhub::hint::Hint;
use wgpu::Backends;

use super::{
    RMS_NORM_TOLERANCE, assert_near, device, kernel, noise, rms_norm_reference, shader, u32_of, upload, values,
};

#[test]
fn bytes_come_back_as_they_went_at_every_length() {
    let Some(device) = device() else { return };
    for length in [0_usize, 1, 2, 3, 4, 5, 7, 255, 4097] {
        let bytes: Vec<u8> = (0..length).map(|index| u8::try_from(index % 251).unwrap()).collect();
        let tensor = device.upload(DType::U8, &[length], &bytes).unwrap();
        assert_eq!(tensor.download().unwrap(), bytes, "{length} bytes");
    }
    let error = device.upload(DType::F32, &[3], &[0; 11]).unwrap_err();
    assert!(matches!(error, GpuError::SizeMismatch { expected: 12, actual: 11, .. }), "{error}");
}

#[test]
fn tensors_beyond_the_device_are_refused_before_they_are_made() {
    let Some(device) = device() else { return };
    let limit = device.info().limits.max_storage_binding_bytes;
    let error = device.empty(DType::F32, &[usize::try_from(limit / 4 + 1).unwrap()]).unwrap_err();
    assert!(matches!(error, GpuError::LimitExceeded { maximum, .. } if maximum == limit), "{error}");
    // More elements than 32 bits count.
    let error = device.empty(DType::F32, &[255 * 2048, 2 * 6144]).unwrap_err();
    assert!(matches!(error, GpuError::LimitExceeded { requested: 25_669_140_480, .. }), "{error}");
    let error = device.empty(DType::F64, &[usize::MAX, 2]).unwrap_err();
    assert!(matches!(error, GpuError::TooLarge { .. }), "{error}");
    assert!(device.empty(DType::F64, &[usize::MAX, 2, 0]).unwrap().download().unwrap().is_empty());
}

#[test]
fn no_backend_means_no_adapter_and_a_hint() {
    let error = gpu::adapters_of(Backends::empty()).unwrap_err();
    assert!(matches!(error, GpuError::NoAdapter { .. }), "{error}");
    assert!(error.hint().unwrap().contains("mesa-vulkan-drivers"));
}

#[test]
fn adapters_are_listed_with_what_they_are() {
    let Some(device) = device() else { return };
    for (index, adapter) in gpu::adapters().unwrap().iter().enumerate() {
        let info = adapter.info();
        assert_eq!(info.index, index);
        assert!(!info.name.is_empty() && info.limits.max_workgroups_per_axis >= 65_535, "{info:?}");
        assert_eq!(info.device_key.as_str(), if info.vendor_id == 0x8086 { "xpu" } else { "wgpu" });
        assert!(!info.name.contains("llvmpipe") || info.is_software(), "{info:?}");
    }
    assert!(device.is_same(&device.clone()));
}

#[test]
fn a_lost_device_says_so_from_every_call() {
    let Some(device) = device() else { return };
    let tensor = upload(&device, &[2], &[1.0, 2.0]);
    let (binding, source) = shader("rmsnorm");
    device.destroy();
    let errors = [
        tensor.download().map(drop).unwrap_err(),
        device.empty(DType::F32, &[2]).map(drop).unwrap_err(),
        ShaderKernel::compile(&device, &binding, &source).map(drop).unwrap_err(),
        device.recorder().map(drop).unwrap_err(),
    ];
    for error in &errors {
        assert!(matches!(error, GpuError::Lost { .. }), "{error:?}");
        assert!(error.hint().is_some());
    }
}

#[test]
fn a_device_serves_several_threads() {
    fn shared<T: Send + Sync>(_: &T) {}
    let Some(device) = device() else { return };
    let norm = kernel(&device, "rmsnorm");
    shared(&device);
    shared(&norm);
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let (device, norm) = (&device, &norm);
            scope.spawn(move || {
                let (rows, width) = (5, 33);
                let (x, weight) = (noise(rows * width, seed), noise(width, seed + 100));
                let (tx, tw) = (upload(device, &[rows, width], &x), upload(device, &[width], &weight));
                let out = device.empty(DType::F32, &[rows, width]).unwrap();
                let params = [("rows", u32_of(rows)), ("width", u32_of(width)), ("eps", ParamValue::F32(1e-5))];
                for _ in 0..20 {
                    // Errors belong to the thread that made them.
                    let refused = device.upload(DType::F32, &[2], &[0]).unwrap_err();
                    assert!(matches!(refused, GpuError::SizeMismatch { .. }), "{refused}");
                    norm.launch(&[("x", &tx), ("weight", &tw), ("out", &out)], &params).unwrap();
                }
                assert_near(&values(&out), &rms_norm_reference(&x, &weight, 1e-5), RMS_NORM_TOLERANCE, "threads");
            });
        }
    });
}
