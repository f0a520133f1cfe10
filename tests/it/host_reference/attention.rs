//! Attention's reference code: windows, caps, `eager`, packed sequences, the paged cache.
#![expect(clippy::cast_possible_wrap, reason = "positions of small tests")]

use candle_core::{DType, Device, Result, Tensor, Var};
use kernelhub::host::candle::{
    Attention, AttentionConfig, PagedAttention, PagedKvCache, SequenceStarts, VarlenAttention, Window,
};
use kernelhub::swap::{AttnImplementation, KernelProvider, KernelRef, Mode, ProvideError};
use kernelhub::variant::DeviceKey;

use super::{DTYPES, MODES, assert_close, flat, noise, slots, strided_noise, tolerance};

const WINDOWS: [Window; 5] = [
    Window { left: None, right: None },
    Window { left: Some(3), right: None },
    Window { left: Some(0), right: Some(0) },
    Window { left: Some(1), right: Some(2) },
    Window { left: None, right: Some(1) },
];

fn config(heads: usize, kv_heads: usize, window: Window, softcap: f64) -> AttentionConfig {
    AttentionConfig { window, softcap, ..AttentionConfig::new(heads, kv_heads, 8) }
}

fn at(x: &[f64], dims: &[usize], index: [usize; 4]) -> f64 {
    x[((index[0] * dims[1] + index[1]) * dims[2] + index[2]) * dims[3] + index[3]]
}

/// The definition by plain loops, `[batch, q_len, heads * head_dim]`.
fn formula(config: &AttentionConfig, [q, k, v]: [&Tensor; 3], causal: bool) -> Vec<f64> {
    let (dims, k_dims) = (q.dims().to_vec(), k.dims().to_vec());
    let [batch, heads, q_len, head_dim] = dims[..] else { panic!("rank 4") };
    let (kv_heads, kv_len) = (k_dims[1], k_dims[2]);
    let (q, k, v) = (flat(q), flat(k), flat(v));
    let mut out = Vec::new();
    for (b, i, h) in (0..batch).flat_map(|b| (0..q_len).flat_map(move |i| (0..heads).map(move |h| (b, i, h)))) {
        let g = h / (heads / kv_heads);
        let position = kv_len as i64 - q_len as i64 + i as i64;
        let right = if causal { Some(0) } else { config.window.right };
        let sees = |j: usize| {
            config.window.left.is_none_or(|left| position - i64::from(left) <= j as i64)
                && right.is_none_or(|right| j as i64 <= position + i64::from(right))
        };
        let score = |j: usize| {
            let product: f64 = (0..head_dim).map(|d| at(&q, &dims, [b, h, i, d]) * at(&k, &k_dims, [b, g, j, d])).sum();
            let score = product * config.scale;
            if config.softcap > 0.0 { config.softcap * (score / config.softcap).tanh() } else { score }
        };
        let weights: Vec<(usize, f64)> = (0..kv_len).filter(|&j| sees(j)).map(|j| (j, score(j).exp())).collect();
        let total: f64 = weights.iter().map(|(_, weight)| weight).sum();
        out.extend((0..head_dim).map(|d| {
            let sum: f64 = weights.iter().map(|(j, weight)| weight * at(&v, &k_dims, [b, g, *j, d])).sum();
            if weights.is_empty() { 0.0 } else { sum / total }
        }));
    }
    out
}

#[test]
fn windows_caps_and_both_paths_agree_with_the_definition() {
    for dtype in DTYPES {
        for (q_len, kv_len) in [(1, 9), (7, 7), (3, 9), (6, 2), (2, 0)] {
            let q = strided_noise(1, [2, 4, q_len, 8], dtype);
            let (k, v) = (noise(2, &[2, 2, kv_len, 8], dtype), noise(3, &[2, 2, kv_len, 8], dtype));
            for (window, softcap) in WINDOWS.into_iter().flat_map(|window| [0.0, 0.3].map(|softcap| (window, softcap)))
            {
                let config = AttentionConfig { scale: 0.9, ..config(4, 2, window, softcap) };
                let attention = Attention::from_config(config, dtype, &slots(), "attention").unwrap();
                for (mode, causal) in MODES.into_iter().flat_map(|mode| [(mode, false), (mode, true)]) {
                    let expected = formula(&config, [&q, &k, &v], causal);
                    let what =
                        format!("{dtype:?} {q_len} of {kv_len}, {window:?} cap {softcap} {mode} causal {causal}");
                    let sdpa = attention.forward_reference(mode, &q, &k, &v, causal).unwrap();
                    assert_eq!(sdpa.dims(), [2, q_len, 32], "{what}");
                    assert_close(&sdpa, &expected, tolerance(dtype), &what);
                    let eager = attention.forward_eager(mode, &q, &k, &v, causal).unwrap();
                    assert_eq!((eager.dims(), eager.dtype()), (sdpa.dims(), dtype), "{what}");
                    assert_close(&eager, &expected, 2.0 * tolerance(dtype), &format!("eager {what}"));
                }
            }
        }
    }
}

/// Central differences of a weighted sum, as in `gradients`.
#[track_caller]
fn check_gradient(what: &str, variable: &Var, run: impl Fn() -> Result<Tensor>) {
    let loss = || {
        let out = run().unwrap();
        (&out * noise(99, out.dims(), DType::F64)).unwrap().sum_all().unwrap()
    };
    let gradients = loss().backward().unwrap();
    let gradient = flat(gradients.get(variable).unwrap_or_else(|| panic!("{what}: no gradient")));
    assert!(gradient.iter().any(|value| value.abs() > 1e-3), "{what}: the gradient is zero");
    let base = flat(variable);
    for index in 0..base.len() {
        let shifted = |by: f64| {
            let mut values = base.clone();
            values[index] += by;
            variable.set(&Tensor::from_vec(values, variable.dims(), variable.device()).unwrap()).unwrap();
            loss().to_scalar::<f64>().unwrap()
        };
        let expected = (shifted(1e-5) - shifted(-1e-5)) / 2e-5;
        assert!(
            (gradient[index] - expected).abs() < 1e-6,
            "{what}, element {index}: {} is not {expected}",
            gradient[index]
        );
        shifted(0.0);
    }
}

fn variable(seed: u64, shape: &[usize]) -> Var {
    Var::from_tensor(&noise(seed, shape, DType::F64)).unwrap()
}

#[test]
fn gradients_pass_windows_caps_and_blind_queries_on_both_paths() {
    let inputs = [variable(1, &[1, 2, 4, 3]), variable(2, &[1, 1, 3, 3]), variable(3, &[1, 1, 3, 3])];
    let config = AttentionConfig {
        window: Window { left: Some(1), right: None },
        softcap: 0.5,
        ..AttentionConfig::new(2, 1, 3)
    };
    let attention = Attention::from_config(config, DType::F64, &slots(), "attention").unwrap();
    let [q, k, v] = inputs.each_ref().map(Var::as_tensor);
    for (name, variable) in ["q", "k", "v"].into_iter().zip(&inputs) {
        // In inference mode too: what tracks a gradient is never cut.
        for mode in MODES {
            check_gradient(name, variable, || attention.forward_reference(mode, q, k, v, true));
            check_gradient(&format!("eager {name}"), variable, || attention.forward_eager(mode, q, k, v, true));
        }
    }
}

struct Nothing;

impl KernelProvider for Nothing {
    fn provide(
        &self,
        kernel: &KernelRef,
        _: &str,
        _: DeviceKey,
    ) -> std::result::Result<std::sync::Arc<kernelhub::bind::LayerKernel>, ProvideError> {
        Err(ProvideError { hint: None, source: Box::new(std::io::Error::other(format!("no {kernel}"))) })
    }
}

#[test]
fn the_word_eager_chooses_the_path_of_every_attention_layer_and_sdpa_the_other() {
    let slots = slots();
    let config = config(4, 2, Window::default(), 0.0);
    let attention = Attention::from_config(config, DType::BF16, &slots, "attention").unwrap();
    let packed = VarlenAttention::new(config, DType::BF16, &slots, "packed").unwrap();
    let [q, k, v] = [(1, 4), (2, 2), (3, 2)].map(|(seed, heads)| noise(seed, &[1, heads, 9, 8], DType::BF16));
    let rows = |x: &Tensor| x.squeeze(0).unwrap().transpose(0, 1).unwrap();
    let starts = SequenceStarts::from_lengths(&[9]).unwrap();
    let forward = || {
        let dense = flat(&attention.forward(&q, &k, &v, true).unwrap());
        let packed = packed.forward(&rows(&q), &rows(&k), &rows(&v), [&starts, &starts], true).unwrap();
        assert_eq!(dense, flat(&packed));
        dense
    };
    let sdpa = flat(&attention.forward_reference(Mode::Inference, &q, &k, &v, true).unwrap());
    let eager = flat(&attention.forward_eager(Mode::Inference, &q, &k, &v, true).unwrap());
    assert_ne!(sdpa, eager, "in bf16 they round at other places");
    assert_eq!(forward(), sdpa, "the default");
    for (word, expected) in [("eager", &eager), ("auto", &sdpa), ("eager", &eager), ("sdpa", &sdpa)] {
        slots.use_attention(&word.parse::<AttnImplementation>().unwrap(), &Nothing).unwrap();
        assert_eq!(forward(), *expected, "{word}");
    }
}

/// F49, in the reference: lengths 3 and 5, causal.
#[test]
fn f49_packed_sequences_are_causal_each_by_itself() {
    for dtype in DTYPES {
        let config = AttentionConfig::new(2, 2, 8);
        let attention = VarlenAttention::new(config, dtype, &slots(), "attention").unwrap();
        let starts = SequenceStarts::from_lengths(&[3, 5]).unwrap();
        let [q, k] = [1, 2].map(|seed| noise(seed, &[8, 2, 8], dtype));
        let run = |v: &Tensor, causal| {
            let rows = flat(&attention.forward(&q, &k, v, [&starts, &starts], causal).unwrap());
            rows.chunks(16).map(<[f64]>::to_vec).collect::<Vec<_>>()
        };
        let v = noise(3, &[8, 2, 8], dtype);
        let (causal, values) = (run(&v, true), flat(&v));
        for first in [0, 3] {
            assert_eq!(causal[first], values[first * 16..(first + 1) * 16], "{dtype:?}");
        }
        let mut other = values;
        for last in [2, 7] {
            other[last * 16..(last + 1) * 16].fill(5.0);
        }
        let other = Tensor::from_vec(other, (8, 2, 8), &Device::Cpu).unwrap().to_dtype(dtype).unwrap();
        let changed = run(&other, true);
        for row in 0..8 {
            assert_eq!(causal[row] == changed[row], row != 2 && row != 7, "{dtype:?} row {row}");
        }
        assert_ne!(run(&v, false)[0], causal[0], "{dtype:?}: the flag does nothing");
    }
}

#[test]
fn packed_sequences_are_what_each_gives_alone() {
    for (window, softcap) in WINDOWS.into_iter().flat_map(|window| [(window, 0.0), (window, 0.4)]) {
        let config = config(4, 2, window, softcap);
        let packed = VarlenAttention::new(config, DType::F64, &slots(), "packed").unwrap();
        let alone = Attention::from_config(config, DType::F64, &slots(), "alone").unwrap();
        let (q_lens, k_lens) = ([3, 0, 4, 2], [5, 2, 0, 1]);
        let starts = [SequenceStarts::from_lengths(&q_lens).unwrap(), SequenceStarts::from_lengths(&k_lens).unwrap()];
        let starts = starts.each_ref();
        let [q, k, v] =
            [(1, 9, 4), (2, 8, 2), (3, 8, 2)].map(|(seed, rows, heads)| noise(seed, &[rows, heads, 8], DType::F64));
        for causal in [false, true] {
            let actual = packed.forward(&q, &k, &v, starts, causal).unwrap();
            assert_eq!(actual.dims(), [9, 32]);
            let (mut expected, mut at_q, mut at_k) = (Vec::new(), 0, 0);
            for (q_len, k_len) in q_lens.into_iter().zip(k_lens) {
                let rows = |x: &Tensor, at, len| {
                    let heads = x.dim(1).unwrap();
                    if len == 0 {
                        return Tensor::zeros((1, heads, 0, 8), DType::F64, &Device::Cpu).unwrap();
                    }
                    x.narrow(0, at, len).unwrap().transpose(0, 1).unwrap().unsqueeze(0).unwrap()
                };
                let (q, k, v) = (rows(&q, at_q, q_len), rows(&k, at_k, k_len), rows(&v, at_k, k_len));
                expected.extend(flat(&alone.forward(&q, &k, &v, causal).unwrap()));
                (at_q, at_k) = (at_q + q_len, at_k + k_len);
            }
            assert_close(&actual, &expected, 1e-12, &format!("{window:?} cap {softcap} causal {causal}"));
        }
    }
    let inputs = [variable(1, &[5, 2, 8]), variable(2, &[5, 2, 8]), variable(3, &[5, 2, 8])];
    let packed = VarlenAttention::new(AttentionConfig::new(2, 2, 8), DType::F64, &slots(), "packed").unwrap();
    let starts = SequenceStarts::from_lengths(&[2, 3]).unwrap();
    let [q, k, v] = inputs.each_ref().map(Var::as_tensor);
    for (name, variable) in ["q", "k", "v"].into_iter().zip(&inputs) {
        check_gradient(name, variable, || packed.forward(q, k, v, [&starts, &starts], true));
    }
}

#[track_caller]
fn text<T>(result: Result<T>) -> String {
    match result {
        Ok(_) => panic!("it was not refused"),
        Err(error) => error.to_string(),
    }
}

#[track_caller]
fn assert_refused<T>(result: Result<T>, part: &str) {
    let text = text(result);
    assert!(text.contains(part), "{text}");
}

#[test]
fn sequences_that_do_not_fit_are_refused() {
    let packed = VarlenAttention::new(AttentionConfig::new(2, 1, 8), DType::F32, &slots(), "packed").unwrap();
    let starts = |lengths: &[usize]| SequenceStarts::from_lengths(lengths).unwrap();
    let (q, k) = (noise(1, &[5, 2, 8], DType::F32), noise(2, &[5, 1, 8], DType::F32));
    let run =
        |q: &Tensor, of_q: &[usize], of_k: &[usize]| packed.forward(q, &k, &k, [&starts(of_q), &starts(of_k)], true);
    assert!(run(&q, &[2, 3], &[2, 2]).is_ok(), "keys behind the last sequence are nobody's");
    for (of_q, of_k, expected) in &[
        (&[2, 2][..], &[2, 3][..], "FlashAttentionVarlen: q must be [4, 2, 8], got [5, 2, 8]"),
        (&[2, 3], &[2, 4], "FlashAttentionVarlen: k must be [at least 6, 1, 8], got [5, 1, 8]"),
        (&[2, 3], &[5], "FlashAttentionVarlen: 2 sequences of queries and 1 of keys"),
    ] {
        assert_eq!(text(run(&q, of_q, of_k)), *expected);
    }
    assert_refused(run(&noise(1, &[5, 2, 8], DType::F16), &[5], &[5]), "k must be F16 like q, got F32");
    assert_refused(SequenceStarts::from_lengths(&[1 << 30, 1 << 30]), "more than 2147483647 rows together");
    let build = |change: &dyn Fn(&mut AttentionConfig)| {
        let mut config = AttentionConfig::new(2, 1, 8);
        change(&mut config);
        text(Attention::from_config(config, DType::F32, &slots(), "attention"))
    };
    assert_eq!(
        build(&|config| config.softcap = -1.0),
        "FlashAttention: softcap must be 0 or a number above it, got -1"
    );
    assert_eq!(
        build(&|config| config.softcap = f64::NAN),
        "FlashAttention: softcap must be 0 or a number above it, got NaN"
    );
    assert_eq!(build(&|config| config.scale = f64::INFINITY), "FlashAttention: scale must be a finite number, got inf");
}

/// Two layers, three sequences of different lengths in blocks of 4, written in steps.
#[test]
fn a_paged_cache_gives_what_the_sequences_give_alone() {
    for (window, softcap) in [(Window::default(), 0.0), (Window { left: Some(4), right: None }, 0.7)] {
        for dtype in DTYPES {
            let config = config(4, 2, window, softcap);
            let paged = PagedAttention::new(config, dtype, &slots(), "paged").unwrap();
            let alone = Attention::from_config(config, dtype, &slots(), "alone").unwrap();
            let mut cache = PagedKvCache::new(2, [9, 4], [2, 8], dtype, &Device::Cpu).unwrap();
            let ids = [cache.begin(), cache.begin(), cache.begin()];
            // Keys and values of each layer and sequence so far, `[1, 2, len, 8]`.
            let mut held: Vec<Vec<[Tensor; 2]>> = vec![Vec::new(), Vec::new()];
            for layer in &mut held {
                layer.extend(ids.map(|_| [0, 1].map(|_| noise(0, &[1, 2, 0, 8], dtype))));
            }
            let steps = [(&[0, 1][..], 3), (&[2], 6), (&[0, 1, 2], 1), (&[1], 5), (&[2, 0], 2)];
            for (step, (members, added)) in (0_u64..).zip(steps) {
                let chosen: Vec<_> = members.iter().map(|member| ids[*member]).collect();
                let batch = cache.reserve(&chosen, added).unwrap();
                assert_eq!((batch.len(), batch.q_len()), (members.len(), added));
                for (layer, held) in held.iter_mut().enumerate() {
                    let seed = 100 * step + 10 * layer as u64;
                    let q = strided_noise(seed, [members.len(), 4, added, 8], dtype);
                    let [k, v] = [1, 2].map(|more| strided_noise(seed + more, [members.len(), 2, added, 8], dtype));
                    cache.write(layer, &batch, &k, &v).unwrap();
                    let actual = paged.forward(&q, &cache, layer, &batch, true).unwrap();
                    for (at, member) in members.iter().enumerate() {
                        let so_far = &mut held[*member];
                        for (old, new) in so_far.iter_mut().zip([&k, &v]) {
                            *old = Tensor::cat(&[&*old, &new.narrow(0, at, 1).unwrap()], 2).unwrap();
                        }
                        assert_eq!(batch.len_of(at), so_far[0].dim(2).unwrap());
                        let q = q.narrow(0, at, 1).unwrap();
                        let expected = alone.forward(&q, &so_far[0], &so_far[1], true).unwrap();
                        let of_member = actual.narrow(0, at, 1).unwrap();
                        let what = format!("{dtype:?} {window:?} step {step} layer {layer} sequence {member}");
                        assert_close(&of_member, &flat(&expected), tolerance(dtype), &what);
                    }
                }
            }
        }
    }
}

#[test]
fn blocks_go_back_and_a_cache_refuses_what_it_cannot_hold() {
    let mut cache = PagedKvCache::new(1, [4, 2], [1, 8], DType::F32, &Device::Cpu).unwrap();
    let many = [cache.begin(), cache.begin()];
    for added in [usize::MAX, usize::MAX / 2, usize::MAX / 4] {
        let error = cache.reserve(&many, added).unwrap_err().to_string();
        assert!(error.contains("8 is its capacity"), "{error}");
    }
    for sequence in many {
        cache.end(sequence).unwrap();
    }
    let (a, b) = (cache.begin(), cache.begin());
    let old = cache.reserve(&[a], 3).unwrap();
    assert_eq!((cache.free_blocks(), cache.len_of(a).unwrap()), (2, 3));
    assert_refused(cache.reserve(&[a, b], 4), "12 positions requested, 8 is its capacity");
    assert_eq!((cache.free_blocks(), cache.len_of(a).unwrap()), (2, 3), "nothing was reserved");
    assert_refused(cache.reserve(&[b, b], 1), "stands twice");
    cache.end(a).unwrap();
    assert_eq!(cache.free_blocks(), 4);
    assert_refused(cache.end(a), "it holds no sequence");
    assert_refused(cache.reserve(&[a], 1), "it holds no sequence");
    // The blocks of the batch that was reserved for it may be another sequence's.
    let all = cache.reserve(&[b], 8).unwrap();
    let x = |len| noise(1, &[1, 1, len, 8], DType::F32);
    assert_refused(cache.write(0, &old, &x(3), &x(3)), "it holds no sequence");
    assert_refused(cache.write(1, &all, &x(8), &x(8)), "below the 1 layers");
    assert_refused(cache.write(0, &all, &x(7), &x(8)), "must be [1, 1, 8, 8] of the batch");
    let wide = noise(1, &[1, 1, 8, 8], DType::F64);
    assert_refused(cache.write(0, &all, &wide, &wide), "must be F32 like the cache, got F64");
    let tracked = Var::from_tensor(&x(8)).unwrap();
    assert_refused(cache.write(0, &all, &x(8), tracked.as_tensor()), "tracks gradients");
    let mut other = PagedKvCache::new(1, [4, 2], [1, 8], DType::F32, &Device::Cpu).unwrap();
    assert_refused(other.write(0, &all, &x(8), &x(8)), "another cache");
    for size in [[4, 0], [usize::MAX, 2], [1 << 20, 1 << 20]] {
        let made = PagedKvCache::new(1, size, [1, 8], DType::F32, &Device::Cpu);
        assert_refused(made, "blocks of at least 1 position");
    }
    // Queries that track a gradient get it.
    cache.write(0, &all, &x(8), &x(8)).unwrap();
    let paged = PagedAttention::new(AttentionConfig::new(1, 1, 8), DType::F32, &slots(), "paged").unwrap();
    let q = Var::from_tensor(&x(8)).unwrap();
    let out = paged.forward(q.as_tensor(), &cache, 0, &all, true).unwrap();
    let gradients = out.sqr().unwrap().sum_all().unwrap().backward().unwrap();
    assert!(flat(gradients.get(&q).unwrap()).iter().any(|value| value.abs() > 1e-6));
}
