//! `kernelhub/flash-attn2` with windows and caps, over packed sequences and over a paged cache.
#![expect(clippy::cast_possible_wrap, clippy::cast_sign_loss, reason = "positions of small tests")]

use kernelhub::bind::{AttentionOptions, BindError, LayerKernel, PagedKeys, TensorRef, Window};

use super::{Number, View, assert_close, for_each_dtype};
use crate::support::embedded;

fn options(causal: bool, left: Option<u32>, right: Option<u32>, softcap: f64) -> AttentionOptions {
    AttentionOptions { window: Window { left, right }, softcap, ..AttentionOptions::new(0.35, causal) }
}

const CASES: [(bool, Option<u32>, Option<u32>, f64); 6] = [
    (false, None, None, 0.0),
    (true, None, None, 0.0),
    (true, Some(3), None, 0.0),
    (false, Some(2), Some(1), 0.0),
    (false, None, None, 0.8),
    (true, Some(40), Some(7), 50.0),
];

/// One sequence by the definition, `[q_len, heads, head_dim]`: `q`, `k` and `v` answer (position, head, d).
fn formula(
    [q_len, kv_len]: [usize; 2],
    [heads, kv_heads, head_dim]: [usize; 3],
    options: &AttentionOptions,
    q: impl Fn(usize, usize, usize) -> f64,
    k: impl Fn(usize, usize, usize) -> f64,
    v: impl Fn(usize, usize, usize) -> f64,
) -> Vec<f64> {
    let mut out = Vec::new();
    for (i, h) in (0..q_len).flat_map(|i| (0..heads).map(move |h| (i, h))) {
        let g = h / (heads / kv_heads);
        let position = kv_len as i64 - q_len as i64 + i as i64;
        let right = if options.causal { Some(0) } else { options.window.right };
        let sees = |j: usize| {
            options.window.left.is_none_or(|left| position - i64::from(left) <= j as i64)
                && right.is_none_or(|right| j as i64 <= position + i64::from(right))
        };
        let score = |j: usize| {
            let score = (0..head_dim).map(|d| q(i, h, d) * k(j, g, d)).sum::<f64>() * options.softmax_scale;
            if options.softcap > 0.0 { options.softcap * (score / options.softcap).tanh() } else { score }
        };
        let scores: Vec<(usize, f64)> = (0..kv_len).filter(|&j| sees(j)).map(|j| (j, score(j))).collect();
        let highest = scores.iter().map(|(_, score)| *score).fold(f64::NEG_INFINITY, f64::max);
        let total: f64 = scores.iter().map(|(_, score)| (score - highest).exp()).sum();
        out.extend((0..head_dim).map(|d| {
            let sum: f64 = scores.iter().map(|(j, score)| (score - highest).exp() * v(*j, g, d)).sum();
            if scores.is_empty() { 0.0 } else { sum / total }
        }));
    }
    out
}

fn check_dense<T: Number>() {
    let Some(hub) = embedded::hub() else { return };
    let kernel = embedded::layer(hub, "flash-attn2", "FlashAttention");
    let LayerKernel::Attention(kernel) = &*kernel else { panic!("{kernel:?}") };
    for [q_len, kv_len] in [[1, 9], [9, 9], [5, 70], [6, 2]] {
        let q = View::<T>::contiguous(1, &[1, 4, q_len, 16]);
        let (k, v) = (View::<T>::contiguous(2, &[1, 2, kv_len, 16]), View::<T>::contiguous(3, &[1, 2, kv_len, 16]));
        for (causal, left, right, softcap) in CASES {
            let options = options(causal, left, right, softcap);
            let shape = [1, q_len, 4, 16];
            let actual = kernel.forward_to_vec::<T>(&q.tensor(), &k.tensor(), &v.tensor(), &shape, &options).unwrap();
            let expected = formula(
                [q_len, kv_len],
                [4, 2, 16],
                &options,
                |i, h, d| q.at(&[0, h, i, d]),
                |j, g, d| k.at(&[0, g, j, d]),
                |j, g, d| v.at(&[0, g, j, d]),
            );
            assert_close(&actual, &expected, &format!("{q_len} of {kv_len}, {options:?}"));
        }
    }
}

/// Rows `[rows, heads, head_dim]`.
fn starts(lengths: &[i32]) -> Vec<i32> {
    lengths.iter().fold(vec![0], |mut starts, length| {
        starts.push(starts[starts.len() - 1] + length);
        starts
    })
}

fn check_packed<T: Number>() {
    let Some(hub) = embedded::hub() else { return };
    let kernel = embedded::layer(hub, "flash-attn2", "FlashAttentionVarlen");
    let LayerKernel::AttentionVarlen(kernel) = &*kernel else { panic!("{kernel:?}") };
    for (q_lens, k_lens) in [(&[3, 5][..], &[3, 5][..]), (&[1, 0, 7, 2], &[80, 3, 0, 2]), (&[], &[])] {
        let (of_q, of_k) = (starts(q_lens), starts(k_lens));
        let rows = |starts: &[i32]| starts[starts.len() - 1] as usize;
        let q = View::<T>::contiguous(1, &[rows(&of_q), 4, 16]);
        // Rows at a distance, as of one projection for keys and values.
        let kv = |seed| View::<T>::strided(seed, &[rows(&of_k), 2, 16], &[70, 16, 1]);
        let (k, v) = (kv(2), kv(3));
        let counts = [[of_q.len()], [of_k.len()]];
        let cu_q = TensorRef::indices(&of_q, &counts[0]).unwrap();
        let cu_k = TensorRef::indices(&of_k, &counts[1]).unwrap();
        for (causal, left, right, softcap) in CASES {
            let options = options(causal, left, right, softcap);
            let shape = [rows(&of_q), 4, 16];
            let actual =
                kernel.forward_to_vec::<T>(&q.tensor(), &k.tensor(), &v.tensor(), [&cu_q, &cu_k], &shape, &options);
            let expected: Vec<f64> = (0..q_lens.len())
                .flat_map(|s| {
                    let (at_q, at_k) = (of_q[s] as usize, of_k[s] as usize);
                    formula(
                        [q_lens[s] as usize, k_lens[s] as usize],
                        [4, 2, 16],
                        &options,
                        |i, h, d| q.at(&[at_q + i, h, d]),
                        |j, g, d| k.at(&[at_k + j, g, d]),
                        |j, g, d| v.at(&[at_k + j, g, d]),
                    )
                })
                .collect();
            assert_close(&actual.unwrap(), &expected, &format!("{q_lens:?} of {k_lens:?}, {options:?}"));
        }
    }
}

fn check_paged<T: Number>() {
    let Some(hub) = embedded::hub() else { return };
    let kernel = embedded::layer(hub, "flash-attn2", "FlashAttentionPaged");
    let LayerKernel::AttentionPaged(kernel) = &*kernel else { panic!("{kernel:?}") };
    let (table, lengths) = ([4, 0, 5, 2, -1, -1, 1, 6, -9], [40, 7, 17]);
    let (k, v) = (View::<T>::contiguous(2, &[7, 16, 2, 16]), View::<T>::contiguous(3, &[7, 16, 2, 16]));
    let block_table = TensorRef::indices(&table, &[3, 3]).unwrap();
    let of_k = TensorRef::indices(&lengths, &[3]).unwrap();
    for q_len in [1, 5] {
        let q = View::<T>::strided(1, &[3, 4, q_len, 16], &[320, 16, 64, 1]);
        for (causal, left, right, softcap) in CASES {
            let options = options(causal, left, right, softcap);
            let (keys, values) = (k.tensor(), v.tensor());
            let paged = PagedKeys { keys: &keys, values: &values, block_table: &block_table, lengths: &of_k };
            let actual = kernel.forward_to_vec::<T>(&q.tensor(), &paged, &[3, q_len, 4, 16], &options).unwrap();
            let expected: Vec<f64> = (0..3)
                .flat_map(|s| {
                    let place = |j: usize| [table[s * 3 + j / 16] as usize, j % 16];
                    let at = |view: &View<T>, j: usize, g: usize, d: usize| {
                        let [block, inner] = place(j);
                        view.at(&[block, inner, g, d])
                    };
                    formula(
                        [q_len, lengths[s] as usize],
                        [4, 2, 16],
                        &options,
                        |i, h, d| q.at(&[s, h, i, d]),
                        |j, g, d| at(&k, j, g, d),
                        |j, g, d| at(&v, j, g, d),
                    )
                })
                .collect();
            assert_close(&actual, &expected, &format!("{q_len}, {options:?}"));
        }
    }
}

#[test]
fn windows_and_caps() {
    for_each_dtype!(check_dense());
}

#[test]
fn packed_sequences() {
    for_each_dtype!(check_packed());
}

#[test]
fn a_paged_cache() {
    for_each_dtype!(check_paged());
}

/// F49: lengths 3 and 5, causal.
#[test]
fn f49_causal_holds_in_packed_sequences() {
    let Some(hub) = embedded::hub() else { return };
    let kernel = embedded::layer(hub, "flash-attn2", "FlashAttentionVarlen");
    let LayerKernel::AttentionVarlen(kernel) = &*kernel else { panic!("{kernel:?}") };
    let cu = [0, 3, 8];
    let cu = TensorRef::indices(&cu, &[3]).unwrap();
    let (q, k) = (View::<f32>::contiguous(1, &[8, 2, 8]), View::<f32>::contiguous(2, &[8, 2, 8]));
    let run = |v: &View<f32>, causal| {
        let options = AttentionOptions::new(0.3, causal);
        let out = kernel.forward_to_vec::<f32>(&q.tensor(), &k.tensor(), &v.tensor(), [&cu, &cu], &[8, 2, 8], &options);
        out.unwrap().chunks(16).map(<[f32]>::to_vec).collect::<Vec<_>>()
    };
    let mut v = View::<f32>::contiguous(3, &[8, 2, 8]);
    let causal = run(&v, true);
    for first in [0, 3] {
        assert_eq!(causal[first], v.data[first * 16..(first + 1) * 16]);
    }
    assert_ne!(run(&v, false)[0], causal[0], "the flag does nothing");
    for last in [2, 7] {
        (0..2).for_each(|h| (0..8).for_each(|d| v.set(&[last, h, d], 9.0)));
    }
    for (row, (before, after)) in causal.iter().zip(run(&v, true)).enumerate() {
        assert_eq!(*before == after, row != 2 && row != 7, "row {row}");
    }
}

#[track_caller]
fn assert_index_error<T>(result: Result<T, BindError>, argument: &str, at: usize, value: i64) {
    match result {
        Err(BindError::Index { argument: named, position, actual, .. }) => {
            assert_eq!((named, position, actual), (argument, at, value));
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was not refused"),
    }
}

#[test]
fn lengths_and_tables_that_leave_their_tensors_are_refused_before_the_call() {
    let Some(hub) = embedded::hub() else { return };
    let kernel = embedded::layer(hub, "flash-attn2", "FlashAttentionVarlen");
    let LayerKernel::AttentionVarlen(kernel) = &*kernel else { panic!("{kernel:?}") };
    let rows = View::<f32>::contiguous(1, &[8, 2, 8]);
    let options = AttentionOptions::new(0.3, true);
    let run = |of_q: &[i32], of_k: &[i32]| {
        let x = rows.tensor();
        let counts = [[of_q.len()], [of_k.len()]];
        let (of_q, of_k) = (TensorRef::indices(of_q, &counts[0])?, TensorRef::indices(of_k, &counts[1])?);
        kernel.forward_to_vec::<f32>(&x, &x, &x, [&of_q, &of_k], &[8, 2, 8], &options)
    };
    let good = [0, 3, 8];
    assert!(run(&good, &[0, 3, 7]).is_ok());
    assert_index_error(run(&[0, 9, 8], &good), "cu_seqlens_q", 1, 9);
    assert_index_error(run(&[0, 5, 3], &good), "cu_seqlens_q", 2, 3);
    assert_index_error(run(&[0, 3, 7], &good), "cu_seqlens_q", 2, 7);
    assert_index_error(run(&[1, 3, 8], &good), "cu_seqlens_q", 0, 1);
    assert_index_error(run(&good, &[0, 3, 9]), "cu_seqlens_k", 2, 9);
    assert_index_error(run(&good, &[0, -3, 8]), "cu_seqlens_k", 1, -3);
    assert!(matches!(run(&[], &good), Err(BindError::Shape { argument: "cu_seqlens_q", .. })));
    assert!(matches!(run(&good, &[0, 8]), Err(BindError::Shape { argument: "cu_seqlens_k", .. })));

    let kernel = embedded::layer(hub, "flash-attn2", "FlashAttentionPaged");
    let LayerKernel::AttentionPaged(kernel) = &*kernel else { panic!("{kernel:?}") };
    let (cache, q) = (View::<f32>::contiguous(1, &[4, 2, 2, 8]), View::<f32>::contiguous(2, &[2, 2, 1, 8]));
    let run = |table: &[i32], lengths: &[i32]| {
        let (keys, q) = (cache.tensor(), q.tensor());
        let table = TensorRef::indices(table, &[2, 2])?;
        let count = [lengths.len()];
        let lengths = TensorRef::indices(lengths, &count)?;
        let paged = PagedKeys { keys: &keys, values: &keys, block_table: &table, lengths: &lengths };
        kernel.forward_to_vec::<f32>(&q, &paged, &[2, 1, 2, 8], &options)
    };
    assert!(run(&[0, 3, 1, -1], &[4, 2]).is_ok());
    assert_index_error(run(&[0, 4, 1, -1], &[4, 2]), "block_table", 1, 4);
    assert_index_error(run(&[0, 3, 1, -1], &[4, 3]), "block_table", 3, -1);
    assert_index_error(run(&[0, 3, 1, -1], &[5, 2]), "seqlens_k", 0, 5);
    assert_index_error(run(&[0, 3, 1, -1], &[4, -1]), "seqlens_k", 1, -1);
    assert!(matches!(run(&[0, 3, 1, -1], &[4]), Err(BindError::Shape { argument: "seqlens_k", .. })));
}
