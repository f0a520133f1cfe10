//! The forms of a configuration, and what is said about one that is wrong.

use kernelhub::hint::Hint as _;
use kernelhub::swap::{Choice, KernelConfig, Mode, SwapError};
use kernelhub::variant::DeviceKey::{Cpu, Cuda, Mps, Rocm, Wgpu};

const TOML: &str = r#"
RMSNorm = "a/norm@v1:RMSNorm"

[SiluAndMul]
cpu = "a/act@v2"
rocm = "Disabled"
cuda = { inference = "a/act@v1", training = "a/act-train@v1" }

[FlashAttention]
cpu = { training = "a/attn@v1", fallback = "a/slow@v1" }
mps = { fallback = "a/slow@v1" }
"#;

const JSON: &str = r#"{
  "RMSNorm": "a/norm@v1:RMSNorm",
  "SiluAndMul": {
    "cpu": "a/act@v2", "hip": "Disabled", "cuda": {"inference": "a/act@v1", "training": "a/act-train@v1"}
  },
  "FlashAttention": {
    "cpu": {"training": "a/attn@v1", "fallback": "a/slow@v1"}, "metal": {"fallback": "a/slow@v1"}
  }
}"#;

fn kernel(text: &str) -> Choice {
    Choice::Kernel(text.parse().unwrap())
}

#[test]
fn toml_json_and_the_builder_say_the_same() {
    let toml = KernelConfig::from_toml(TOML, "kernels.toml").unwrap();
    assert_eq!(KernelConfig::from_json(JSON, "kernels.json").unwrap(), toml);
    assert_eq!(toml.layers().collect::<Vec<_>>(), ["FlashAttention", "RMSNorm", "SiluAndMul"]);

    let part = KernelConfig::from_toml("[L]\ncpu = 'a/b@v1'\ncuda = { training = 'a/c', inference = 'Disabled' }", "x");
    let built = KernelConfig::builder()
        .kernel("L", Cpu, "a/b@v1")
        .and_then(|builder| builder.kernel_for_mode("L", Cuda, Mode::Training, "a/c"))
        .and_then(|builder| builder.kernel_for_mode("L", Cuda, Mode::Inference, "Disabled"));
    assert_eq!(built.unwrap().build(), part.unwrap());
    assert!(KernelConfig::builder().build().is_empty());
}

#[test]
fn look_ups_follow_their_chains() {
    let config = KernelConfig::from_toml(TOML, "kernels.toml").unwrap();
    let choice = |layer, device, mode| config.choice(layer, device, mode).cloned();
    let (inference, training) = (Mode::Inference, Mode::Training);
    // Every device, every mode.
    for device in [Cpu, Cuda, Wgpu] {
        for mode in [inference, training] {
            assert_eq!(choice("RMSNorm", device, mode), Some(kernel("a/norm@v1:RMSNorm")));
        }
    }
    assert_eq!(choice("SiluAndMul", Cpu, inference), Some(kernel("a/act@v2")));
    assert_eq!(choice("SiluAndMul", Cuda, inference), Some(kernel("a/act@v1")));
    assert_eq!(choice("SiluAndMul", Cuda, training), Some(kernel("a/act-train@v1")));
    assert_eq!(choice("SiluAndMul", Rocm, inference), Some(Choice::Disabled));
    assert_eq!(choice("SiluAndMul", Mps, inference), None, "a device without an entry");
    // Inference takes what training has before it falls back.
    assert_eq!(choice("FlashAttention", Cpu, inference), Some(kernel("a/attn@v1")));
    assert_eq!(choice("FlashAttention", Cpu, training), Some(kernel("a/attn@v1")));
    assert_eq!(choice("FlashAttention", Mps, training), Some(kernel("a/slow@v1")));
    // Training never takes an inference kernel.
    let config = KernelConfig::from_json(r#"{"L": {"cpu": {"inference": "a/b@v1"}}}"#, "x").unwrap();
    assert_eq!(config.choice("L", Cpu, training), None);
    assert_eq!(config.choice("L", Cpu, inference), Some(&kernel("a/b@v1")));
}

#[test]
fn a_wrong_entry_is_named_with_the_near_word() {
    let cases = [
        ("[RMSNorm]\nCUDA = 'a/b@v1'", "RMSNorm.CUDA", "unknown device \"CUDA\"; known: cpu, cuda", Some("cuda")),
        ("[RMSNorm]\nbanana = 'a/b@v1'", "RMSNorm.banana", "unknown device \"banana\"", None),
        ("[RMSNorm]\n'cuda:1' = 'a/b@v1'", "RMSNorm.cuda:1", "unknown device \"cuda:1\"", Some("cuda")),
        (
            "[RMSNorm]\ncpu = { inferrence = 'a/b@v1' }",
            "RMSNorm.cpu.inferrence",
            "unknown mode \"inferrence\"; known: inference, training, fallback",
            Some("inference"),
        ),
        ("[RMSNorm]\ncpu = { inference = { x = 'a/b' } }", "RMSNorm.cpu.inference", "found a table", None),
        ("RMSNorm = 'norm@v1'", "RMSNorm", "names no kernel; expected owner/name@v1:Layer", None),
        ("RMSNorm = ''", "RMSNorm", "names no kernel", None),
        ("RMSNorm = 'a/b@1'", "RMSNorm", "the version \"1\" is not of the form v1", None),
        ("RMSNorm = 'a/b@v1:x y'", "RMSNorm", "the layer name \"x y\"", None),
        ("RMSNorm = '../b@v1'", "RMSNorm", "names no kernel", None),
        ("[RMSNorm]\ncpu = 'disabled'", "RMSNorm.cpu", "names no kernel", Some("Disabled")),
        ("[RMSNorm]\nmps = 'a/b@v1'\nmetal = 'a/c@v1'", "RMSNorm.mps", "mps stands twice, once by its alias", None),
    ];
    for (text, expected_key, expected, near) in cases {
        let error = KernelConfig::from_toml(text, "kernels.toml").unwrap_err();
        let SwapError::Config { origin, key, reason, suggestion } = &error else { panic!("{text}: {error:?}") };
        assert_eq!((origin.as_str(), key.as_str()), ("kernels.toml", expected_key), "{text}");
        assert!(reason.contains(expected), "{text}: {reason}");
        assert_eq!(suggestion.as_deref(), near, "{text}");
        assert_eq!(error.hint(), near.map(|near| format!("did you mean {near:?}?")), "{text}");
        assert!(error.to_string().starts_with(&format!("kernels.toml: {expected_key}: ")), "{error}");
    }
}

#[test]
fn syntax_doubled_keys_and_wrong_types_are_refused() {
    for text in [
        "RMSNorm = ",
        "RMSNorm = 'a/b@v1'\nRMSNorm = 'a/c@v1'",
        "RMSNorm = 1",
        "[L]\ncpu = ['a/b@v1']",
        "[L.cpu]\ninference = 'a/b'\ninference = 'a/c'",
    ] {
        let error = KernelConfig::from_toml(text, "kernels.toml").unwrap_err();
        assert!(
            matches!(&error, SwapError::ConfigToml { origin, .. } if origin == "kernels.toml"),
            "{text}: {error:?}"
        );
        assert!(std::error::Error::source(&error).is_some());
    }
    for text in [
        "",
        "[]",
        "{",
        r#"{"L": 1}"#,
        r#"{"L": "a/b@v1", "L": "a/c@v1"}"#,
        r#"{"L": {"cpu": "a/b@v1", "cpu": "a/c@v1"}}"#,
        r#"{"L": "a/b@v1"} x"#,
    ] {
        let error = KernelConfig::from_json(text, "kernels.json").unwrap_err();
        assert!(
            matches!(&error, SwapError::ConfigJson { origin, .. } if origin == "kernels.json"),
            "{text}: {error:?}"
        );
        assert!(std::error::Error::source(&error).is_some());
    }
}

#[test]
fn the_standard_mapping_is_whole() {
    let config = KernelConfig::standard().unwrap();
    for layer in ["RMSNorm", "RotaryEmbedding", "SiluAndMul", "FlashAttention"] {
        assert!(matches!(config.choice(layer, Cpu, Mode::Inference), Some(Choice::Kernel(_))), "{layer}");
        assert_eq!(config.choice(layer, Cuda, Mode::Inference), None, "{layer}");
    }
}

#[test]
fn a_configuration_asks_for_parity_by_a_word_and_keeps_it() {
    let config = KernelConfig::from_toml("verify = \"parity\"\nRMSNorm = \"a/b@v1\"", "kernels.toml").unwrap();
    assert!(config.asks_for_parity());
    assert_eq!(config.layers().collect::<Vec<_>>(), ["RMSNorm"], "the word is no layer");
    assert_eq!(KernelConfig::from_toml(&config.to_toml(), "kernels.toml").unwrap(), config);
    assert_eq!(KernelConfig::builder().parity(true).kernel_everywhere("RMSNorm", "a/b@v1").unwrap().build(), config);
    for plain in ["", "verify = \"digest\""] {
        assert!(!KernelConfig::from_toml(plain, "kernels.toml").unwrap().asks_for_parity(), "{plain}");
    }
    let error = KernelConfig::from_toml("verify = \"partiy\"", "kernels.toml").unwrap_err();
    assert!(matches!(&error, SwapError::Config { key, .. } if key == "verify"), "{error:?}");
    assert_eq!(error.hint().as_deref(), Some("did you mean \"parity\"?"));
    assert!(KernelConfig::from_toml("verify = true", "kernels.toml").is_err());
}
