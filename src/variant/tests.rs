use proptest::prelude::*;

use super::{
    AnyVariant, Arch, ArchBuild, Backend, CxxAbi, DeviceKey, Framework, NoarchTarget, Os, ShaderTarget, Variant,
    VariantFault, Version,
};

/// Forms that publishers use.
const PUBLISHED: [&str; 34] = [
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

fn words() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
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
    ]);
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_printed_parses_to_itself(build in builds()) {
        prop_assert_eq!(build.to_string().parse(), Ok(Variant::Arch(build)));
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
