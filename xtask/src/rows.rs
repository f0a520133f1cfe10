//! The published set as tables of `benches/RESULTS.md`.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::Value;

use crate::paths;
use crate::published::Published;
use crate::results::{machine, time};
use crate::row::Row;

/// Writes the tables of `benches/RESULTS.md` between their markers.
pub(crate) fn write(published: &Published) -> anyhow::Result<PathBuf> {
    replace("benches/RESULTS.md", "kernels", &tables(published))
}

/// Writes a command and what it printed into the README, between its markers.
pub(crate) fn write_readme(command: &str, output: &str) -> anyhow::Result<PathBuf> {
    replace("README.md", "benchmark", &format!("```console\n$ {command}\n{}\n```", output.trim_end()))
}

/// Puts `new` between two markers of a file of this repository.
fn replace(file: &str, marker: &str, new: &str) -> anyhow::Result<PathBuf> {
    let (begin, end) = (format!("<!-- {marker}: begin -->\n"), format!("<!-- {marker}: end -->"));
    let path = paths::root().join(file);
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let marked = text.split_once(&begin).and_then(|(head, rest)| Some((head, rest.split_once(&end)?.1)));
    let (head, tail) = marked.with_context(|| format!("{} lacks the markers of {marker}", path.display()))?;
    let text = format!("{head}{begin}\n{}\n\n{end}{tail}", new.trim());
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

fn tables(published: &Published) -> String {
    let mut text = String::new();
    line(&mut text, &machine(published.load_average.clone()));
    let compiled = published.reference["compiled_for"].as_array().map_or(0, Vec::len);
    let compiled = if compiled > 0 { "compiled for this processor" } else { "compiled for any processor" };
    let torch =
        published.torch.as_ref().map_or_else(|| "no PyTorch here".to_owned(), |version| format!("PyTorch {version}"));
    let version = published.reference["version"].as_str().unwrap_or("?");
    line(&mut text, &format!("candle {version}, {compiled}; {torch}; {} threads each.\n", published.threads));
    ceilings(&published.ceilings, &mut text);
    text.push_str(&table(&published.rows));
    kept(&published.rows, &mut text);
    slower(&published.rows, &mut text);
    if let Some(llama) = &published.llama {
        line(&mut text, "\n### llama.cpp, end to end\n");
        line(
            &mut text,
            &format!(
                "`llama-bench`, build {}, {}, {} threads: {:.1} tokens/s of decode (128 after 32), {:.0} of prefill (32).",
                llama.build, llama.model, llama.threads, llama.decode_tokens_per_s, llama.prefill_tokens_per_s
            ),
        );
    }
    pictures(&mut text);
    text
}

fn ceilings(ceilings: &Value, text: &mut String) {
    line(text, "### What the machine can do at most\n");
    line(
        text,
        "| bytes passed over | threads | copy | copy past the caches | read | on plain pages: copy | past the caches | read |\n\
         |---|---|---:|---:|---:|---:|---:|---:|",
    );
    for row in ceilings["bandwidth"].as_array().into_iter().flatten() {
        let bytes = row["bytes"].as_u64().unwrap_or_default();
        let size = if bytes < 1 << 20 { format!("{} KiB", bytes >> 10) } else { format!("{} MiB", bytes >> 20) };
        let rate = |of: &Value, key: &str| of[key].as_f64().map_or_else(|| "-".to_owned(), |rate| format!("{rate:.1}"));
        let by = |pass: &str| {
            let way = &row["ways"][pass];
            let asked = if way["ahead"].as_u64().is_some_and(|ahead| ahead > 0) { "+" } else { "" };
            way["streams"].as_u64().map_or_else(String::new, |streams| format!(" ({streams}{asked})"))
        };
        let passes = ["copy", "streaming_copy", "read"];
        let best = passes.map(|pass| rate(row, &format!("{pass}_gb_per_s")) + &by(pass));
        let plain = passes.map(|pass| rate(&row["plain_pages"], &format!("{pass}_gb_per_s")));
        line(text, &format!("| {size} | {} | {} | {} |", row["threads"], best.join(" | "), plain.join(" | ")));
    }
    line(
        text,
        "\nGB/s; in brackets: places that each thread passes over at once, and + where lines ahead are asked for.",
    );
    if let Some(start) = ceilings["start_us"].as_f64().filter(|start| *start > 0.0) {
        line(text, &format!("Starting all threads for a loop and ending it takes {start:.2} µs at least."));
    }
    let number = |key: &str| ceilings[key].as_f64().map_or_else(|| "-".to_owned(), |rate| format!("{rate:.0} GFLOP/s"));
    let (single, dot) = (number("f32_fma_gflop_per_s"), number("bf16_dot_gflop_per_s"));
    line(text, &format!("\nProducts and sums by {} threads: f32 {single}, bf16 {dot}.\n", ceilings["threads"]));
}

/// One table for each op.
pub(crate) fn table(rows: &[Row]) -> String {
    let mut text = String::new();
    let mut last = "";
    for row in rows {
        if row.layer != last {
            last = &row.layer;
            line(&mut text, &format!("\n### {}\n", row.layer));
            line(
                &mut text,
                "| shape | dtype | in a layer | alone | candle | PyTorch | x candle | x PyTorch | rate | of the ceiling |\n\
                 |---|---|---:|---:|---:|---:|---:|---:|---:|---:|",
            );
        }
        let optional = |microseconds: Option<f64>| microseconds.map_or_else(|| "-".to_owned(), |us| time(us * 1e3));
        let mark = if row.over_candle_significant { "" } else { "?" };
        let is_memory = row.ceiling["bound"].as_str() != Some("arithmetic");
        let rate = match row.gflop_per_s {
            Some(rate) if !is_memory => format!("{rate:.0} GFLOP/s"),
            _ => format!("{:.1} GB/s", row.gb_per_s),
        };
        let ceiling = row.ceiling_fraction.map_or_else(|| "-".to_owned(), |part| format!("{:.0}%", part * 100.0));
        line(
            &mut text,
            &format!(
                "| {} | {} | {} | {} | {} | {} | {:.2}{mark} | {} | {rate} | {ceiling} |",
                row.shape_text(),
                row.dtype,
                time(row.kernelhub_us * 1e3),
                optional(row.kernelhub_reused_us),
                time(row.candle_us * 1e3),
                optional(row.torch_us),
                row.over_candle,
                row.over_torch.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")),
            ),
        );
    }
    text
}

fn kept(rows: &[Row], text: &mut String) {
    let rows: Vec<&Row> = rows.iter().filter(|row| row.kernelhub_kept_us.is_some()).collect();
    if rows.is_empty() {
        return;
    }
    line(text, "\n### Large outputs, freed memory kept\n");
    line(
        text,
        "| layer | shape | dtype | in a layer | candle | PyTorch | x candle | x PyTorch |\n|---|---|---|---:|---:|---:|---:|---:|",
    );
    for row in rows {
        let (ours, candle) = (row.kernelhub_kept_us.unwrap_or(f64::NAN), row.candle_kept_us.unwrap_or(f64::NAN));
        let torch = row.torch_kept_us.map_or_else(|| "-".to_owned(), |us| time(us * 1e3));
        let over = row.torch_kept_us.map_or_else(|| "-".to_owned(), |us| format!("{:.2}", us / ours));
        line(
            text,
            &format!(
                "| {} | {} | {} | {} | {} | {torch} | {:.2} | {over} |",
                row.layer,
                row.shape_text(),
                row.dtype,
                time(ours * 1e3),
                time(candle * 1e3),
                candle / ours
            ),
        );
    }
}

/// Where a peer is ahead.
fn slower(rows: &[Row], text: &mut String) {
    line(text, "\n### Where a peer is ahead\n");
    let candle = rows.iter().filter(|row| row.over_candle < 1.0 && row.over_candle_significant);
    let candle = candle.map(|row| format!("- {}: candle, {:.2} times as fast", row.name(), 1.0 / row.over_candle));
    let torch = rows.iter().filter_map(|row| Some((row, row.over_torch.filter(|over| *over < 1.0)?)));
    let torch = torch.map(|(row, over)| format!("- {}: PyTorch, {:.2} times as fast", row.name(), 1.0 / over));
    let all: Vec<String> = candle.chain(torch).collect();
    if all.is_empty() {
        line(text, "Nowhere in this set.");
    }
    for row in &all {
        line(text, row);
    }
}

/// Every plot of the run.
fn pictures(text: &mut String) {
    let folder = paths::root().join("benches/plots");
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = files.filter_map(|file| file.file_name().into_string().ok()).collect();
    names.retain(|name| Path::new(name).extension().is_some_and(|extension| extension == "svg"));
    names.sort();
    if names.is_empty() {
        return;
    }
    line(text, "\n### Plots\n");
    let links: Vec<String> =
        names.iter().map(|name| format!("[{}](plots/{name})", name.trim_end_matches(".svg"))).collect();
    line(text, &links.join(", "));
}

fn line(text: &mut String, row: &str) {
    // Writing to a string cannot fail.
    writeln!(text, "{row}").unwrap_or_default();
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn ceilings_name_the_fastest_ways_and_what_was_not_measured() {
        let ceilings = json!({
            "threads": 2, "start_us": 1.25, "f32_fma_gflop_per_s": 236.4, "bf16_dot_gflop_per_s": null,
            "bandwidth": [
                { "bytes": 4096, "threads": 1, "copy_gb_per_s": 227.51, "streaming_copy_gb_per_s": null,
                  "read_gb_per_s": 193.1, "ways": { "copy": { "streams": 1, "ahead": 0 }, "streaming_copy": null,
                  "read": { "streams": 4, "ahead": 16 } }, "plain_pages": null },
                { "bytes": 67_108_864, "threads": 2, "copy_gb_per_s": 91.0, "streaming_copy_gb_per_s": 108.4,
                  "read_gb_per_s": 117.3, "plain_pages": { "copy_gb_per_s": 63.2, "streaming_copy_gb_per_s": 107.4,
                  "read_gb_per_s": 81.3 } },
            ],
        });
        let mut text = String::new();
        super::ceilings(&ceilings, &mut text);
        for line in [
            "| 4 KiB | 1 | 227.5 (1) | - | 193.1 (4+) | - | - | - |",
            "| 64 MiB | 2 | 91.0 | 108.4 | 117.3 | 63.2 | 107.4 | 81.3 |",
            "ending it takes 1.25 µs at least.",
            "by 2 threads: f32 236 GFLOP/s, bf16 -.",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
}
