mod options;
mod paged;
mod reference;
mod varlen;

use kernelhub_cpu::flash_attn;

use crate::support::{Arg, DTYPES, Dt, Tensor, at_every_level, call};

/// `[batch, q_len, heads, head_dim]` and the keys' length and heads.
#[derive(Debug, Clone, Copy)]
struct Size {
    batch: i64,
    q_len: i64,
    heads: i64,
    kv_len: i64,
    kv_heads: i64,
    head_dim: i64,
}

const fn size(batch: i64, q_len: i64, heads: i64, kv_len: i64, kv_heads: i64, head_dim: i64) -> Size {
    Size { batch, q_len, heads, kv_len, kv_heads, head_dim }
}

impl Size {
    fn tensors(self, dtype: Dt, seed: u64) -> [Tensor; 4] {
        let q_shape = [self.batch, self.q_len, self.heads, self.head_dim];
        let k_shape = [self.batch, self.kv_len, self.kv_heads, self.head_dim];
        [
            Tensor::new(dtype, &q_shape),
            Tensor::random(dtype, &q_shape, seed),
            Tensor::random(dtype, &k_shape, seed + 1),
            Tensor::random(dtype, &k_shape, seed + 2),
        ]
    }
}

fn run(tensors: &[Tensor; 4], scale: f64, causal: bool) -> Result<(), String> {
    let [out, q, k, v] = tensors;
    call(flash_attn, &[Arg::T(out), Arg::T(q), Arg::T(k), Arg::T(v), Arg::F(scale), Arg::B(causal)])
}

/// The whole output in f64, with the scores of a row in memory.
fn reference(tensors: &[Tensor; 4], scale: f64, causal: bool) -> Vec<f64> {
    let [_, q, k, v] = tensors;
    let [batch, q_len, heads, head_dim] = q.shape[..] else { panic!("rank 4") };
    let (kv_len, kv_heads) = (k.shape[1], k.shape[2]);
    let mut output = Vec::new();
    for b in 0..batch {
        for i in 0..q_len {
            for h in 0..heads {
                let g = h / (heads / kv_heads);
                let seen = if causal { (kv_len - q_len + i + 1).clamp(0, kv_len) } else { kv_len };
                let scores: Vec<f64> = (0..seen)
                    .map(|j| (0..head_dim).map(|d| q.get(&[b, i, h, d]) * k.get(&[b, j, g, d])).sum::<f64>() * scale)
                    .collect();
                let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let weights: Vec<f64> = scores.iter().map(|score| (score - max).exp()).collect();
                let sum: f64 = weights.iter().sum();
                for d in 0..head_dim {
                    let weighted: f64 = weights.iter().zip(0..).map(|(w, j)| w * v.get(&[b, j, g, d])).sum();
                    output.push(if seen == 0 { 0.0 } else { weighted / sum });
                }
            }
        }
    }
    output
}

fn check(tensors: &[Tensor; 4], scale: f64, causal: bool, what: &str) {
    run(tensors, scale, causal).expect(what);
    let expected = reference(tensors, scale, causal);
    let out = &tensors[0];
    let dense = crate::support::row_major(&out.shape);
    let at = |index: &[i64]| expected[index.iter().zip(&dense).map(|(i, s)| i * s).sum::<i64>() as usize];
    out.expect(at, what);
}

#[test]
fn agrees_with_f64_over_sizes() {
    let sizes = [
        size(1, 1, 1, 1, 1, 1),
        size(1, 1, 9, 65, 3, 64),
        size(2, 1, 4, 200, 4, 80),
        size(1, 2, 3, 130, 1, 33),
        size(1, 7, 7, 7, 7, 17),
        size(1, 40, 6, 40, 2, 64),
        size(2, 33, 4, 70, 1, 63),
        size(1, 100, 2, 100, 1, 16),
        size(1, 5, 2, 3, 2, 128),
        size(1, 70, 2, 20, 1, 8),
        size(1, 3, 71, 20, 1, 192),
        size(1, 60, 1, 129, 1, 256),
        size(1, 1, 2, 70, 1, 255),
        // Enough keys to be split: one row, several that see different numbers of them, many heads.
        size(1, 1, 9, 2053, 3, 64),
        size(1, 3, 2, 2100, 1, 40),
        size(2, 1, 3, 2050, 3, 16),
    ];
    at_every_level(|level| {
        for dtype in DTYPES {
            for size in sizes {
                for causal in [false, true] {
                    let scale = 1.0 / (size.head_dim as f64).sqrt();
                    check(&size.tensors(dtype, 1), scale, causal, &format!("{level:?} {size:?} causal {causal}"));
                }
            }
        }
    });
}

#[test]
fn reads_a_heads_first_cache_and_other_strides_without_a_copy() {
    at_every_level(|level| {
        for dtype in DTYPES {
            for (q_len, head_dim) in [(1, 64), (1, 20), (30, 64), (30, 20)] {
                let base = |seed| Tensor::random(dtype, &[60_000], seed);
                // A cache [batch, kv_heads, 100, head_dim] of which 77 positions are filled, as [b, s, h, d].
                let shape = [2, 77, 3, head_dim];
                let strides = [3 * 100 * head_dim, head_dim, 100 * head_dim, 1];
                let (k, v) = (base(10).view(&shape, &strides, 3), base(11).view(&shape, &strides, 5));
                let shape = [2, q_len, 6, head_dim];
                let q = base(12).view(&shape, &[6 * q_len * head_dim, head_dim, q_len * head_dim, 1], 1);
                let out = base(13).view(&shape, &[26_000, 840, 132, 1], 1);
                check(&[out, q.clone(), k, v], 0.2, true, &format!("{level:?} q_len {q_len} head_dim {head_dim}"));
                // One key and value head for all batches, and keys from last to first.
                let one = base(14).view(&[2, 77, 3, head_dim], &[0, -300, head_dim, 1], 50_000);
                let out = Tensor::new(dtype, &shape);
                check(&[out, q, one.clone(), one], 0.2, false, &format!("{level:?} reversed"));
            }
        }
    });
}

#[test]
fn the_causal_flag_matters_and_hides_what_comes_later() {
    at_every_level(|level| {
        for dtype in DTYPES {
            for q_len in [2, 50] {
                let tensors = size(1, q_len, 4, q_len, 2, 32).tensors(dtype, 20);
                let [out, _, k, v] = &tensors;
                run(&tensors, 0.3, false).expect("full");
                let full = out.values();
                run(&tensors, 0.3, true).expect("causal");
                let causal = out.values();
                assert_ne!(full, causal);
                // Whatever stands in the last key and value, even infinity and NaN, earlier rows must not see.
                for value in [3.0, f64::INFINITY, f64::NAN] {
                    for d in 0..32 {
                        k.set(&[0, q_len - 1, 0, d], value);
                        v.set(&[0, q_len - 1, 0, d], value);
                        v.set(&[0, q_len - 1, 1, d], value);
                    }
                    run(&tensors, 0.3, true).expect("causal");
                    let changed = out.values();
                    let earlier = (q_len as usize - 1) * 4 * 32;
                    assert_eq!(causal[..earlier], changed[..earlier], "{level:?} {dtype:?} last = {value}");
                    assert_ne!(causal[earlier..], changed[earlier..]);
                }
            }
        }
    });
}

#[test]
fn non_finite_values_follow_the_reference() {
    at_every_level(|level| {
        for (q_len, kv_len) in [(1, 70), (20, 70)] {
            for special in [f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
                for place in [0, 69] {
                    let [out, q, k, v] = size(1, q_len, 2, kv_len, 1, 16).tensors(Dt::F32, 30);
                    v.set(&[0, place, 0, 3], special);
                    let tensors = [out, q, k, v];
                    check(&tensors, 0.25, true, &format!("{level:?} v {special} at {place}"));
                    // One score of -inf per row; then all scores of the first tile.
                    let [out, q, k, v] = size(1, q_len, 2, kv_len, 1, 16).tensors(Dt::F32, 31);
                    q.fill(|_| 1.0);
                    k.set(&[0, place, 0, 3], special);
                    check(&[out, q, k, v], 0.25, true, &format!("{level:?} k {special} at {place}"));
                }
            }
        }
        for (q_len, kv_len, hidden) in [(1, 70, 64), (20, 70, 64), (1, 2100, 1100), (1, 2100, 2100)] {
            let [out, q, k, v] = size(1, q_len, 2, kv_len, 1, 16).tensors(Dt::F32, 32);
            q.fill(|_| 1.0);
            (0..hidden).for_each(|j| k.set(&[0, j, 0, 0], f64::NEG_INFINITY));
            check(&[out, q, k, v], 0.25, false, &format!("{level:?} first {hidden} of {kv_len} all -inf"));
        }
    });
}

#[test]
fn large_scores_neither_overflow_nor_lose_the_maximum() {
    at_every_level(|level| {
        for scale in [0.0, -1.0, 40.0, 1000.0] {
            let tensors = size(1, 9, 4, 150, 2, 48).tensors(Dt::F32, 40);
            run(&tensors, scale, false).expect("large");
            let expected = reference(&tensors, scale, false);
            for (actual, expected) in tensors[0].values().into_iter().zip(expected) {
                // Scores of the size of `40 * scale` carry that much rounding of f32 into the weights.
                let bound = 1e-5 + 40.0 * scale.abs() * 3e-7;
                assert!((actual - expected).abs() <= bound, "{level:?} scale {scale}: {expected} {actual}");
            }
        }
    });
}

#[test]
fn no_key_gives_zeros_and_empty_outputs_return_at_once() {
    at_every_level(|_| {
        for dtype in DTYPES {
            for causal in [false, true] {
                let tensors = size(2, 3, 4, 0, 2, 24).tensors(dtype, 50);
                run(&tensors, 1.0, causal).expect("kv_len 0");
                assert!(tensors[0].values().iter().all(|&value| value == 0.0));
            }
            // Queries 0 and 1 of 5 stand before all 3 keys.
            let tensors = size(1, 5, 2, 3, 1, 24).tensors(dtype, 51);
            run(&tensors, 1.0, true).expect("early rows");
            assert!(tensors[0].values()[..2 * 2 * 24].iter().all(|&value| value == 0.0));
            for empty in
                [size(0, 3, 4, 5, 2, 8), size(1, 0, 4, 5, 2, 8), size(1, 3, 0, 5, 0, 8), size(1, 3, 4, 5, 2, 0)]
            {
                run(&empty.tensors(dtype, 52), 1.0, true).expect("empty");
            }
        }
    });
}

#[test]
fn a_call_fits_the_documented_stack() {
    at_every_level(|level| {
        let run = move || {
            for dtype in DTYPES {
                for size in [size(1, 1, 6, 2100, 1, 256), size(1, 80, 6, 80, 2, 256)] {
                    run(&size.tensors(dtype, 60), 0.1, true).expect("runs");
                }
            }
        };
        // The documented 512 KiB, and a little for this closure and its vectors.
        let thread = std::thread::Builder::new().stack_size((512 + 32) << 10).spawn(run).expect("thread");
        thread.join().unwrap_or_else(|_| panic!("{level:?}"));
    });
}
