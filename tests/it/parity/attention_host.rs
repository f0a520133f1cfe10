//! The candle layers of attention with `kernelhub/flash-attn2` and without it.

use candle_core::{DType, Device, Tensor, Var};
use kernelhub::host::candle::{
    Attention, AttentionConfig, PagedAttention, PagedKvCache, SequenceStarts, VarlenAttention, Window,
};
use kernelhub::swap::{AttnImplementation, Mode, Outcome, Slots};
use kernelhub::variant::DeviceKey;

use super::noise;
use crate::support::embedded;

fn tensor(seed: u64, shape: &[usize], dtype: DType) -> Tensor {
    let values = noise(seed, shape.iter().product());
    Tensor::from_vec(values, shape, &Device::Cpu).unwrap().to_dtype(dtype).unwrap()
}

fn flat(x: &Tensor) -> Vec<f64> {
    x.to_dtype(DType::F64).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

#[track_caller]
fn assert_close(actual: &Tensor, expected: &Tensor, dtype: DType, what: &str) {
    assert_eq!((actual.dims(), actual.dtype()), (expected.dims(), dtype), "{what}");
    let bound = if dtype == DType::F32 { 1e-5 } else { 2e-2 };
    for (at, (actual, expected)) in flat(actual).into_iter().zip(flat(expected)).enumerate() {
        assert!((actual - expected).abs() <= bound * expected.abs().max(1.0), "{what}, {at}: {actual} {expected}");
    }
}

struct Layers {
    slots: Slots,
    dense: Attention,
    packed: VarlenAttention,
    paged: PagedAttention,
}

fn layers(dtype: DType) -> Layers {
    let slots = Slots::new(DeviceKey::Cpu);
    let config = AttentionConfig {
        window: Window { left: Some(5), right: None },
        softcap: 3.0,
        ..AttentionConfig::new(4, 2, 16)
    };
    Layers {
        dense: Attention::from_config(config, dtype, &slots, "dense").unwrap(),
        packed: VarlenAttention::new(config, dtype, &slots, "packed").unwrap(),
        paged: PagedAttention::new(config, dtype, &slots, "paged").unwrap(),
        slots,
    }
}

/// Every attention layer takes the kernel, whose window and cap are the model's, and computes what it computes without.
#[test]
fn all_three_layers_agree_with_their_reference() {
    let Some(hub) = embedded::hub() else { return };
    let words = ["kernelhub/flash-attn2@v1", "paged|kernelhub/flash-attn2@v1", "auto", "paged|auto"];
    for (dtype, word) in [DType::F32, DType::BF16, DType::F16].into_iter().flat_map(|d| words.map(|word| (d, word))) {
        let Layers { slots, dense, packed, paged } = layers(dtype);
        let report = slots.use_attention(&word.parse::<AttnImplementation>().unwrap(), hub).unwrap();
        assert!(report.layers.iter().all(|line| matches!(line.outcome, Outcome::Kernel(_))), "{report}");
        let attention = report.attention.as_ref().unwrap();
        assert_eq!((attention.chosen.as_str(), attention.kernels.len()), ("kernelhub/flash-attn2@v1", 3));
        assert!(attention.kernels.iter().all(|kernel| kernel.window && kernel.softcap && !kernel.backward));
        let text: Vec<_> = attention.kernels.iter().map(ToString::to_string).collect();
        assert!(
            text.iter().any(|line| line.ends_with("head sizes up to 256, packed sequences, window, softcap")),
            "{text:?}"
        );

        let q = tensor(1, &[2, 9, 4, 16], dtype).transpose(1, 2).unwrap();
        let [k, v] = [2, 3].map(|seed| tensor(seed, &[2, 11, 2, 16], dtype).transpose(1, 2).unwrap());
        for causal in [false, true] {
            let expected = dense.forward_reference(Mode::Inference, &q, &k, &v, causal).unwrap();
            assert_close(&dense.forward(&q, &k, &v, causal).unwrap(), &expected, dtype, "dense");
        }
        let rows = |x: &Tensor| x.transpose(1, 2).unwrap().flatten(0, 1).unwrap();
        let (q_rows, k_rows, v_rows) = (rows(&q), rows(&k), rows(&v));
        let starts = [&[7, 0, 11][..], &[9, 3, 10]].map(|lengths| SequenceStarts::from_lengths(lengths).unwrap());
        let starts = starts.each_ref();
        let expected = packed.forward_reference(Mode::Inference, &q_rows, &k_rows, &v_rows, starts, true).unwrap();
        assert_close(&packed.forward(&q_rows, &k_rows, &v_rows, starts, true).unwrap(), &expected, dtype, "packed");

        let mut cache = PagedKvCache::new(1, [8, 4], [2, 16], dtype, &Device::Cpu).unwrap();
        let ids = [cache.begin(), cache.begin()];
        let first = cache.reserve(&ids[..1], 3).unwrap();
        let first_of = |x: &Tensor| x.narrow(0, 0, 1).unwrap().narrow(2, 0, 3).unwrap();
        cache.write(0, &first, &first_of(&k), &first_of(&v)).unwrap();
        let batch = cache.reserve(&ids, 9).unwrap();
        cache.write(0, &batch, &k.narrow(2, 0, 9).unwrap(), &v.narrow(2, 2, 9).unwrap()).unwrap();
        let expected = paged.forward_reference(Mode::Inference, &q, &cache, 0, &batch, true).unwrap();
        assert_close(&paged.forward(&q, &cache, 0, &batch, true).unwrap(), &expected, dtype, "paged");
    }
}

/// In inference mode with kernels on: what tracks a gradient goes by the reference code, and the gradient is its.
#[test]
fn a_tracked_tensor_never_meets_the_kernel() {
    let Some(hub) = embedded::hub() else { return };
    let Layers { slots, dense, packed, paged } = layers(DType::F32);
    let on = slots.use_attention(&"kernelhub/flash-attn2@v1".parse().unwrap(), hub).unwrap();
    assert_eq!(on.swapped(), 3);
    let q = Var::from_tensor(&tensor(1, &[1, 4, 6, 16], DType::F32)).unwrap();
    let [k, v] = [2, 3].map(|seed| tensor(seed, &[1, 2, 6, 16], DType::F32));
    let tracked_v = Var::from_tensor(&v).unwrap();
    let gradient = |out: Tensor, variable: &Var| {
        let gradients = out.sqr().unwrap().sum_all().unwrap().backward().unwrap();
        flat(gradients.get(variable).expect("the gradient was cut"))
    };
    for variable in [&q, &tracked_v] {
        let of = |x: &Var| if std::ptr::eq(x, variable) { x.as_tensor().clone() } else { x.as_detached_tensor() };
        let (q, v) = (of(&q), of(&tracked_v));
        let expected = gradient(dense.forward_reference(Mode::Training, &q, &k, &v, true).unwrap(), variable);
        assert!(expected.iter().any(|value| value.abs() > 1e-3));
        assert_eq!(gradient(dense.forward(&q, &k, &v, true).unwrap(), variable), expected);
        let rows = |x: &Tensor| x.squeeze(0).unwrap().transpose(0, 1).unwrap();
        let starts = SequenceStarts::from_lengths(&[6]).unwrap();
        let out = packed.forward(&rows(&q), &rows(&k), &rows(&v), [&starts, &starts], true).unwrap();
        assert_eq!(gradient(out, variable), expected);
    }
    let mut cache = PagedKvCache::new(1, [4, 4], [2, 16], DType::F32, &Device::Cpu).unwrap();
    let id = cache.begin();
    let batch = cache.reserve(&[id], 6).unwrap();
    cache.write(0, &batch, &k, &v).unwrap();
    let expected = gradient(dense.forward_reference(Mode::Training, q.as_tensor(), &k, &v, true).unwrap(), &q);
    assert_eq!(gradient(paged.forward(q.as_tensor(), &cache, 0, &batch, true).unwrap(), &q), expected);
    // And in training mode the plan has no kernel for any of them.
    assert_eq!(slots.train().swapped(), 0);
    assert_eq!(slots.eval(), on);
}
