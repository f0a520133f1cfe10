//! What verification costs: `cargo xtask bench-verify`, or `cargo bench --bench verify`.
//!
//! - The sha256 of 100 MiB in memory, by the crate that verification uses and by aws-lc, which the TLS stack brings,
//!   beside `openssl speed`.
//! - A warm load of a kernel of 100 MB (its library is that large), from its name to the loaded library, beside
//!   `openssl dgst -sha256` of the same library; and with the option to believe recorded hashes.
//!
//! Runs take turns. Each number is the least of its runs: what others do on the machine only ever adds to a time. With
//! `--write`, the numbers go to `benches/RESULTS.md`, in place of those that stand there.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    dead_code,
    unused_imports,
    reason = "a benchmark, with test helpers"
)]

#[path = "../tests/it/support/mod.rs"]
mod support;

use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use kernelhub::hub::Hub;
use kernelhub::variant::DeviceKey;
use sha2::Digest as _;

use support::native::{NativePack, norm_layer};

const BYTES: usize = 100_000_000;
const RUNS: usize = 15;
const START: &str = "<!-- verify: begin -->";
const END: &str = "<!-- verify: end -->";

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["--get", cache, trust] => get(Path::new(cache), *trust == "trust"),
        rest => {
            let table = measure();
            println!("{table}");
            if rest.contains(&"--write") {
                write(&table);
            }
        }
    }
}

/// In a process of its own: one warm load. Prints milliseconds, and how long verifying took of them.
fn get(cache: &Path, trust: bool) {
    let clock = Instant::now();
    let builder = Hub::builder().cache(cache).offline(true).policy(support::trust::policy());
    let hub = builder.trust_recorded_hashes(trust).build().unwrap();
    let kernel = hub.get(&"kernelhub-tests/large".parse().unwrap(), 1, DeviceKey::Cpu).unwrap();
    let whole = clock.elapsed().as_secs_f64() * 1e3;
    println!("{whole} {}", kernel.times().verify_ms);
}

/// A library with this many bytes of text in it.
fn library() -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let (source, data, library) = (folder.path().join("x.c"), folder.path().join("data"), folder.path().join("x.so"));
    let bytes: Vec<u8> =
        (0..BYTES / 8).flat_map(|i| (i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes()).collect();
    fs::write(&data, bytes).unwrap();
    let text = format!(
        "__asm__(\".section .rodata\\n.global large\\nlarge: .incbin \\\"{}\\\"\\n.previous\");\n\
         int __tvm_ffi_rms_norm(void *s, const void *a, int n, void *r) {{ return 0; }}\n",
        data.display()
    );
    fs::write(&source, text).unwrap();
    let status = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status().unwrap();
    assert!(status.success());
    fs::read(library).unwrap()
}

fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

fn milliseconds(run: impl FnOnce()) -> f64 {
    let clock = Instant::now();
    run();
    clock.elapsed().as_secs_f64() * 1e3
}

fn measure() -> String {
    let library = library();
    let (mut own, mut aws) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        own.push(milliseconds(|| {
            black_box(sha2::Sha256::digest(&library));
        }));
        aws.push(milliseconds(|| {
            black_box(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &library));
        }));
    }
    let speed = |ms: f64| library.len() as f64 / 1e3 / ms;
    let openssl = openssl_speed();
    let fastest = [speed(least(&own)), speed(least(&aws)), openssl.unwrap_or(0.0)].into_iter().fold(0.0, f64::max);

    let pack = NativePack::new("large", &norm_layer("RMSNorm", "rms_norm"), &[("liblarge.so", &library)]);
    // Brought into the cache, and by a hub of its own, so that this process does not hold it.
    pack.hub().prefetch(&pack.manifest().kernel.repo, 1, kernelhub::hub::Selection::AllVariants).unwrap();
    std::thread::sleep(std::time::Duration::from_secs(3));
    let file = pack.unpacked().join("liblarge.so");
    let (mut loads, mut verifies, mut trusting, mut digests) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let (whole, verify) = child(pack.cache(), "hash");
        loads.push(whole);
        verifies.push(verify);
        trusting.push(child(pack.cache(), "trust").0);
        if let Some(ms) = openssl_digest(&file) {
            digests.push(ms);
        }
    }
    let shown = |values: &[f64]| {
        if values.is_empty() { "not here".to_owned() } else { format!("{:.1} ms", least(values)) }
    };
    let ratio = |values: &[f64]| {
        if digests.is_empty() { "not here".to_owned() } else { format!("{:.2}", least(values) / least(&digests)) }
    };
    let rate = |value: f64| format!("{value:.0} MB/s");
    format!(
        "| sha256 in memory | speed | of the fastest |\n|---|---:|---:|\n\
         | what verification uses (sha2) | {} | {:.0}% |\n| aws-lc | {} | {:.0}% |\n| `openssl speed -evp sha256` | {} | |\n\n\
         | 100 MB kernel, warm | time | by OpenSSL's |\n|---|---:|---:|\n\
         | `openssl dgst -sha256` of its library | {} | 1 |\n| read, hash, copy and seal | {} | {} |\n\
         | name to loaded library | {} | {} |\n| the same, recorded hashes believed | {} | {} |\n",
        rate(speed(least(&own))),
        100.0 * speed(least(&own)) / fastest,
        rate(speed(least(&aws))),
        100.0 * speed(least(&aws)) / fastest,
        openssl.map_or_else(|| "not here".to_owned(), rate),
        shown(&digests),
        shown(&verifies),
        ratio(&verifies),
        shown(&loads),
        ratio(&loads),
        shown(&trusting),
        ratio(&trusting),
    )
}

/// One warm load in a process of its own: all of it, and verifying.
fn child(cache: &Path, trust: &str) -> (f64, f64) {
    let own = std::env::current_exe().unwrap();
    let output = Command::new(own).arg("--get").arg(cache).arg(trust).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let (whole, verify) = text.trim().split_once(' ').unwrap();
    (whole.parse().unwrap(), verify.parse().unwrap())
}

/// What the program takes, its start left out as far as a tiny file shows it.
fn openssl_digest(file: &Path) -> Option<f64> {
    let run = |file: &Path| {
        let clock = Instant::now();
        let output = Command::new("openssl").args(["dgst", "-sha256"]).arg(file).output().ok()?;
        output.status.success().then(|| clock.elapsed().as_secs_f64() * 1e3)
    };
    let tiny = file.with_file_name("layers.toml");
    Some(run(file)? - run(&tiny)?)
}

/// MB/s for large blocks.
fn openssl_speed() -> Option<f64> {
    let output = Command::new("openssl").args(["speed", "-seconds", "1", "-evp", "sha256"]).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let last = text.lines().rev().find(|line| line.to_ascii_lowercase().starts_with("sha256"))?;
    let kilobytes: f64 = last.split_whitespace().last()?.trim_end_matches('k').parse().ok()?;
    Some(kilobytes / 1e3)
}

fn write(table: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/RESULTS.md");
    let text = fs::read_to_string(&path).unwrap();
    let (head, rest) = text.split_once(START).unwrap();
    let (_, tail) = rest.split_once(END).unwrap();
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or_default();
    let text = format!("{head}{START}\n\nLoad average {load} after the run.\n\n{table}\n{END}{tail}");
    fs::write(&path, text).unwrap();
}
