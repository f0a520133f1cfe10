//! Masks, built once for all layers of a model.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use candle_core::{DType, Device, Result, Tensor};

use crate::bind::Window;

/// Which keys the queries of a call see; see [`AttentionConfig`](super::AttentionConfig).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Visible {
    q_len: usize,
    kv_len: usize,
    /// Keys before and after a query's position that it sees; `usize::MAX`: all.
    left: usize,
    right: usize,
}

impl Visible {
    pub(super) fn new(window: Window, causal: bool, q_len: usize, kv_len: usize) -> Self {
        let bound = |keys: Option<u32>| keys.map_or(usize::MAX, |keys| keys as usize);
        Self { q_len, kv_len, left: bound(window.left), right: if causal { 0 } else { bound(window.right) } }
    }

    /// The keys that query `i` sees.
    fn of(&self, i: usize) -> Range<usize> {
        // Position + 1, and what is taken from it; the position itself may be negative.
        let next = self.kv_len + i + 1;
        let start = (next - 1).saturating_sub(self.q_len.saturating_add(self.left));
        start..next.saturating_add(self.right).saturating_sub(self.q_len).min(self.kv_len)
    }

    pub(super) fn kv_len(&self) -> usize {
        self.kv_len
    }

    /// How many queries see no key. They are the first ones, which stand before all keys.
    pub(super) fn blind(&self) -> usize {
        self.q_len.saturating_sub(self.kv_len.saturating_add(self.right)).min(self.q_len)
    }

    /// The first key that any query sees.
    pub(super) fn first(&self) -> usize {
        self.of(0).start
    }

    /// The same without the first `keys` keys, which none sees.
    pub(super) fn without(self, keys: usize) -> Self {
        Self { kv_len: self.kv_len - keys, ..self }
    }

    /// Whether every query sees every key.
    fn is_full(&self) -> bool {
        self.q_len == 0 || (self.of(0).end == self.kv_len && self.of(self.q_len - 1).start == 0)
    }
}

/// The additive masks that a model's attention layers share.
///
/// Keeps the two masks that were asked for last: the layers of one forward all ask for the same one, or for two in a
/// model that mixes layers with and without a window. A clone is a handle to the same store, so that a model makes one
/// and gives every layer a clone.
#[derive(Debug, Clone, Default)]
pub struct CausalMasks {
    last: Arc<Mutex<Kept>>,
}

/// Two masks with what is visible in each, the newer one first.
type Kept = [Option<(Visible, Tensor)>; 2];

impl CausalMasks {
    /// The mask `[q_len, kv_len]`: 0 where query `i` sees key `j`, which is where `j <= i + kv_len - q_len`, and
    /// negative infinity elsewhere.
    ///
    /// # Errors
    /// When the device cannot hold it.
    pub fn get(&self, q_len: usize, kv_len: usize, dtype: DType, device: &Device) -> Result<Tensor> {
        self.mask(Visible::new(Window::default(), true, q_len, kv_len), dtype, device)
    }

    /// The mask of what is visible; `None` where every query sees every key.
    pub(super) fn visible(&self, visible: Visible, dtype: DType, device: &Device) -> Result<Option<Tensor>> {
        if visible.is_full() { Ok(None) } else { self.mask(visible, dtype, device).map(Some) }
    }

    fn mask(&self, visible: Visible, dtype: DType, device: &Device) -> Result<Tensor> {
        // A lock left by a panicking thread guards whole masks or none, so its content is good.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let fits =
            |of: &Visible, mask: &Tensor| *of == visible && mask.dtype() == dtype && mask.device().same_device(device);
        if let Some((_, mask)) = last.iter().flatten().find(|(of, mask)| fits(of, mask)) {
            return Ok(mask.clone());
        }
        let Visible { q_len, kv_len, .. } = visible;
        let mut values = vec![f32::NEG_INFINITY; q_len * kv_len];
        for (i, row) in values.chunks_mut(kv_len.max(1)).enumerate() {
            if let Some(seen) = row.get_mut(visible.of(i)) {
                seen.fill(0.0);
            }
        }
        let mask = Tensor::from_vec(values, (q_len, kv_len), device)?.to_dtype(dtype)?;
        last.swap(0, 1);
        last[0] = Some((visible, mask.clone()));
        Ok(mask)
    }
}

#[cfg(test)]
mod tests {
    use super::Visible;
    use crate::bind::Window;

    #[test]
    fn what_is_visible_is_what_the_definition_says() {
        for (q_len, kv_len) in [(1, 8), (8, 8), (3, 8), (9, 4), (5, 0)] {
            for (left, right) in
                [(None, None), (Some(0), None), (Some(3), Some(2)), (None, Some(1)), (Some(20), Some(20))]
            {
                for causal in [false, true] {
                    let visible = Visible::new(Window { left, right }, causal, q_len, kv_len);
                    let sees = |i: usize, j: usize| {
                        let (p, j) = (kv_len as i64 - q_len as i64 + i as i64, j as i64);
                        let right = if causal { Some(0) } else { right };
                        left.is_none_or(|left| p - i64::from(left) <= j)
                            && right.is_none_or(|right| j <= p + i64::from(right))
                    };
                    let rows: Vec<Vec<usize>> =
                        (0..q_len).map(|i| (0..kv_len).filter(|&j| sees(i, j)).collect()).collect();
                    for (i, row) in rows.iter().enumerate() {
                        assert_eq!(visible.of(i).collect::<Vec<_>>(), *row, "{visible:?} query {i}");
                    }
                    let blind = rows.iter().filter(|row| row.is_empty()).count();
                    assert!(kv_len == 0 || visible.blind() == blind, "{visible:?}");
                    assert_eq!(visible.is_full(), rows.iter().all(|row| row.len() == kv_len), "{visible:?}");
                }
            }
        }
    }
}
