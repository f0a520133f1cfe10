//! What the layers tell the planner about themselves.

use candle_core::{DType as CandleDType, Device, Tensor};

use super::LayerError;
use crate::bind::{Contract, MAX_RANK, Rounding};
use crate::dtype::DType;
use crate::swap::{Mode, Plan, Slot, SlotSpec, Slots};
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

/// The crate's name for an element type that kernels may know.
pub(super) fn any_dtype(layer: &'static str, tensor: &'static str, dtype: CandleDType) -> Result<DType, LayerError> {
    dtype_of(dtype).ok_or_else(|| {
        let expected = "one of f64, f32, bf16, f16, i64, i32, u32, u8".to_owned();
        LayerError::DType { layer, tensor, expected, actual: format!("{dtype:?}") }
    })
}

/// Refuses a plan of another model, whose slots stand for other layers.
#[inline]
pub(super) fn check_plan(plan: &Plan, slot: &Slot) -> Result<(), LayerError> {
    if plan.is_for(slot) { Ok(()) } else { Err(LayerError::OtherModel) }
}

/// What a layer claims its slot by.
#[derive(Debug, Clone, Copy)]
pub(super) struct Claim<'a> {
    /// The layer's name in a kernel mapping.
    pub(super) layer: &'a str,
    pub(super) contract: Contract,
    pub(super) dtype: DType,
    /// Extent of the axis that a kernel's width rules apply to.
    pub(super) width: usize,
    /// Tensors that the layer holds. It counts as trainable when one is a variable or was computed from one.
    pub(super) weights: &'a [&'a Tensor],
    /// Optional parameters of the contract that the layer gives other values than their defaults.
    pub(super) options: &'a [&'static str],
    /// Where the reference rounds in inference.
    pub(super) rounding: Rounding,
}

impl Claim<'_> {
    pub(super) fn slot(self, slots: &Slots, path: impl Into<String>) -> Slot {
        slots.slot(self.spec(path))
    }

    pub(super) fn spec(self, path: impl Into<String>) -> SlotSpec {
        SlotSpec {
            path: path.into(),
            layer: self.layer.to_owned(),
            contract: self.contract,
            dtype: self.dtype,
            last_dim: self.width,
            trainable: self.weights.iter().any(|weight| weight.track_op()),
            options: self.options.to_vec(),
            rounding: self.rounding,
        }
    }
}

/// Refuses a second tensor of another element type than the first.
pub(super) fn same_dtype(
    layer: &'static str,
    (first_name, first): (&'static str, &Tensor),
    (tensor, second): (&'static str, &Tensor),
) -> Result<(), LayerError> {
    if first.dtype() == second.dtype() {
        return Ok(());
    }
    let (expected, actual) = (format!("{:?} like {first_name}", first.dtype()), format!("{:?}", second.dtype()));
    Err(LayerError::DType { layer, tensor, expected, actual })
}

/// Refuses a tensor that is not exactly `shape`, whose axes `names` names.
pub(super) fn exact_shape(
    layer: &'static str,
    (tensor, x): (&'static str, &Tensor),
    shape: &[usize],
    names: &str,
) -> Result<(), LayerError> {
    if x.dims() == shape {
        return Ok(());
    }
    let (expected, actual) = (format!("{names} = {shape:?}"), x.dims().to_vec());
    Err(LayerError::Shape { layer, tensor, expected, actual })
}

/// Refuses an input that is not `[..., width]` of `like`'s element type, or has fewer axes than `least_rank`.
pub(super) fn check_rows(
    layer: &'static str,
    x: &Tensor,
    width: usize,
    like: (&'static str, CandleDType),
    least_rank: usize,
) -> Result<(), LayerError> {
    // candle panics where it copies a view of more axes, and kernels take no more.
    if !(least_rank..=MAX_RANK).contains(&x.rank()) || x.dims().last() != Some(&width) {
        let axes = if x.rank() > MAX_RANK { format!(" of at most {MAX_RANK} axes") } else { String::new() };
        let (expected, actual) = (format!("[..., {width}]{axes}"), x.dims().to_vec());
        return Err(LayerError::Shape { layer, tensor: "input", expected, actual });
    }
    if x.dtype() != like.1 {
        let (expected, actual) = (format!("{:?} like {}", like.1, like.0), format!("{:?}", x.dtype()));
        return Err(LayerError::DType { layer, tensor: "input", expected, actual });
    }
    Ok(())
}
