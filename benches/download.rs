//! How fast files arrive and kernels start: `cargo xtask bench-download`, or `cargo bench --bench download`.
//!
//! - 512 MiB of one file from loopback, its sha256 checked, beside `curl -o` in the same run: MiB/s, the median of 7
//!   runs that take turns; and by how much the process's memory grows.
//! - Process start to a loaded, verified kernel of the size of a `relu`, from a Hub on loopback: cold, warm by version
//!   (one request), warm by commit (none); the median of 31 processes. Needs `cc`.
//!
//! Each measured run is a process of its own. The server is this process. With `--write`, the numbers go to
//! `benches/RESULTS.md`, in place of those that stand there.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    dead_code,
    unused_imports,
    reason = "a benchmark, with test helpers"
)]

#[path = "../tests/it/support/mod.rs"]
mod support;

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kernelhub::digest::Sha256Digest;
use kernelhub::fetch::{FetchOptions, Fetcher, Location, NoProgress, Revision};
use kernelhub::variant::DeviceKey;

use support::hub::{FakeHub, Published, environment};
use support::packs::VARIANT;

const BYTES: usize = 512 << 20;
const REPO: &str = "kernels-community/relu";
const START: &str = "<!-- download: begin -->";
const END: &str = "<!-- download: end -->";

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["--download", url, sha256, to] => download(url, sha256.parse().unwrap(), Path::new(to)),
        ["--get", endpoint, home, revision] => get(endpoint, Path::new(home), revision),
        rest => {
            let table = measure();
            println!("{table}");
            if rest.contains(&"--write") {
                write(&table);
            }
        }
    }
}

/// In a process of its own: one download. Prints seconds and the growth of the memory in KiB.
fn download(url: &str, sha256: Sha256Digest, to: &Path) {
    let fetcher = Fetcher::new(FetchOptions::default());
    let location: Location = url.parse().unwrap();
    let before = memory_kib("VmRSS");
    let clock = Instant::now();
    fetcher.fetch_file(&location, BYTES as u64, sha256, to, &NoProgress).unwrap();
    println!("{} {}", clock.elapsed().as_secs_f64(), memory_kib("VmHWM").saturating_sub(before));
}

/// A line of the kernel's account of this process; 0 where there is none.
fn memory_kib(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(field));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
}

/// In a process of its own: one kernel.
fn get(endpoint: &str, home: &Path, revision: &str) {
    let hub = kernelhub::hub::Hub::builder().environment(environment(endpoint, home, &[])).build().unwrap();
    let revision: Revision = revision.parse().unwrap();
    let kernel = hub.get(&REPO.parse().unwrap(), revision, DeviceKey::Cpu).unwrap();
    assert!(kernel.snapshot().library().is_ok());
    println!("{}", kernel.fetched().requests);
}

fn measure() -> String {
    let mut table = String::from("| what | kernelhub | target | curl |\n|---|---|---|---|\n");
    table += &download_rows();
    table += &get_rows();
    table
}

fn own() -> Command {
    Command::new(std::env::current_exe().unwrap())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn download_rows() -> String {
    let content: Arc<Vec<u8>> =
        Arc::new((0..BYTES / 8).flat_map(|i| (i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes()).collect());
    let sha256 = Sha256Digest::of(&content).to_string();
    let url = serve(content);
    let folder = tempfile::tempdir().unwrap();
    let (ours, theirs) = (folder.path().join("ours"), folder.path().join("theirs"));
    let speed = |seconds: f64| (BYTES >> 20) as f64 / seconds;
    let (mut own_speeds, mut curl_speeds, mut growths) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..7 {
        let output = own().args(["--download", &url, &sha256]).arg(&ours).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        let numbers: Vec<f64> = text.split_whitespace().map(|number| number.parse().unwrap()).collect();
        own_speeds.push(speed(numbers[0]));
        growths.push(numbers[1] / 1024.0);
        std::fs::remove_file(&ours).unwrap();
        let curl = Command::new("curl").args(["-s", "-w", "%{time_total}", "-o"]).arg(&theirs).arg(&url).output();
        if let Ok(output) = curl {
            curl_speeds.push(speed(String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()));
            std::fs::remove_file(&theirs).unwrap();
        }
    }
    let curl = if curl_speeds.is_empty() { "not here".to_owned() } else { format!("{:.0} MiB/s", median(curl_speeds)) };
    format!(
        "| 512 MiB from loopback, sha256 checked | {:.0} MiB/s | 1,000 MiB/s | {curl}, unchecked |\n\
         | memory growth during it | {:.0} MiB | under 64 MiB | |\n",
        median(own_speeds),
        median(growths)
    )
}

/// Answers every request with the content.
fn serve(content: Arc<Vec<u8>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/file", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let content = Arc::clone(&content);
            std::thread::spawn(move || {
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
                if lines.by_ref().take_while(|line| !line.is_empty()).count() == 0 {
                    return;
                }
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", content.len());
                let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&content));
            });
        }
    });
    url
}

fn get_rows() -> String {
    let Some(library) = relu() else {
        return "| a kernel's start | not measured: no `cc` | | |\n".to_owned();
    };
    let mut published = Published::new(REPO, 1);
    published.files.clear();
    let files = [("relu.so", library), ("__init__.py", b"import tvm_ffi\n".to_vec())];
    published.add_build(VARIANT, 1, &files, &[]);
    let commit = published.commit.clone();
    let fake = FakeHub::start(vec![published]);
    let run = |home: &Path, revision: &str, requests: Option<&str>| {
        let clock = Instant::now();
        let output = own().args(["--get", &fake.endpoint()]).arg(home).arg(revision).output().unwrap();
        let time = clock.elapsed().as_secs_f64() * 1e3;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let told = String::from_utf8(output.stdout).unwrap();
        assert!(requests.is_none_or(|requests| told.trim() == requests), "{told} requests");
        time
    };
    let home = tempfile::tempdir().unwrap();
    run(home.path(), "v1", None);
    let times = |each: &dyn Fn() -> f64| median((0..31).map(|_| each()).collect());
    let cold = times(&|| run(tempfile::tempdir().unwrap().path(), "v1", None));
    let version = times(&|| run(home.path(), "v1", Some("1")));
    let pinned = times(&|| run(home.path(), &commit, Some("0")));
    format!(
        "| process start to a loaded, verified kernel, cold | {cold:.1} ms | 60 ms | |\n\
         | ... warm, by version (1 request) | {version:.1} ms | 15 ms | |\n\
         | ... warm, by commit (0 requests) | {pinned:.1} ms | 15 ms | |\n"
    )
}

/// A library with one function by the tvm-ffi convention.
fn relu() -> Option<Vec<u8>> {
    let folder = tempfile::tempdir().unwrap();
    let (source, library) = (folder.path().join("relu.c"), folder.path().join("relu.so"));
    let text = "int __tvm_ffi_relu(void *self, const void *args, int count, void *result) { return 0; }\n";
    std::fs::write(&source, text).unwrap();
    let status = Command::new("cc").args(["-shared", "-fPIC", "-O2", "-o"]).arg(&library).arg(&source).status().ok()?;
    status.success().then(|| std::fs::read(&library).unwrap())
}

/// Puts the numbers into the file of results, in place of the former ones.
fn write(table: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/RESULTS.md");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|_| "# Results\n".to_owned());
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let section = format!(
        "{START}\n## Downloads and starts\n`cargo xtask bench-download --write`, on a machine with {cores} processor cores, which the \
         server shares.\n\n{table}{END}\n"
    );
    let text = match (text.find(START), text.find(END)) {
        (Some(start), Some(end)) => format!("{}{section}{}", &text[..start], text[end + END.len()..].trim_start()),
        _ => format!("{text}\n{section}"),
    };
    std::fs::write(path, text).unwrap();
}
