//! Tensors in GPU memory.

use std::sync::{Arc, Mutex, PoisonError};

use super::{Device, GpuError};
use crate::dtype::DType;

/// Buffers are sized, and copies made, in multiples of this many bytes.
const ALIGNMENT: u64 = wgpu::COPY_BUFFER_ALIGNMENT;

/// Uploads of at least this many bytes are handed to the device at once. wgpu keeps a copy of what was written until
/// the next submission, and a model's weights would otherwise be held twice.
const FLUSH_BYTES: u64 = 1 << 20;

/// A contiguous, row-major tensor in the memory of one device. Cloning shares it.
#[derive(Debug, Clone)]
pub struct GpuTensor {
    device: Device,
    pub(super) buffer: wgpu::Buffer,
    dtype: DType,
    shape: Vec<usize>,
    bytes: u64,
}

impl Device {
    /// A tensor of zeros. An axis of 0 gives a tensor without elements.
    ///
    /// # Errors
    /// [`GpuError::TooLarge`], [`GpuError::LimitExceeded`] above what a shader can bind, [`GpuError::OutOfMemory`], or
    /// another fault of the device; [`GpuError::Recording`] while this thread records a graph.
    pub fn empty(&self, dtype: DType, shape: &[usize]) -> Result<GpuTensor, GpuError> {
        let too_large = || GpuError::TooLarge { dtype, shape: shape.to_vec() };
        let bytes = size_in_bytes(dtype, shape).ok_or_else(too_large)?;
        let padded = bytes.checked_next_multiple_of(ALIGNMENT).ok_or_else(too_large)?.max(ALIGNMENT);
        let subject = format!("a {dtype} tensor of shape {shape:?}");
        self.check_not_recording(&format!("allocating {subject}"))?;
        let limits = self.limits();
        let binding = ("max_storage_buffer_binding_size", "bytes");
        self.check_limit(&subject, binding, padded, limits.max_storage_buffer_binding_size)?;
        self.check_limit(&subject, ("max_buffer_size", "bytes"), padded, limits.max_buffer_size)?;
        let buffer = self.guarded(&format!("allocating {subject}"), |device, _| {
            device.create_buffer(&wgpu::BufferDescriptor {
                label: None,
                size: padded,
                usage: wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST,
                mapped_at_creation: false,
            })
        })?;
        Ok(GpuTensor { device: self.clone(), buffer, dtype, shape: shape.to_vec(), bytes })
    }

    /// A tensor with these bytes: little-endian elements in row-major order.
    ///
    /// # Errors
    /// [`GpuError::SizeMismatch`] where the bytes are not the shape's, otherwise as [`Device::empty`].
    pub fn upload(&self, dtype: DType, shape: &[usize], data: &[u8]) -> Result<GpuTensor, GpuError> {
        let shape_of = || shape.to_vec();
        let expected = size_in_bytes(dtype, shape).ok_or_else(|| GpuError::TooLarge { dtype, shape: shape_of() })?;
        let actual = data.len() as u64;
        if actual != expected {
            return Err(GpuError::SizeMismatch { dtype, shape: shape_of(), expected, actual });
        }
        let tensor = self.empty(dtype, shape)?;
        tensor.copy_in("uploading a tensor", data)?;
        Ok(tensor)
    }
}

impl GpuTensor {
    /// The element type.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Elements per axis, outermost first.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Size of the elements, in bytes.
    #[must_use]
    pub fn size_in_bytes(&self) -> u64 {
        self.bytes
    }

    /// The device whose memory holds it.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Replaces the elements: `data` has the bytes that [`Device::upload`] takes. In order with what is submitted
    /// before and after. How a [`super::CommandGraph`] is given new input.
    ///
    /// # Errors
    /// [`GpuError::SizeMismatch`], or a fault of the device; [`GpuError::Recording`] while this thread records a graph.
    pub fn write(&self, data: &[u8]) -> Result<(), GpuError> {
        let (expected, actual) = (self.bytes, data.len() as u64);
        if actual != expected {
            return Err(GpuError::SizeMismatch { dtype: self.dtype, shape: self.shape.clone(), expected, actual });
        }
        self.device.check_not_recording("writing a tensor")?;
        self.copy_in("writing a tensor", data)
    }

    /// Copies bytes of the tensor's size into it.
    fn copy_in(&self, operation: &str, data: &[u8]) -> Result<(), GpuError> {
        // Whole words first, then the rest padded with zeros, so that the data need not be copied to be padded.
        let (words, rest) = data.split_at(data.len() - data.len() % 4);
        let mut last = [0; 4];
        last[..rest.len()].copy_from_slice(rest);
        self.device.guarded(operation, |_, queue| {
            if !words.is_empty() {
                queue.write_buffer(&self.buffer, 0, words);
            }
            if !rest.is_empty() {
                queue.write_buffer(&self.buffer, words.len() as u64, &last);
            }
            if self.bytes >= FLUSH_BYTES {
                queue.submit([]);
            }
        })
    }

    /// Waits for the work submitted so far and copies the elements back: little-endian, row-major.
    ///
    /// # Errors
    /// [`GpuError::OutOfMemory`], [`GpuError::Timeout`], [`GpuError::Lost`], or another fault of the device;
    /// [`GpuError::Recording`] while this thread records a graph.
    pub fn download(&self) -> Result<Vec<u8>, GpuError> {
        let operation = "downloading a tensor";
        self.device.check_not_recording(operation)?;
        let internal = |message: String| GpuError::Internal { operation: operation.to_owned(), message };
        let length = usize::try_from(self.bytes).map_err(|error| internal(error.to_string()))?;
        if length == 0 {
            return Ok(Vec::new());
        }
        let padded = self.buffer.size();
        let (staging, encoder) = self.device.guarded(operation, |device, _| {
            let staging = device.create_buffer(&wgpu::BufferDescriptor {
                label: None,
                size: padded,
                usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
                mapped_at_creation: false,
            });
            let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
            encoder.copy_buffer_to_buffer(&self.buffer, 0, &staging, 0, padded);
            (staging, encoder)
        })?;
        self.device.submit(operation, encoder)?;
        let outcome = Arc::new(Mutex::new(None));
        let sender = Arc::clone(&outcome);
        self.device.guarded(operation, |_, _| {
            staging.slice(..).map_async(wgpu::MapMode::Read, move |result| {
                *sender.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
            });
        })?;
        self.device.wait()?;
        match outcome.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(Ok(())) => {}
            Some(Err(error)) => return Err(internal(error.to_string())),
            None => return Err(internal("the device finished without mapping the copy".to_owned())),
        }
        let bytes = self.device.guarded(operation, |_, _| {
            let view = staging.slice(..).get_mapped_range()?;
            let bytes = view[..length].to_vec();
            drop(view);
            staging.unmap();
            Ok::<_, wgpu::MapRangeError>(bytes)
        })?;
        bytes.map_err(|error| internal(error.to_string()))
    }
}

/// Bytes of a tensor, or `None` above 64 bits.
fn size_in_bytes(dtype: DType, shape: &[usize]) -> Option<u64> {
    // An empty tensor has no bytes, however large its other axes are.
    if shape.contains(&0) {
        return Some(0);
    }
    shape.iter().try_fold(dtype.size_in_bytes() as u64, |bytes, axis| bytes.checked_mul(*axis as u64))
}
