//! Attention over packed sequences and over a cache in blocks.

use super::ParityError;
use super::attention::{attend, instead, options};
use super::compare::{Case, Checker, exact};
use super::number::Number;
use super::sample::{Layout, Sample, collect, widths};
use crate::bind::{AttentionOptions, AttentionPagedKernel, AttentionVarlenKernel, PagedKeys, TensorRef};

const HEADS: usize = 4;
const KV_HEADS: usize = 2;

/// Sequences of queries and keys: as many of both, fewer queries, none at all, one of each.
const Q_LENGTHS: [usize; 4] = [3, 2, 0, 1];
const K_LENGTHS: [usize; 4] = [3, 5, 2, 1];

/// Where each sequence starts, and where the last one ends.
fn starts(lengths: &[usize]) -> Vec<usize> {
    lengths.iter().fold(vec![0], |mut starts, length| {
        starts.push(starts.last().copied().unwrap_or_default() + length);
        starts
    })
}

fn indices(values: &[usize]) -> Vec<i32> {
    values.iter().map(|value| i32::try_from(*value).unwrap_or_default()).collect()
}

/// The position of query `row` of `q_len` beside `kv_len` keys.
fn position(row: usize, q_len: usize, kv_len: usize) -> i64 {
    let signed = |length: usize| i64::try_from(length).unwrap_or_default();
    signed(kv_len) - signed(q_len) + signed(row)
}

pub(super) fn varlen<T: Number>(kernel: &AttentionVarlenKernel, checker: &mut Checker<'_>) -> Result<(), ParityError> {
    let meta = checker.meta;
    let (q_starts, k_starts) = (starts(&Q_LENGTHS), starts(&K_LENGTHS));
    let (total_q, total_k) = (q_starts[Q_LENGTHS.len()], k_starts[K_LENGTHS.len()]);
    let (cu_q, cu_k) = (indices(&q_starts), indices(&k_starts));
    for head_dim in widths::<T>(meta) {
        for is_swapped in [false, true] {
            let layout = |rows: usize, heads: usize| {
                if is_swapped {
                    Layout::contiguous(&[heads, rows, head_dim]).with_axes_swapped(0, 1)
                } else {
                    Layout::contiguous(&[rows, heads, head_dim])
                }
            };
            let q = Sample::<T>::new(meta, &mut checker.noise, 1.0, &layout(total_q, HEADS));
            let k = Sample::<T>::new(meta, &mut checker.noise, 1.0, &layout(total_k, KV_HEADS));
            let v = Sample::<T>::new(meta, &mut checker.noise, 1.0, &layout(total_k, KV_HEADS));
            let (queries, keys, values) = (q.values(), k.values(), v.values());
            let of = |options: &AttentionOptions| {
                let mut out = Vec::with_capacity(queries.len());
                for (sequence, (q_len, kv_len)) in Q_LENGTHS.into_iter().zip(K_LENGTHS).enumerate() {
                    for (i, h) in (0..q_len).flat_map(|i| (0..HEADS).map(move |h| (i, h))) {
                        let query = &queries[((q_starts[sequence] + i) * HEADS + h) * head_dim..][..head_dim];
                        let group = h / (HEADS / KV_HEADS);
                        let at = |j: usize, d: usize| ((k_starts[sequence] + j) * KV_HEADS + group) * head_dim + d;
                        let (keys, values) = (|j, d| keys[at(j, d)], |j, d| values[at(j, d)]);
                        out.extend(attend(query, position(i, q_len, kv_len), kv_len, keys, values, options));
                    }
                }
                out
            };
            let name = layout(total_q, HEADS).name;
            for (option, options) in options(meta) {
                let case = Case::forward(&format!(
                    "sequences of {Q_LENGTHS:?} queries and {K_LENGTHS:?} keys, head_dim {head_dim}, {name}, {option}"
                ));
                let outcome = collect(meta, &[total_q, HEADS, head_dim], |out| {
                    let lengths = [[cu_q.len()], [cu_k.len()]];
                    let cu_q = TensorRef::indices(&cu_q, &lengths[0])?;
                    let cu_k = TensorRef::indices(&cu_k, &lengths[1])?;
                    kernel.forward(out, &q.tensor()?, &k.tensor()?, &v.tensor()?, [&cu_q, &cu_k], &options)
                });
                let actual = checker.written::<T, T>(&case, outcome)?;
                checker.compare::<T, T>(&case, &actual, &exact(of(&options)), || instead(options, of))?;
            }
        }
    }
    Ok(())
}

/// Keys of each sequence: a block and a half, and less than one. The blocks do not stand in order, one is nobody's, and
/// the second sequence has no second block.
const LENGTHS: [usize; 2] = [6, 3];
const BLOCKS: usize = 5;
const BLOCK_SIZE: usize = 4;
const TABLE: [[i32; 2]; 2] = [[3, 0], [1, -1]];

pub(super) fn paged<T: Number>(kernel: &AttentionPagedKernel, checker: &mut Checker<'_>) -> Result<(), ParityError> {
    let meta = checker.meta;
    let (batch, table, lengths) = (LENGTHS.len(), TABLE.concat(), indices(&LENGTHS));
    for head_dim in widths::<T>(meta) {
        for q_len in [1, 3] {
            let q = Layout::contiguous(&[batch, HEADS, q_len, head_dim]);
            let cache = Layout::contiguous(&[BLOCKS, BLOCK_SIZE, KV_HEADS, head_dim]);
            let q = Sample::<T>::new(meta, &mut checker.noise, 1.0, &q);
            let k = Sample::<T>::new(meta, &mut checker.noise, 1.0, &cache);
            let v = Sample::<T>::new(meta, &mut checker.noise, 1.0, &cache);
            let (queries, keys, values) = (q.values(), k.values(), v.values());
            let of = |options: &AttentionOptions| {
                let mut out = Vec::with_capacity(queries.len());
                for (b, kv_len) in LENGTHS.into_iter().enumerate() {
                    for (i, h) in (0..q_len).flat_map(|i| (0..HEADS).map(move |h| (i, h))) {
                        let query = &queries[((b * HEADS + h) * q_len + i) * head_dim..][..head_dim];
                        let group = h / (HEADS / KV_HEADS);
                        let at = |j: usize, d: usize| {
                            let block = usize::try_from(TABLE[b][j / BLOCK_SIZE]).unwrap_or_default();
                            ((block * BLOCK_SIZE + j % BLOCK_SIZE) * KV_HEADS + group) * head_dim + d
                        };
                        let (keys, values) = (|j, d| keys[at(j, d)], |j, d| values[at(j, d)]);
                        out.extend(attend(query, position(i, q_len, kv_len), kv_len, keys, values, options));
                    }
                }
                out
            };
            for (option, options) in options(meta) {
                let case = Case::forward(&format!(
                    "{q_len} queries each of sequences of {LENGTHS:?} keys, blocks of {BLOCK_SIZE}, head_dim {head_dim}, {option}"
                ));
                let outcome = collect(meta, &[batch, q_len, HEADS, head_dim], |out| {
                    let (table_shape, lengths_shape) = ([batch, 2], [batch]);
                    let paged = PagedKeys {
                        keys: &k.tensor()?,
                        values: &v.tensor()?,
                        block_table: &TensorRef::indices(&table, &table_shape)?,
                        lengths: &TensorRef::indices(&lengths, &lengths_shape)?,
                    };
                    kernel.forward(out, &q.tensor()?, &paged, &options)
                });
                let actual = checker.written::<T, T>(&case, outcome)?;
                checker.compare::<T, T>(&case, &actual, &exact(of(&options)), || instead(options, of))?;
            }
        }
    }
    Ok(())
}
