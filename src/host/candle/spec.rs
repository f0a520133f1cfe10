//! What the layers tell the planner about themselves.

use candle_core::{DType as CandleDType, Device, Tensor};

use super::LayerError;
use crate::bind::{Contract, Rounding};
use crate::dtype::DType;
use crate::swap::{Mode, Slot, SlotSpec, Slots};
use crate::variant::DeviceKey;

/// The crate's name for a candle element type, or `None` for a type that no kernel takes.
#[must_use]
pub fn dtype_of(dtype: CandleDType) -> Option<DType> {
    Some(match dtype {
        CandleDType::F64 => DType::F64,
        CandleDType::F32 => DType::F32,
        CandleDType::BF16 => DType::Bf16,
        CandleDType::F16 => DType::F16,
        CandleDType::I64 => DType::I64,
        CandleDType::I32 => DType::I32,
        CandleDType::U32 => DType::U32,
        CandleDType::U8 => DType::U8,
        _ => return None,
    })
}

/// The key that kernel mappings know a candle device by.
#[must_use]
pub fn device_key_of(device: &Device) -> DeviceKey {
    match device {
        Device::Cpu => DeviceKey::Cpu,
        Device::Cuda(_) => DeviceKey::Cuda,
        Device::Metal(_) => DeviceKey::Mps,
    }
}

/// The crate's name for the element type of `tensor`, which must be floating-point.
pub(super) fn float_dtype(layer: &'static str, tensor: &'static str, dtype: CandleDType) -> Result<DType, LayerError> {
    dtype_of(dtype).filter(|known| matches!(known, DType::F64 | DType::F32 | DType::Bf16 | DType::F16)).ok_or_else(
        || {
            let expected = "one of f64, f32, bf16, f16".to_owned();
            LayerError::DType { layer, tensor, expected, actual: format!("{dtype:?}") }
        },
    )
}

/// `mode`, or training where a gradient is needed all the same: an input or a weight of this call tracks one, and a
/// gradient is never cut because the model was left in inference mode.
pub(super) fn mode_for(mode: Mode, tensors: &[&Tensor]) -> Mode {
    if tensors.iter().any(|tensor| tensor.track_op()) { mode.training() } else { mode }
}

/// Claims the slot of a layer with two weights (or tables), which must be of one floating-point type.
///
/// The layer counts as trainable when either is a variable or was computed from one.
pub(super) fn claim_pair(
    slots: &Slots,
    path: impl Into<String>,
    (layer, contract): (&'static str, Contract),
    [(first_name, first), (second_name, second)]: [(&'static str, &Tensor); 2],
    last_dim: usize,
) -> Result<Slot, LayerError> {
    let dtype = float_dtype(layer, first_name, first.dtype())?;
    if first.dtype() != second.dtype() {
        let (expected, actual) = (format!("{:?} like {first_name}", first.dtype()), format!("{:?}", second.dtype()));
        return Err(LayerError::DType { layer, tensor: second_name, expected, actual });
    }
    let trainable = first.track_op() || second.track_op();
    Ok(slots.slot(SlotSpec {
        path: path.into(),
        layer: layer.to_owned(),
        contract,
        dtype,
        last_dim,
        trainable,
        options: Vec::new(),
        rounding: Rounding::Dtype,
    }))
}
