//! `flash_attn_options`: windows, caps, head sizes.

use std::time::Instant;

use kernelhub_cpu::flash_attn_options;

use super::reference::{CAUSAL, Extent, FULL, Opts, attention};
use super::{Size, size};
use crate::support::{Arg, DTYPES, Dt, Tensor, at_every_level, call};

fn run(tensors: &[Tensor; 4], opts: Opts) -> Result<(), String> {
    let [out, q, k, v] = tensors;
    let Opts { scale, causal, left, right, softcap } = opts;
    let scalars = [Arg::F(scale), Arg::B(causal), Arg::I(left), Arg::I(right), Arg::F(softcap)];
    call(flash_attn_options, &[&[Arg::T(out), Arg::T(q), Arg::T(k), Arg::T(v)][..], &scalars].concat())
}

fn check(tensors: &[Tensor; 4], opts: Opts, what: &str) {
    run(tensors, opts).expect(what);
    let [out, q, k, v] = tensors;
    let [_, q_len, heads, head_dim] = q.shape[..] else { panic!("rank 4") };
    let extent = Extent { q_len, kv_len: k.shape[1], heads, kv_heads: k.shape[2], head_dim };
    let expected: Vec<_> = (0..q.shape[0])
        .map(|b| {
            let at = |tensor: &Tensor, [i, h, d]: [i64; 3]| tensor.get(&[b, i, h, d]);
            attention(extent, opts, |i, h, d| at(q, [i, h, d]), |j, g, d| at(k, [j, g, d]), |j, g, d| at(v, [j, g, d]))
        })
        .collect();
    let dense = |i: &[i64]| ((i[1] * heads + i[2]) * head_dim + i[3]) as usize;
    out.expect(|index| expected[index[0] as usize][dense(index)], what);
}

const WINDOWS: [(i64, i64); 7] = [(-1, -1), (0, 0), (4, -1), (-1, 3), (7, 5), (70, 0), (200, 200)];

#[test]
fn agrees_with_f64_over_windows_caps_and_sizes() {
    let sizes = [
        size(1, 1, 1, 1, 1, 1),
        size(1, 1, 9, 165, 3, 64),
        size(2, 3, 2, 130, 1, 33),
        size(1, 40, 6, 40, 2, 20),
        size(1, 90, 2, 150, 1, 16),
        size(1, 9, 2, 4, 2, 24),
    ];
    at_every_level(|level| {
        for dtype in DTYPES {
            for size in sizes {
                for (left, right) in WINDOWS {
                    for (causal, softcap) in [(false, 0.0), (true, 0.0), (false, 0.7), (true, 50.0)] {
                        let scale = 1.0 / (size.head_dim as f64).sqrt();
                        let opts = Opts { scale, causal, left, right, softcap };
                        check(&size.tensors(dtype, 1), opts, &format!("{level:?} {size:?} {opts:?}"));
                    }
                }
            }
        }
    });
}

/// F51: the sizes that kernels elsewhere leave out or get wrong; what does not fit is an error.
#[test]
fn head_sizes_63_80_192_256_and_no_more() {
    at_every_level(|level| {
        for dtype in DTYPES {
            for head_dim in [63, 80, 192, 256] {
                for q_len in [1, 30] {
                    let scale = 1.0 / (head_dim as f64).sqrt();
                    for opts in [
                        Opts { scale, ..CAUSAL },
                        Opts { scale, left: 9, ..CAUSAL },
                        Opts { scale, left: 3, right: 2, softcap: 2.0, ..FULL },
                    ] {
                        let tensors = size(1, q_len, 4, 40, 2, head_dim).tensors(dtype, 5);
                        check(&tensors, opts, &format!("{level:?} {head_dim} {opts:?}"));
                    }
                }
            }
        }
    });
    let text = run(&size(1, 1, 1, 4, 1, 512).tensors(Dt::F32, 5), FULL).expect_err("512");
    assert_eq!(text, "flash_attn_options: argument `q`: expected a head_dim of 1 to 256, got 512");
}

/// The keys that each query attends, read off values that are one-hot by key.
fn attended(q_len: i64, kv_len: i64, opts: Opts) -> Vec<Vec<i64>> {
    let [out, q, k, v] = size(1, q_len, 1, kv_len, 1, kv_len).tensors(Dt::F32, 6);
    v.fill(|i| f64::from(i[1] == i[3]));
    run(&[out.clone(), q, k, v], opts).expect("runs");
    (0..q_len).map(|i| (0..kv_len).filter(|&j| out.get(&[0, i, 0, j]) != 0.0).collect()).collect()
}

/// F51: bounds are inclusive, counted on 8 tokens.
#[test]
fn a_window_of_four_over_eight_tokens_attends_the_keys_that_its_definition_says() {
    at_every_level(|level| {
        // The key itself and three before it.
        let four = attended(8, 8, Opts { left: 3, ..CAUSAL });
        let counts: Vec<_> = four.iter().map(Vec::len).collect();
        assert_eq!(counts, [1, 2, 3, 4, 4, 4, 4, 4], "{level:?}");
        assert_eq!(four[7], [4, 5, 6, 7], "{level:?}");
        // A bound of 4 is the key itself and four before it.
        let counts: Vec<_> = attended(8, 8, Opts { left: 4, ..CAUSAL }).iter().map(Vec::len).collect();
        assert_eq!(counts, [1, 2, 3, 4, 5, 5, 5, 5], "{level:?}");
        let right = attended(8, 8, Opts { left: 0, right: 2, ..FULL });
        assert_eq!((&right[0][..], &right[7][..]), (&[0, 1, 2][..], &[7][..]), "{level:?}");
        // The last query stands at the last key; causal beats a bound to the right.
        for (q_len, opts) in [(3, Opts { left: 1, right: 1, ..FULL }), (3, Opts { left: 1, right: 4, ..CAUSAL })] {
            let expected: Vec<Vec<i64>> =
                (0..q_len).map(|i| (0..8).filter(|&j| opts.sees(q_len, 8, i, j)).collect()).collect();
            assert_eq!(attended(q_len, 8, opts), expected, "{level:?} {opts:?}");
            assert_eq!(expected[0], if opts.causal { vec![4, 5] } else { vec![4, 5, 6] });
        }
    });
}

#[test]
fn every_option_changes_the_result() {
    at_every_level(|level| {
        for dtype in DTYPES {
            for q_len in [1, 20] {
                let tensors = size(1, q_len, 4, 90, 2, 32).tensors(dtype, 7);
                let outcome = |opts| {
                    run(&tensors, opts).expect("runs");
                    tensors[0].values()
                };
                let full = outcome(FULL);
                for opts in [
                    Opts { scale: 0.2, ..FULL },
                    Opts { left: 5, ..FULL },
                    Opts { right: 0, left: 5, ..FULL },
                    Opts { softcap: 1.0, ..FULL },
                ] {
                    assert_ne!(outcome(opts), full, "{level:?} {dtype:?} {q_len} {opts:?}");
                }
                if q_len > 1 {
                    assert_ne!(outcome(CAUSAL), full);
                    assert_ne!(outcome(Opts { right: 1, ..FULL }), full);
                    assert_eq!(outcome(Opts { right: 0, ..FULL }), outcome(CAUSAL), "{level:?} {dtype:?}");
                }
                assert_eq!(outcome(Opts { left: 1000, right: 1000, ..FULL }), full, "{level:?} {dtype:?}");
                for opts in [FULL, CAUSAL] {
                    super::run(&tensors, opts.scale, opts.causal).expect("runs");
                    assert_eq!(tensors[0].values(), outcome(opts), "{level:?} {dtype:?}: as flash_attn");
                }
            }
        }
    });
}

#[test]
fn a_cap_bounds_scores_and_vanishes_as_it_grows() {
    at_every_level(|level| {
        // Scores of hundreds and caps from small to far above them.
        for softcap in [1e-3, 0.5, 5.0, 50.0, 1e3, 1e6] {
            for scale in [0.01, 0.3, 20.0] {
                for q_len in [1, 20] {
                    let tensors = size(1, q_len, 4, 90, 2, 32).tensors(Dt::F32, 8);
                    let opts = Opts { scale, softcap, ..FULL };
                    run(&tensors, opts).expect("runs");
                    let [out, q, k, v] = &tensors;
                    let extent = Extent { q_len, kv_len: 90, heads: 4, kv_heads: 2, head_dim: 32 };
                    let expected = attention(
                        extent,
                        opts,
                        |i, h, d| q.get(&[0, i, h, d]),
                        |j, g, d| k.get(&[0, j, g, d]),
                        |j, g, d| v.get(&[0, j, g, d]),
                    );
                    // Scores up to the cap carry that much rounding of f32 into the weights.
                    let bound = 5e-6 + f64::min(softcap, 40.0 * scale) * 6e-7;
                    for (actual, expected) in out.values().into_iter().zip(expected) {
                        assert!((actual - expected).abs() <= bound, "{level:?} {opts:?}: {expected} {actual}");
                    }
                }
            }
        }
    });
}

#[test]
fn what_a_window_hides_has_no_influence_not_even_nan() {
    // The last query that sees it does not stand at the end of a register tile, whose rows share their products.
    const KEY: i64 = 11;
    at_every_level(|level| {
        for dtype in DTYPES {
            let sizes = [(1, 300), (4, 300), (150, 150)];
            let windows =
                [Opts { left: 40, ..CAUSAL }, Opts { left: 40, ..FULL }, Opts { left: 200, right: 3, ..FULL }];
            for ((q_len, kv_len), opts) in sizes.into_iter().flat_map(|size| windows.map(|opts| (size, opts))) {
                let tensors = size(1, q_len, 4, kv_len, 2, 32).tensors(dtype, 9);
                let [out, _, k, v] = &tensors;
                run(&tensors, opts).expect("runs");
                let before = out.values();
                for value in [f64::INFINITY, f64::NAN] {
                    for (tensor, d) in [(k, 0), (v, 3)] {
                        tensor.set(&[0, KEY, 0, d], value);
                    }
                    run(&tensors, opts).expect("runs");
                    for (index, (before, after)) in out.indices().iter().zip(before.iter().zip(out.values())) {
                        let seen = opts.sees(q_len, kv_len, index[1], KEY) && index[2] < 2;
                        let what = format!("{level:?} {dtype:?} {q_len} {opts:?} {index:?}");
                        assert!(seen || *before == after, "{what}");
                        assert!(!seen || index[3] != 3 || !after.is_finite(), "{what}");
                    }
                }
            }
        }
    });
}

#[test]
fn a_query_whose_window_is_empty_gives_zeros() {
    at_every_level(|_| {
        for dtype in DTYPES {
            // Queries stand at -6..3; those at -6..-1 see nothing, and with two keys to the right two of them do.
            for (opts, blind) in [(Opts { left: 2, ..CAUSAL }, 6), (Opts { left: 2, right: 2, ..FULL }, 4)] {
                let tensors = size(1, 9, 2, 3, 1, 16).tensors(dtype, 10);
                check(&tensors, opts, "early rows");
                let zeros = tensors[0].values().iter().take_while(|value| **value == 0.0).count();
                assert_eq!(zeros, blind * 2 * 16, "{opts:?}");
            }
            let tensors = size(2, 3, 4, 0, 2, 24).tensors(dtype, 11);
            check(&tensors, Opts { left: 2, softcap: 3.0, ..FULL }, "no keys");
        }
    });
}

#[test]
fn many_keys_are_split_within_the_window() {
    at_every_level(|level| {
        for dtype in DTYPES {
            for size in [size(1, 1, 6, 4200, 2, 16), size(1, 3, 2, 4200, 1, 20)] {
                for (left, right) in [(-1, -1), (2100, 0), (3, -1), (-1, 0)] {
                    let opts = Opts { left, right, softcap: 3.0, ..FULL };
                    check(&size.tensors(dtype, 12), opts, &format!("{level:?} {size:?} {opts:?}"));
                }
            }
        }
    });
}

/// Keys and values of one row, seen `kv_len` times: as many keys as wanted, in no memory.
fn endless(q_len: i64, kv_len: i64) -> [Tensor; 4] {
    let [out, q, k, v] = Size { kv_len: 1, ..size(1, q_len, 1, 1, 1, 16) }.tensors(Dt::F32, 13);
    [out, q, k.view(&[1, kv_len, 1, 16], &[0, 0, 16, 1], 0), v.view(&[1, kv_len, 1, 16], &[0, 0, 16, 1], 0)]
}

#[test]
fn work_shrinks_with_the_window() {
    at_every_level(|level| {
        for q_len in [1, 100] {
            let time = |kv_len, opts| {
                let tensors = endless(q_len, kv_len);
                let start = Instant::now();
                run(&tensors, opts).expect("runs");
                start.elapsed()
            };
            let full = time(1 << 17, CAUSAL);
            // 512 times the keys, of which at most 164 are seen.
            let windowed = time(1 << 26, Opts { left: 64, ..CAUSAL });
            assert!(windowed * 20 < full, "{level:?} q_len {q_len}: {windowed:?} with a window, {full:?} without");
        }
    });
}

#[test]
fn wrong_options_are_refused() {
    let tensors = size(1, 2, 2, 3, 1, 8).tensors(Dt::F32, 14);
    for (opts, text) in [
        (Opts { left: -2, ..FULL }, "argument `window_left`: expected a number of keys, or -1 for all, got -2"),
        (Opts { right: -9, ..FULL }, "argument `window_right`: expected a number of keys, or -1 for all, got -9"),
        (
            Opts { softcap: -1.0, ..FULL },
            "argument `softcap`: expected a finite number of at least 0, where 0 is no cap, got -1",
        ),
        (
            Opts { softcap: f64::NAN, ..FULL },
            "argument `softcap`: expected a finite number of at least 0, where 0 is no cap, got NaN",
        ),
        (
            Opts { softcap: 1e-39, ..FULL },
            "argument `softcap`: expected a cap whose ratio to softmax_scale has a place in f32, got 0.000000000000000000000000000000000000001",
        ),
        (Opts { scale: f64::INFINITY, ..FULL }, "argument `softmax_scale`: expected a finite number, got inf"),
    ] {
        assert_eq!(run(&tensors, opts).expect_err("wrong"), format!("flash_attn_options: {text}"));
    }
    let [out, q, k, v] = tensors.each_ref().map(Arg::T);
    let args = [out, q, k, v, Arg::F(1.0), Arg::B(true), Arg::F(3.0), Arg::I(0), Arg::F(0.0)];
    let text = call(flash_attn_options, &args).expect_err("a number of keys is an Int");
    assert_eq!(text, "flash_attn_options: argument `window_left`: expected Int, got Float");
}
