//! A model file written on `candle_nn`, and the same file with its imports changed (`examples/dropin`).

#![expect(clippy::unwrap_used, reason = "a test's helpers fail the test")]
#![expect(clippy::print_stdout, reason = "a test that skips says why")]

#[path = "../../examples/dropin/adopted.rs"]
#[allow(
    unreachable_pub,
    clippy::cast_possible_truncation,
    clippy::needless_pass_by_value,
    clippy::struct_field_names,
    reason = "candle's style"
)]
mod adopted;
#[path = "../../examples/dropin/plain.rs"]
#[allow(
    unreachable_pub,
    clippy::cast_possible_truncation,
    clippy::needless_pass_by_value,
    clippy::struct_field_names,
    reason = "candle's style"
)]
mod plain;
#[path = "../../examples/dropin/weights.rs"]
#[allow(unreachable_pub, reason = "a module of a program")]
mod weights;

use std::path::{Path, PathBuf};

use candle_core::{DType, Device, Tensor};
use kernelhub::host::candle::{Kernelized, nn};
use kernelhub::swap::KernelConfig;

use crate::llama;
use crate::llama::config::Config;
use crate::llama::generate::generate;
use crate::llama::model::Llama;
use crate::llama::sampler::{Sampler, Sampling};
use crate::llama::weights::Weights;
use crate::support::embedded;

/// The text without its `use` items.
fn without_imports(text: &str) -> String {
    let mut is_inside = false;
    let mut keeps = |line: &&str| {
        is_inside |= line.starts_with("use ");
        let keeps = !is_inside;
        is_inside &= !line.ends_with(';');
        keeps
    };
    text.lines().filter(|line| keeps(line)).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_two_files_differ_in_their_imports_alone() {
    let read = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/dropin").join(name);
        std::fs::read_to_string(path).unwrap()
    };
    let (plain, adopted) = (read("plain.rs"), read("adopted.rs"));
    let words = |text: &str| without_imports(text).split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(&plain), words(&adopted));
    assert!(words(&plain).len() > 500, "the comparison is of the whole file");
    // The imports are the same names from another crate.
    let imports = |text: &str| {
        let mut names: Vec<_> = text
            .split("\nuse ")
            .skip(1)
            .flat_map(|item| item[..item.find(';').unwrap()].split(|c: char| !c.is_alphanumeric() && c != '_'))
            .filter(|name| !["", "candle_nn", "kernelhub", "host", "candle", "nn"].contains(name))
            .map(str::to_owned)
            .collect();
        names.sort();
        names
    };
    assert_eq!(imports(&plain), imports(&adopted));
    assert!(!without_imports(&adopted).contains("kernelhub"));
    assert!(plain.contains("candle_nn") && !adopted.contains("candle_nn"));
}

fn pair(open: impl Fn() -> Weights, positions: usize) -> (plain::Llama, Kernelized<adopted::Llama>) {
    let config = weights::config(&open(), positions);
    let plain = plain::Llama::new(&config, weights::builder(open())).unwrap();
    let plain::Config { hidden, intermediate, layers, heads, kv_heads, head_dim, .. } = config;
    let plain::Config { vocabulary, positions, eps, theta, .. } = config;
    let config =
        adopted::Config { hidden, intermediate, layers, heads, kv_heads, head_dim, vocabulary, positions, eps, theta };
    let adopted = Kernelized::build(weights::builder(open()), |vb| adopted::Llama::new(&config, vb)).unwrap();
    (plain, adopted)
}

fn bits(tensor: &Tensor) -> Vec<u32> {
    let values = tensor.to_dtype(DType::F32).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
    values.into_iter().map(f32::to_bits).collect()
}

#[test]
fn kernels_off_is_bit_for_bit_what_it_was() {
    for dtype in [DType::F32, DType::BF16, DType::F16] {
        let (plain, adopted) = pair(|| Weights::random(Config::tiny(), 7, dtype, &Device::Cpu), 32);
        // One row: the last norm's input is then contiguous. For strided input candle's norm takes another way than
        // ours.
        let tokens = Tensor::new(&[[5_u32, 17, 3, 99, 127]], &Device::Cpu).unwrap();
        let expected = plain.forward(&tokens, &mut plain.cache()).unwrap();
        let actual = adopted.run(|model| model.forward(&tokens, &mut model.cache())).unwrap();
        assert_eq!(bits(&actual), bits(&expected), "{dtype:?}");
    }
}

#[test]
fn every_layer_has_a_slot_at_its_path() {
    let (_, adopted) = pair(|| Weights::random(Config::tiny(), 7, DType::F32, &Device::Cpu), 32);
    let report = adopted.report();
    let paths: Vec<_> = report.layers.iter().map(|layer| (layer.path.as_str(), layer.layer.as_str())).collect();
    let expected = [
        ("model.embed_tokens", "Embedding"),
        ("model.layers.0.input_layernorm", "RMSNorm"),
        ("model.layers.0.self_attn.q_proj", "Linear"),
        ("model.layers.0.self_attn.k_proj", "Linear"),
        ("model.layers.0.self_attn.v_proj", "Linear"),
        ("model.layers.0.self_attn.o_proj", "Linear"),
        ("model.layers.0.post_attention_layernorm", "RMSNorm"),
        ("model.layers.0.mlp.gate_proj", "Linear"),
        ("model.layers.0.mlp.up_proj", "Linear"),
        ("model.layers.0.mlp.down_proj", "Linear"),
    ];
    assert_eq!(paths[..10], expected);
    // Two layers of nine, the embedding and the last norm.
    assert_eq!((paths.len(), paths.last()), (20, Some(&("model.norm", "RMSNorm"))));
}

/// The model of the demo, or `None` with a printed reason.
fn real_model() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/models/SmolLM2-135M-Instruct.Q4_1.gguf");
    if path.is_file() {
        return Some(path);
    }
    println!("skipped: {} is not there; `cargo xtask demo` downloads it", path.display());
    None
}

#[test]
fn the_real_model_says_the_same_with_kernels_on_and_off() {
    let (Some(path), Some(hub)) = (real_model(), embedded::hub()) else { return };
    let open = || Weights::open(&path, DType::F32, &Device::Cpu).unwrap();
    let (prompt, count) = ([504, 3575, 282, 4649, 314], 12);
    let (plain, adopted) = pair(open, 32);
    let expected = plain.greedy(&prompt, count, &Device::Cpu).unwrap();
    drop(plain);
    let greedy = || adopted.run(|model| model.greedy(&prompt, count, &Device::Cpu)).unwrap();
    assert_eq!(greedy(), expected, "kernels off");
    let report = adopted.use_kernels(hub, &KernelConfig::standard().unwrap()).unwrap();
    let norms = report.layers.iter().filter(|layer| layer.layer == "RMSNorm");
    assert_eq!(norms.clone().count(), 61);
    assert!(norms.clone().all(|layer| layer.outcome.kernel().is_some()), "{report}");
    assert_eq!(greedy(), expected, "kernels on: {report}");
    drop(adopted);

    // The example that is made of the host's own layers, its norms fused with the adds before them.
    let model = Llama::load(&open()).unwrap();
    let greedy = || {
        let mut sampler = Sampler::new(Sampling::GREEDY).unwrap();
        generate(&model, &prompt, count, &[], &mut sampler, |_| Ok(())).unwrap().tokens
    };
    assert_eq!(greedy(), expected, "examples/llama, kernels off");
    let report = model.use_kernels(hub, &KernelConfig::standard().unwrap()).unwrap();
    // In each of 30 layers two norms, q, k, v, o, rotary embedding, attention, gate with up, activation and down; the
    // embedding, the last norm and the head.
    assert_eq!((report.total(), report.swapped()), (333, 333), "{report}");
    let fused = report.groups.iter().filter(|group| group.is_fused()).map(|group| group.layer.as_str());
    let fused = |layer: &str| fused.clone().filter(|fused| *fused == layer).count();
    assert_eq!((fused("AddRMSNorm"), fused("QKVLinear"), fused("SiluGatedLinear")), (60, 30, 30), "{report}");
    assert_eq!(greedy(), expected, "examples/llama, kernels on: {report}");
}

#[test]
fn every_constructor_of_candles_takes_our_builder() {
    let vb = || nn::VarBuilder::zeros(DType::F32, &Device::Cpu);
    let x = Tensor::ones((2, 3, 8), DType::F32, &Device::Cpu).unwrap();
    let layers: Vec<Box<dyn candle_core::Module>> = vec![
        Box::new(nn::linear(8, 4, vb().pp("a")).unwrap()),
        Box::new(nn::linear_b(8, 4, true, vb().pp("b")).unwrap()),
        Box::new(nn::linear_b(8, 4, false, vb().pp("c")).unwrap()),
        Box::new(nn::rms_norm(8, 1e-6, vb().pp("d")).unwrap()),
        Box::new(nn::layer_norm(8, 1e-6, vb().pp("e")).unwrap()),
        Box::new(nn::layer_norm_no_bias(8, 1e-6, vb().pp("f")).unwrap()),
        Box::new(nn::prelu(None, vb().pp("g")).unwrap()),
        Box::new(nn::group_norm(1, 3, 1e-5, vb().pp("h")).unwrap()),
        Box::new(nn::conv1d(3, 2, 3, nn::Conv1dConfig::default(), vb().pp("i")).unwrap()),
        Box::new(nn::activation(nn::Activation::Silu, 8, vb().pp("j")).unwrap()),
        Box::new(nn::softmax(8, vb().pp("k")).unwrap()),
    ];
    for layer in layers {
        layer.forward(&x).unwrap();
    }
    let error = nn::activation(nn::Activation::Relu, 8, vb()).unwrap_err();
    assert_eq!(error.to_string(), "no contract describes the activation Relu");
}
