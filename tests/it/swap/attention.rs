//! The word for a model's attention: explicit words are met or are errors, `auto` falls back and says so.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::sync::{Arc, LazyLock, Mutex};

use kernelhub::bind::{Contract, LayerKernel, Rounding};
use kernelhub::dtype::DType;
use kernelhub::hint::Hint as _;
use kernelhub::swap::{
    AttentionPath, AttnImplementation, KernelConfig, KernelProvider, KernelRef, Mode, Outcome, ProvideError, Reason,
    Report, SlotSpec, Slots, SwapError,
};
use kernelhub::variant::DeviceKey;

use crate::support::native::{NativePack, layer};

const DENSE: &[&str] = &["out", "q", "k", "v", "softmax_scale", "causal"];
const OPTIONS: &[&str] = &["window_left", "window_right", "softcap"];
const PAGED: &[&str] = &["out", "q", "k_cache", "v_cache", "block_table", "seqlens_k", "softmax_scale", "causal"];

/// Kernels by repo and layer.
struct Shelf {
    kernels: BTreeMap<(&'static str, &'static str), Arc<LayerKernel>>,
    asked: Mutex<Vec<String>>,
}

impl KernelProvider for Shelf {
    fn provide(&self, kernel: &KernelRef, layer: &str, _: DeviceKey) -> Result<Arc<LayerKernel>, ProvideError> {
        self.asked.lock().unwrap().push(format!("{kernel} {layer}"));
        let text = kernel.to_string();
        let repo = text.split(['@', ':']).next().unwrap_or_default();
        self.kernels
            .iter()
            .find(|((on, name), _)| *on == repo && *name == layer)
            .map(|(_, kernel)| Arc::clone(kernel))
            .ok_or_else(|| ProvideError {
                hint: Some("publish it".to_owned()),
                source: Box::new(std::io::Error::other(format!("nobody has {layer} of {repo}"))),
            })
    }
}

/// One kernel that takes no option, one that takes all, and both as paged ones.
static KERNELS: LazyLock<BTreeMap<&'static str, Arc<LayerKernel>>> = LazyLock::new(|| {
    let all = |arguments: &[&'static str]| [arguments, OPTIONS].concat();
    let with_limit = |text: String| format!("{text}limits = {{ max_head_size = 256 }}\n");
    let layers = [
        with_limit(layer("Plain", "attention", "refuses", DENSE)),
        with_limit(layer("Able", "attention", "refuses", &all(DENSE))),
        with_limit(layer("Paged", "attention.paged", "refuses", &all(PAGED))),
        layer("Norm", "rms_norm", "refuses", &["out", "x", "weight", "eps"]),
    ];
    let pack = NativePack::kit("attention", &layers.concat());
    ["Plain", "Able", "Paged", "Norm"].into_iter().map(|name| (name, pack.layer(name).unwrap())).collect()
});

fn shelf(kernels: &[(&'static str, &'static str, &str)]) -> Shelf {
    let kernels = kernels.iter().map(|(repo, layer, kernel)| ((*repo, *layer), Arc::clone(&KERNELS[kernel]))).collect();
    Shelf { kernels, asked: Mutex::default() }
}

fn spec(path: &str, contract: Contract, options: &[&'static str]) -> SlotSpec {
    let layer = match contract {
        Contract::AttentionPaged => "FlashAttentionPaged",
        Contract::Attention => "FlashAttention",
        _ => "RMSNorm",
    };
    SlotSpec {
        path: path.to_owned(),
        layer: layer.to_owned(),
        contract,
        dtype: DType::F32,
        last_dim: 64,
        trainable: false,
        options: options.to_vec(),
        rounding: Rounding::Dtype,
    }
}

/// Two attention layers and a norm.
fn model(device: DeviceKey, options: &[&'static str]) -> Slots {
    let slots = Slots::new(device);
    for path in ["layers.0.attn", "layers.1.attn"] {
        let _ = slots.slot(spec(path, Contract::Attention, options));
    }
    let _ = slots.slot(spec("norm", Contract::RmsNorm, &[]));
    slots
}

fn word(text: &str) -> AttnImplementation {
    text.parse().unwrap()
}

fn attention(report: &Report) -> Vec<&Outcome> {
    report.layers.iter().filter(|line| line.layer.starts_with("FlashAttention")).map(|line| &line.outcome).collect()
}

/// F35: the same kernel that cannot be had, asked for by name and as one of the choices.
#[test]
fn f35_an_explicit_word_fails_with_its_cause_and_auto_falls_back_and_says_why() {
    let slots = model(DeviceKey::Cpu, &[]);
    let before = slots.report();
    let nothing = shelf(&[]);
    for (explicit, kernel) in [
        ("kernelhub/flash-attn2@v1:FlashAttention", "kernelhub/flash-attn2@v1:FlashAttention"),
        ("kernelhub/flash-attn2@v1", "kernelhub/flash-attn2@v1"),
        ("flash_attention_2", "kernels-community/flash-attn2"),
    ] {
        let error = slots.use_attention(&word(explicit), &nothing).unwrap_err();
        assert_eq!(error.to_string(), format!("attention {explicit}: the kernel {kernel} cannot be used"));
        let cause = error.source().unwrap().to_string();
        assert!(cause.contains("nobody has FlashAttention of"), "{cause}");
        let hint = error.hint().unwrap();
        let named = explicit != "flash_attention_2";
        assert_eq!(hint == "publish it", named, "{hint}");
        assert!(named || hint.contains("kernelhub/flash-attn2@v1:FlashAttention"), "{hint}");
        assert_eq!(slots.report(), before, "the model keeps its plan");
    }
    let report = slots.use_attention(&word("auto"), &nothing).unwrap();
    let choice = report.attention.as_ref().unwrap();
    assert_eq!((choice.chosen.as_str(), choice.kernels.len()), ("sdpa", 0));
    let why = choice.passed_over.iter().find(|one| one.candidate == "kernelhub/flash-attn2@v1").unwrap();
    assert!(why.reason.ends_with("nobody has FlashAttention of kernelhub/flash-attn2"), "{}", why.reason);
    let chosen = "sdpa".to_owned();
    assert_eq!(attention(&report), [&Outcome::Reference(Reason::Attention { chosen }); 2]);
    let text = report.to_string();
    assert!(text.contains("attention: auto, which is sdpa\n  not flash_attention_4: "), "{text}");
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["attention"]["requested"], "auto");
    assert_eq!(json["attention"]["passed_over"].as_array().unwrap().len(), choice.passed_over.len());
}

#[test]
fn auto_takes_the_best_that_is_there_and_asks_for_none_that_is_for_another_device() {
    let slots = model(DeviceKey::Cpu, &[]);
    let shelf = shelf(&[("kernelhub/flash-attn2", "FlashAttention", "Able")]);
    let report = slots.use_attention(&word("auto"), &shelf).unwrap();
    assert!(attention(&report).iter().all(|outcome| matches!(outcome, Outcome::Kernel(_))), "{report}");
    let choice = report.attention.as_ref().unwrap();
    assert_eq!(choice.chosen, "kernelhub/flash-attn2@v1");
    assert_eq!(*shelf.asked.lock().unwrap(), ["kernelhub/flash-attn2@v1 FlashAttention"]);
    let passed_over: Vec<_> = choice.passed_over.iter().map(|one| one.candidate.as_str()).collect();
    assert_eq!(passed_over, ["flash_attention_4", "flash_attention_3", "flash_attention_2"]);
    let able = &choice.kernels[0];
    assert_eq!((able.window, able.softcap, able.varlen, able.paged, able.backward), (true, true, false, false, false));
    assert_eq!((able.max_head_size, able.dtypes.as_slice()), (Some(256), &[DType::F32][..]));
    // A kernel for the layer alone: the norm keeps what it had.
    let norm = report.layers.iter().find(|line| line.layer == "RMSNorm").unwrap();
    assert_eq!(norm.outcome, Outcome::Reference(Reason::KernelsOff));
}

#[test]
fn generations_three_and_four_are_errors_on_xpu_that_say_why() {
    let nothing = shelf(&[]);
    for text in ["flash_attention_3", "flash_attention_4"] {
        for device in [DeviceKey::Xpu, DeviceKey::Wgpu, DeviceKey::Cpu] {
            let error = model(device, &[]).use_attention(&word(text), &nothing).unwrap_err();
            let expected = format!("attention {text}: {text} is for NVIDIA GPUs alone, and the model is on {device}");
            assert_eq!(error.to_string(), expected);
            let hint = error.hint().unwrap();
            assert_eq!(hint.contains("flash_attention_2"), device == DeviceKey::Xpu, "{hint}");
        }
    }
    assert_eq!(*nothing.asked.lock().unwrap(), Vec::<String>::new());
    // On xpu the kernel of the second generation is the one that is asked for.
    let error = model(DeviceKey::Xpu, &[]).use_attention(&word("flash_attention_2"), &nothing).unwrap_err();
    assert!(error.to_string().contains("kernels-community/flash-attn2"), "{error}");
    let error = model(DeviceKey::Wgpu, &[]).use_attention(&word("flash_attention_2"), &nothing).unwrap_err();
    assert!(error.to_string().ends_with("and none for wgpu"), "{error}");
}

/// F51: what a kernel cannot do is an error or a reason, never dropped.
#[test]
fn f51_a_kernel_that_lacks_what_the_model_needs_is_an_error_or_passed_over() {
    let plain = || shelf(&[("kernelhub/flash-attn2", "FlashAttention", "Plain")]);
    for option in OPTIONS {
        let slots = model(DeviceKey::Cpu, &[option]);
        let error = slots.use_attention(&word("kernelhub/flash-attn2@v1"), &plain()).unwrap_err();
        assert!(error.to_string().contains(option) && error.to_string().contains("layers.0.attn"), "{error}");
        let report = slots.use_attention(&word("auto"), &plain()).unwrap();
        let choice = report.attention.as_ref().unwrap();
        assert_eq!(choice.chosen, "sdpa");
        assert!(choice.passed_over.iter().any(|one| one.reason.contains(option)), "{report}");
        let able = shelf(&[("kernelhub/flash-attn2", "FlashAttention", "Able")]);
        assert_eq!(slots.use_attention(&word("kernelhub/flash-attn2@v1"), &able).unwrap().swapped(), 2);
    }
    for (head_dim, dtype, fault) in [(512, DType::F32, "512"), (64, DType::F64, "f64")] {
        let slots = Slots::new(DeviceKey::Cpu);
        let _ = slots.slot(SlotSpec { last_dim: head_dim, dtype, ..spec("attn", Contract::Attention, &[]) });
        let error = slots.use_attention(&word("kernelhub/flash-attn2@v1"), &plain()).unwrap_err();
        assert!(matches!(&error, SwapError::Attention { reason, .. } if reason.contains(fault)), "{error}");
        let report = slots.use_attention(&word("auto"), &plain()).unwrap();
        assert!(report.to_string().contains(fault), "{report}");
    }
}

#[test]
fn sdpa_and_eager_take_the_kernel_of_a_mapping_away_until_kernels_are_disabled() {
    let slots = model(DeviceKey::Cpu, &[]);
    let shelf = shelf(&[("a/b", "FlashAttention", "Able")]);
    let config = super::config(&[("FlashAttention", "a/b@v1")]);
    assert_eq!(slots.use_kernels(&shelf, &config).unwrap().swapped(), 2);
    for (text, path) in [("sdpa", AttentionPath::Sdpa), ("eager", AttentionPath::Eager)] {
        let report = slots.use_attention(&word(text), &shelf).unwrap();
        assert_eq!(attention(&report), [&Outcome::Reference(Reason::Attention { chosen: text.to_owned() }); 2]);
        assert_eq!(slots.pin().attention_path(), path);
        assert_eq!(slots.train().attention.unwrap().chosen, text, "it holds in every mode");
        assert_eq!((slots.eval(), slots.pin().attention_path()), (report, path));
    }
    assert_eq!(slots.disable_kernels().attention, None);
    assert_eq!(slots.pin().attention_path(), AttentionPath::Sdpa);
    assert_eq!(slots.use_kernels(&shelf, &config).unwrap().swapped(), 2);
}

#[test]
fn training_leaves_an_explicit_kernel_without_a_backward_and_the_report_says_so() {
    let slots = model(DeviceKey::Cpu, &[]);
    let shelf = shelf(&[("a/b", "FlashAttention", "Able")]);
    let report = slots.use_attention(&word("a/b@v1"), &shelf).unwrap();
    assert_eq!(report.swapped(), 2);
    let training = slots.train();
    assert_eq!(training.mode, Mode::Training);
    for outcome in attention(&training) {
        assert!(matches!(outcome, Outcome::Reference(Reason::NoBackward { .. })), "{outcome:?}");
    }
    assert_eq!(slots.eval(), report);
}

#[test]
fn a_paged_word_needs_a_layer_for_a_paged_cache_and_a_kernel_for_it() {
    let both = shelf(&[
        ("a/b", "FlashAttention", "Able"),
        ("a/b", "FlashAttentionPaged", "Paged"),
        ("a/b", "dense", "Able"),
        ("a/b", "paged", "Paged"),
        ("a/b", "norm", "Norm"),
    ]);
    let slots = model(DeviceKey::Cpu, &[]);
    let error = slots.use_attention(&word("paged|sdpa"), &both).unwrap_err();
    assert_eq!(error.to_string(), "attention paged|sdpa: the model has no attention layer for a paged cache");
    let _ = slots.slot(spec("layers.2.attn", Contract::AttentionPaged, &[]));
    assert_eq!(slots.use_attention(&word("paged|sdpa"), &both).unwrap().attention.unwrap().chosen, "paged|sdpa");
    assert_eq!(slots.use_attention(&word("paged|a/b@v1"), &both).unwrap().swapped(), 3);
    // A function is for the layers of its contract.
    assert_eq!(slots.use_attention(&word("paged|a/b@v1:paged"), &both).unwrap().swapped(), 1);
    assert_eq!(slots.use_attention(&word("a/b@v1:dense"), &both).unwrap().swapped(), 2);
    let error = slots.use_attention(&word("paged|a/b@v1:dense"), &both).unwrap_err();
    assert!(error.to_string().contains("over a paged cache"), "{error}");
    let error = slots.use_attention(&word("a/b@v1:norm"), &both).unwrap_err();
    assert!(error.to_string().contains("rms_norm"), "{error}");
    // A kernel without one cannot meet a word for the whole model.
    let dense = shelf(&[("a/b", "FlashAttention", "Able")]);
    let error = slots.use_attention(&word("a/b@v1"), &dense).unwrap_err();
    assert!(error.source().unwrap().to_string().contains("nobody has FlashAttentionPaged"), "{error:?}");
    // A model without attention has no use for any word.
    let error = Slots::new(DeviceKey::Cpu).use_attention(&word("auto"), &dense).unwrap_err();
    assert_eq!(error.to_string(), "attention auto: the model has no attention layer");
}

#[test]
fn a_configuration_carries_the_word_and_its_own_entry_says_which_kernel_that_is() {
    let shelf = shelf(&[("a/b", "FlashAttention", "Able")]);
    let config = |text: &str| KernelConfig::from_toml(text, "kernels.toml").unwrap();
    let slots = model(DeviceKey::Cpu, &[]);
    let report = slots.use_kernels(&shelf, &config("inherit = false\nattn_implementation = \"eager\"")).unwrap();
    assert_eq!(
        (report.attention.unwrap().chosen.as_str(), slots.pin().attention_path()),
        ("eager", AttentionPath::Eager)
    );
    // The table's kernel for the word cannot be had; the application's own entry can.
    let error =
        slots.use_kernels(&shelf, &config("inherit = false\nattn_implementation = \"flash_attention_2\"")).unwrap_err();
    assert!(error.to_string().contains("kernels-community/flash-attn2"), "{error}");
    assert_eq!(slots.pin().attention_path(), AttentionPath::Eager, "the model keeps its plan");
    let named = config("inherit = false\nattn_implementation = \"flash_attention_2\"\nFlashAttention = \"a/b@v1\"");
    let report = slots.use_kernels(&shelf, &named).unwrap();
    assert_eq!(
        (report.attention.unwrap().chosen.as_str(), report.layers[0].layer.as_str()),
        ("a/b@v1", "FlashAttention")
    );
    // A scope's word is for the scope.
    let eager = config("attn_implementation = \"eager\"");
    slots.use_attention(&word("sdpa"), &shelf).unwrap();
    let chosen =
        slots.with_kernels(&shelf, &eager, |report| report.attention.as_ref().unwrap().chosen.clone()).unwrap();
    assert_eq!((chosen.as_str(), slots.report().attention.unwrap().chosen.as_str()), ("eager", "sdpa"));
    let error = KernelConfig::from_toml("attn_implementation = \"flash_atention_2\"", "kernels.toml").unwrap_err();
    assert_eq!(error.hint().as_deref(), Some("did you mean \"flash_attention_2\"?"));
    assert_eq!(config(&named.to_toml()), named, "it is written and read back");
}

#[test]
fn a_word_ends_with_the_override_that_it_was_said_in_and_with_the_configuration_after_it() {
    let shelf = shelf(&[("a/b", "FlashAttention", "Able"), ("a/b", "Norm", "Norm")]);
    let config = |text: &str| KernelConfig::from_toml(text, "kernels.toml").unwrap();
    let mapped = config("inherit = false\nFlashAttention = \"a/b@v1\"");
    let chosen = |slots: &Slots| slots.report().attention.map(|attention| attention.chosen);
    let slots = model(DeviceKey::Cpu, &[]);

    // The word of a configuration takes the place of what was said before, for good.
    slots.use_attention(&word("sdpa"), &shelf).unwrap();
    slots.use_kernels(&shelf, &config("inherit = false\nattn_implementation = \"eager\"")).unwrap();
    assert_eq!(chosen(&slots).as_deref(), Some("eager"));
    let before = slots.use_kernels(&shelf, &mapped).unwrap();
    assert_eq!((before.swapped(), before.attention.clone()), (2, None));

    // Whatever is said within an override ends with it.
    let norm = config("RMSNorm = \"a/b@v1:Norm\"");
    let over = slots.override_kernels(&shelf, &norm).unwrap();
    assert_eq!(over.report().swapped(), 3);
    assert_eq!(slots.use_attention(&word("eager"), &shelf).unwrap().swapped(), 1);
    drop(over);
    assert_eq!((slots.report(), slots.pin().attention_path()), (before, AttentionPath::Sdpa));

    // And what was said outside stays, whatever is done within.
    let before = slots.use_attention(&word("eager"), &shelf).unwrap();
    let over = slots.override_kernels(&shelf, &norm).unwrap();
    assert_eq!(chosen(&slots).as_deref(), Some("eager"), "silent on attention, it leaves that as it is");
    slots.disable_kernels();
    assert_eq!(chosen(&slots), None);
    drop(over);
    assert_eq!((slots.report(), slots.pin().attention_path()), (before, AttentionPath::Eager));
}

#[test]
fn a_word_meets_nothing_of_what_is_asked_for_beside_it() {
    let shelf = shelf(&[("a/b", "Norm", "Norm")]);
    let slots = Slots::new(DeviceKey::Cpu);
    let _ = slots.slot(spec("attn", Contract::Attention, &[]));
    let _ = slots.slot(SlotSpec { dtype: DType::F64, ..spec("norm", Contract::RmsNorm, &[]) });
    let before = slots.report();
    let both = "inherit = false\nattn_implementation = \"sdpa\"\nRMSNorm = \"a/b@v1:Norm\"";
    let error = slots.use_kernels(&shelf, &KernelConfig::from_toml(both, "x").unwrap()).unwrap_err();
    assert!(matches!(error, SwapError::NothingSwapped { .. }), "{error:?}");
    assert_eq!(slots.report(), before);
}

/// A shelf of a process whose environment switches kernels off.
struct Off(Shelf);

impl KernelProvider for Off {
    fn provide(&self, kernel: &KernelRef, layer: &str, device: DeviceKey) -> Result<Arc<LayerKernel>, ProvideError> {
        self.0.provide(kernel, layer, device)
    }

    fn switched_off(&self) -> Option<&'static str> {
        Some("the test says so")
    }
}

#[test]
fn a_switch_takes_every_kernel_away_and_leaves_the_words_for_reference_code() {
    let kernels = || shelf(&[("a/b", "FlashAttention", "Able")]);
    let slots = model(DeviceKey::Cpu, &[]);
    assert_eq!(slots.use_attention(&word("a/b@v1"), &kernels()).unwrap().swapped(), 2);
    let config = |text: &str| KernelConfig::from_toml(text, "kernels.toml").unwrap();
    let off = Off(kernels());
    let report = slots.use_kernels(&off, &config("FlashAttention = \"a/b@v1\"")).unwrap();
    assert_eq!((report.swapped(), report.attention), (0, None));
    let report = slots.use_kernels(&off, &config("attn_implementation = \"eager\"")).unwrap();
    assert_eq!(report.attention.unwrap().chosen, "eager", "it asks for no kernel");
    assert_eq!(slots.pin().attention_path(), AttentionPath::Eager);
    assert!(off.0.asked.lock().unwrap().is_empty(), "nobody is asked for a kernel");
}

#[test]
fn a_line_says_nothing_of_the_kernel_that_a_word_took_away() {
    let shelf = shelf(&[("a/b", "FlashAttention", "Able")]);
    let slots = model(DeviceKey::Cpu, &[]);
    let list = KernelConfig::builder().inherit(false);
    let list = list.first_of("FlashAttention", DeviceKey::Cpu, &["x/y@v1", "a/b@v1"]).unwrap().build();
    let report = slots.use_kernels(&shelf, &list).unwrap();
    assert_eq!((report.swapped(), report.layers[0].tried.len()), (2, 1));
    let report = slots.use_attention(&word("sdpa"), &shelf).unwrap();
    assert!(report.layers.iter().all(|line| line.tried.is_empty() && line.rounding.is_none()), "{report}");
}
