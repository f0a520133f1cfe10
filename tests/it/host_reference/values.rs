//! Each layer against plain loops in f64.

use candle_core::{DType, Device, Tensor};
use kernelhub::host::candle::{Attention, GatedMlp, KvCache, RmsNorm, RotaryEmbedding, RotaryStyle};
use kernelhub::swap::Mode;

use super::{DTYPES, MODES, assert_close, flat, noise, slots, strided_noise, tolerance};

#[test]
fn rms_norm() {
    for dtype in DTYPES {
        for width in [1, 7, 64, 576] {
            let weight = noise(1, &[width], dtype);
            let norm = RmsNorm::new(weight.clone(), 1e-5, &slots(), "norm").unwrap();
            for x in [noise(2, &[2, 3, 5, width], dtype), strided_noise(2, [2, 3, 5, width], dtype)] {
                let weight = flat(&weight);
                let expected: Vec<f64> = flat(&x)
                    .chunks(width)
                    .flat_map(|row| {
                        let mean = row.iter().map(|value| value * value).sum::<f64>() / width as f64;
                        let scale = 1.0 / (mean + 1e-5).sqrt();
                        row.iter().zip(&weight).map(move |(value, weight)| value * scale * weight).collect::<Vec<_>>()
                    })
                    .collect();
                for mode in MODES {
                    let actual = norm.forward_reference(mode, &x).unwrap();
                    assert_eq!((actual.dims(), actual.dtype()), (x.dims(), dtype));
                    assert_close(&actual, &expected, tolerance(dtype), &format!("{dtype:?} {mode} width {width}"));
                }
            }
        }
    }
}

#[test]
fn rms_norm_scales_whole_rows_in_narrow_types_by_no_more_than_candle_does() {
    // candle's fused operation, the reference in inference, rounds the root of the mean square to the type, which is
    // off by up to half a unit in the last place for all elements alike. The differentiable path does not: there the
    // rounding of the elements themselves cancels out.
    for (dtype, reach, unit) in [(DType::BF16, 1e-3, 1.0 / 256.0), (DType::F16, 1.3e-4, 1.0 / 2048.0)] {
        let norm = RmsNorm::new(Tensor::ones(576, dtype, &Device::Cpu).unwrap(), 1e-5, &slots(), "norm").unwrap();
        for step in 0..16 {
            let x = (noise(step, &[1, 576], DType::F32) * (1.0 + step as f64 / 16.0)).unwrap().to_dtype(dtype).unwrap();
            for mode in MODES {
                let row = flat(&norm.forward_reference(mode, &x).unwrap());
                let mean = row.iter().map(|value| value * value).sum::<f64>() / 576.0;
                let reach = if mode == Mode::Inference { reach + unit } else { reach };
                assert!((mean.sqrt() - 1.0).abs() < reach, "{dtype:?} {mode} step {step}: {}", mean.sqrt());
            }
        }
    }
}

/// Rotates one head's row the plain way.
fn rotated(row: &[f64], cos: &[f64], sin: &[f64], style: RotaryStyle) -> Vec<f64> {
    let half = cos.len();
    let mut result = row.to_vec();
    for pair in 0..half {
        let (a, b) = match style {
            RotaryStyle::HalfSplit => (pair, pair + half),
            RotaryStyle::Interleaved => (2 * pair, 2 * pair + 1),
        };
        result[a] = row[a] * cos[pair] - row[b] * sin[pair];
        result[b] = row[a] * sin[pair] + row[b] * cos[pair];
    }
    result
}

#[test]
fn rotary_embedding() {
    let (offset, seq, half) = (3, 5, 4);
    for dtype in DTYPES {
        let (cos, sin) = (noise(1, &[16, half], dtype), noise(2, &[16, half], dtype));
        for style in [RotaryStyle::HalfSplit, RotaryStyle::Interleaved] {
            let rotary = RotaryEmbedding::new(cos.clone(), sin.clone(), style, &slots(), "rotary").unwrap();
            let (q, k) = (strided_noise(3, [2, 4, seq, 2 * half], dtype), noise(4, &[2, 2, seq, 2 * half], dtype));
            let (cos, sin) = (flat(&cos), flat(&sin));
            let expected = |x: &Tensor| -> Vec<f64> {
                let rows = flat(x);
                let rotate = |(at, row): (usize, &[f64])| {
                    let from = (offset + at % seq) * half;
                    rotated(row, &cos[from..from + half], &sin[from..from + half], style)
                };
                rows.chunks(2 * half).enumerate().flat_map(rotate).collect()
            };
            for mode in MODES {
                let (q_out, k_out) = rotary.forward_reference(mode, &q, &k, offset).unwrap();
                let what = format!("{dtype:?} {mode} {style:?}");
                assert_close(&q_out, &expected(&q), tolerance(dtype), &what);
                assert_close(&k_out, &expected(&k), tolerance(dtype), &what);
            }
        }
    }
}

#[test]
fn half_split_is_interleaved_with_the_elements_in_another_order() {
    let half = 8;
    let (cos, sin) = (noise(1, &[4, half], DType::F32), noise(2, &[4, half], DType::F32));
    let rotary = |style| RotaryEmbedding::new(cos.clone(), sin.clone(), style, &slots(), "rotary").unwrap();
    let x = noise(3, &[1, 2, 4, 2 * half], DType::F32);
    // Pairs side by side, to first halves before second halves.
    let halves = |x: &Tensor| {
        let dims = x.dims().to_vec();
        x.reshape((1, 2, 4, half, 2)).unwrap().transpose(3, 4).unwrap().contiguous().unwrap().reshape(dims).unwrap()
    };
    for mode in MODES {
        let (interleaved, _) = rotary(RotaryStyle::Interleaved).forward_reference(mode, &x, &x, 0).unwrap();
        let split = halves(&x);
        let (split, _) = rotary(RotaryStyle::HalfSplit).forward_reference(mode, &split, &split, 0).unwrap();
        assert_close(&split, &flat(&halves(&interleaved)), 1e-6, mode.as_str());
    }
}

/// `x [rows, inputs]` by `weight [outputs, inputs]`.
fn product(x: &[f64], weight: &[f64], inputs: usize) -> Vec<f64> {
    let dot = |row: &[f64], column: &[f64]| row.iter().zip(column).map(|(a, b)| a * b).sum();
    x.chunks(inputs).flat_map(|row| weight.chunks(inputs).map(move |column| dot(row, column))).collect()
}

#[test]
fn gated_mlp() {
    let (hidden, intermediate) = (12, 20);
    for dtype in DTYPES {
        let (gate_up, down) = (noise(1, &[2 * intermediate, hidden], dtype), noise(2, &[hidden, intermediate], dtype));
        let mlp = GatedMlp::new(gate_up.clone(), down.clone(), &slots(), "mlp").unwrap();
        let turned = |shape: &[usize], a, b| noise(3, shape, dtype).transpose(a, b).unwrap();
        let layouts = [noise(3, &[2, 3, hidden], dtype), turned(&[3, 2, hidden], 0, 1), turned(&[2, hidden, 3], 1, 2)];
        for x in layouts {
            let both = product(&flat(&x), &flat(&gate_up), hidden);
            let gated: Vec<f64> = both
                .chunks(2 * intermediate)
                .flat_map(|row| (0..intermediate).map(|at| row[at] / (1.0 + (-row[at]).exp()) * row[at + intermediate]))
                .collect();
            let expected = product(&gated, &flat(&down), intermediate);
            for mode in MODES {
                let actual = mlp.forward_reference(mode, &x).unwrap();
                assert_eq!(actual.dims(), x.dims());
                // Two products and a rounding between: more than one rounding.
                assert_close(&actual, &expected, 2.0 * tolerance(dtype), &format!("{dtype:?} {mode}"));
            }
        }
    }
}

/// Attention by plain loops: `[batch, q_len, heads * head_dim]`.
fn attended(q: &Tensor, k: &Tensor, v: &Tensor, scale: f64, causal: bool) -> Vec<f64> {
    let (batch, heads, q_len, head_dim) = q.dims4().unwrap();
    let (_, kv_heads, kv_len, _) = k.dims4().unwrap();
    let (q, k, v) = (flat(q), flat(k), flat(v));
    let mut out = vec![0.0; batch * q_len * heads * head_dim];
    for (b, h, i) in (0..batch).flat_map(|b| (0..heads).flat_map(move |h| (0..q_len).map(move |i| (b, h, i)))) {
        let query = &q[((b * heads + h) * q_len + i) * head_dim..][..head_dim];
        let kv_head = (b * kv_heads + h / (heads / kv_heads)) * kv_len;
        let seen = if causal { (i + 1 + kv_len).saturating_sub(q_len) } else { kv_len };
        let score = |j: usize| {
            let key = &k[(kv_head + j) * head_dim..][..head_dim];
            scale * query.iter().zip(key).map(|(a, b)| a * b).sum::<f64>()
        };
        let weights: Vec<f64> = (0..seen).map(|j| score(j).exp()).collect();
        let total: f64 = weights.iter().sum();
        let row = &mut out[((b * q_len + i) * heads + h) * head_dim..][..head_dim];
        for (j, weight) in weights.iter().enumerate() {
            let value = &v[(kv_head + j) * head_dim..][..head_dim];
            row.iter_mut().zip(value).for_each(|(sum, value)| *sum += weight / total * value);
        }
    }
    out
}

#[test]
fn attention() {
    let (batch, head_dim, scale) = (2, 8, 0.7);
    for dtype in DTYPES {
        for (heads, kv_heads) in [(4, 4), (6, 2), (3, 1)] {
            let attention = Attention::new(heads, kv_heads, head_dim, scale, dtype, &slots(), "attention").unwrap();
            for (q_len, kv_len) in [(1, 1), (5, 5), (1, 9), (3, 9), (7, 2), (2, 0), (0, 3)] {
                let q = strided_noise(1, [batch, heads, q_len, head_dim], dtype);
                let k = strided_noise(2, [batch, kv_heads, kv_len, head_dim], dtype);
                let v = noise(3, &[batch, kv_heads, kv_len, head_dim], dtype);
                for (mode, causal) in MODES.into_iter().flat_map(|mode| [(mode, false), (mode, true)]) {
                    let actual = attention.forward_reference(mode, &q, &k, &v, causal).unwrap();
                    assert_eq!(actual.dims(), [batch, q_len, heads * head_dim]);
                    assert!(actual.is_contiguous());
                    let what = format!("{dtype:?} {mode} {heads}/{kv_heads} {q_len}x{kv_len} causal {causal}");
                    assert_close(&actual, &attended(&q, &k, &v, scale, causal), tolerance(dtype), &what);
                }
            }
        }
    }
}

#[test]
fn attention_reads_a_caches_views() {
    for dtype in DTYPES {
        let attention = Attention::new(4, 2, 8, 0.5, dtype, &slots(), "attention").unwrap();
        let mut cache = KvCache::new(11);
        for (step, added) in [5, 1, 2].into_iter().enumerate() {
            let seed = step as u64;
            let (k, v) =
                (strided_noise(seed, [2, 2, added, 8], dtype), strided_noise(9 + seed, [2, 2, added, 8], dtype));
            let (k, v) = cache.append(&k, &v).unwrap();
            let q = noise(20 + seed, &[2, 4, added, 8], dtype);
            for mode in MODES {
                let actual = attention.forward_reference(mode, &q, &k, &v, true).unwrap();
                assert_close(&actual, &attended(&q, &k, &v, 0.5, true), tolerance(dtype), &format!("{dtype:?} {mode}"));
            }
        }
    }
}

#[test]
fn a_caches_views_keep_their_values() {
    let part = |seed| noise(seed, &[1, 2, 3, 4], DType::F32);
    let mut cache = KvCache::new(6);
    let (first, _) = cache.append(&part(1), &part(2)).unwrap();
    let (whole, values) = cache.append(&part(3), &part(4)).unwrap();
    assert_eq!((cache.len(), cache.capacity(), whole.dims()), (6, 6, &[1, 2, 6, 4][..]));
    assert_eq!(flat(&first), flat(&part(1)));
    assert_eq!(flat(&whole), flat(&Tensor::cat(&[part(1), part(3)], 2).unwrap()));
    assert_eq!(flat(&values), flat(&Tensor::cat(&[part(2), part(4)], 2).unwrap()));
    cache.reset();
    assert!(cache.is_empty());
    cache.append(&part(5), &part(6)).unwrap();
    assert_eq!(flat(&whole), flat(&Tensor::cat(&[part(1), part(3)], 2).unwrap()), "a view outlives a reset");
}
