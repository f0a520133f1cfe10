//! Scaled dot-product attention with grouped heads.

use std::ops::Range;

use super::error::check_plan;
use super::linear::dot;
use super::norm::spec;
use super::{Array, ArrayMut, AttentionOptions, Number, SliceError};
use crate::bind::Contract;
use crate::swap::{Plan, Slot, Slots};

const LAYER: &str = "FlashAttention";
/// Elements of a head that the reference adds up at a time, on the stack.
const BLOCK: usize = 64;

/// `softmax(q · kᵀ * scale) · v`, as [`Contract::Attention`] defines it, with its options.
///
/// # Shapes
/// Queries `[batch, heads, q_len, head_dim]`, keys and values `[batch, kv_heads, kv_len, head_dim]`, output
/// `[batch, q_len, heads, head_dim]`; `heads` is a multiple of `kv_heads`.
#[derive(Debug, Clone)]
pub struct Attention {
    options: AttentionOptions,
    slot: Slot,
}

/// The extents of one call.
struct Extents {
    heads: usize,
    group: usize,
    q_len: usize,
    kv_len: usize,
    head_dim: usize,
}

impl Attention {
    /// Attention over heads of `head_dim` elements of `T`, in the slot `path` of the model. A window and a softcap are
    /// options that a kernel must have to take the layer.
    pub fn new<T: Number>(options: AttentionOptions, head_dim: usize, slots: &Slots, path: impl Into<String>) -> Self {
        let needed = [
            ("window_left", options.window.left.is_some()),
            ("window_right", options.window.right.is_some()),
            ("softcap", options.softcap != 0.0),
        ];
        let needed = needed.into_iter().filter(|(_, is_needed)| *is_needed).map(|(name, _)| name).collect();
        let slot = slots.slot(spec::<T>(path, LAYER, Contract::Attention, head_dim, needed));
        Self { options, slot }
    }

    /// Attends, under the plan of the scope that the thread is in, or else the current one.
    ///
    /// # Errors
    /// [`SliceError::Shape`], or [`SliceError::Kernel`] from the kernel.
    pub fn forward<T: Number>(
        &self,
        out: &mut ArrayMut<'_, T>,
        q: &Array<'_, T>,
        k: &Array<'_, T>,
        v: &Array<'_, T>,
    ) -> Result<(), SliceError> {
        self.slot.with_plan(|plan| self.forward_in(plan, out, q, k, v))
    }

    /// Attends, under the plan that the model pinned.
    ///
    /// # Errors
    /// As [`Self::forward`].
    pub fn forward_in<T: Number>(
        &self,
        plan: &Plan,
        out: &mut ArrayMut<'_, T>,
        q: &Array<'_, T>,
        k: &Array<'_, T>,
        v: &Array<'_, T>,
    ) -> Result<(), SliceError> {
        check_plan(plan, &self.slot, LAYER)?;
        let Some(kernel) = plan.attention(&self.slot) else { return self.forward_reference(out, q, k, v) };
        let result = out
            .tensor()
            .and_then(|mut out| kernel.forward(&mut out, &q.tensor()?, &k.tensor()?, &v.tensor()?, &self.options));
        result.map_err(|source| SliceError::kernel(LAYER, source))
    }

    /// Attends in plain Rust. The scores of a query are computed anew for every 64 elements of its head, so that none
    /// have to be kept.
    ///
    /// # Errors
    /// [`SliceError::Shape`].
    pub fn forward_reference<T: Number>(
        &self,
        out: &mut ArrayMut<'_, T>,
        q: &Array<'_, T>,
        k: &Array<'_, T>,
        v: &Array<'_, T>,
    ) -> Result<(), SliceError> {
        let Extents { heads, group, q_len, kv_len, head_dim } = check(out, q, k, v)?;
        if head_dim == 0 {
            return Ok(());
        }
        for (index, out) in out.data.chunks_exact_mut(head_dim).enumerate() {
            // `[batch, q_len, heads]`, row-major.
            let (batch, query, head) = (index / heads / q_len, index / heads % q_len, index % heads);
            let query_row = &q.data[((batch * heads + head) * q_len + query) * head_dim..][..head_dim];
            let first_key = (batch * (heads / group) + head / group) * kv_len;
            let seen = self.seen(query, q_len, kv_len);
            let score = |key: usize| self.score(dot(query_row, &k.data[(first_key + key) * head_dim..][..head_dim]));
            let largest = seen.clone().map(score).fold(f32::NEG_INFINITY, f32::max);
            for (start, out) in (0..).step_by(BLOCK).zip(out.chunks_mut(BLOCK)) {
                let (mut sums, mut total) = ([0.0_f32; BLOCK], 0.0);
                for key in seen.clone() {
                    let weight = (score(key) - largest).exp();
                    total += weight;
                    let values = &v.data[(first_key + key) * head_dim + start..][..out.len()];
                    for (sum, value) in sums.iter_mut().zip(values) {
                        *sum += weight * value.to_f32();
                    }
                }
                for (out, sum) in out.iter_mut().zip(sums) {
                    // A query that sees no key gives zeros.
                    *out = T::from_f32(if seen.is_empty() { 0.0 } else { sum / total });
                }
            }
        }
        Ok(())
    }

    #[expect(clippy::cast_possible_truncation, reason = "scores are f32, as the sums are")]
    fn score(&self, product: f32) -> f32 {
        let (score, softcap) = (product * self.options.softmax_scale as f32, self.options.softcap as f32);
        if softcap > 0.0 { softcap * (score / softcap).tanh() } else { score }
    }

    /// The keys that a query sees.
    fn seen(&self, query: usize, q_len: usize, kv_len: usize) -> Range<usize> {
        let window = self.options.window;
        // The position counts from the first key, and is below it where there are more queries than keys.
        let (position, bound) = ((kv_len + query) as i128 - q_len as i128, |keys: u32| i128::from(keys));
        let first = window.left.map_or(0, |left| position - bound(left));
        let right = window.right.map(bound).into_iter().chain(self.options.causal.then_some(0)).min();
        let end = right.map_or(kv_len as i128, |right| position + right + 1);
        let within = |key: i128| usize::try_from(key.clamp(0, kv_len as i128)).unwrap_or(kv_len);
        within(first)..within(end).max(within(first))
    }
}

/// Refuses what does not fit together.
fn check<T>(
    out: &ArrayMut<'_, T>,
    q: &Array<'_, T>,
    k: &Array<'_, T>,
    v: &Array<'_, T>,
) -> Result<Extents, SliceError> {
    let &[batch, heads, q_len, head_dim] = q.shape else {
        return Err(SliceError::shape(LAYER, "q", "[batch, heads, q_len, head_dim]".to_owned(), q.shape));
    };
    let (kv_heads, kv_len) = match *k.shape {
        [of, kv_heads, kv_len, width]
            if of == batch && width == head_dim && kv_heads > 0 && heads.is_multiple_of(kv_heads) =>
        {
            (kv_heads, kv_len)
        }
        _ => {
            let expected = format!("[{batch}, a divisor of {heads}, kv_len, {head_dim}]");
            return Err(SliceError::shape(LAYER, "k", expected, k.shape));
        }
    };
    if v.shape != k.shape {
        return Err(SliceError::shape(LAYER, "v", format!("{:?} like k", k.shape), v.shape));
    }
    if *out.shape != [batch, q_len, heads, head_dim] {
        let expected = format!("[{batch}, {q_len}, {heads}, {head_dim}]");
        return Err(SliceError::shape(LAYER, "out", expected, out.shape));
    }
    Ok(Extents { heads, group: heads / kv_heads, q_len, kv_len, head_dim })
}
