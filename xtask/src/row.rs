//! One result of the published set, for `--json` and for the tables.

use anyhow::Context as _;
use serde::Serialize;
use serde_json::Value;

/// One layer at one shape in one dtype. Times are medians, in microseconds per call; null where a peer is absent.
#[derive(Serialize, Clone)]
pub(crate) struct Row {
    pub(crate) op: String,
    pub(crate) layer: String,
    pub(crate) kernel: String,
    pub(crate) shape: Vec<u64>,
    pub(crate) axes: Value,
    pub(crate) dtype: String,
    pub(crate) threads: usize,
    /// In the candle host's layer, into a fresh output, as in a model.
    pub(crate) kernelhub_us: f64,
    /// The kernel by itself, into an output that is used again.
    pub(crate) kernelhub_reused_us: Option<f64>,
    pub(crate) candle_us: f64,
    pub(crate) torch_us: Option<f64>,
    /// The same in processes that keep freed memory; of large outputs alone.
    pub(crate) kernelhub_kept_us: Option<f64>,
    pub(crate) candle_kept_us: Option<f64>,
    pub(crate) torch_kept_us: Option<f64>,
    pub(crate) over_candle: f64,
    pub(crate) over_candle_ci95: [f64; 2],
    pub(crate) over_candle_significant: bool,
    pub(crate) over_torch: Option<f64>,
    /// Of the kernel by itself.
    pub(crate) gb_per_s: f64,
    pub(crate) gflop_per_s: Option<f64>,
    pub(crate) ceiling: Value,
    pub(crate) ceiling_fraction: Option<f64>,
    pub(crate) ceiling_fraction_in_layer: Option<f64>,
    pub(crate) max_error: Option<f64>,
    pub(crate) matches: bool,
    #[serde(skip)]
    pub(crate) bytes_written: u64,
}

impl Row {
    pub(crate) fn shape_text(&self) -> String {
        self.shape.iter().map(ToString::to_string).collect::<Vec<_>>().join("x")
    }

    /// The words for a row.
    pub(crate) fn name(&self) -> String {
        format!("{} {} {}", self.layer, self.shape_text(), self.dtype)
    }
}

/// The rows of a run's JSON.
pub(crate) fn rows_of(report: &Value, threads: usize) -> anyhow::Result<Vec<Row>> {
    let cases = report["results"].as_array().context("the run has no results")?;
    let kernel = format!("{}@{}", text(&report["kernel"]["repo"])?, text(&report["kernel"]["revision"])?);
    cases.iter().map(|case| row(case, &kernel, threads)).collect()
}

fn row(case: &Value, kernel: &str, threads: usize) -> anyhow::Result<Row> {
    let median = |side: &str| case[side]["median_us"].as_f64();
    let number = |value: &Value, what: &str| value.as_f64().with_context(|| format!("a case has no {what}"));
    let shape = text(&case["shape"])?.split('x').map(str::parse).collect::<Result<_, _>>()?;
    let speedup = &case["speedup"];
    Ok(Row {
        op: text(&case["contract"])?,
        layer: text(&case["layer"])?,
        kernel: kernel.to_owned(),
        shape,
        axes: case["axes"].clone(),
        dtype: text(&case["dtype"])?,
        threads,
        kernelhub_us: median("kernel").context("a case has no time")?,
        kernelhub_reused_us: median("kernel_alone"),
        candle_us: median("reference").context("a case has no reference")?,
        torch_us: None,
        kernelhub_kept_us: None,
        candle_kept_us: None,
        torch_kept_us: None,
        over_candle: number(&speedup["ratio"], "speed-up")?,
        over_candle_ci95: [number(&speedup["ci95"][0], "interval")?, number(&speedup["ci95"][1], "interval")?],
        over_candle_significant: speedup["significant"].as_bool().unwrap_or_default(),
        over_torch: None,
        gb_per_s: number(&case["gb_per_s"], "rate")?,
        gflop_per_s: case["gflop_per_s"].as_f64(),
        ceiling: case["ceiling"].clone(),
        ceiling_fraction: case["ceiling_fraction"].as_f64(),
        ceiling_fraction_in_layer: case["ceiling_fraction_in_layer"].as_f64(),
        max_error: case["match"]["max_error"].as_f64(),
        matches: case["match"]["passed"].as_bool().unwrap_or_default(),
        bytes_written: case["bytes_written"].as_u64().unwrap_or_default(),
    })
}

fn text(value: &Value) -> anyhow::Result<String> {
    Ok(value.as_str().context("a text is missing in the run's JSON")?.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::rows_of;
    use crate::rows::table;

    #[test]
    fn a_run_becomes_rows_and_a_table() {
        let case = json!({
            "layer": "Linear", "contract": "linear", "shape": "1x4096x4096", "dtype": "bf16",
            "axes": { "rows": 1, "in_features": 4096, "out_features": 4096 },
            "kernel": { "median_us": 800.0 }, "kernel_alone": { "median_us": 750.0 },
            "reference": { "median_us": 8000.0 },
            "speedup": { "ratio": 10.0, "ci95": [9.5, 10.5], "p_value": 1e-9, "significant": true },
            "match": { "passed": true, "max_error": 0.01 },
            "bytes_written": 8192, "gb_per_s": 44.8, "gflop_per_s": 44.7,
            "ceiling": { "bound": "read", "limit": 50.0, "least_us": 671.0 },
            "ceiling_fraction": 0.895, "ceiling_fraction_in_layer": 0.839,
        });
        let report = json!({ "kernel": { "repo": "kernelhub/linear", "revision": "v1" }, "results": [case] });
        let mut rows = rows_of(&report, 2).unwrap();
        assert_eq!((rows[0].name(), rows[0].shape.len()), ("Linear 1x4096x4096 bf16".to_owned(), 3));
        assert_eq!((rows[0].torch_us, rows[0].over_torch), (None, None), "absent until PyTorch had its turn");
        let written = serde_json::to_value(&rows[0]).unwrap();
        for field in [
            "op",
            "shape",
            "dtype",
            "threads",
            "kernelhub_us",
            "candle_us",
            "torch_us",
            "gb_per_s",
            "gflop_per_s",
            "ceiling_fraction",
        ] {
            assert!(written.get(field).is_some(), "{field}");
        }
        (rows[0].torch_us, rows[0].over_torch) = (Some(1600.0), Some(2.0));
        let text = table(&rows);
        assert!(text.contains("### Linear"), "{text}");
        let row = "| 1x4096x4096 | bf16 | 800 µs | 750 µs | 8.00 ms | 1.60 ms | 10.00 | 2.00 | 44.8 GB/s | 90% |";
        assert!(text.contains(row), "{text}");
        assert!(rows_of(&json!({ "results": [{}] }), 2).is_err(), "a case without anything");
    }
}
