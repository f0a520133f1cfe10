//! A run for a person.

use std::fmt::Write as _;

use super::compare::{Comparison, Verdict};
use super::report::{Case, Report};
use super::roof::{Bandwidth, Ceilings};
use super::statistics::Summary;

/// A pass of so many bytes is in the caches of any processor that matters here, and long beside the start of threads.
const CACHED: u64 = 1 << 20;

/// The head of a run: what is measured, against what, on what.
pub(crate) fn head(report: &Report) -> String {
    let (settings, machine) = (&report.settings, &report.machine);
    let device = match &report.device_name {
        Some(name) => format!("{} ({name})", report.device),
        None => report.device.to_string(),
    };
    let cpu = machine.cpu.as_deref().unwrap_or("an unknown processor");
    let memory = if settings.kept_memory { ", freed memory kept" } else { "" };
    let mut text = format!("{}  {}  on {device}\n", report.kernel.name(), report.kernel.variant);
    line(&mut text, &format!("machine    {cpu}; {} threads{memory}", settings.threads));
    line(&mut text, &format!("reference  {}", report.reference.words()));
    if let Some(ceilings) = &report.ceilings {
        line(&mut text, &format!("ceilings   {}", ceilings_line(ceilings)));
    }
    text
}

/// The ceilings that matter most: in a cache, and of the largest pass.
fn ceilings_line(ceilings: &Ceilings) -> String {
    let best = |bytes: u64, of: fn(&Bandwidth) -> Option<f64>| {
        let rates = ceilings.bandwidth.iter().filter(|row| row.bytes == bytes).filter_map(of);
        rates.reduce(f64::max).map_or_else(|| "-".to_owned(), |rate| format!("{rate:.0}"))
    };
    let sizes = || ceilings.bandwidth.iter().map(|row| row.bytes);
    let end = sizes().max().unwrap_or_default();
    let cached = sizes().filter(|size| *size <= CACHED).max().unwrap_or(end);
    let bf16 = ceilings.bf16_dot_gflop_per_s.map_or_else(String::new, |rate| format!(", bf16 {rate:.0}"));
    format!(
        "copy {} GB/s of {}, {} of {} ({} past the caches), read {} and {}; f32 {:.0}{bf16} GFLOP/s",
        best(cached, |row| row.copy_gb_per_s),
        bytes(cached),
        best(end, |row| row.copy_gb_per_s),
        bytes(end),
        best(end, |row| row.streaming_copy_gb_per_s),
        best(cached, |row| row.read_gb_per_s),
        best(end, |row| row.read_gb_per_s),
        ceilings.f32_fma_gflop_per_s,
    )
}

/// The table of results; medians.
pub(crate) fn results(report: &Report) -> String {
    let mut rows = vec![
        ["layer", "shape", "dtype", "kernel", "reference", "speed-up", "95%", "alone", "rate", "ceiling", "match"]
            .map(str::to_owned),
    ];
    rows.extend(report.results.iter().map(|case| {
        let speedup = &case.speedup;
        let mark = if speedup.significant { "" } else { " ?" };
        let rate = match case.gflop_per_s {
            Some(rate) if case.ceiling.is_none_or(|ceiling| ceiling.bound.unit() != "GB/s") => {
                format!("{} GFLOP/s", digits(rate))
            }
            _ => format!("{} GB/s", digits(case.gb_per_s)),
        };
        [
            case.layer.clone(),
            case.shape.clone(),
            case.dtype.to_string(),
            time(case.kernel.median_us),
            time(case.reference.median_us),
            format!("{:.2}x{mark}", speedup.ratio),
            format!("{:.2} to {:.2}", speedup.ci95[0], speedup.ci95[1]),
            case.kernel_alone.as_ref().map_or_else(|| "-".to_owned(), |alone| time(alone.median_us)),
            rate,
            case.ceiling_fraction.map_or_else(|| "-".to_owned(), |part| format!("{:.0}%", part * 100.0)),
            matched(case),
        ]
    }));
    let mut text = table(&rows, &[0, 1, 2, 10]);
    text.push_str(
        "\nkernel and reference: medians of a call in the host's layer, output and all; alone: the kernel by itself, \
         output used again;\nceiling: its part of what the machine can do at most in a call; ?: no significant difference\n",
    );
    text
}

fn matched(case: &Case) -> String {
    let matched = &case.matched;
    let error = matched.max_error.map_or_else(|| "not a number".to_owned(), |error| format!("{error:.1e}"));
    if matched.passed {
        format!("yes ({error})")
    } else {
        format!("NO: {} of {} elements, by up to {error}", matched.wrong, matched.elements)
    }
}

/// Every statistic of every side.
pub(crate) fn details(report: &Report) -> String {
    let mut rows = vec![
        [
            "layer",
            "shape",
            "dtype",
            "side",
            "mean",
            "std",
            "min",
            "q1",
            "median",
            "q3",
            "max",
            "IQR",
            "outliers",
            "95% of the mean",
        ]
        .map(str::to_owned),
    ];
    for case in &report.results {
        let sides = [("kernel", Some(&case.kernel)), ("alone", case.kernel_alone.as_ref())];
        for (side, summary) in sides.into_iter().chain([("reference", Some(&case.reference))]) {
            let Some(summary) = summary else { continue };
            rows.push(detail(case, side, summary));
        }
    }
    let mut text = table(&rows, &[0, 1, 2, 3]);
    for case in &report.results {
        line(&mut text, &format!("{}: p = {:.3e}", case.name(), case.speedup.p_value));
    }
    text
}

fn detail(case: &Case, side: &str, summary: &Summary) -> [String; 14] {
    let Summary { mean_us, std_us, min_us, q1_us, median_us, q3_us, max_us, iqr_us, .. } = *summary;
    let [low, high] = summary.mean_ci95_us;
    [
        case.layer.clone(),
        case.shape.clone(),
        case.dtype.to_string(),
        side.to_owned(),
        time(mean_us),
        time(std_us),
        time(min_us),
        time(q1_us),
        time(median_us),
        time(q3_us),
        time(max_us),
        time(iqr_us),
        format!("{} of {}", summary.outliers, summary.samples_us.len()),
        format!("{} to {}", time(low), time(high)),
    ]
}

/// A run beside an earlier one.
pub(crate) fn comparison(comparison: &Comparison) -> String {
    let mut rows =
        vec![["layer", "shape", "dtype", "before", "now", "change", "p", "reference", "verdict"].map(str::to_owned)];
    rows.extend(comparison.changes.iter().map(|change| {
        [
            change.layer.clone(),
            change.shape.clone(),
            change.dtype.clone(),
            time(change.before_us),
            time(change.now_us),
            format!("{:.2}x", change.kernel.ratio),
            format!("{:.1e}", change.kernel.p_value),
            format!("{:.2}x", change.reference.ratio),
            change.verdict.to_string(),
        ]
    }));
    let mut text = table(&rows, &[0, 1, 2, 8]);
    for (what, cases) in
        [("only in the earlier run", &comparison.only_before), ("only in this run", &comparison.only_now)]
    {
        if !cases.is_empty() {
            line(&mut text, &format!("{what}: {}", cases.join(", ")));
        }
    }
    comparison.notes.iter().for_each(|note| line(&mut text, &format!("note: {note}")));
    let count = |verdict| comparison.count(verdict);
    line(
        &mut text,
        &format!(
            "{} improvements, {} regressions, {} unchanged, {} unclear",
            count(Verdict::Improvement),
            count(Verdict::Regression),
            count(Verdict::Unchanged),
            count(Verdict::Machine),
        ),
    );
    text
}

fn line(text: &mut String, row: &str) {
    // Writing to a string cannot fail.
    writeln!(text, "{row}").unwrap_or_default();
}

/// Columns of equal width; those of `left` are flush left.
fn table<const N: usize>(rows: &[[String; N]], left: &[usize]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths: Vec<usize> = (0..N).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().enumerate().map(|(column, cell)| {
            let width = widths[column];
            if left.contains(&column) { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        line(&mut text, cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    text
}

/// A time with three digits or so and its unit.
fn time(microseconds: f64) -> String {
    let (value, unit) = match microseconds {
        value if value < 1.0 => (value * 1e3, "ns"),
        value if value < 1e3 => (value, "us"),
        value if value < 1e6 => (value / 1e3, "ms"),
        value => (value / 1e6, "s"),
    };
    format!("{} {unit}", digits(value))
}

fn digits(value: f64) -> String {
    match value {
        value if value < 10.0 => format!("{value:.2}"),
        value if value < 100.0 => format!("{value:.1}"),
        value => format!("{value:.0}"),
    }
}

/// A size in the unit that suits it.
fn bytes(bytes: u64) -> String {
    match bytes {
        bytes if bytes < 1 << 20 => format!("{} KiB", bytes >> 10),
        bytes => format!("{} MiB", bytes >> 20),
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::example;
    use super::{details, head, results, table, time};

    #[test]
    fn times_have_their_unit() {
        let shown = [0.0123, 0.5, 2.345, 45.67, 999.4, 12_345.0, 2e6].map(time);
        assert_eq!(shown, ["12.3 ns", "500 ns", "2.35 us", "45.7 us", "999 us", "12.3 ms", "2.00 s"]);
    }

    #[test]
    fn columns_are_even() {
        let rows = [["a", "1"], ["long", "22"]].map(|row| row.map(str::to_owned));
        assert_eq!(table(&rows, &[0]), "a      1\nlong  22\n");
    }

    #[test]
    fn a_mismatch_and_a_doubt_show() {
        let mut report = example();
        assert!(results(&report).contains("yes (1.0e-7)"), "{}", results(&report));
        let case = &mut report.results[0];
        case.speedup.significant = false;
        (case.matched.passed, case.matched.wrong, case.matched.max_error) = (false, 3, None);
        let text = results(&report);
        assert!(text.contains("10.00x ?") && text.contains("NO: 3 of 512 elements, by up to not a number"), "{text}");
        assert!(head(&report).contains("kernelhub/rmsnorm@v1"), "{}", head(&report));
        assert!(
            head(&report).contains("copy 80 GB/s of 64 KiB, 80 of 64 KiB (160 past the caches), read 90 and 90"),
            "{}",
            head(&report)
        );
        assert!(details(&report).contains("1 of 4"), "{}", details(&report));
    }
}
