#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    kernelhub_fuzz::target("builds").expect("a target of this name").run(data);
});
