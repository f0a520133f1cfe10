//! The example model against itself: with a cache and without, whole and in parts.

use candle_core::{DType, Device, Tensor};

use super::{assert_close, flat};
use crate::llama::config::Config;
use crate::llama::generate::{Stop, forced, generate};
use crate::llama::model::Llama;
use crate::llama::sampler::{Sampler, Sampling};
use crate::llama::weights::Weights;

fn variants() -> Vec<(&'static str, Config)> {
    let tiny = Config::tiny();
    vec![
        ("tied", tiny.clone()),
        ("untied", Config { tied: Some(false), ..tiny.clone() }),
        ("qk norm", Config { qk_norm: true, head_dim: 24, ..tiny.clone() }),
        ("biases", Config { qkv_bias: true, output_bias: true, ..tiny.clone() }),
        ("one kv head", Config { kv_heads: 1, ..tiny.clone() }),
        ("every head its own", Config { kv_heads: 4, ..tiny }),
    ]
}

fn tokens(ids: &[u32]) -> Tensor {
    Tensor::new(ids, &Device::Cpu).unwrap().unsqueeze(0).unwrap()
}

const IDS: [u32; 9] = [5, 17, 3, 99, 127, 0, 42, 42, 7];

#[test]
fn prefill_then_decode_is_one_forward() {
    for (name, config) in variants() {
        let model = Llama::random(config, 7, DType::F32, &Device::Cpu).unwrap();
        let whole = model.forward_all(&tokens(&IDS), None).unwrap();
        assert_eq!(whole.dims(), [1, IDS.len(), 128], "{name}");
        for prefill in [1, 4, 8] {
            let mut cache = model.cache(IDS.len());
            let parts = [&IDS[..prefill]].into_iter().chain(IDS[prefill..].chunks(1));
            let mut seen = 0;
            for part in parts {
                seen += part.len();
                let logits = model.forward(&tokens(part), &mut cache).unwrap();
                let expected = whole.narrow(1, seen - 1, 1).unwrap();
                assert_close(&logits, &flat(&expected), 1e-4, &format!("{name}, prefill {prefill}, position {seen}"));
            }
            assert_eq!(cache.len(), IDS.len());
        }
        let mut cache = model.cache(IDS.len());
        model.forward(&tokens(&IDS[..2]), &mut cache).unwrap();
        let rest = model.forward_all(&tokens(&IDS[2..]), Some(&mut cache)).unwrap();
        let expected = whole.narrow(1, 2, IDS.len() - 2).unwrap();
        assert_close(&rest, &flat(&expected), 1e-4, &format!("{name}, two parts"));
    }
}

#[test]
fn a_batch_is_its_rows() {
    let model = Llama::random(Config::tiny(), 7, DType::F32, &Device::Cpu).unwrap();
    let (first, second) = (tokens(&IDS[..4]), tokens(&IDS[4..8]));
    let both = model.forward_all(&Tensor::cat(&[&first, &second], 0).unwrap(), None).unwrap();
    for (row, alone) in [first, second].into_iter().enumerate() {
        let alone = model.forward_all(&alone, None).unwrap();
        assert_close(&both.narrow(0, row, 1).unwrap(), &flat(&alone), 1e-4, &format!("row {row}"));
    }
}

#[test]
fn narrow_types_stay_near_f32() {
    let logits = |dtype| {
        let model = Llama::random(Config::tiny(), 7, dtype, &Device::Cpu).unwrap();
        model.forward_all(&tokens(&IDS), None).unwrap()
    };
    let expected = flat(&logits(DType::F32));
    assert_close(&logits(DType::F16), &expected, 2e-2, "f16");
    assert_close(&logits(DType::BF16), &expected, 1.5e-1, "bf16");
}

#[test]
fn what_a_model_option_adds_counts() {
    // An option that was read and then dropped would leave the logits as they are.
    let logits = |config| {
        let model = Llama::random(config, 7, DType::F32, &Device::Cpu).unwrap();
        flat(&model.forward_all(&tokens(&IDS), None).unwrap())
    };
    let base = Config { head_dim: 24, ..Config::tiny() };
    let plain = logits(base.clone());
    assert_eq!(plain, logits(base.clone()), "the same seed gives the same model");
    for (name, changed) in [
        ("qk norm", Config { qk_norm: true, ..base.clone() }),
        ("qkv bias", Config { qkv_bias: true, ..base.clone() }),
        ("output bias", Config { output_bias: true, ..base.clone() }),
        ("untied", Config { tied: Some(false), ..base.clone() }),
        ("rope theta", Config { rope_theta: 500.0, ..base }),
    ] {
        assert_ne!(plain, logits(changed), "{name}");
    }
}

#[test]
fn trainable_weights_come_as_variables() {
    let weights = Weights::random(Config::tiny(), 7, DType::F32, &Device::Cpu).trainable();
    Llama::load(&weights).unwrap();
    let names: Vec<_> = weights.variables().into_iter().map(|(name, _)| name).collect();
    // Embedding, final norm, and in each layer: two norms, q with k and v, o, gate with up, down.
    assert_eq!(names.len(), 2 + 2 * 6);
    assert!(names.contains(&"model.layers.1.mlp.gate_proj.weight+model.layers.1.mlp.up_proj.weight".to_owned()));
}

#[test]
fn generation_stops_where_it_should() {
    let model = Llama::random(Config::tiny(), 7, DType::F32, &Device::Cpu).unwrap();
    let run = |prompt: &[u32], most, eos: &[u32]| {
        let mut seen = Vec::new();
        let mut sampler = Sampler::new(Sampling::GREEDY).unwrap();
        let result = generate(&model, prompt, most, eos, &mut sampler, |token| {
            seen.push(token);
            Ok(())
        });
        let result = result.unwrap();
        assert_eq!(result.tokens, seen);
        result
    };
    let all = run(&IDS, 6, &[]);
    assert_eq!((all.tokens.len(), all.stop, all.decoded), (6, Stop::MaxTokens, 5));
    let third = all.tokens[2];
    let ended = run(&IDS, 6, &[third]);
    let first = all.tokens.iter().position(|token| *token == third).unwrap();
    assert_eq!((ended.tokens, ended.stop), (all.tokens[..=first].to_vec(), Stop::EndOfText));
    assert!(run(&IDS, 0, &[]).tokens.is_empty());
    let full = run(&[1; 250], 100, &[]);
    assert_eq!((full.tokens.len(), full.stop), (7, Stop::ContextFull));

    // Forced with the greedy text, the model makes the same choices again.
    let replayed = forced(&model, &IDS, &all.tokens[..5]).unwrap();
    assert_eq!((replayed.tokens, replayed.decoded), (all.tokens, 5));
    let nothing = generate(&model, &[], 1, &[], &mut Sampler::new(Sampling::GREEDY).unwrap(), |_| Ok(()));
    assert_eq!(nothing.unwrap_err().to_string(), "the prompt has no tokens");
    let outside = forced(&model, &[128], &[]);
    assert_eq!(outside.unwrap_err().to_string(), "token 128 is outside of the model's vocabulary of 128");
    let long = forced(&model, &[1; 257], &[]);
    assert_eq!(long.unwrap_err().to_string(), "257 tokens after 0 do not fit a context of 256 tokens");
}

#[test]
fn sampling_keeps_to_its_options() {
    let logits = Tensor::new(&[0.0f32, 3.0, 1.0, 2.0, f32::NEG_INFINITY], &Device::Cpu).unwrap();
    let draws = |sampling: Sampling| {
        let mut sampler = Sampler::new(sampling).unwrap();
        (0..400).map(|_| sampler.sample(&logits).unwrap()).collect::<Vec<_>>()
    };
    let kinds = |draws: &[u32]| {
        let mut kinds = draws.to_vec();
        kinds.sort_unstable();
        kinds.dedup();
        kinds
    };
    let warm = Sampling { temperature: 1.0, ..Sampling::GREEDY };
    assert_eq!(kinds(&draws(Sampling::GREEDY)), [1]);
    assert_eq!(kinds(&draws(warm)), [0, 1, 2, 3]);
    assert_eq!(kinds(&draws(Sampling { top_k: 2, ..warm })), [1, 3]);
    // Probabilities 0.64, 0.24, 0.09, 0.03: the first two reach 0.8.
    assert_eq!(kinds(&draws(Sampling { top_p: 0.8, ..warm })), [1, 3]);
    assert_eq!(kinds(&draws(Sampling { top_p: 0.5, ..warm })), [1]);
    assert_eq!(draws(warm), draws(warm));
    assert_ne!(draws(warm), draws(Sampling { seed: 1, ..warm }));
    let likeliest = draws(warm).iter().filter(|token| **token == 1).count();
    assert!((220..290).contains(&likeliest), "{likeliest} of 400 draws of a token with probability 0.64");
    for wrong in [
        Sampling { temperature: -1.0, ..warm },
        Sampling { temperature: f64::NAN, ..warm },
        Sampling { top_p: 0.0, ..warm },
        Sampling { top_p: 1.5, ..warm },
    ] {
        Sampler::new(wrong).unwrap_err();
    }
    let broken = Tensor::new(&[f32::NAN, f32::NAN], &Device::Cpu).unwrap();
    Sampler::new(Sampling::GREEDY).unwrap().sample(&broken).unwrap_err();
}
