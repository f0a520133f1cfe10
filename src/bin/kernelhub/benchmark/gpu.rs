//! A shader kernel on the device that it was bound to.

use std::sync::Arc;

use candle_core::{DType, Device, Tensor};
use kernelhub::bind::{Contract, GatedActivation, LayerKernel};
use kernelhub::dtype::DType as Element;
use kernelhub::gpu::{Device as Gpu, GpuTensor};

use super::error::CallError;
use super::sides::{EPS, THRESHOLD};

/// A call that returns when the device is done, with what it made.
pub(crate) type Call = Box<dyn Fn() -> Result<GpuTensor, CallError>>;

/// The kernel over `inputs`, which are copied to the device; `None` for a contract that no shader of this version serves
/// by a bound function.
pub(crate) fn call(kernel: &Arc<LayerKernel>, device: &Gpu, inputs: &[Tensor]) -> Result<Option<Call>, CallError> {
    let tensors: Vec<GpuTensor> = inputs.iter().map(|input| upload(device, input)).collect::<Result<_, _>>()?;
    let (kernel, device) = (Arc::clone(kernel), device.clone());
    let call: Call = match (&*kernel, tensors.len()) {
        (LayerKernel::RmsNorm(_), 2) => Box::new(move || {
            let LayerKernel::RmsNorm(face) = &*kernel else { return Err(CallError::Broken) };
            #[expect(clippy::cast_possible_truncation, reason = "shaders take their numbers in f32")]
            let out = face.forward_gpu(&tensors[0], &tensors[1], EPS as f32, 0.0)?;
            device.wait()?;
            Ok(out)
        }),
        (LayerKernel::Activation(_), 1) => Box::new(move || {
            let LayerKernel::Activation(face) = &*kernel else { return Err(CallError::Broken) };
            let out = face.forward_gpu(&tensors[0])?;
            device.wait()?;
            Ok(out)
        }),
        (LayerKernel::GatedActivation(_), 1) => Box::new(move || {
            let LayerKernel::GatedActivation(face) = &*kernel else { return Err(CallError::Broken) };
            let has_threshold = kernel.meta().contract == Contract::GatedActivation(GatedActivation::Fatrelu);
            #[expect(clippy::cast_possible_truncation, reason = "shaders take their numbers in f32")]
            let out = if has_threshold {
                face.forward_with_threshold_gpu(&tensors[0], THRESHOLD as f32)
            } else {
                face.forward_gpu(&tensors[0])
            }?;
            device.wait()?;
            Ok(out)
        }),
        _ => return Ok(None),
    };
    Ok(Some(call))
}

fn upload(device: &Gpu, tensor: &Tensor) -> Result<GpuTensor, CallError> {
    let bytes: Vec<u8> = match tensor.dtype() {
        DType::F32 => tensor.flatten_all()?.to_vec1::<f32>()?.iter().flat_map(|value| value.to_le_bytes()).collect(),
        DType::BF16 => {
            tensor.flatten_all()?.to_vec1::<half::bf16>()?.iter().flat_map(|value| value.to_le_bytes()).collect()
        }
        DType::F16 => {
            tensor.flatten_all()?.to_vec1::<half::f16>()?.iter().flat_map(|value| value.to_le_bytes()).collect()
        }
        _ => return Err(CallError::Broken),
    };
    let dtype = kernelhub::host::candle::dtype_of(tensor.dtype()).ok_or(CallError::Broken)?;
    Ok(device.upload(dtype, tensor.dims(), &bytes)?)
}

/// What a call made, in host memory and in f32.
pub(crate) fn download(tensor: &GpuTensor) -> Result<Tensor, CallError> {
    let bytes = tensor.download()?;
    let halves = || bytes.as_chunks::<2>().0.iter().copied();
    let numbers: Vec<f32> = match tensor.dtype() {
        Element::F32 => bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect(),
        Element::Bf16 => halves().map(|bytes| half::bf16::from_le_bytes(bytes).to_f32()).collect(),
        Element::F16 => halves().map(|bytes| half::f16::from_le_bytes(bytes).to_f32()).collect(),
        _ => return Err(CallError::Broken),
    };
    Ok(Tensor::from_vec(numbers, tensor.shape(), &Device::Cpu)?)
}
