//! Causal masks, built once for all layers of a model.

use std::sync::{Arc, Mutex, PoisonError};

use candle_core::{DType, Device, Result, Tensor};

/// The additive causal masks that a model's attention layers share.
///
/// Keeps the mask that was asked for last: the layers of one forward all ask for the same. A clone is a handle to the
/// same store, so that a model makes one and gives every layer a clone.
#[derive(Debug, Clone, Default)]
pub struct CausalMasks {
    last: Arc<Mutex<Option<Tensor>>>,
}

impl CausalMasks {
    /// The mask `[q_len, kv_len]`: 0 where query `i` sees key `j`, which is where `j <= i + kv_len - q_len`, and
    /// negative infinity elsewhere.
    ///
    /// # Errors
    /// When the device cannot hold it.
    pub fn get(&self, q_len: usize, kv_len: usize, dtype: DType, device: &Device) -> Result<Tensor> {
        // A lock left by a panicking thread guards a whole tensor or none, so its content is good.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mask) = last.as_ref()
            && mask.dims() == [q_len, kv_len]
            && mask.dtype() == dtype
            && mask.device().same_device(device)
        {
            return Ok(mask.clone());
        }
        let values: Vec<f32> = (0..q_len)
            .flat_map(|i| (0..kv_len).map(move |j| if j + q_len <= i + kv_len { 0.0 } else { f32::NEG_INFINITY }))
            .collect();
        let mask = Tensor::from_vec(values, (q_len, kv_len), device)?.to_dtype(dtype)?;
        *last = Some(mask.clone());
        Ok(mask)
    }
}
