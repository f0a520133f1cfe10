use std::cmp::Ordering;

use proptest::prelude::*;

use super::{
    AnyVariant, Arch, ArchBuild, Backend, CxxAbi, DeviceKey, Framework, NoarchTarget, Os, ShaderTarget, Variant,
    VariantFault, Version,
};

/// Forms that publishers use.
const PUBLISHED: [&str; 47] = [
    "torch213-cxx11-cu130-x86_64-linux",
    "torch213-cu130-x86_64-linux",
    "torch26-cxx98-cu118-x86_64-linux",
    "torch29-cxx11-cpu-aarch64-linux",
    "torch-stable-abi211-cu130-x86_64-linux",
    "torch-stable-abi211-cxx11-cu130-x86_64-linux",
    "tvm-ffi01-cpu-x86_64-linux",
    "tvm-ffi01-cu1210-aarch64-linux",
    "torch213-cxx11-xpu20260-x86_64-linux",
    "torch212-cxx11-rocm72-x86_64-linux",
    "torch212-cxx11-rocm714-x86_64-linux",
    "torch28-cxx11-cann83-aarch64-linux",
    "torch29-metal-aarch64-darwin",
    "torch29-neuron-x86_64-linux",
    "torch213-tpu-x86_64-linux",
    "torch210-cu128-x86_64-windows",
    "torch210-xpu20253-x86_64-windows",
    "torch25-cxx98-cpu-x86_64-linux",
    "torch212-cpu-aarch64-darwin",
    "torch210-cpu-x86_64-windows",
    "torch-stable-abi29-metal-aarch64-darwin",
    "torch-stable-abi210-cu132-aarch64-linux",
    "torch-stable-abi210-rocm70-x86_64-linux",
    "torch-stable-abi29-xpu20252-x86_64-linux",
    "torch214-cxx11-xpu20261-x86_64-linux",
    "torch29-cann85-x86_64-linux",
    "tvm-ffi01-metal-aarch64-darwin",
    "tvm-ffi01-rocm64-x86_64-linux",
    "tvm-ffi01-cpu-aarch64-windows",
    "tvm-ffi01-neuron-x86_64-linux",
    "torch-cuda",
    "torch-universal",
    "torch-npu",
    "torch-xpu",
    "torch-rocm",
    "torch-cpu",
    "torch-metal",
    "torch-neuron",
    "torch-tpu",
    "torch-hpu",
    "wgsl-universal",
    "wgsl-xpu",
    "wgsl-cuda",
    "wgsl-rocm",
    "wgsl-mps",
    "wgsl-wgpu",
    "wgsl-hpu",
];

#[test]
fn published_forms_round_trip_exactly() {
    for text in PUBLISHED {
        let variant: Variant = text.parse().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(variant.to_string(), text);
        let json = serde_json::to_string(&variant).unwrap();
        assert_eq!(json, format!("\"{text}\""));
        assert_eq!(serde_json::from_str::<Variant>(&json).unwrap(), variant);
        assert_eq!(AnyVariant::read(text), AnyVariant::Known(variant));
    }
}

#[test]
fn digits_become_fields_once() {
    let read = |text: &str| match text.parse() {
        Ok(Variant::Arch(build)) => build,
        other => panic!("{text}: {other:?}"),
    };
    let build = read("torch213-cxx11-cu1210-x86_64-linux");
    assert_eq!(build.framework(), Framework::Torch { version: Version::new(2, 13), cxx_abi: Some(CxxAbi::Cxx11) });
    assert_eq!(build.backend(), Backend::Cuda(Version::new(12, 10)));
    assert_eq!((build.arch(), build.os()), (Arch::X86_64, Os::Linux));
    assert_eq!(read("tvm-ffi01-rocm714-x86_64-linux").backend(), Backend::Rocm(Version::new(7, 14)));
    assert_eq!(read("tvm-ffi01-rocm63-x86_64-linux").backend(), Backend::Rocm(Version::new(6, 3)));
    assert_eq!(read("tvm-ffi01-cann83-x86_64-linux").backend().device_key(), DeviceKey::Npu);
    assert_eq!(read("torch29-metal-aarch64-darwin").backend().device_key(), DeviceKey::Mps);
}

#[test]
fn unknown_forms_are_kept_with_the_rule_they_break() {
    let fault = |text: &str| match AnyVariant::read(text) {
        AnyVariant::Unknown { text: kept, reason } => {
            assert_eq!(kept, text);
            reason
        }
        AnyVariant::Known(variant) => panic!("{text:?} was read as {variant:?}"),
    };
    assert!(matches!(fault(""), VariantFault::Framework { .. }));
    assert!(matches!(fault("torch"), VariantFault::Framework { .. }));
    assert!(matches!(fault("jax05-cu130-x86_64-linux"), VariantFault::Framework { .. }));
    assert!(matches!(fault("Torch213-cu130-x86_64-linux"), VariantFault::Framework { .. }));
    assert!(matches!(fault("torch213"), VariantFault::Parts { actual: 0 }));
    assert!(matches!(fault("torch213-cu130-x86_64"), VariantFault::Parts { actual: 2 }));
    assert!(matches!(fault("torch213-cxx11-cu130-x86_64-linux-"), VariantFault::Parts { actual: 4 }));
    assert!(matches!(fault("tvm-ffi01-cxx11-cpu-x86_64-linux"), VariantFault::Parts { actual: 4 }));
    assert!(matches!(fault("torch213-cu1200-x86_64-linux"), VariantFault::VersionDigits { .. }));
    assert!(matches!(fault("torch2-cu120-x86_64-linux"), VariantFault::VersionDigits { .. }));
    assert!(matches!(fault("tvm-ffi-cpu-x86_64-linux"), VariantFault::VersionDigits { .. }));
    assert!(matches!(fault("torch213-vulkan-x86_64-linux"), VariantFault::Backend { .. }));
    assert!(matches!(fault("torch213-cpu1-x86_64-linux"), VariantFault::Backend { .. }));
    assert!(matches!(fault("torch213-cpu-riscv64-linux"), VariantFault::CpuArch { .. }));
    assert!(matches!(fault("torch213-cpu-x86_64-freebsd"), VariantFault::Os { .. }));
    assert!(matches!(fault("torch-mps"), VariantFault::NoarchTarget { .. }));
    assert!(matches!(fault("torch-stable"), VariantFault::NoarchTarget { .. }));
    assert!(matches!(fault("wgsl-cpu"), VariantFault::ShaderTarget { .. }));
    assert!(matches!(fault("wgsl-"), VariantFault::ShaderTarget { .. }));
    assert!(matches!(fault(&"x".repeat(101)), VariantFault::TooLong { bytes: 101 }));
}

#[test]
fn a_name_that_would_read_as_another_cannot_be_made() {
    let make = |backend| ArchBuild::new(Framework::TvmFfi(Version::new(0, 1)), backend, Arch::X86_64, Os::Linux);
    assert!(make(Backend::Cuda(Version::new(12, 10))).is_ok());
    // Would print cu120, which is 12.0.
    assert!(make(Backend::Cuda(Version::new(1, 20))).is_err());
    assert!(make(Backend::Xpu(Version::new(26, 0))).is_err());
}

#[test]
fn targets_that_no_text_names_cannot_be_made() {
    for key in DeviceKey::all() {
        let shader = ShaderTarget::device(key).map(Variant::Shader);
        let noarch = NoarchTarget::device(key).map(Variant::Noarch);
        assert_eq!(shader.is_none(), key == DeviceKey::Cpu);
        assert_eq!(noarch.is_none(), key == DeviceKey::Wgpu);
        for variant in [shader, noarch].into_iter().flatten() {
            assert_eq!(variant.to_string().parse(), Ok(variant));
        }
    }
}

/// In the order that the documentation of [`Variant`] gives.
const ORDERED: [&str; 20] = [
    "tvm-ffi01-cpu-x86_64-linux",
    "tvm-ffi01-cu126-x86_64-linux",
    "tvm-ffi01-cu126-x86_64-windows",
    "tvm-ffi01-cu126-aarch64-linux",
    "tvm-ffi01-cu1210-x86_64-linux",
    "tvm-ffi01-cu130-x86_64-linux",
    "tvm-ffi01-rocm63-x86_64-linux",
    "tvm-ffi01-rocm714-x86_64-linux",
    "tvm-ffi01-metal-aarch64-darwin",
    "tvm-ffi02-cpu-x86_64-linux",
    "torch-stable-abi29-cpu-x86_64-linux",
    "torch-stable-abi211-cpu-x86_64-linux",
    "torch29-cpu-x86_64-linux",
    "torch29-cxx98-cpu-x86_64-linux",
    "torch29-cxx11-cpu-x86_64-linux",
    "torch213-cpu-x86_64-linux",
    "torch-universal",
    "torch-cuda",
    "wgsl-universal",
    "wgsl-xpu",
];

#[test]
fn names_are_ordered_as_documented_and_no_two_are_equal() {
    for (at, a) in ORDERED.iter().enumerate() {
        for b in &ORDERED[at + 1..] {
            let (a, b) = (AnyVariant::read(a), AnyVariant::read(b));
            assert_eq!((a.cmp(&b), b.cmp(&a)), (Ordering::Less, Ordering::Greater), "{a} before {b}");
        }
    }
    let unknown = ["", "torch-", "zebra"].map(AnyVariant::read);
    assert!(unknown.is_sorted() && AnyVariant::read(ORDERED[19]) < unknown[0]);
}

/// Numbers that look random and are the same in every run (`splitmix64`).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap()
    }

    fn bytes(&mut self, longest: usize) -> String {
        let count = self.below(longest);
        let bytes: Vec<u8> = (0..count).map(|_| self.next().to_le_bytes()[0]).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// A published name with a few characters taken out, put in, doubled or replaced.
    fn mutated(&mut self) -> String {
        let mut text: Vec<char> = PUBLISHED[self.below(PUBLISHED.len())].chars().collect();
        for _ in 0..=self.below(3) {
            let at = self.below(text.len().max(1));
            let new = ['-', '_', '0', '1', '9', 'a', 'x', 'C', ' ', '\0', '\u{202e}', 'é', '٣'][self.below(13)];
            match self.below(4) {
                0 if at < text.len() => drop(text.remove(at)),
                1 if at < text.len() => text[at] = new,
                2 if at < text.len() => text.insert(at, text[at]),
                _ => text.insert(at, new),
            }
        }
        text.into_iter().collect()
    }

    /// Words of the grammar, in no order, glued by a hyphen or by nothing.
    fn glued(&mut self) -> String {
        let mut text = String::new();
        for at in 0..self.below(8) {
            if at > 0 && self.below(8) > 0 {
                text.push('-');
            }
            text.push_str(WORDS[self.below(WORDS.len())]);
        }
        text
    }

    /// A name in the order of the grammar, with words of which some do not fit.
    fn shaped(&mut self) -> String {
        let mut pick = |words: &[&'static str]| words[self.below(words.len())];
        let framework = pick(&["torch213", "torch29-cxx11", "torch-stable-abi210", "tvm-ffi01", "torch", "tvm-ffi"]);
        let backend = pick(&["cpu", "cu130", "cu13", "rocm714", "xpu20260", "cann83", "metal", "tpu", "neuron", "hpu"]);
        format!("{framework}-{backend}-{}-{}", pick(&["x86_64", "aarch64", "arm64"]), pick(&["linux", "darwin", "win"]))
    }
}

#[test]
fn a_hundred_thousand_random_texts_are_read_without_a_panic_and_kept() {
    let mut numbers = Numbers(1);
    let (mut read, mut known) = (0, 0);
    while read < 100_000 {
        let text = match read % 4 {
            0 => numbers.bytes(120),
            1 => numbers.mutated(),
            2 => numbers.glued(),
            _ => numbers.shaped(),
        };
        let variant = AnyVariant::read(&text);
        assert_eq!(variant.to_string(), text, "kept byte for byte, known or not");
        match variant {
            AnyVariant::Known(variant) => {
                known += 1;
                assert_eq!(text.parse(), Ok(variant));
            }
            AnyVariant::Unknown { reason, .. } => assert!(!reason.to_string().is_empty()),
        }
        read += 1;
    }
    assert_eq!(read, 100_000);
    // Both outcomes are met often, so that the texts are near the grammar.
    assert!((5_000..95_000).contains(&known), "{known} of {read} are names");
}

/// Words of the grammar, and some that are none.
const WORDS: [&str; 32] = [
    "torch",
    "torch213",
    "torch-stable-abi",
    "torch-stable-abi211",
    "tvm-ffi",
    "tvm-ffi01",
    "tvm",
    "ffi01",
    "cxx11",
    "cxx98",
    "cpu",
    "cu",
    "cu130",
    "cu1210",
    "rocm714",
    "xpu20260",
    "cann83",
    "metal",
    "neuron",
    "tpu",
    "x86_64",
    "aarch64",
    "linux",
    "darwin",
    "windows",
    "wgsl",
    "universal",
    "npu",
    "",
    "0",
    "99",
    "é",
];

fn words() -> impl Strategy<Value = String> {
    let word = prop::sample::select(WORDS.to_vec());
    prop::collection::vec(word, 0..7).prop_map(|words| words.join("-"))
}

fn versions(majors: std::ops::RangeInclusive<u32>) -> impl Strategy<Value = Version> {
    (majors, 0..100_u32).prop_map(|(major, minor)| Version::new(major, minor))
}

fn builds() -> impl Strategy<Value = ArchBuild> {
    let mark = prop::option::of(prop::sample::select(vec![CxxAbi::Cxx98, CxxAbi::Cxx11]));
    let framework = prop_oneof![
        versions(0..=9).prop_map(Framework::TvmFfi),
        (versions(1..=9), mark.clone()).prop_map(|(version, cxx_abi)| Framework::Torch { version, cxx_abi }),
        (versions(1..=9), mark).prop_map(|(version, cxx_abi)| Framework::TorchStableAbi { version, cxx_abi }),
    ];
    let backend = prop_oneof![
        prop::sample::select(vec![Backend::Cpu, Backend::Metal, Backend::Neuron, Backend::Tpu]),
        versions(10..=99).prop_map(Backend::Cuda),
        versions(4..=39).prop_map(Backend::Rocm),
        versions(2000..=2999).prop_map(Backend::Xpu),
        versions(5..=49).prop_map(Backend::Cann),
    ];
    (framework, backend, prop::sample::select(Arch::ALL.to_vec()), prop::sample::select(Os::ALL.to_vec()))
        .prop_map(|(framework, backend, arch, os)| ArchBuild::new(framework, backend, arch, os).unwrap())
}

fn variants() -> impl Strategy<Value = Variant> {
    let key = || prop::sample::select(DeviceKey::all().collect::<Vec<_>>());
    let noarch = prop_oneof![Just(Some(NoarchTarget::UNIVERSAL)), key().prop_map(NoarchTarget::device)];
    let shader = prop_oneof![Just(Some(ShaderTarget::UNIVERSAL)), key().prop_map(ShaderTarget::device)];
    prop_oneof![
        4 => builds().prop_map(Variant::Arch),
        1 => noarch.prop_filter_map("wgpu has none", |target| target.map(Variant::Noarch)),
        1 => shader.prop_filter_map("cpu has none", |target| target.map(Variant::Shader)),
    ]
}

fn texts() -> impl Strategy<Value = String> {
    const BUILD: &str = "(torch[1-9](0|[1-9][0-9]?)(-cxx11|-cxx98)?|torch-stable-abi[1-9](0|[1-9][0-9]?)|tvm-ffi0[1-9])\
        -(cpu|metal|neuron|tpu|cu1[0-9](0|[1-9][0-9]?)|rocm[4-9](0|[1-9][0-9]?)|xpu20[2-9][0-9][0-9]|cann[5-9](0|[1-9][0-9]?))\
        -(x86_64|aarch64)-(linux|darwin|windows)";
    const NOARCH: &str = "torch-(universal|cpu|cuda|rocm|xpu|hpu|metal|npu|neuron|tpu)";
    const SHADER: &str = "wgsl-(universal|cuda|rocm|xpu|hpu|mps|npu|neuron|tpu|wgpu)";
    prop_oneof![4 => BUILD, 1 => NOARCH, 1 => SHADER]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_printed_parses_to_itself(variant in variants()) {
        prop_assert_eq!(variant.to_string().parse(), Ok(variant));
    }

    /// Texts by the published grammar, written here without the printer.
    #[test]
    fn what_parses_is_printed_as_the_same_text(text in texts()) {
        let parsed: Variant = text.parse().map_err(|error| TestCaseError::fail(format!("{error}")))?;
        prop_assert_eq!(parsed.to_string(), text);
    }

    #[test]
    fn random_text_is_kept_byte_for_byte(text in ".{0,120}") {
        prop_assert_eq!(AnyVariant::read(&text).to_string(), text);
    }

    #[test]
    fn shuffled_words_never_panic_and_known_ones_round_trip(text in words()) {
        prop_assert_eq!(AnyVariant::read(&text).to_string(), text);
    }

    #[test]
    fn equality_is_equality_of_texts_and_order_is_total(a in builds(), b in builds()) {
        prop_assert_eq!(a == b, a.to_string() == b.to_string());
        prop_assert_eq!(a.cmp(&b), b.cmp(&a).reverse());
    }
}
