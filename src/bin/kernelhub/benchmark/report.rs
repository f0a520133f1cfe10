//! The JSON of a run. `docs/benchmark.md` describes it.

use std::collections::BTreeMap;
use std::path::Path;

use kernelhub::bind::KernelIdentity;
use kernelhub::dtype::DType;
use kernelhub::variant::DeviceKey;
use serde::{Deserialize, Serialize};

use super::accuracy::Match;
use super::amounts::Amounts;
use super::error::BenchmarkError;
use super::machine::{Machine, Reference};
use super::roof::{Ceiling, Ceilings};
use super::statistics::{Speedup, Summary};

/// The edition of the JSON. A field that is added does not change it.
pub(crate) const SCHEMA: u32 = 1;
/// Largest report of an earlier run that is read, in bytes.
const MAX_REPORT_BYTES: u64 = 64 << 20;

/// A whole run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) schema: u32,
    pub(crate) kernel: Kernel,
    pub(crate) device: DeviceKey,
    /// The device's own name; of a processor it stands in `machine`.
    pub(crate) device_name: Option<String>,
    pub(crate) machine: Machine,
    pub(crate) settings: Settings,
    pub(crate) reference: Reference,
    /// Null where none were measured: by choice, or on a GPU.
    pub(crate) ceilings: Option<Ceilings>,
    pub(crate) results: Vec<Case>,
}

/// Which kernel was measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Kernel {
    pub(crate) repo: String,
    pub(crate) version: u32,
    pub(crate) revision: String,
    pub(crate) variant: String,
    /// The source that had it.
    pub(crate) source: String,
}

/// How it was measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Settings {
    pub(crate) iterations: usize,
    pub(crate) warmup: usize,
    pub(crate) seconds: f64,
    /// Threads of the kernels' and candle's pool.
    pub(crate) threads: usize,
    /// Whether freed memory stayed with the process, so that fresh outputs were not fresh pages of the system.
    pub(crate) kept_memory: bool,
}

/// One layer at one shape in one dtype. Times are in microseconds per call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Case {
    pub(crate) layer: String,
    pub(crate) contract: String,
    /// The kernel's function or entry point, and the digest of the file that has it.
    pub(crate) function: String,
    pub(crate) sha256: String,
    pub(crate) shape: String,
    pub(crate) axes: BTreeMap<String, usize>,
    pub(crate) dtype: DType,
    /// The kernel as a model calls it: by the host's layer, into an output that each call makes. On a GPU, by its bound
    /// function, until the device is done.
    pub(crate) kernel: Summary,
    /// The kernel by itself, into an output that is used again; null on a GPU.
    pub(crate) kernel_alone: Option<Summary>,
    /// The host's reference code in the same layer.
    pub(crate) reference: Summary,
    /// Of `kernel` over `reference`.
    pub(crate) speedup: Speedup,
    #[serde(rename = "match")]
    pub(crate) matched: Match,
    #[serde(flatten)]
    pub(crate) amounts: Amounts,
    /// By the median of `kernel_alone`, or of `kernel` where that is null.
    pub(crate) gb_per_s: f64,
    /// The same; null where no operations are counted.
    pub(crate) gflop_per_s: Option<f64>,
    pub(crate) ceiling: Option<Ceiling>,
    /// The part of the ceiling that `gb_per_s` or `gflop_per_s` reaches.
    pub(crate) ceiling_fraction: Option<f64>,
    /// The part that the median of `kernel` reaches.
    pub(crate) ceiling_fraction_in_layer: Option<f64>,
}

impl Case {
    /// The words for a case.
    pub(crate) fn name(&self) -> String {
        format!("{} {} {}", self.layer, self.shape, self.dtype)
    }

    /// The median of the kernel by itself where there is one, else in the layer.
    pub(crate) fn median_us(&self) -> f64 {
        self.kernel_alone.as_ref().unwrap_or(&self.kernel).median_us
    }
}

impl Kernel {
    pub(crate) fn name(&self) -> String {
        format!("{}@{}", self.repo, self.revision)
    }
}

/// What of a bound kernel's identity stands in a case.
pub(crate) fn code(identity: &KernelIdentity) -> (String, String) {
    (identity.function.clone(), identity.sha256.to_string())
}

impl Report {
    /// Reads the JSON of an earlier run.
    pub(crate) fn read(path: &Path) -> Result<Self, BenchmarkError> {
        let no_report = |source| BenchmarkError::NoReport { path: path.to_path_buf(), source };
        let text = kernelhub::regular::read_text(path, MAX_REPORT_BYTES).map_err(|source| {
            let (action, path) = ("read", path.to_path_buf());
            BenchmarkError::File { action, path, source }
        })?;
        // The edition decides before the fields do.
        let value: serde_json::Value = serde_json::from_str(&text).map_err(no_report)?;
        match value.get("schema").and_then(serde_json::Value::as_u64) {
            Some(found) if found != u64::from(SCHEMA) => {
                Err(BenchmarkError::Schema { path: path.to_path_buf(), found, supported: SCHEMA })
            }
            _ => {
                let report: Self = serde_json::from_value(value).map_err(no_report)?;
                // What is compared is computed from these: of no time, or of less than one, nothing follows.
                let sides = |case: &Case| case.kernel.is_measured() && case.reference.is_measured();
                match report.results.iter().find(|case| !sides(case)) {
                    Some(case) => Err(BenchmarkError::Times { path: path.to_path_buf(), case: case.name() }),
                    None => Ok(report),
                }
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;

    use kernelhub::dtype::DType;
    use kernelhub::hint::Hint as _;
    use kernelhub::variant::DeviceKey;

    use super::super::accuracy::Match;
    use super::super::amounts::Amounts;
    use super::super::machine::{Machine, Reference};
    use super::super::roof::tests::{example as ceilings, memory};
    use super::super::statistics::{Speedup, Summary};
    use super::{Case, Kernel, Report, SCHEMA, Settings};
    use crate::benchmark::error::BenchmarkError;

    /// A run of one case.
    pub(crate) fn example() -> Report {
        let summary = |middle: f64| Summary::new(vec![middle, middle, middle * 1.5, middle], 4);
        let (kernel, reference) = (summary(2.0), summary(20.0));
        let ceilings = ceilings();
        let amounts = Amounts { bytes_read: 2_048, bytes_written: 2_048, flop: None };
        let case = Case {
            layer: "RMSNorm".to_owned(),
            contract: "rms_norm".to_owned(),
            function: "rms_norm".to_owned(),
            sha256: "00".repeat(32),
            shape: "4x128".to_owned(),
            axes: [("rows".to_owned(), 4), ("hidden".to_owned(), 128)].into(),
            dtype: DType::F32,
            speedup: Speedup::new(&kernel, &reference),
            kernel_alone: Some(summary(1.0)),
            kernel,
            reference,
            matched: Match {
                passed: true,
                max_error: Some(1e-7),
                wrong: 0,
                elements: 512,
                relative: 1e-5,
                absolute: 1e-5,
            },
            gb_per_s: 4.096,
            gflop_per_s: None,
            ceiling: Some(ceilings.of(&amounts, DType::F32, memory())),
            ceiling_fraction: Some(0.040_96),
            ceiling_fraction_in_layer: Some(0.020_48),
            amounts,
        };
        Report {
            schema: SCHEMA,
            kernel: Kernel {
                repo: "kernelhub/rmsnorm".to_owned(),
                version: 1,
                revision: "v1".to_owned(),
                variant: "tvm-ffi01-cpu-x86_64-linux".to_owned(),
                source: "an archive".to_owned(),
            },
            device: DeviceKey::Cpu,
            device_name: None,
            machine: Machine {
                cpu: Some("a processor".to_owned()),
                features: vec!["avx2".to_owned()],
                os: "linux".to_owned(),
                usable_cores: Some(2),
                memory_bytes: Some(1 << 33),
                load_average: [Some(0.5), Some(1.0)],
            },
            settings: Settings { iterations: 4, warmup: 1, seconds: 1.0, threads: 2, kept_memory: false },
            reference: Reference {
                framework: "candle".to_owned(),
                version: "0.11.1".to_owned(),
                compiled_for: Vec::new(),
            },
            ceilings: Some(ceilings),
            results: vec![case],
        }
    }

    /// Other programs read it: what is here changes only with `SCHEMA`, but for fields that are added.
    #[test]
    fn the_json_is_the_documented_one() {
        insta::assert_snapshot!(serde_json::to_string_pretty(&example()).unwrap());
    }

    /// Fields that came later are absent from an earlier run's JSON.
    #[test]
    fn the_first_edition_is_read() {
        let mut value = serde_json::to_value(example()).unwrap();
        value["results"][0]["ceiling"].as_object_mut().unwrap().remove("threads").unwrap();
        value["ceilings"].as_object_mut().unwrap().remove("start_us").unwrap();
        for row in value["ceilings"]["bandwidth"].as_array_mut().unwrap() {
            for field in ["ways", "plain_pages"] {
                row.as_object_mut().unwrap().remove(field).unwrap();
            }
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.json");
        fs::write(&path, value.to_string()).unwrap();
        assert_eq!(Report::read(&path).unwrap().results[0].kernel, example().results[0].kernel);
    }

    #[test]
    fn a_run_without_times_is_not_compared_with() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.json");
        for (side, field, value) in [
            ("kernel", "samples_us", serde_json::json!([])),
            ("reference", "samples_us", serde_json::json!([1.0, 0.0])),
            ("kernel", "samples_us", serde_json::json!([-1.0])),
            ("reference", "median_us", serde_json::json!(0.0)),
        ] {
            let mut report = serde_json::to_value(example()).unwrap();
            report["results"][0][side][field] = value;
            fs::write(&path, report.to_string()).unwrap();
            let error = Report::read(&path).unwrap_err();
            assert!(matches!(error, BenchmarkError::Times { .. }) && error.hint().is_some(), "{error}");
        }
    }

    #[test]
    fn a_run_is_read_as_it_was_written_and_nothing_else_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.json");
        fs::write(&path, serde_json::to_string(&example()).unwrap()).unwrap();
        assert_eq!(Report::read(&path).unwrap(), example());
        fs::write(&path, "{\"schema\": 2}").unwrap();
        let error = Report::read(&path).unwrap_err();
        assert!(matches!(error, BenchmarkError::Schema { found: 2, .. }) && error.hint().is_some(), "{error}");
        for text in ["{\"schema\": 1}", "{}", "[]", "no JSON"] {
            fs::write(&path, text).unwrap();
            assert!(matches!(Report::read(&path), Err(BenchmarkError::NoReport { .. })), "{text}");
        }
        let absent = Report::read(&folder.path().join("absent.json"));
        assert!(matches!(absent, Err(BenchmarkError::File { action: "read", .. })), "{absent:?}");
    }
}
