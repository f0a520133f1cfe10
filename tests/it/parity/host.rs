//! The candle layers with kernels on: views give what their copies give, and rotary what candle's own operations give.

use candle_core::{DType, Device, Tensor, Var};
use candle_nn::rotary_emb;
use kernelhub::bind::{Contract, Rounding};
use kernelhub::host::candle::{Attention, GatedMlp, KvCache, RmsNorm, RotaryEmbedding, RotaryStyle, call};
use kernelhub::swap::{KernelConfig, Mode, SlotSpec, Slots};
use kernelhub::variant::DeviceKey;

use super::noise;
use crate::support::embedded;

const DTYPES: [DType; 3] = [DType::F32, DType::BF16, DType::F16];

fn tensor(seed: u64, shape: &[usize], dtype: DType) -> Tensor {
    let values = noise(seed, shape.iter().product());
    Tensor::from_vec(values, shape, &Device::Cpu).unwrap().to_dtype(dtype).unwrap()
}

fn slots() -> Slots {
    Slots::new(DeviceKey::Cpu)
}

/// Turns kernels on for every layer; `false` with a printed reason without the packs.
fn is_swapped(slots: &Slots) -> bool {
    let Some(hub) = embedded::hub() else { return false };
    let report = slots.use_kernels(hub, &KernelConfig::standard().unwrap()).unwrap();
    assert_eq!(report.swapped(), report.total(), "{report}");
    true
}

fn flat(tensor: &Tensor) -> Vec<f64> {
    tensor.to_dtype(DType::F64).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

/// Views of one tensor: transposed, narrowed within rows and between them, chunked, repeated by stride 0.
fn views(dtype: DType) -> Vec<(&'static str, Tensor)> {
    let whole = |shape: &[usize]| tensor(1, shape, dtype);
    vec![
        ("transposed", whole(&[2, 5, 3, 16]).transpose(1, 2).unwrap()),
        ("columns as rows", whole(&[2, 3, 16, 5]).transpose(2, 3).unwrap()),
        ("narrowed within rows", whole(&[2, 3, 5, 40]).narrow(3, 9, 16).unwrap()),
        ("narrowed between rows", whole(&[2, 3, 9, 16]).narrow(2, 3, 5).unwrap()),
        ("chunked", whole(&[2, 3, 5, 32]).chunk(2, 3).unwrap().remove(1)),
        ("repeated", whole(&[1, 3, 1, 16]).broadcast_as((2, 3, 5, 16)).unwrap()),
        ("offset by one element", whole(&[481]).narrow(0, 1, 480).unwrap().reshape((2, 3, 5, 16)).unwrap()),
    ]
}

#[test]
fn views_give_what_their_copies_give() {
    for dtype in DTYPES {
        let slots = slots();
        let norm = RmsNorm::new(tensor(2, &[16], dtype), 1e-5, &slots, "norm").unwrap();
        let mlp = GatedMlp::new(tensor(3, &[24, 16], dtype), tensor(4, &[16, 12], dtype), &slots, "mlp").unwrap();
        let tables = (tensor(5, &[9, 8], dtype), tensor(6, &[9, 8], dtype));
        let rotary = RotaryEmbedding::new(tables.0, tables.1, RotaryStyle::HalfSplit, &slots, "rotary").unwrap();
        let attention = Attention::new(3, 3, 16, 0.25, dtype, &slots, "attention").unwrap();
        if !is_swapped(&slots) {
            return;
        }
        for (name, view) in views(dtype) {
            let copy = view.force_contiguous().unwrap();
            let same = |layer: &str, of_view: &Tensor, of_copy: &Tensor| {
                assert_eq!(flat(of_view), flat(of_copy), "{layer} of {name} in {dtype:?}");
            };
            same("RMSNorm", &norm.forward(&view).unwrap(), &norm.forward(&copy).unwrap());
            same("SiluAndMul", &mlp.forward(&view).unwrap(), &mlp.forward(&copy).unwrap());
            let (of_view, of_copy) =
                (rotary.forward(&view, &view, 2).unwrap(), rotary.forward(&copy, &copy, 2).unwrap());
            same("rotary", &of_view.0, &of_copy.0);
            same("rotary", &of_view.1, &of_copy.1);
            let of_view = attention.forward(&view, &view, &view, true).unwrap();
            same("attention", &of_view, &attention.forward(&copy, &copy, &copy, true).unwrap());
        }
    }
}

#[test]
fn a_wide_bf16_tensor_chunked_on_its_last_axis() {
    let slots = slots();
    let norm = RmsNorm::new(tensor(1, &[1024], DType::BF16), 1e-5, &slots, "norm").unwrap();
    if !is_swapped(&slots) {
        return;
    }
    for half in tensor(2, &[1, 51, 2048], DType::BF16).chunk(2, 2).unwrap() {
        let copy = half.force_contiguous().unwrap();
        assert_eq!(flat(&norm.forward(&half).unwrap()), flat(&norm.forward(&copy).unwrap()));
    }
}

#[test]
fn rotary_is_candles_rope_in_both_styles() {
    for style in [RotaryStyle::HalfSplit, RotaryStyle::Interleaved] {
        let slots = slots();
        let (cos, sin) = (tensor(1, &[12, 16], DType::F32), tensor(2, &[12, 16], DType::F32));
        let rotary = RotaryEmbedding::new(cos.clone(), sin.clone(), style, &slots, "rotary").unwrap();
        if !is_swapped(&slots) {
            return;
        }
        let (q, k) = (tensor(3, &[2, 4, 5, 32], DType::F32), tensor(4, &[2, 1, 5, 32], DType::F32));
        let (cos, sin) = (cos.narrow(0, 7, 5).unwrap(), sin.narrow(0, 7, 5).unwrap());
        let (turned_q, turned_k) = rotary.forward(&q, &k, 7).unwrap();
        for (x, turned) in [(&q, turned_q), (&k, turned_k)] {
            let expected = match style {
                RotaryStyle::HalfSplit => rotary_emb::rope(x, &cos, &sin),
                RotaryStyle::Interleaved => rotary_emb::rope_i(x, &cos, &sin),
            };
            for (actual, expected) in flat(&turned).iter().zip(flat(&expected.unwrap())) {
                assert!((actual - expected).abs() <= 2e-6, "{style:?}: {actual} is not {expected}");
            }
        }
    }
}

#[test]
fn a_caches_views_give_what_their_copies_give() {
    for dtype in DTYPES {
        let slots = slots();
        let attention = Attention::new(4, 2, 16, 0.25, dtype, &slots, "attention").unwrap();
        if !is_swapped(&slots) {
            return;
        }
        let mut cache = KvCache::new(20);
        for (step, added) in [7, 1, 1, 3].into_iter().enumerate() {
            let seed = step as u64 * 10;
            let new = |seed| tensor(seed, &[1, added, 2, 16], dtype).transpose(1, 2).unwrap();
            let (k, v) = cache.append(&new(seed + 1), &new(seed + 2)).unwrap();
            let q = tensor(seed + 3, &[1, added, 4, 16], dtype).transpose(1, 2).unwrap();
            let of_views = attention.forward(&q, &k, &v, true).unwrap();
            let copies = [&q, &k, &v].map(|x| x.force_contiguous().unwrap());
            let of_copies = attention.forward(&copies[0], &copies[1], &copies[2], true).unwrap();
            assert_eq!(flat(&of_views), flat(&of_copies), "{dtype:?}, {} positions", cache.len());
        }
    }
}

#[test]
fn a_pair_is_not_turned_by_tables_of_different_widths() {
    let slots = slots();
    let slot = slots.slot(SlotSpec {
        path: "rotary".to_owned(),
        layer: "RotaryEmbedding".to_owned(),
        contract: Contract::Rotary,
        dtype: kernelhub::dtype::DType::F32,
        last_dim: 8,
        trainable: false,
        options: Vec::new(),
        rounding: Rounding::Dtype,
    });
    if !is_swapped(&slots) {
        return;
    }
    let (q, k) = (tensor(1, &[1, 2, 3, 8], DType::F32), tensor(2, &[1, 1, 3, 8], DType::F32));
    let turn = |q: &Tensor, k: &Tensor, tables: [&Tensor; 2], offset| {
        slot.with_plan(|plan| call::rotary_pair(plan, &slot, [q, k], tables, offset, RotaryStyle::HalfSplit))
    };
    let [wide, narrow, flat, half] =
        [(&[9, 4][..], DType::F32), (&[9, 3], DType::F32), (&[36], DType::F32), (&[9, 4], DType::BF16)]
            .map(|(shape, dtype)| tensor(3, shape, dtype));
    assert!(turn(&q, &k, [&wide, &wide], 6).unwrap().is_some());
    for tables in [[&wide, &narrow], [&narrow, &wide], [&wide, &flat], [&flat, &wide], [&wide, &half], [&half, &wide]] {
        turn(&q, &k, tables, 2).unwrap_err();
    }
    for offset in [7, usize::MAX] {
        turn(&q, &k, [&wide, &wide], offset).unwrap_err();
    }
    turn(&q, &k.to_dtype(DType::BF16).unwrap(), [&wide, &wide], 0).unwrap_err();
    turn(&q.to_dtype(DType::BF16).unwrap(), &k, [&wide, &wide], 0).unwrap_err();
}

#[test]
fn a_gradient_of_one_of_queries_and_keys_is_not_lost() {
    for style in [RotaryStyle::HalfSplit, RotaryStyle::Interleaved] {
        let slots = slots();
        let tables = [1, 2].map(|seed| tensor(seed, &[9, 4], DType::F32));
        let [cos, sin] = tables;
        let rotary = RotaryEmbedding::new(cos, sin, style, &slots, "rotary").unwrap();
        if !is_swapped(&slots) {
            return;
        }
        for is_query in [true, false] {
            let tracked = Var::from_tensor(&tensor(3, &[1, 2, 3, 8], DType::F32)).unwrap();
            let other = tensor(4, &[1, 2, 3, 8], DType::F32);
            let [q, k] = if is_query { [&*tracked, &other] } else { [&other, &*tracked] };
            let gradient = |(q, k): (Tensor, Tensor)| {
                let loss = (q.sqr().unwrap() + k.sqr().unwrap() * 3.0).unwrap().sqr().unwrap().sum_all().unwrap();
                flat(loss.backward().unwrap().get(&tracked).expect("it is tracked"))
            };
            let by_kernel = gradient(rotary.forward(q, k, 5).unwrap());
            let expected = gradient(rotary.forward_reference(Mode::Training, q, k, 5).unwrap());
            for (actual, expected) in by_kernel.iter().zip(&expected) {
                assert!((actual - expected).abs() <= 1e-4 * (1.0 + expected.abs()), "{actual} is not {expected}");
            }
        }
    }
}
