//! Loading of real libraries, and what is said when one does not load.
#![expect(clippy::float_cmp, reason = "the fixtures write whole numbers")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use kernelhub::bind::{BindError, Code, LayerKernel, RmsNormKernel, TensorMut, TensorRef};
use kernelhub::digest::ViolationKind;
use kernelhub::hint::Hint as _;
use kernelhub::hub::{HubError, Kernel};
use kernelhub::load::{Handshake, KernelLibrary, LoadError};
use kernelhub::verify::VerifyError;

use crate::support::embedded;
use crate::support::native::{KIT, NativePack, compile, compile_to, norm_layer};

fn library(kernel: &Kernel) -> &'static KernelLibrary {
    match kernel.code() {
        Code::Native(library) => library,
        other => panic!("expected a library, got {other:?}"),
    }
}

#[track_caller]
fn load_error(result: Result<Arc<Kernel>, HubError>) -> LoadError {
    match result {
        Err(HubError::Load(error)) => error,
        other => panic!("expected a LoadError, got {other:?}"),
    }
}

fn norm(layer: &LayerKernel) -> &RmsNormKernel {
    match layer {
        LayerKernel::RmsNorm(kernel) => kernel,
        other => panic!("expected an RMSNorm kernel, got {other:?}"),
    }
}

/// Calls an RMSNorm kernel on one row of four ones.
fn call(layer: &LayerKernel, eps: f64) -> Result<[f32; 4], BindError> {
    let (x, mut out) = ([1.0_f32; 4], [f32::NAN; 4]);
    let x = TensorRef::contiguous(&x, &[1, 4]).unwrap();
    let weight = TensorRef::contiguous(&[1.0_f32; 4], &[4]).unwrap();
    norm(layer).forward(&mut TensorMut::contiguous(&mut out, &[1, 4]).unwrap(), &x, &weight, eps, 0.0)?;
    Ok(out)
}

fn message(result: Result<[f32; 4], BindError>) -> (String, String) {
    match result {
        Err(BindError::Kernel { function, message, .. }) => (function, message),
        other => panic!("expected the kernel's own error, got {other:?}"),
    }
}

fn value_pack(version: u32, value: &str) -> NativePack {
    let bytes = compile("value", value, &[]);
    NativePack::version("value", version, &norm_layer("RMSNorm", "rms_norm"), &[("libvalue.so", &bytes)])
}

#[test]
fn every_embedded_pack_loads_and_shakes_hands() {
    let Some(hub) = embedded::hub() else { return };
    for (name, function) in [
        ("rmsnorm", "rms_norm"),
        ("rotary", "apply_rotary"),
        ("activation", "silu_and_mul"),
        ("flash-attn2", "flash_attn"),
    ] {
        let kernel = hub.get(&format!("kernelhub/{name}").parse().unwrap(), 1, "cpu".parse().unwrap()).unwrap();
        let library = library(&kernel);
        assert_eq!(library.handshake(), Handshake::Pack, "{name}");
        assert!(library.path().starts_with(hub.cache().root()), "{name}");
        assert!(library.function(function).is_ok(), "{name}");
    }
}

#[test]
fn the_same_bytes_are_loaded_once() {
    let pack = value_pack(1, "11.0");
    let (first, second) = (pack.get().unwrap(), pack.get().unwrap());
    // Another kernel that ships the very same file.
    let twin = NativePack::new(
        "twin",
        &norm_layer("RMSNorm", "rms_norm"),
        &[("libtwin.so", &fs::read(library(&first).path()).unwrap())],
    );
    let twin = twin.get().unwrap();
    assert!(std::ptr::eq(library(&first), library(&second)), "one library for two hubs");
    assert!(std::ptr::eq(library(&first), library(&twin)), "one library for two kernels with the same bytes");

    let name = library(&first).path().file_name().unwrap().to_str().unwrap();
    assert!(!mapped(name).is_empty(), "the sealed copy is what is mapped");
    assert!(mapped("libtwin.so").is_empty(), "the twin is not mapped a second time");
}

/// The copies of libraries of this name that the process has mapped, by inode: one is mapped in several pieces.
fn mapped(name: &str) -> BTreeSet<String> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let name = format!("memfd:{name}");
    let lines = maps.lines().filter(|line| line.contains(&name));
    lines.map(|line| line.split(' ').nth(4).unwrap_or_default().to_owned()).collect()
}

#[test]
fn two_versions_of_one_kernel_keep_their_symbols_apart() {
    let (first, second) = (value_pack(1, "1.0"), value_pack(2, "2.0"));
    let (first, second) = (first.layer("RMSNorm").unwrap(), second.layer("RMSNorm").unwrap());
    for _ in 0..2 {
        assert_eq!(call(&first, 0.0).unwrap(), [1.0; 4]);
        assert_eq!(call(&second, 0.0).unwrap(), [2.0; 4]);
    }
    assert_eq!((first.meta().identity.version, second.meta().identity.version), (1, 2));
}

#[test]
fn a_missing_function_is_named_with_its_symbol() {
    let pack = NativePack::kit("absent", &norm_layer("RMSNorm", "rms_nrom"));
    match pack.layer("RMSNorm") {
        Err(HubError::Bind(BindError::Load { kernel, source })) => {
            assert_eq!(kernel, "kernelhub-tests/absent@v1:RMSNorm");
            assert!(source.hint().unwrap().contains("choose another version"));
            match *source {
                LoadError::FunctionMissing { function, symbol, path } => {
                    assert_eq!((function.as_str(), symbol.as_str()), ("rms_nrom", "__tvm_ffi_rms_nrom"));
                    assert!(path.ends_with("libkit.so"));
                }
                other => panic!("{other:?}"),
            }
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn another_abi_version_is_refused() {
    for (cfg, version, hint) in [
        ("newer_abi", 2, "update kernelhub, or choose an older version of the kernel"),
        ("older_abi", 0, "choose a newer version of the kernel"),
    ] {
        let bytes = compile("value", "0.0", &["--cfg", cfg]);
        let pack = NativePack::new(cfg, &norm_layer("RMSNorm", "rms_norm"), &[(&format!("lib{cfg}.so"), &bytes)]);
        let error = load_error(pack.get());
        assert!(matches!(error, LoadError::AbiVersion { expected: 1, actual, .. } if actual == version), "{error:?}");
        assert!(error.to_string().contains(&format!("speaks version {version} of the pack ABI")), "{error}");
        assert_eq!(error.hint().as_deref(), Some(hint));
        // Asked again, the answer is the same, and nothing is mapped for it.
        assert!(matches!(load_error(pack.get()), LoadError::AbiVersion { .. }));
        assert_eq!(mapped(&format!("lib{cfg}.so")).len(), 1);
    }
}

#[test]
fn a_handshake_without_its_other_symbols_is_refused() {
    for (cfg, symbol) in
        [("no_last_error", "kernelhub_last_error"), ("no_set_parallel_for", "kernelhub_set_parallel_for")]
    {
        let bytes = compile("value", "0.0", &["--cfg", cfg]);
        let pack = NativePack::new(cfg, &norm_layer("RMSNorm", "rms_norm"), &[("libvalue.so", &bytes)]);
        let error = load_error(pack.get());
        assert!(matches!(error, LoadError::IncompletePack { symbol: found, version: 1, .. } if found == symbol));
        assert!(error.to_string().contains(symbol), "{error}");
        assert!(error.hint().unwrap().contains("build is broken"));
    }
}

#[test]
fn a_library_without_the_handshake_is_a_third_party_build() {
    let bytes = compile("value", "5.0", &["--cfg", "no_handshake"]);
    let pack = NativePack::new("foreign", &norm_layer("RMSNorm", "rms_norm"), &[("libvalue.so", &bytes)]);
    let kernel = pack.layer("RMSNorm").unwrap();
    assert_eq!(kernel.meta().identity.handshake, Some(Handshake::VariantTag));
    assert_eq!(call(&kernel, 0.0).unwrap(), [5.0; 4]);
}

#[test]
fn a_library_that_is_missing_is_named() {
    let folder = tempfile::tempdir().unwrap();
    compile_to(folder.path(), "elsewhere", "", &["-C", "link-arg=-Wl,-soname,libelsewhere.so"]);
    let search = format!("native={}", folder.path().display());
    let bytes = compile("needs_symbol", "", &["-L", &search, "-l", "dylib=elsewhere"]);
    drop(folder);
    let pack = NativePack::new("needs-library", &norm_layer("RMSNorm", "rms_norm"), &[("libneeds.so", &bytes)]);
    let error = load_error(pack.get());
    let [violation] = error.violations() else { panic!("{error:?}") };
    assert_eq!(violation.kind, ViolationKind::LibraryMissing);
    assert_eq!(violation.expected.as_deref(), Some("libelsewhere.so"));
    assert!(error.to_string().contains("it needs libelsewhere.so, which this machine does not have"), "{error}");
    assert!(error.to_string().contains("libneeds.so"), "the file that the user knows: {error}");
    assert!(error.hint().unwrap().contains("install the library libelsewhere.so"));
}

#[test]
fn an_undefined_symbol_is_named() {
    let bytes = compile("needs_symbol", "", &[]);
    let pack = NativePack::new("needs-symbol", &norm_layer("RMSNorm", "rms_norm"), &[("libneeds.so", &bytes)]);
    let error = load_error(pack.get());
    assert_eq!(error.to_string().matches("libneeds.so").count(), 1, "the file once: {error}");
    assert!(!error.to_string().contains("/proc/"), "no path that the user does not know: {error}");
    assert!(
        matches!(&error, LoadError::Dlopen { reason, .. } if reason == "undefined symbol: kernelhub_fixture_elsewhere")
    );
    assert!(error.hint().unwrap().contains("kernelhub_fixture_elsewhere"));
}

#[test]
fn a_text_that_is_named_as_a_library_is_refused() {
    for text in ["", "not a library\n", &"long enough for a header, and none\n".repeat(100)] {
        let pack = NativePack::new("text", &norm_layer("RMSNorm", "rms_norm"), &[("libtext.so", text.as_bytes())]);
        let error = load_error(pack.get());
        assert!(matches!(error, LoadError::Unfit { .. }), "{error:?}");
        let [violation] = error.violations() else { panic!("{error:?}") };
        assert_eq!((violation.kind, violation.path.as_str()), (ViolationKind::LibraryMalformed, "libtext.so"));
        assert!(error.to_string().contains("it is no ELF file"), "{error}");
        assert!(error.hint().is_some());
    }
}

#[test]
fn a_build_with_no_library_or_two_is_refused() {
    let layers = norm_layer("RMSNorm", "rms_norm");
    let none = NativePack::new("none", &layers, &[]);
    let two = NativePack::new("two", &layers, &[("liba.so", &KIT), ("libb.so", &KIT)]);
    for (pack, expected) in [(none, 0), (two, 2)] {
        let error = load_error(pack.get());
        assert!(
            matches!(&error, LoadError::Library(VerifyError::LibraryCount { found, .. }) if found.len() == expected),
            "{error:?}"
        );
    }
}

#[test]
fn what_is_mapped_is_not_the_file_in_the_cache() {
    let bytes = compile("value", "21.0", &[]);
    let pack = NativePack::new("mapped", &norm_layer("RMSNorm", "rms_norm"), &[("libmapped.so", &bytes)]);
    let kernel = pack.layer("RMSNorm").unwrap();
    let path = kernel.meta().identity.path.clone();
    assert_eq!(call(&kernel, 0.0).unwrap(), [21.0; 4]);
    // In place, as a damaged disk or a careless program would; the mapping of a file would see it.
    let mut damaged = bytes.clone();
    for byte in &mut damaged {
        *byte ^= 0xff;
    }
    make_writable(&path);
    fs::write(&path, &damaged).unwrap();
    assert_eq!(call(&kernel, 0.0).unwrap(), [21.0; 4]);
    fs::write(&path, "").unwrap();
    assert_eq!(call(&kernel, 0.0).unwrap(), [21.0; 4]);
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    assert!(!maps.contains(path.to_str().unwrap()));
}

fn make_writable(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
}

#[test]
fn a_kernel_that_fails_is_quoted() {
    let pack = NativePack::kit(
        "failing",
        &[norm_layer("Panics", "panics"), norm_layer("Refuses", "refuses"), norm_layer("Returns", "returns_a_value")]
            .concat(),
    );
    let run = |layer: &str| message(call(&pack.layer(layer).unwrap(), 0.0));
    assert_eq!(run("Panics"), ("panics".to_owned(), "the kernel panicked: out of cheese".to_owned()));
    assert_eq!(run("Refuses"), ("refuses".to_owned(), "the moon is in the wrong phase".to_owned()));
    let (_, text) = run("Returns");
    assert!(text.contains("returned a value of type index 1"), "{text}");
    // The kernel is as good as before.
    assert_eq!(run("Refuses").1, "the moon is in the wrong phase");
    let error = call(&pack.layer("Refuses").unwrap(), 0.0).unwrap_err();
    assert_eq!(error.to_string(), "kernelhub-tests/failing@v1:Refuses: refuses failed: the moon is in the wrong phase");
}

#[test]
fn a_long_error_text_arrives_whole_and_an_endless_one_is_cut_between_characters() {
    let layers = [norm_layer("Long", "refuses_at_length"), norm_layer("Endless", "refuses_endlessly")].concat();
    let pack = NativePack::kit("long-errors", &layers);
    let (_, text) = message(call(&pack.layer("Long").unwrap(), 0.0));
    assert_eq!(text, "é".repeat(3000));
    let (_, text) = message(call(&pack.layer("Endless").unwrap(), 0.0));
    assert!(text.len() < 20_000, "{} bytes", text.len());
    assert!(!text.contains('\u{fffd}'), "no half character");
    assert!(
        text.ends_with(&format!("(cut; the whole text has {} bytes)", 1 + (2 << 20))),
        "{}",
        &text[text.len() - 60..]
    );
}

#[test]
fn each_thread_reads_its_own_error_text() {
    let pack = NativePack::kit("threads", &norm_layer("Numbered", "refuses_by_number"));
    let kernel = pack.layer("Numbered").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4_u32 {
            let kernel = &kernel;
            scope.spawn(move || {
                for round in 0..500_u32 {
                    let number = thread * 1000 + round;
                    assert_eq!(message(call(kernel, f64::from(number))).1, format!("number {number}"));
                }
            });
        }
    });
}

#[test]
fn thread_locals_of_a_library_are_destroyed_after_its_hub_and_kernel_are_gone() {
    let pack = NativePack::kit("thread-local", &norm_layer("ThreadLocal", "thread_local"));
    let (ready, wait) = std::sync::mpsc::channel();
    let kernel = pack.layer("ThreadLocal").unwrap();
    let thread = std::thread::spawn(move || {
        assert_eq!(call(&kernel, 0.0).unwrap(), [0.0; 4], "nothing is destroyed yet");
        drop(kernel);
        wait.recv().unwrap();
    });
    let again = pack.layer("ThreadLocal").unwrap();
    drop(pack);
    ready.send(()).unwrap();
    // The destructor is code of the library and runs as the thread ends.
    thread.join().unwrap();
    let destroyed = call(&again, 0.0).unwrap();
    assert_eq!(destroyed, [1.0; 4], "the destructor ran, and its library was there for it");
}
