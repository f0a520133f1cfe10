//! The forms of a configuration, and what is said about one that is wrong.

use kernelhub::hint::Hint as _;
use kernelhub::swap::{Choice, KernelConfig, Mode, SwapError, Target};
use kernelhub::variant::DeviceKey::{Cpu, Cuda, Mps, Rocm, Wgpu, Xpu};

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

/// A text, the key that is named for it, a part of what is said, and the near word.
const WRONG: &[(&str, &str, &str, Option<&str>)] = &[
    ("[RMSNorm]\nCUDA = 'a/b@v1'", "RMSNorm.CUDA", "unknown device \"CUDA\"; known: cpu, cuda", Some("cuda")),
    ("[RMSNorm]\nbanana = 'a/b@v1'", "RMSNorm.banana", "unknown device \"banana\"", None),
    ("[RMSNorm]\n'cuda:1' = 'a/b@v1'", "RMSNorm.cuda:1", "unknown device \"cuda:1\"", Some("cuda")),
    (
        "[RMSNorm]\ncpu = { inferrence = 'a/b@v1' }",
        "RMSNorm.cpu.inferrence",
        "unknown mode \"inferrence\"; known: inference, inference+compile, training, training+compile, fallback",
        Some("inference"),
    ),
    ("[RMSNorm]\ncpu = { inference = { x = 'a/b' } }", "RMSNorm.cpu.inference", "found a table", None),
    ("RMSNorm = 'norm@v1'", "RMSNorm", "names no kernel; expected owner/name@v1:Layer", None),
    ("RMSNorm = ''", "RMSNorm", "names no kernel", None),
    ("RMSNorm = 'a/b@1'", "RMSNorm", "the version \"1\" is not of the form v1", None),
    ("RMSNorm = 'a/b@v1:x y'", "RMSNorm", "the layer name \"x y\"", None),
    ("RMSNorm = '../b@v1'", "RMSNorm", "a kernel's folder is named by its absolute path", None),
    ("RMSNorm = 'a/../b@v1'", "RMSNorm", "names no kernel", None),
    ("RMSNorm = 1", "RMSNorm", "expected a kernel such as", None),
    ("RMSNorm = true", "RMSNorm", "found a truth value", None),
    ("inherit_ = false", "inherit_", "found a truth value", Some("inherit")),
    ("inherit = 'no'", "inherit", "expected true or false, found a text", None),
    ("inherit = true\ninherit_mapping = true", "inherit_mapping", "it stands twice, under two names", None),
    ("RMSNorm = []", "RMSNorm", "the list names no kernel", Some("Disabled")),
    ("RMSNorm = ['a/b@v1', 'Disabled']", "RMSNorm[1]", "Disabled is no kernel to try", None),
    ("RMSNorm = ['a/b@v1', 'a/b@v1']", "RMSNorm", "a/b@v1 stands in the list twice", None),
    ("RMSNorm = ['a/b@v1', 2]", "RMSNorm[1]", "expected a kernel", None),
    ("RMSNorm = ['a/b', {}, 'c/d']", "RMSNorm[1]", "found a table", None),
    ("RMSNorm = ['a/b', { verison = 1 }]", "RMSNorm.verison", "unknown key \"verison\"", Some("version")),
    ("RMSNorm = ['a/b', { version = 'v1' }]", "RMSNorm.version", "expected a version's number", None),
    ("RMSNorm = ['a/b', { version = -1 }]", "RMSNorm.version", "expected a version's number", None),
    ("RMSNorm = ['a/b', { version = 1, revision = 'x' }]", "RMSNorm", "it has a version and a revision", None),
    ("RMSNorm = ['a/b@v1', { version = 1 }]", "RMSNorm", "names its revision, and so does the table", None),
    ("RMSNorm = ['/x:L', { version = 1 }]", "RMSNorm", "has no versions to choose from", None),
    ("RMSNorm = ['a/b', { trust_remote_code = 1 }]", "RMSNorm.trust_remote_code", "expected true or false", None),
    ("RMSNorm = 'a/b@../x'", "RMSNorm", "no version such as v1, commit, branch or tag", None),
    ("[RMSNorm]\n'cuda:90-80' = 'a/b@v1'", "RMSNorm.cuda:90-80", "no range such as 80-89", None),
    ("[RMSNorm]\n'xpu:1-2' = 'a/b@v1'", "RMSNorm.xpu:1-2", "xpu devices have no capability", None),
    (
        "[RMSNorm]\n'cuda:80-89' = 'a/b@v1'\n'cuda:85-94' = 'a/c@v1'",
        "RMSNorm",
        "cuda:80-89 and cuda:85-94 overlap and are of one size",
        None,
    ),
    (
        "[RMSNorm]\n'hip:90-94' = 'a/b@v1'\n'rocm:90-94' = 'a/c@v1'",
        "RMSNorm.rocm:90-94",
        "stands twice, once by its alias",
        None,
    ),
    (
        "[RMSNorm.cpu]\n'inference+compile' = 'a/b@v1'\n'inference|torch_compile' = 'a/c@v1'",
        "RMSNorm.cpu.inference|torch_compile",
        "inference+compile stands twice, once by another spelling",
        None,
    ),
    (
        "[RMSNorm]\ncpu = { 'inference+training' = 'a/b@v1' }",
        "RMSNorm.cpu.inference+training",
        "it must name exactly one of inference and training",
        None,
    ),
    ("'model..mlp' = 'a/b@v1'", "model..mlp", "is no pattern of layer paths", None),
    ("'model.**' = 'a/b@v1'", "model.**", "is no pattern of layer paths", None),
    ("attn_implementation = 'spda'", "attn_implementation", "unknown attention \"spda\"", Some("sdpa")),
    ("attn_implementation = 2", "attn_implementation", "expected a text, found a number", None),
    ("fusion = 'a/b@v1'", "fusion", "expected a list of fusions", None),
    ("[[fusion]]\nkernel = 'a/b@v1'", "fusion[0]", "it has no \"members\"", None),
    ("[[fusion]]\nmembers = []\nkernel = 'a/b@v1'", "fusion[0]", "two members or more", None),
    (
        "[[fusion]]\nmember = []\nmembers = [['A', 'm.a'], ['B', 'm.b']]\nkernel = 'a/b@v1'",
        "fusion[0].member",
        "unknown key \"member\"",
        Some("members"),
    ),
    ("[[fusion]]\nmembers = [['A', 'm.a'], ['B', 'n.b']]\nkernel = 'a/b'", "fusion[0]", "two parents", None),
    ("[[fusion]]\nmembers = [['A', 'm.a'], ['B', 'm.a']]\nkernel = 'a/b'", "fusion[0]", "twice", None),
    ("[[fusion]]\nmembers = [['A', 'm.a'], ['B', 'm.*']]\nkernel = 'a/b'", "fusion[0]", "end in the name", None),
    ("[[fusion]]\nmembers = [['A', 'm.a'], 'B']\nkernel = 'a/b'", "fusion[0].members", "found a text", None),
    ("use_local_kernel = true\nRMSNorm = 'a/b@v1'", "use_local_kernel", "a/b@v1 is no folder", None),
    ("RMSNorm = 'a/b@v1'\n[kernel_mapping]\nRMSNorm = 'a/b@v1'", "RMSNorm", "it stands twice", None),
    ("[RMSNorm]\ncpu = 'disabled'", "RMSNorm.cpu", "names no kernel", Some("Disabled")),
    ("[RMSNorm]\nmps = 'a/b@v1'\nmetal = 'a/c@v1'", "RMSNorm.mps", "mps stands twice, once by its alias", None),
];

#[test]
fn a_wrong_entry_is_named_with_the_near_word() {
    for (text, expected_key, expected, near) in WRONG {
        let error = KernelConfig::from_toml(text, "kernels.toml").unwrap_err();
        let SwapError::Config { origin, key, reason, suggestion } = &error else { panic!("{text}: {error:?}") };
        assert_eq!((origin.as_str(), key.as_str()), ("kernels.toml", *expected_key), "{text}");
        assert!(reason.contains(*expected), "{text}: {reason}");
        assert_eq!(suggestion.as_deref(), *near, "{text}");
        assert_eq!(error.hint(), near.map(|near| format!("did you mean {near:?}?")), "{text}");
        assert!(error.to_string().starts_with(&format!("kernels.toml: {expected_key}: ")), "{error}");
    }
}

#[test]
fn syntax_doubled_keys_and_wrong_types_are_refused() {
    for text in
        ["RMSNorm = ", "RMSNorm = 'a/b@v1'\nRMSNorm = 'a/c@v1'", "[L.cpu]\ninference = 'a/b'\ninference = 'a/c'"]
    {
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
        let cuda = config.choice(layer, Cuda, Mode::Inference);
        // What Transformers maps there, and nothing that it does not.
        let liger = kernel("kernels-community/liger-kernels@v3:LigerRMSNorm");
        assert_eq!(cuda, (layer == "RMSNorm").then_some(&liger), "{layer}");
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

#[test]
fn an_entry_without_a_device_takes_that_of_the_default_table() {
    let text = "[RMSNorm]\nrocm = 'a/b@v1'";
    let (inherits, alone) = (
        KernelConfig::from_toml(text, "x").unwrap(),
        KernelConfig::from_toml(&format!("inherit = false\n{text}"), "x").unwrap(),
    );
    assert_eq!(inherits.choice("RMSNorm", Rocm, Mode::Inference), Some(&kernel("a/b@v1")));
    assert_eq!(inherits.choice("RMSNorm", Cpu, Mode::Inference), Some(&kernel("kernelhub/rmsnorm@v1:RMSNorm")));
    assert_eq!(
        inherits.choice("SiluAndMul", Cpu, Mode::Inference),
        Some(&kernel("kernelhub/activation@v1:SiluAndMul"))
    );
    assert_eq!(alone.choice("RMSNorm", Rocm, Mode::Inference), Some(&kernel("a/b@v1")));
    assert_eq!(
        (alone.choice("RMSNorm", Cpu, Mode::Inference), alone.choice("SiluAndMul", Cpu, Mode::Inference)),
        (None, None)
    );
}

#[test]
fn the_smallest_range_that_holds_the_capability_decides() {
    let text = "inherit = false\n[L]\ncuda = 'a/any@v1'\n'cuda:80-' = 'a/new@v1'\n'cuda:80-99' = 'a/wide@v1'\n\
                'cuda:90-90' = 'a/hopper@v1'\nwgpu = 'a/shader@v1'\nrocm = 'a/amd@v1'";
    let config = KernelConfig::from_toml(text, "x").unwrap();
    let on = |device, capability| config.choice("L", Target { device, capability }, Mode::Inference).cloned();
    let expected = [(75, "any"), (80, "wide"), (89, "wide"), (90, "hopper"), (91, "wide"), (99, "wide"), (100, "new")];
    for (capability, name) in expected {
        assert_eq!(on(Cuda, Some(capability)), Some(kernel(&format!("a/{name}@v1"))), "{capability}");
    }
    // Which one is meant cannot be told.
    assert_eq!(on(Cuda, None), None);
    assert_eq!(on(Rocm, None), Some(kernel("a/amd@v1")));
    assert_eq!(on(Xpu, None), Some(kernel("a/shader@v1")), "an Intel adapter that wgpu reaches");
}

#[test]
fn a_slip_in_a_key_that_is_no_layer_names_the_key() {
    for (text, near) in [
        ("verfy = \"parity\"", "verify"),
        ("attn_implementaton = \"sdpa\"", "attn_implementation"),
        ("fusions = [{ members = [] }]", "fusion"),
        ("inherits = true", "inherit"),
    ] {
        let error = KernelConfig::from_toml(text, "x").unwrap_err();
        assert_eq!(error.hint(), Some(format!("did you mean {near:?}?")), "{error}");
    }
}
