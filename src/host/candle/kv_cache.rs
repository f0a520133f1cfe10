//! The keys and values of the positions that a decoder layer has seen.

use candle_core::{Result, Tensor};
use candle_nn::kv_cache::KvCache as CandleCache;

use super::LayerError;

/// Axis of positions in `[batch, kv_heads, seq, head_dim]`.
const POSITIONS: usize = 2;

/// One layer's cache, allocated in full at the first append.
///
/// An append writes the new positions and returns views of the whole, so that the past is never copied. The views are
/// strided (the stride between heads is the capacity's), and stay valid: positions that a view covers are not written
/// again, and a [`reset`](Self::reset) lets go of the memory instead of reusing it. Not `Clone`, for two caches would
/// write into one memory.
#[derive(Debug)]
pub struct KvCache {
    inner: CandleCache,
    capacity: usize,
}

impl KvCache {
    /// An empty cache for `capacity` positions.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { inner: CandleCache::new(POSITIONS, capacity), capacity }
    }

    /// Positions held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.current_seq_len()
    }

    /// Whether no position is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Positions that fit.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Appends keys and values, each `[batch, kv_heads, seq, head_dim]` of any strides, and returns all that are held,
    /// each `[batch, kv_heads, len, head_dim]`.
    ///
    /// # Errors
    /// A [`LayerError`], with nothing appended, when the shapes differ or do not go with what is held, when the
    /// capacity is exceeded, or when a tensor tracks gradients.
    pub fn append(&mut self, keys: &Tensor, values: &Tensor) -> Result<(Tensor, Tensor)> {
        let added = self.check(keys, values)?;
        let requested = self.len().saturating_add(added);
        if requested > self.capacity {
            return Err(LayerError::CacheFull { requested, maximum: self.capacity }.into());
        }
        if added == 0 && self.is_empty() {
            return Ok((keys.clone(), values.clone()));
        }
        self.inner.append(&keys.contiguous()?, &values.contiguous()?)
    }

    /// Forgets all positions.
    pub fn reset(&mut self) {
        self.inner.reset();
    }

    /// Refuses what cannot be appended; returns the number of new positions.
    fn check(&self, keys: &Tensor, values: &Tensor) -> Result<usize> {
        const LAYER: &str = "key-value cache";
        let [batch, heads, added, width] = *keys.dims() else {
            let (expected, actual) = ("[batch, kv_heads, seq, head_dim]".to_owned(), keys.dims().to_vec());
            return Err(LayerError::Shape { layer: LAYER, tensor: "keys", expected, actual }.into());
        };
        if values.dims() != keys.dims() {
            let (expected, actual) = (format!("{:?} like the keys", keys.dims()), values.dims().to_vec());
            return Err(LayerError::Shape { layer: LAYER, tensor: "values", expected, actual }.into());
        }
        // The whole of the memory, since a view of what is held is made anew at each look.
        let held = [self.inner.k_cache(), self.inner.v_cache()].map(|cache| cache.all_data().as_ref());
        if let Some(held) = held[0] {
            let (held_batch, held_heads, _, held_width) = held.dims4()?;
            if (batch, heads, width) != (held_batch, held_heads, held_width) {
                let expected = format!("[{held_batch}, {held_heads}, seq, {held_width}] like those held");
                return Err(
                    LayerError::Shape { layer: LAYER, tensor: "keys", expected, actual: keys.dims().to_vec() }.into()
                );
            }
        }
        for (tensor, new, held) in [("keys", keys, held[0]), ("values", values, held[1])] {
            if new.track_op() {
                return Err(LayerError::CacheGradient { tensor }.into());
            }
            if let Some(held) = held.filter(|held| held.dtype() != new.dtype()) {
                let (expected, actual) = (format!("{:?} like those held", held.dtype()), format!("{:?}", new.dtype()));
                return Err(LayerError::DType { layer: LAYER, tensor, expected, actual }.into());
            }
        }
        Ok(added)
    }
}
