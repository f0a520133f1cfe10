//! The tables of `benches/RESULTS.md`, from what criterion wrote of one run.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::Deserialize;

use crate::paths;

const BEGIN: &str = "<!-- results -->\n";
const END: &str = "<!-- /results -->";
/// The sides that the benchmarks of a forward compare.
const SIDES: [&str; 2] = ["kernels on", "kernels off"];

/// What criterion says of a benchmark in `benchmark.json`.
#[derive(Deserialize)]
struct Benchmark {
    group_id: String,
    function_id: Option<String>,
    value_str: Option<String>,
    throughput: Option<Throughput>,
}

#[derive(Deserialize)]
enum Throughput {
    Bytes(u64),
    #[serde(other)]
    Other,
}

/// What it says of its times, in nanoseconds, in `estimates.json`.
#[derive(Deserialize)]
struct Estimates {
    median: Estimate,
}

#[derive(Deserialize)]
struct Estimate {
    point_estimate: f64,
}

struct Measured {
    benchmark: Benchmark,
    median_ns: f64,
}

/// Where criterion writes.
pub(crate) fn folder() -> PathBuf {
    paths::target().join("criterion")
}

/// Writes the tables between the markers. `load` is the machine's load average before and after the run.
pub(crate) fn write(load: [Option<String>; 2]) -> anyhow::Result<PathBuf> {
    let mut measured = Vec::new();
    collect(&folder(), &mut measured)?;
    anyhow::ensure!(!measured.is_empty(), "criterion left no results in {}", folder().display());
    let path = paths::root().join("benches/RESULTS.md");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let marked = text.split_once(BEGIN).and_then(|(head, rest)| Some((head, rest.split_once(END)?.1)));
    let (head, tail) = marked.with_context(|| format!("{} lacks its two markers", path.display()))?;
    let text = format!("{head}{BEGIN}\n{}\n{}\n{END}{tail}", machine(load), tables(&measured));
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// Reads every benchmark below `folder`; the newest run of each is in a folder `new`.
fn collect(folder: &Path, measured: &mut Vec<Measured>) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let path = entry?.path();
        if !path.is_dir() {
            continue;
        }
        if path.ends_with("new") {
            let benchmark = read(&path.join("benchmark.json"))?;
            let estimates: Estimates = read(&path.join("estimates.json"))?;
            measured.push(Measured { benchmark, median_ns: estimates.median.point_estimate });
        } else {
            collect(&path, measured)?;
        }
    }
    Ok(())
}

fn read<T: for<'a> Deserialize<'a>>(path: &Path) -> anyhow::Result<T> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is not what criterion writes", path.display()))
}

/// The line on the machine.
pub(crate) fn machine([before, after]: [Option<String>; 2]) -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = info.lines().find(|line| line.starts_with(name));
        line.and_then(|line| Some(line.split_once(':')?.1.trim().to_owned()))
    };
    let model = match (field("model name"), field("cpu family"), field("model\t")) {
        (Some(name), Some(family), Some(model)) => format!("{name} (family {family}, model {model})"),
        (Some(name), ..) => name,
        _ => std::env::consts::ARCH.to_owned(),
    };
    let wide: Vec<_> = field("flags").unwrap_or_default().split(' ').map(str::to_owned).collect();
    let has = |flag: &&str| wide.iter().any(|known| known == flag);
    let flags: Vec<_> = ["avx2", "fma", "avx512f", "avx512_bf16"].into_iter().filter(has).collect();
    let threads = std::thread::available_parallelism().map_or_else(|_| "?".to_owned(), |count| count.to_string());
    let unknown = || "unknown".to_owned();
    format!(
        "{model}, {}; {threads} threads; load average {} before the run and {} after it.\n",
        flags.join(" "),
        before.unwrap_or_else(unknown),
        after.unwrap_or_else(unknown),
    )
}

/// The load average of the last minute, where the system tells.
pub(crate) fn load_average() -> Option<String> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    text.split(' ').next().map(str::to_owned)
}

fn tables(measured: &[Measured]) -> String {
    let mut text = String::new();
    forwards(measured, &mut text);
    calls(measured, &mut text);
    stages(measured, &mut text);
    text.trim_end().to_owned()
}

fn is_side(benchmark: &Benchmark) -> Option<usize> {
    let function = benchmark.function_id.as_deref()?;
    benchmark.value_str.as_ref()?;
    SIDES.iter().position(|side| *side == function)
}

fn forwards(measured: &[Measured], text: &mut String) {
    let mut cases: BTreeMap<(&str, &str), [Option<f64>; 2]> = BTreeMap::new();
    for Measured { benchmark, median_ns } in measured {
        if let (Some(side), Some(value)) = (is_side(benchmark), &benchmark.value_str) {
            cases.entry((&benchmark.group_id, value)).or_default()[side] = Some(*median_ns);
        }
    }
    text.push_str("## Forwards\n\n| what | case | kernels on | kernels off | ratio |\n|---|---|---:|---:|---:|\n");
    for ((what, case), sides) in cases {
        if let [Some(on), Some(off)] = sides {
            line(text, &format!("| {what} | {case} | {} | {} | {:.2} |", time(on), time(off), off / on));
        }
    }
    text.push('\n');
}

fn calls(measured: &[Measured], text: &mut String) {
    let of = |name: &str| {
        let is = |m: &&Measured| m.benchmark.group_id == "call" && m.benchmark.function_id.as_deref() == Some(name);
        measured.iter().find(is).map(|m| m.median_ns)
    };
    text.push_str("## One call, RMSNorm of [1, 16] in f32\n\n| what | time |\n|---|---:|\n");
    for (name, what) in [
        ("direct", "the arithmetic in Rust, output there"),
        ("bound_noop", "a bound kernel that does next to nothing, output there"),
        ("bound", "the bound kernel, output there"),
        ("slice_noop", "a layer over slices that calls a function which does next to nothing, without kernelhub"),
        ("slice_layer_noop", "the slice host's layer with the kernel that does next to nothing, plan pinned"),
        ("slice_layer_noop_pin", "the same, pinning the plan itself"),
        ("candle_noop", "a candle custom operation of two inputs that only makes its output"),
        ("layer_noop", "the candle layer with the kernel that does next to nothing"),
        ("layer_in", "the candle layer, kernels on, plan pinned by the model"),
        ("layer", "the candle layer, kernels on"),
        ("layer_scope", "the candle layer, kernels on, in a scope of its model"),
        ("candle", "the candle layer, kernels off"),
        ("pin", "pinning a plan"),
        ("scope", "entering and leaving a scope"),
    ] {
        if let Some(median) = of(name) {
            line(text, &format!("| `{name}`: {what} | {} |", time(median)));
        }
    }
    let difference =
        |of_whole: &str, less: &[&str]| less.iter().try_fold(of(of_whole)?, |rest, name| Some(rest - of(name)?));
    for (what, nanoseconds) in [
        (
            "our overhead without a framework: `slice_layer_noop` less `slice_noop`",
            difference("slice_layer_noop", &["slice_noop"]),
        ),
        (
            "the same, pinning the plan itself: `slice_layer_noop_pin` less `slice_noop`",
            difference("slice_layer_noop_pin", &["slice_noop"]),
        ),
        ("our overhead in candle: `layer_noop` less `candle_noop`", difference("layer_noop", &["candle_noop"])),
        (
            "the pack's own checks: `bound` less `bound_noop` and `direct`",
            difference("bound", &["bound_noop", "direct"]),
        ),
    ] {
        if let Some(nanoseconds) = nanoseconds {
            line(text, &format!("| {what} | {nanoseconds:.0} ns |"));
        }
    }
    text.push('\n');
}

fn stages(measured: &[Measured], text: &mut String) {
    text.push_str("## Stages\n\n| stage | of | time | rate |\n|---|---|---:|---:|\n");
    let order = ["resolve", "verify", "get", "first_get", "first_load", "plan", "swap"];
    for group in order {
        let mut rows: Vec<_> = measured.iter().filter(|m| m.benchmark.group_id == group).collect();
        // By size or cost, as above.
        rows.sort_by(|a, b| a.median_ns.total_cmp(&b.median_ns));
        for Measured { benchmark, median_ns } in rows {
            let of = benchmark.value_str.as_deref().or(benchmark.function_id.as_deref()).unwrap_or("");
            let rate = match benchmark.throughput {
                Some(Throughput::Bytes(bytes)) => {
                    format!("{:.0} MiB/s", bytes as f64 / f64::from(1 << 20) / (median_ns / 1e9))
                }
                Some(Throughput::Other) | None => String::new(),
            };
            line(text, &format!("| {group} | {of} | {} | {rate} |", time(*median_ns)));
        }
    }
}

fn line(text: &mut String, row: &str) {
    // Writing to a string cannot fail.
    writeln!(text, "{row}").unwrap_or_default();
}

/// A time with three digits or so and its unit.
pub(crate) fn time(nanoseconds: f64) -> String {
    let (value, unit) = match nanoseconds {
        value if value < 1e3 => (value, "ns"),
        value if value < 1e6 => (value / 1e3, "µs"),
        value => (value / 1e6, "ms"),
    };
    let digits = match value {
        value if value < 10.0 => 2,
        value if value < 100.0 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {unit}")
}
