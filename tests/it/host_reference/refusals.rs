//! What the layers refuse, and how they say it.

use candle_core::{DType, Device, Tensor, Var};
use kernelhub::hint::Hint as _;
use kernelhub::host::candle::{Attention, GatedMlp, KvCache, LayerError, RmsNorm, RotaryEmbedding, RotaryStyle};
use kernelhub::swap::Mode;

use super::{noise, slots};

#[track_caller]
fn text<T>(result: candle_core::Result<T>) -> String {
    match result {
        Ok(_) => panic!("it was not refused"),
        Err(error) => error.to_string(),
    }
}

fn zeros(shape: &[usize]) -> Tensor {
    Tensor::zeros(shape, DType::F32, &Device::Cpu).unwrap()
}

#[test]
fn a_layer_is_not_built_from_tensors_that_do_not_fit() {
    let ids = Tensor::zeros(4, DType::U32, &Device::Cpu).unwrap();
    assert_eq!(
        text(RmsNorm::new(ids, 1e-5, &slots(), "norm")),
        "RMSNorm: weight must be one of f64, f32, bf16, f16, got U32"
    );
    assert_eq!(
        text(RmsNorm::new(zeros(&[2, 2]), 1e-5, &slots(), "norm")),
        "RMSNorm: weight must be [hidden], got [2, 2]"
    );
    let rotary = |cos: &[usize], sin: &[usize]| {
        RotaryEmbedding::new(zeros(cos), zeros(sin), RotaryStyle::HalfSplit, &slots(), "rotary")
    };
    assert_eq!(text(rotary(&[4], &[4])), "RotaryEmbedding: cos must be [max_seq, head_dim / 2], got [4]");
    assert_eq!(text(rotary(&[4, 2], &[4, 3])), "RotaryEmbedding: sin must be [4, 2] like cos, got [4, 3]");
    assert_eq!(
        text(GatedMlp::new(zeros(&[7, 4]), zeros(&[4, 3]), &slots(), "mlp")),
        "SiluAndMul: gate_up must be [6, 4] to go with down [4, 3], got [7, 4]"
    );
    assert_eq!(
        text(GatedMlp::new(zeros(&[6, 4]), noise(1, &[4, 3], DType::F16), &slots(), "mlp")),
        "SiluAndMul: down must be F32 like gate_up, got F16"
    );
    for (heads, kv_heads) in [(4, 3), (4, 0), (0, 1)] {
        assert_eq!(
            text(Attention::new(heads, kv_heads, 8, 1.0, DType::F32, &slots(), "attention")),
            format!("FlashAttention: {heads} query heads cannot be divided among {kv_heads} key-value heads")
        );
    }
}

#[test]
fn an_input_of_another_shape_or_type_is_refused() {
    let norm = RmsNorm::new(zeros(&[4]), 1e-5, &slots(), "norm").unwrap();
    assert_eq!(text(norm.forward(&zeros(&[2, 3]))), "RMSNorm: input must be [..., 4], got [2, 3]");
    let half = noise(1, &[2, 4], DType::F16);
    assert_eq!(text(norm.forward(&half)), "RMSNorm: input must be F32 like the weight, got F16");

    let mlp = GatedMlp::new(zeros(&[6, 4]), zeros(&[4, 3]), &slots(), "mlp").unwrap();
    assert_eq!(text(mlp.forward(&zeros(&[1, 2, 5]))), "SiluAndMul: input must be [..., 4], got [1, 2, 5]");

    let rotary = RotaryEmbedding::new(zeros(&[8, 2]), zeros(&[8, 2]), RotaryStyle::HalfSplit, &slots(), "r").unwrap();
    let (q, k) = (zeros(&[1, 2, 3, 4]), zeros(&[1, 1, 2, 4]));
    assert_eq!(text(rotary.forward(&q, &k, 0)), "RotaryEmbedding: k must be [batch, heads, 3, 4], got [1, 1, 2, 4]");
    for (offset, end) in [(6, "9"), (usize::MAX, "18446744073709551615")] {
        let expected = format!("RotaryEmbedding: positions {offset}..{end} do not fit tables of 8 positions");
        assert_eq!(text(rotary.forward(&q, &q, offset)), expected);
    }

    let attention = Attention::new(4, 2, 8, 1.0, DType::F32, &slots(), "attention").unwrap();
    let (q, k) = (zeros(&[1, 4, 3, 8]), zeros(&[1, 2, 5, 8]));
    assert_eq!(
        text(attention.forward(&k, &k, &k, true)),
        "FlashAttention: q must be [batch, 4, q_len, 8], got [1, 2, 5, 8]"
    );
    assert_eq!(
        text(attention.forward(&q, &q, &q, true)),
        "FlashAttention: k must be [1, 2, kv_len, 8], got [1, 4, 3, 8]"
    );
    assert_eq!(
        text(attention.forward(&q, &k, &noise(1, &[1, 2, 5, 8], DType::F16), true)),
        "FlashAttention: v must be F32 like q, got F16"
    );
}

#[test]
fn a_cache_appends_all_or_nothing() {
    let part = |seq| zeros(&[1, 2, seq, 4]);
    let mut cache = KvCache::new(4);
    cache.append(&part(3), &part(3)).unwrap();
    assert_eq!(text(cache.append(&part(2), &part(2))), "key-value cache: 5 positions requested, 4 is its capacity");
    assert!(text(cache.append(&part(1), &zeros(&[1, 2, 1, 5]))).contains("values must be [1, 2, 1, 4] like the keys"));
    assert!(text(cache.append(&zeros(&[2, 2, 1, 4]), &zeros(&[2, 2, 1, 4]))).contains("like those held"));
    let half = noise(1, &[1, 2, 1, 4], DType::F16);
    assert!(text(cache.append(&part(1), &half)).contains("values must be F32 like those held, got F16"));
    let tracked = Var::from_tensor(&part(1)).unwrap();
    assert!(text(cache.append(&tracked, &part(1))).contains("keys tracks gradients"));
    assert_eq!(cache.len(), 3);
    cache.append(&part(1), &part(1)).unwrap();
    assert_eq!(cache.len(), 4);
    let hint = LayerError::CacheFull { requested: 5, maximum: 4 }.hint();
    assert_eq!(hint.as_deref(), Some("make the cache with a larger capacity, or reset it"));
}

#[test]
fn of_nothing_comes_nothing() {
    for style in [RotaryStyle::HalfSplit, RotaryStyle::Interleaved] {
        let rotary = RotaryEmbedding::new(zeros(&[4, 2]), zeros(&[4, 2]), style, &slots(), "rotary").unwrap();
        for shape in [[0, 1, 3, 4], [1, 0, 3, 4], [1, 2, 0, 4]] {
            let (q, k) = (zeros(&shape), zeros(&[1, 1, shape[2], 4]));
            for mode in [Mode::Inference, Mode::Training] {
                let (turned, other) = rotary.forward_reference(mode, &q, &k, 1).unwrap();
                assert_eq!((turned.dims(), other.dims()), (q.dims(), k.dims()), "{style:?} {mode:?}");
            }
        }
    }
    let mlp = GatedMlp::new(zeros(&[6, 4]), zeros(&[4, 3]), &slots(), "mlp").unwrap();
    assert_eq!(mlp.forward(&zeros(&[2, 0, 4])).unwrap().dims(), [2, 0, 4]);
    for (shape, hidden) in [(&[3, 0][..], 0), (&[0, 8], 8), (&[2, 0, 8], 8), (&[0], 0)] {
        let norm = RmsNorm::new(zeros(&[hidden]), 1e-5, &slots(), "norm").unwrap();
        for mode in [Mode::Inference, Mode::Training] {
            assert_eq!(norm.forward_reference(mode, &zeros(shape)).unwrap().dims(), shape);
        }
    }

    // One axis more than kernels take and candle copies.
    let nine =
        Tensor::zeros(&[1, 1, 1, 1, 1, 1, 2, 1, 4][..], DType::F32, &Device::Cpu).unwrap().transpose(6, 8).unwrap();
    let norm = RmsNorm::new(zeros(&[2]), 1e-5, &slots(), "norm").unwrap();
    assert!(text(norm.forward(&nine)).contains("[..., 2] of at most 8 axes"));
    assert!(text(mlp.forward(&zeros(&[1, 1, 1, 1, 1, 1, 1, 1, 4]))).contains("[..., 4] of at most 8 axes"));
}

#[test]
fn the_plan_of_another_model_is_refused() {
    let (own, other) = (slots(), slots());
    let norm = RmsNorm::new(zeros(&[4]), 1e-5, &own, "norm").unwrap();
    let mlp = GatedMlp::new(zeros(&[6, 4]), zeros(&[4, 3]), &own, "mlp").unwrap();
    let attention = Attention::new(2, 1, 4, 0.5, DType::F32, &own, "attn").unwrap();
    let _ = RmsNorm::new(zeros(&[4]), 1e-5, &other, "norm").unwrap();
    let plan = other.pin();
    let x = zeros(&[1, 4]);
    let (q, k) = (zeros(&[1, 2, 1, 4]), zeros(&[1, 1, 1, 4]));
    let refused = "the plan is not one of the model that the layer belongs to";
    assert_eq!(text(norm.forward_in(&plan, &x)), refused);
    assert_eq!(text(norm.forward_add_in(&plan, &x, &x)), refused);
    assert_eq!(text(mlp.forward_in(&plan, &x)), refused);
    assert_eq!(text(attention.forward_in(&plan, &q, &k, &k, true)), refused);
    assert!(norm.forward_in(&own.pin(), &x).is_ok());
    assert!(LayerError::OtherModel.hint().unwrap().contains("pin the plan"));
}
