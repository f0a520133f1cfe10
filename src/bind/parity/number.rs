//! Element types with their conversions.

use half::{bf16, f16};

use crate::bind::Element;
#[cfg(feature = "wgpu")]
use crate::gpu::{Device, GpuError, GpuTensor};

/// An element type that can be rounded to and read exactly.
pub(super) trait Number: Element {
    /// The nearest number of the type.
    fn rounded(value: f64) -> Self;
    /// The exact value.
    fn wide(self) -> f64;
    /// Little-endian bytes, as GPU memory has them.
    #[cfg(feature = "wgpu")]
    fn to_bytes(values: &[Self]) -> Vec<u8>;
    /// The elements of such bytes.
    #[cfg(feature = "wgpu")]
    fn from_bytes(bytes: &[u8]) -> Vec<Self>;
}

macro_rules! number {
    ($type:ty, $size:literal, $rounded:expr, $wide:expr) => {
        impl Number for $type {
            fn rounded(value: f64) -> Self {
                $rounded(value)
            }
            fn wide(self) -> f64 {
                $wide(self)
            }
            #[cfg(feature = "wgpu")]
            fn to_bytes(values: &[Self]) -> Vec<u8> {
                values.iter().flat_map(|value| value.to_le_bytes()).collect()
            }
            #[cfg(feature = "wgpu")]
            fn from_bytes(bytes: &[u8]) -> Vec<Self> {
                bytes.as_chunks::<$size>().0.iter().map(|bytes| Self::from_le_bytes(*bytes)).collect()
            }
        }
    };
}

#[expect(clippy::cast_possible_truncation, reason = "rounding is what is asked for")]
fn single(value: f64) -> f32 {
    value as f32
}

number!(f32, 4, single, f64::from);
number!(bf16, 2, bf16::from_f64, bf16::to_f64);
number!(f16, 2, f16::from_f64, f16::to_f64);

/// `value` rounded to the type.
pub(super) fn round<T: Number>(value: f64) -> f64 {
    T::rounded(value).wide()
}

/// A row-major tensor on a device.
#[cfg(feature = "wgpu")]
pub(super) fn upload<T: Number>(device: &Device, shape: &[usize], values: &[f64]) -> Result<GpuTensor, GpuError> {
    let values: Vec<T> = values.iter().map(|value| T::rounded(*value)).collect();
    device.upload(T::DTYPE, shape, &T::to_bytes(&values))
}
