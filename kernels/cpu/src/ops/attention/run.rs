//! From a checked call to its work.

#![expect(unsafe_code, reason = "looks sequences up by number")]

use half::{bf16, f16};

use super::block::Attention;
use super::options::Options;
use super::sequences::Sequences;
use super::{View, split};
use crate::call::{DType, Failed, Tensor, launch};
use crate::simd::Element;

/// A call whose arguments were checked, with at least one element of output.
#[derive(Debug)]
pub(super) struct Call<'a> {
    pub(super) function: &'static str,
    /// out, q, k, v.
    pub(super) tensors: [&'a Tensor; 4],
    pub(super) sequences: Sequences,
    pub(super) batch: usize,
    /// Heads, key/value heads and head size.
    pub(super) heads: [usize; 3],
    pub(super) options: Options,
}

impl Call<'_> {
    /// Runs the kernel.
    pub(super) fn run(&self) -> Result<(), Failed> {
        match self.tensors[1].dtype {
            DType::F32 => self.run_as::<f32>(),
            DType::Bf16 => self.run_as::<bf16>(),
            DType::F16 => self.run_as::<f16>(),
        }
    }

    fn run_as<E: Element>(&self) -> Result<(), Failed> {
        let [heads, kv_heads, head_dim] = self.heads;
        let window = self.options.window;
        let (mut max_q_len, mut max_keys) = (0, 0);
        // Products of a query and a key, and keys that are read, over all sequences.
        let (mut pairs, mut keys) = (0_u64, 0_u64);
        for index in 0..self.batch {
            // SAFETY: below `batch`.
            let sequence = unsafe { self.sequences.get(index) };
            if sequence.q_len == 0 {
                continue;
            }
            let seen = sequence.visible(0, window).start..sequence.visible(sequence.q_len - 1, window).end;
            max_q_len = max_q_len.max(sequence.q_len);
            max_keys = max_keys.max(seen.len());
            let per_query = seen.len().min(window.width());
            let whole = (per_query as u64).saturating_mul(sequence.q_len as u64);
            // A causal mask hides about half of the products.
            let causal = window.right == 0 && per_query == seen.len();
            pairs = pairs.saturating_add(if causal { whole / 2 } else { whole });
            keys = keys.saturating_add(seen.len() as u64);
        }
        let views = self.tensors.map(View::<E>::new);
        let job = Attention::new(views, (self.sequences, self.batch, max_q_len), self.heads, self.options);
        // About 80 multiply-adds, or 25 bytes of keys and values, per nanosecond, whichever takes longer.
        let products = pairs.saturating_mul(2 * (heads * head_dim) as u64);
        let bytes = keys.saturating_mul((2 * size_of::<E>() * kv_heads * head_dim) as u64);
        let cost = (products / 40).max(bytes / 25);
        match split::parts(&job, max_keys) {
            1 => launch(self.function, &job, job.items(), cost),
            parts => split::run(self.function, &job, parts, cost),
        }
    }
}
