//! Real libraries, made by the C and C++ compiler: what is said of them, and what is not loaded.
#![expect(clippy::float_cmp, reason = "the fixtures write whole numbers")]

use std::fs;
use std::path::Path;
use std::sync::Arc;

use kernelhub::bind::{Code, LayerKernel, TensorMut, TensorRef};
use kernelhub::digest::{Violation, ViolationKind};
use kernelhub::hint::Hint as _;
use kernelhub::hub::{Hub, HubError, Kernel};
use kernelhub::load::LoadError;
use kernelhub::variant::DeviceKey;
use kernelhub::verify::elf::{FindingKind, ScanRules, Severity};

use crate::support::native::{NativePack, compile_c, norm_layer};

fn pack(name: &str, library: &[u8]) -> NativePack {
    NativePack::new(name, &norm_layer("RMSNorm", "rms_norm"), &[(&format!("lib{name}.so"), library)])
}

fn get(pack: &NativePack, rules: ScanRules) -> Result<Arc<Kernel>, HubError> {
    pack.hub_with(|builder| builder.scan_rules(rules)).get(
        &pack.manifest().kernel.repo,
        pack.manifest().kernel.version,
        DeviceKey::Cpu,
    )
}

/// What is refused before anything of the library runs.
#[track_caller]
fn refused(pack: &NativePack) -> Vec<Violation> {
    match pack.get() {
        Err(HubError::Load(error @ LoadError::Unfit { .. })) => error.violations().to_vec(),
        other => panic!("expected a refusal, got {other:?}"),
    }
}

fn kinds(kernel: &Kernel) -> Vec<FindingKind> {
    let Code::Native(library) = kernel.code() else { panic!("no library") };
    library.findings().iter().map(|finding| finding.kind.clone()).collect()
}

fn call(hub: &Hub, pack: &NativePack) -> f32 {
    let name = format!("{}@v1", pack.manifest().kernel.repo);
    let layer = hub.layer(&name.parse().unwrap(), "RMSNorm", DeviceKey::Cpu).unwrap();
    let LayerKernel::RmsNorm(kernel) = &*layer else { panic!("{layer:?}") };
    let (ones, mut out) = ([1.0_f32; 4], [f32::NAN; 4]);
    let x = TensorRef::contiguous(&ones, &[1, 4]).unwrap();
    let weight = TensorRef::contiguous(&ones, &[4]).unwrap();
    kernel.forward(&mut TensorMut::contiguous(&mut out, &[1, 4]).unwrap(), &x, &weight, 0.0, 0.0).unwrap();
    out[0]
}

/// F30: two kernels, or two versions of one, share a static of C++, in spite of local binding.
#[test]
fn f30_two_kernels_that_share_a_static_are_warned_of_and_refused_on_request() {
    let shared = |value: &str| compile_c("shared_static.cpp", value, &["-fgnu-unique"]);
    let (one, two, three) = (
        pack("unique-one", &shared("one")),
        pack("unique-two", &shared("two")),
        pack("unique-three", &shared("three")),
    );
    let first = one.get().unwrap();
    assert!(
        matches!(&kinds(&first)[..], [FindingKind::UniqueSymbols { count: 1, names }] if names[0].contains("counter")),
        "{:?}",
        kinds(&first)
    );
    assert!(first.notes().iter().any(|note| note.contains("symbols that the whole process shares")));
    let second = two.get().unwrap();
    let found = kinds(&second);
    assert!(matches!(&found[0], FindingKind::UniqueSymbols { .. }), "{found:?}");
    assert!(
        matches!(&found[1], FindingKind::SharedSymbols { with, count: 1, .. } if with.ends_with("libunique-one.so")),
        "{found:?}"
    );
    assert!(second.notes().iter().any(|note| note.contains("libunique-one.so")), "{:?}", second.notes());
    // That is what is warned of: the second kernel goes on counting where the first one stopped.
    assert_eq!(call(&one.hub(), &one), 1.0);
    assert_eq!(call(&two.hub(), &two), 2.0);

    let strict = ScanRules { shared_symbols: Severity::Refuse, ..ScanRules::default() };
    match get(&three, strict) {
        Err(HubError::Load(error @ LoadError::Unfit { .. })) => {
            assert!(error.violations().iter().all(|violation| violation.kind == ViolationKind::SharedSymbols));
            assert_eq!(error.violations().len(), 2, "one for each kernel that has it: {error}");
        }
        other => panic!("{other:?}"),
    }
    let stricter = ScanRules { unique_symbols: Severity::Refuse, ..ScanRules::default() };
    let Err(HubError::Load(error)) = get(&three, stricter) else { panic!("it was loaded") };
    assert!(error.violations().iter().any(|violation| violation.kind == ViolationKind::UniqueSymbols), "{error}");
    assert!(!fs::read_to_string("/proc/self/maps").unwrap().contains("libunique-three.so"), "refused before it ran");

    // Loaded already for somebody who asked for less: refused to who asks for more.
    let Err(HubError::Load(error)) = get(&one, stricter) else { panic!("it was handed out") };
    assert!(error.violations().iter().any(|violation| violation.kind == ViolationKind::UniqueSymbols), "{error}");

    // Built for it, each has its own.
    let apart = |value: &str| compile_c("shared_static.cpp", value, &["-fno-gnu-unique"]);
    let (one, two) = (pack("apart-one", &apart("one")), pack("apart-two", &apart("two")));
    for pack in [&one, &two] {
        assert_eq!(kinds(&pack.get().unwrap()), []);
        assert_eq!(call(&pack.hub(), pack), 1.0);
    }
}

/// F28: code of a kernel runs after everything that knew the kernel is gone.
#[test]
fn f28_a_thread_local_outlives_the_hub_and_the_kernel() {
    let folder = tempfile::tempdir().unwrap();
    let marker = folder.path().join("marker");
    let library = compile_c("thread_local.cpp", marker.to_str().unwrap(), &[]);
    let (used, wait) = (Arc::new(std::sync::Barrier::new(2)), Arc::new(std::sync::Barrier::new(2)));
    let pack = pack("outlives", &library);
    let hub = pack.hub();
    let thread = {
        let (used, wait) = (Arc::clone(&used), Arc::clone(&wait));
        std::thread::spawn(move || {
            assert_eq!(call(&hub, &pack), 1.0);
            drop((hub, pack));
            used.wait();
            wait.wait();
        })
    };
    used.wait();
    assert!(!marker.exists(), "nothing is destroyed yet");
    wait.wait();
    thread.join().unwrap();
    assert_eq!(fs::read_to_string(&marker).unwrap(), "destroyed");
}

/// Links `needs.c` against helpers in a folder.
fn needing(folder: &Path, helpers: &[&str], options: &[&str]) -> Vec<u8> {
    let search = format!("-L{}", folder.display());
    let mut all = vec![search];
    all.extend(helpers.iter().map(|helper| format!("-l{helper}")));
    all.extend(options.iter().map(ToString::to_string));
    all.push("-Wl,--no-as-needed".to_owned());
    // `--no-as-needed` counts for what follows it.
    all.rotate_right(1);
    compile_c("needs.c", "", &all.iter().map(String::as_str).collect::<Vec<_>>())
}

fn helper(folder: &Path, name: &str, options: &[&str]) {
    let soname = format!("-Wl,-soname,lib{name}.so");
    let bytes = compile_c("helper.c", "", &[&[soname.as_str()], options].concat());
    fs::write(folder.join(format!("lib{name}.so")), bytes).unwrap();
}

#[test]
fn every_library_that_is_missing_is_named_at_once() {
    let folder = tempfile::tempdir().unwrap();
    helper(folder.path(), "gone_one", &[]);
    helper(folder.path(), "gone_two", &[]);
    let library = needing(folder.path(), &["gone_one", "gone_two"], &[]);
    drop(folder);
    let pack = pack("missing-two", &library);
    let found = refused(&pack);
    let names: Vec<_> =
        found.iter().map(|violation| (violation.kind, violation.expected.as_deref().unwrap())).collect();
    assert_eq!(
        names,
        [(ViolationKind::LibraryMissing, "libgone_one.so"), (ViolationKind::LibraryMissing, "libgone_two.so")]
    );
    let error = pack.get().unwrap_err();
    assert_eq!(
        error.hint().as_deref(),
        Some("install libgone_one.so, libgone_two.so, or add the folder of each to LD_LIBRARY_PATH")
    );
    // Asked for a warning only, the linker has the last word, and names one.
    let lax = ScanRules { missing_libraries: Severity::Warn, ..ScanRules::default() };
    assert!(
        matches!(get(&pack, lax), Err(HubError::Load(LoadError::Dlopen { reason, .. })) if reason.contains("libgone_"))
    );
}

#[test]
fn what_a_needed_library_needs_is_looked_for_too() {
    let folder = tempfile::tempdir().unwrap();
    helper(folder.path(), "deep", &[]);
    let search = format!("-L{}", folder.path().display());
    helper(folder.path(), "middle", &["-Wl,--no-as-needed", &search, "-ldeep"]);
    let rpath = format!("-Wl,--enable-new-dtags,-rpath,{}", folder.path().display());
    let library = needing(folder.path(), &["middle"], &[&rpath]);
    fs::remove_file(folder.path().join("libdeep.so")).unwrap();
    let found = refused(&pack("deep-miss", &library));
    assert_eq!(found.len(), 1, "{found:?}");
    let expected = found[0].expected.as_deref().unwrap();
    assert!(expected.starts_with("libdeep.so (needed by ") && expected.contains("libmiddle.so"), "{expected}");
}

#[test]
fn a_library_from_a_folder_of_the_kernels_own_choice_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    helper(folder.path(), "own_choice", &[]);
    for (name, tags) in [("own-runpath", "--enable-new-dtags"), ("own-rpath", "--disable-new-dtags")] {
        let rpath = format!("-Wl,{tags},-rpath,{}", folder.path().display());
        let library = needing(folder.path(), &["own_choice"], &[&rpath]);
        let pack = pack(name, &library);
        let strict = ScanRules { own_folders: Severity::Refuse, ..ScanRules::default() };
        // The first load maps the helper, which is then found without any folder.
        if name == "own-runpath" {
            assert!(matches!(get(&pack, strict), Err(HubError::Load(LoadError::Unfit { .. }))));
            let found = kinds(&pack.get().unwrap());
            assert!(
                matches!(&found[..], [FindingKind::OwnFolder { library, .. }] if library == "libown_choice.so"),
                "{found:?}"
            );
        } else {
            assert_eq!(kinds(&get(&pack, strict).unwrap()), []);
        }
    }
}

#[test]
fn origin_leads_nowhere_and_relative_folders_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    helper(folder.path(), "neighbour", &[]);
    let library = needing(folder.path(), &["neighbour"], &["-Wl,--enable-new-dtags,-rpath,$ORIGIN"]);
    let found = refused(&pack("origin", &library));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].expected.as_deref().unwrap().contains("$ORIGIN leads nowhere"), "{found:?}");
    for (name, list) in [("relative", "lib"), ("here", "."), ("empty", "/usr/lib::/lib"), ("up", "../x")] {
        let library = needing(folder.path(), &["neighbour"], &[&format!("-Wl,-rpath,{list}")]);
        let found = refused(&pack(name, &library));
        assert_eq!(found[0].kind, ViolationKind::SearchPath, "{name}: {found:?}");
    }
}

#[test]
fn a_newer_c_library_is_named_with_both_versions() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = compile_c("thread_local.cpp", "/nowhere", &[]);
    // The same library, made on a machine of the future.
    let versions: Vec<usize> = (0..bytes.len() - 12).filter(|at| bytes[*at..].starts_with(b"GLIBC_2.2.5\0")).collect();
    assert!(!versions.is_empty());
    let mut newer = bytes.clone();
    for at in versions {
        newer[at..at + 11].copy_from_slice(b"GLIBC_2.999");
    }
    fs::write(folder.path().join("x.so"), &newer).unwrap();
    let pack = pack("future", &newer);
    let found = refused(&pack);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((found[0].kind, found[0].actual.as_deref()), (ViolationKind::LibraryTooOld, Some("GLIBC_2.999")));
    let expected = found[0].expected.as_deref().unwrap();
    assert!(expected.starts_with("GLIBC_2.") && expected.ends_with("(libc.so.6)"), "{expected}");
    let text = found[0].to_string();
    assert!(text.contains("it needs GLIBC_2.999, this machine has GLIBC_2."), "{text}");
    assert!(pack.get().unwrap_err().hint().unwrap().contains("newer C or C++ runtime"));
    // The linker agrees.
    let lax = ScanRules { missing_versions: Severity::Warn, ..ScanRules::default() };
    assert!(
        matches!(get(&pack, lax), Err(HubError::Load(LoadError::Dlopen { reason, .. })) if reason.contains("GLIBC_2.999"))
    );
}

#[test]
fn versions_of_any_library_are_compared() {
    let folder = tempfile::tempdir().unwrap();
    let script = |version: &str| {
        let path = folder.path().join(format!("{version}.map"));
        fs::write(&path, format!("{version} {{ global: kernelhub_fixture_helper; local: *; }};")).unwrap();
        format!("-Wl,--version-script,{}", path.display())
    };
    helper(folder.path(), "aged", &[&script("AGED_3.4.10")]);
    let rpath = format!("-Wl,-rpath,{}", folder.path().display());
    let library = needing(folder.path(), &["aged"], &[&rpath]);
    helper(folder.path(), "aged", &[&script("AGED_3.4.9")]);
    let found = refused(&pack("aged", &library));
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].actual.as_deref(), Some("AGED_3.4.10"));
    assert_eq!(found[0].expected.as_deref(), Some("AGED_3.4.9 (libaged.so)"));
}

#[test]
fn an_executable_stack_and_relocated_text_are_refused() {
    let stack = compile_c("helper.c", "", &["-Wl,-z,execstack"]);
    let found = refused(&pack("execstack", &stack));
    assert!(matches!(&found[..], [violation] if violation.kind == ViolationKind::ExecutableStack), "{found:?}");
    let mapped = fs::read_to_string("/proc/self/maps").unwrap();
    assert!(!mapped.contains("libexecstack.so"));
    let lax = ScanRules { executable_stack: Severity::Warn, ..ScanRules::default() };
    // The linker's turn: newer ones refuse it themselves.
    match get(&pack("execstack-lax", &stack), lax) {
        Ok(kernel) => assert_eq!(kinds(&kernel), [FindingKind::ExecutableStack]),
        Err(HubError::Load(LoadError::Dlopen { .. })) => {}
        other => panic!("{other:?}"),
    }
}

/// A file on which the dynamic linker itself crashes: it writes into a table that this one maps read-only.
#[test]
fn a_library_that_would_crash_the_linker_is_refused() {
    use crate::support::elf::Elf;
    let found = refused(&pack("linker-crash", &Elf { segment: 5, ..Elf::default() }.build(&[0; 4096])));
    assert!(matches!(&found[..], [violation] if violation.kind == ViolationKind::LibraryMalformed), "{found:?}");
    assert!(found[0].to_string().contains("no dynamic table that can be written to"), "{}", found[0]);
}

/// F32: pieces of another interface version load together and misread memory.
#[test]
fn f32_another_version_of_the_interface_is_refused_before_its_first_call() {
    use crate::support::native::compile;
    use kernelhub::manifest::BackendInfo;
    use kernelhub::resolve::{Candidate, Request, choose};
    use kernelhub::system::SystemInfo;
    use kernelhub::variant::{AnyVariant, Variant};
    let library = compile("value", "0.0", &["--cfg", "newer_abi"]);
    let error = pack("stamped", &library).get().unwrap_err();
    assert!(
        matches!(&error, HubError::Load(LoadError::AbiVersion { expected: 1, actual: 2, .. })),
        "the stamp, before any other symbol: {error:?}"
    );
    let variant: Variant = "tvm-ffi02-cpu-x86_64-linux".parse().unwrap();
    assert_eq!(BackendInfo::of(&variant).kind, "cpu");
    let candidate = Candidate::new(AnyVariant::Known(variant), 0);
    let refusal = choose(&[candidate], &SystemInfo::probe(), &Request::device(DeviceKey::Cpu)).unwrap_err();
    assert!(refusal.to_string().contains("0.2"), "the tag, with its reason in the trace: {refusal}");
}
