//! The example model with the project's own kernels: what is swapped, that it comes back, and that training keeps every
//! gradient.

use std::collections::BTreeMap;

use candle_core::{DType, Device, Tensor};
use kernelhub::host::candle::QkvLinear;
use kernelhub::swap::{KernelConfig, Outcome, Report, Slots};
use kernelhub::variant::DeviceKey;

use crate::llama::config::Config;
use crate::llama::model::Llama;
use crate::llama::weights::Weights;
use crate::support::embedded;

const IDS: [u32; 7] = [5, 17, 3, 99, 127, 0, 42];

fn tokens(ids: &[u32]) -> Tensor {
    Tensor::new(ids, &Device::Cpu).unwrap().unsqueeze(0).unwrap()
}

fn values(tensor: &Tensor) -> Vec<f32> {
    tensor.to_dtype(DType::F32).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

/// The logits of a prompt and of two tokens after it, so that both products run: of many rows, and of one.
fn logits(model: &Llama) -> Vec<f32> {
    let mut cache = model.cache(IDS.len());
    let mut all = values(&model.forward(&tokens(&IDS[..5]), &mut cache).unwrap());
    for token in IDS[5..].chunks(1) {
        all.extend(values(&model.forward(&tokens(token), &mut cache).unwrap()));
    }
    all
}

/// How many layers of each name a kernel took, by the kernel's own name for the layer.
fn taken(report: &Report) -> BTreeMap<(String, String), usize> {
    let mut taken = BTreeMap::new();
    for layer in &report.layers {
        let by = layer.outcome.kernel().map_or_else(|| "reference".to_owned(), |kernel| kernel.layer.clone());
        *taken.entry((layer.layer.clone(), by)).or_insert(0) += 1;
    }
    taken
}

#[test]
fn every_layer_is_swapped_and_comes_back() {
    let Some(hub) = embedded::hub() else { return };
    for (dtype, tolerance) in [(DType::F32, 1e-4), (DType::F16, 3e-2), (DType::BF16, 2e-1)] {
        for config in [Config::tiny(), Config { tied: Some(false), qkv_bias: true, qk_norm: true, ..Config::tiny() }] {
            let model = Llama::random(config, 7, dtype, &Device::Cpu).unwrap();
            let off = logits(&model);
            let report = model.use_kernels(hub, &KernelConfig::standard().unwrap()).unwrap();
            let taken = taken(&report);
            let count = |layer: &str, by: &str| taken.get(&(layer.to_owned(), by.to_owned())).copied().unwrap_or(0);
            assert_eq!(report.swapped(), report.total(), "{report}");
            assert_eq!(count("Embedding", "Embedding"), 1, "{report}");
            // In each of two layers q, k, v, o and the two of the block; and the head.
            assert_eq!(
                taken.iter().filter(|((layer, _), _)| layer == "Linear").map(|(_, count)| count).sum::<usize>(),
                13
            );
            let fused: Vec<_> = report.groups.iter().filter(|group| group.is_fused()).collect();
            let of = |layer: &str| fused.iter().filter(|group| group.layer == layer).count();
            assert_eq!((of("QKVLinear"), of("AddRMSNorm"), of("SiluGatedLinear")), (2, 4, 2), "{report}");
            let head = report.layers.iter().find(|layer| layer.path == "lm_head").unwrap();
            assert!(matches!(head.outcome, Outcome::Kernel(_)), "{report}");

            let on = logits(&model);
            let largest = off.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
            for (at, (on, off)) in on.iter().zip(&off).enumerate() {
                assert!((on - off).abs() <= tolerance * largest, "{dtype:?}, logit {at}: {on} is not {off}");
            }
            assert_ne!(on, off, "other code adds up in another order");
            model.disable_kernels();
            assert_eq!(logits(&model), off, "{dtype:?}: kernels off is what it was, bit for bit");
        }
    }
}

#[test]
fn the_default_mapping_names_a_kernel_for_every_layer_and_group_of_the_model() {
    let slots = Llama::outline(Config { qk_norm: true, ..Config::tiny() }, DType::BF16, DeviceKey::Cpu).unwrap();
    let preview = slots.preview(&KernelConfig::standard().unwrap(), DeviceKey::Cpu, kernelhub::swap::Mode::Inference);
    let preview = preview.unwrap();
    assert_eq!(preview.picked(), preview.layers.len(), "{preview}");
}

/// One step of training: the gradient of every variable, by name.
fn gradients(model: &Llama, weights: &Weights) -> Vec<(String, Vec<f32>)> {
    let loss = model.forward_all(&tokens(&IDS), None).unwrap().sqr().unwrap().mean_all().unwrap();
    let store = loss.backward().unwrap();
    let of = |(name, variable): (String, candle_core::Var)| {
        let gradient = store.get(&variable).unwrap_or_else(|| panic!("{name} has no gradient"));
        assert_eq!(gradient.dims(), variable.dims(), "{name}");
        (name, values(gradient))
    };
    weights.variables().into_iter().map(of).collect()
}

#[test]
fn every_variable_keeps_its_gradient_in_both_modes() {
    let Some(hub) = embedded::hub() else { return };
    let config = Config { qkv_bias: true, ..Config::tiny() };
    let weights = Weights::random(config, 7, DType::F32, &Device::Cpu).trainable();
    let model = Llama::load(&weights).unwrap();
    let expected = gradients(&model, &weights);
    // The embedding, which is the head too, the last norm, and in each layer two norms, qkv with its bias, o, gate with
    // up, down.
    assert_eq!(expected.len(), 2 + 2 * 7);
    let standard = KernelConfig::standard().unwrap();
    for is_training in [true, false] {
        if is_training {
            model.train()
        } else {
            model.eval()
        };
        let report = model.use_kernels(hub, &standard).unwrap();
        let kernels: Vec<_> = report.layers.iter().filter(|layer| layer.outcome.kernel().is_some()).collect();
        // What has a backward stays swapped; a Linear has none.
        assert!(kernels.iter().any(|layer| layer.layer == "SiluAndMul"), "{report}");
        assert!(kernels.iter().all(|layer| layer.layer != "Linear" && layer.layer != "Embedding"), "{report}");
        for ((name, actual), (_, expected)) in gradients(&model, &weights).iter().zip(&expected) {
            let largest = expected.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
            assert!(largest > 0.0, "{name} has a gradient of zeros");
            for (at, (actual, expected)) in actual.iter().zip(expected).enumerate() {
                let error = (actual - expected).abs();
                assert!(error <= 1e-4 * largest, "{name}, element {at}: {actual} is not {expected}, {report}");
            }
        }
    }
}

#[test]
fn heads_are_views_of_one_product() {
    let slots = Slots::new(DeviceKey::Cpu);
    let weight = Tensor::arange(0_f32, 60.0, &Device::Cpu).unwrap().reshape((12, 5)).unwrap();
    let qkv = QkvLinear::of_merged((weight.clone(), None), [8, 2, 2], &slots, "attention").unwrap();
    let x = Tensor::arange(0_f32, 30.0, &Device::Cpu).unwrap().reshape((2, 3, 5)).unwrap();
    let mut plans = vec![None];
    plans.extend(embedded::hub().map(Some));
    for hub in plans {
        if let Some(hub) = hub {
            let report = slots.use_kernels(hub, &KernelConfig::standard().unwrap()).unwrap();
            assert!(report.groups[0].is_fused(), "{report}");
        }
        let plan = slots.pin();
        let heads = qkv.forward_heads_in(&plan, &x, 2).unwrap();
        let whole = qkv.forward_in(&plan, &x).unwrap();
        for ((by_head, whole), heads) in heads.iter().zip(&whole).zip([4, 1, 1]) {
            let expected = whole.reshape((2, 3, heads, 2)).unwrap().transpose(1, 2).unwrap();
            assert_eq!(by_head.dims(), expected.dims());
            assert_eq!(values(by_head), values(&expected));
        }
        // Under the kernel the three lie in one tensor, a row of which holds all of them.
        assert_eq!(heads[1].stride()[2], if hub.is_some() { 12 } else { 2 });
    }
    let plan = slots.pin();
    let error = qkv.forward_heads_in(&plan, &x, 4).unwrap_err().to_string();
    assert_eq!(error, "QKVLinear: k_proj must be [heads * 4, in], got [2, 5]");
    let error = QkvLinear::of_merged((weight, None), [8, 2, 3], &slots, "a").unwrap_err().to_string();
    assert_eq!(error, "QKVLinear: weight must be [13, in], the sum of [8, 2, 3], got [12, 5]");
}
