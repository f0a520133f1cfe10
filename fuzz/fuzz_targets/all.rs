#![no_main]

use std::sync::LazyLock;

use kernelhub_fuzz::Target;

/// The target that `FUZZ_TARGET` names.
static TARGET: LazyLock<&'static Target> = LazyLock::new(|| {
    let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
    kernelhub_fuzz::target(&name).unwrap_or_else(|| {
        let names: Vec<_> = kernelhub_fuzz::TARGETS.iter().map(|target| target.name).collect();
        eprintln!("FUZZ_TARGET={name:?}: expected one of {}", names.join(", "));
        std::process::exit(2)
    })
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    TARGET.run(data);
});
