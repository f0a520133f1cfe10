//! `kernelhub/flash-attn2`.

use kernelhub::bind::{AttentionKernel, AttentionOptions, LayerKernel};

use super::{Number, View, assert_close, for_each_dtype};
use crate::support::embedded;

/// `[batch, q_len, heads, head_dim]` in row order. Query `i` of a causal call sees keys up to `kv_len - q_len + i`.
fn formula<T: Number>(q: &View<T>, k: &View<T>, v: &View<T>, scale: f64, causal: bool) -> Vec<f64> {
    let (&[batch, heads, q_len, head_dim], &[_, kv_heads, kv_len, _]) = (&q.shape[..], &k.shape[..]) else {
        unreachable!()
    };
    let mut out = Vec::new();
    for b in 0..batch {
        for i in 0..q_len {
            for h in 0..heads {
                let g = h / (heads / kv_heads);
                let seen = if causal { (kv_len + i + 1).saturating_sub(q_len).min(kv_len) } else { kv_len };
                let scores: Vec<f64> = (0..seen)
                    .map(|j| (0..head_dim).map(|d| q.at(&[b, h, i, d]) * k.at(&[b, g, j, d])).sum::<f64>() * scale)
                    .collect();
                let highest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let weights: Vec<f64> = scores.iter().map(|score| (score - highest).exp()).collect();
                let total: f64 = weights.iter().sum();
                out.extend((0..head_dim).map(|d| {
                    let sum: f64 = weights.iter().enumerate().map(|(j, weight)| weight * v.at(&[b, g, j, d])).sum();
                    if seen == 0 { 0.0 } else { sum / total }
                }));
            }
        }
    }
    out
}

fn run<T: Number>(kernel: &AttentionKernel, [q, k, v]: [&View<T>; 3], scale: f64, causal: bool) -> Vec<T> {
    let shape = [q.shape[0], q.shape[2], q.shape[1], q.shape[3]];
    kernel
        .forward_to_vec::<T>(&q.tensor(), &k.tensor(), &v.tensor(), &shape, &AttentionOptions::new(scale, causal))
        .unwrap()
}

fn check<T: Number>(kernel: &AttentionKernel, inputs: [&View<T>; 3], what: &str) {
    let [q, k, v] = inputs;
    let scale = 1.0 / (q.shape[3].max(1) as f64).sqrt();
    for causal in [false, true] {
        let actual = run(kernel, inputs, scale, causal);
        let what = format!("{what}, causal {causal}, q {:?}, k {:?}", q.shape, k.shape);
        assert_close(&actual, &formula(q, k, v, scale, causal), &what);
    }
}

fn contiguous<T: Number>([batch, heads, kv_heads, q_len, kv_len, head_dim]: [usize; 6]) -> [View<T>; 3] {
    let kv = [batch, kv_heads, kv_len, head_dim];
    [View::contiguous(1, &[batch, heads, q_len, head_dim]), View::contiguous(2, &kv), View::contiguous(3, &kv)]
}

fn check_all<T: Number>(kernel: &AttentionKernel) {
    // Batch, heads, kv_heads, q_len, kv_len, head_dim.
    for sizes in [
        [1, 1, 1, 1, 1, 1],
        [1, 2, 2, 5, 5, 7],
        [2, 6, 2, 4, 9, 16],
        [1, 4, 1, 1, 33, 64],
        [1, 3, 3, 7, 3, 20],
        [1, 2, 1, 33, 70, 80],
        [1, 1, 1, 3, 129, 256],
        [1, 2, 1, 3, 0, 8],
        [1, 2, 1, 0, 3, 8],
        [0, 2, 1, 3, 3, 8],
    ] {
        let [q, k, v] = contiguous::<T>(sizes);
        check(kernel, [&q, &k, &v], "contiguous");
    }
    // A projection's transposed output, and a cache's view: rows of more positions than are held.
    let q = View::<T>::strided(4, &[2, 4, 5, 16], &[320, 16, 64, 1]);
    let kv = |seed| View::<T>::strided(seed, &[2, 2, 6, 16], &[2 * 40 * 16, 40 * 16, 16, 1]);
    check(kernel, [&q, &kv(5), &kv(6)], "strided");
    let shared = |seed| View::<T>::strided(seed, &[2, 2, 6, 16], &[0, 0, 16, 1]);
    check(kernel, [&q, &shared(5), &shared(6)], "broadcast");
    let row = |seed| View::<T>::strided(seed, &[2, 2, 6, 16], &[16, 16, 0, 1]);
    check(kernel, [&q, &row(5), &row(6)], "one key for all");
}

/// The flag is not ignored, and what a query does not see does not reach it.
fn check_mask<T: Number>(kernel: &AttentionKernel) {
    let [q, k, mut v] = contiguous::<T>([1, 2, 1, 5, 5, 8]);
    let causal = run(kernel, [&q, &k, &v], 0.4, true);
    assert!(causal.iter().zip(run(kernel, [&q, &k, &v], 0.4, false)).any(|(a, b)| (a.wide() - b.wide()).abs() > 0.1));
    let first: Vec<f64> = (0..2).flat_map(|_| (0..8).map(|d| v.at(&[0, 0, 0, d])).collect::<Vec<_>>()).collect();
    assert_close(&causal[..16], &first, "the first query sees the first key alone");
    let mut k = k;
    for d in 0..8 {
        v.set(&[0, 0, 4, d], f64::NAN);
        k.set(&[0, 0, 4, d], f64::INFINITY);
    }
    let with_bad_end = run(kernel, [&q, &k, &v], 0.4, true);
    for (at, (before, after)) in causal[..64].iter().zip(&with_bad_end).enumerate() {
        assert!(before.wide().total_cmp(&after.wide()).is_eq(), "{}, element {at}: a masked key reaches it", T::DTYPE);
    }
    assert!(with_bad_end[64..].iter().all(|value| value.wide().is_nan()), "the last query sees it");
}

fn kernel(run: impl FnOnce(&AttentionKernel)) {
    let Some(hub) = embedded::hub() else { return };
    let kernel = embedded::layer(hub, "flash-attn2", "FlashAttention");
    let LayerKernel::Attention(kernel) = &*kernel else { panic!("{kernel:?}") };
    run(kernel);
}

#[test]
fn attention() {
    kernel(|kernel| for_each_dtype!(check_all(kernel)));
}

#[test]
fn the_causal_flag_matters_and_masked_keys_do_not() {
    kernel(|kernel| for_each_dtype!(check_mask(kernel)));
}

#[test]
fn large_scores_do_not_overflow() {
    kernel(|kernel| {
        let [q, k, v] = contiguous::<f32>([1, 1, 1, 3, 40, 16]);
        let actual = run(kernel, [&q, &k, &v], 500.0, false);
        assert!(actual.iter().all(|value| value.is_finite()), "{actual:?}");
    });
}
