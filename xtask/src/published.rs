//! The published set: every layer of our own CPU packs at the shapes of its `layers.toml`, beside candle and PyTorch.
//!
//! `kernelhub benchmark` measures kernels and candle; PyTorch has its turn after each pack. A second pass takes the
//! cases with large outputs again, in processes that keep freed memory: there a fresh output is no fresh page, so that
//! what remains is the work itself.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde::Serialize;
use serde_json::Value;

use crate::packs::PACKS;
use crate::peers::{Case, Llama, Torch};
use crate::process::run as run_command;
use crate::row::{Row, rows_of};
use crate::{paths, results};

/// Outputs from this size on are measured with freed memory kept as well, in bytes.
const LARGE: u64 = 1 << 20;
/// The exit code of a kernel whose results are not the reference's.
const MISMATCH: i32 = 3;

/// What to run.
pub(crate) struct Set<'a> {
    pub(crate) program: &'a Path,
    pub(crate) threads: usize,
    pub(crate) seconds: f64,
    pub(crate) only: Option<&'a str>,
    pub(crate) plots: &'a Path,
    pub(crate) torch: Option<&'a Torch>,
    pub(crate) is_smoke: bool,
}

/// What came of it.
#[derive(Serialize)]
pub(crate) struct Published {
    pub(crate) schema: u32,
    /// As `kernelhub benchmark` tells it.
    pub(crate) machine: Value,
    pub(crate) threads: usize,
    /// The load average before and after.
    pub(crate) load_average: [Option<String>; 2],
    pub(crate) ceilings: Value,
    pub(crate) reference: Value,
    /// `PyTorch`'s version; null where there is none.
    pub(crate) torch: Option<String>,
    pub(crate) llama: Option<Llama>,
    pub(crate) rows: Vec<Row>,
    /// What could not be measured, or is not the reference's, a sentence each.
    pub(crate) faults: Vec<String>,
}

impl Set<'_> {
    /// Runs everything. What fails is told in `faults`, and the rest goes on.
    pub(crate) fn run(&self) -> anyhow::Result<Published> {
        let mut published = Published {
            schema: 1,
            machine: Value::Null,
            threads: self.threads,
            load_average: [results::load_average(), None],
            ceilings: Value::Null,
            reference: Value::Null,
            torch: self.torch.map(|torch| torch.version.clone()),
            llama: None,
            rows: Vec::new(),
            faults: Vec::new(),
        };
        for pack in PACKS.iter().filter(|pack| self.only.is_none_or(|only| pack.name.contains(only))) {
            println!("\n== {} ==", pack.name);
            if let Err(error) = self.pack(pack.name, &mut published) {
                println!("{error:#}");
                published.faults.push(format!("{}: {error:#}", pack.name));
            }
        }
        ensure!(!published.rows.is_empty(), "nothing was measured: {}", published.faults.join("; "));
        published.load_average[1] = results::load_average();
        let wrong = published.rows.iter().filter(|row| !row.matches);
        let wrong: Vec<String> =
            wrong.map(|row| format!("{}: results that are not the reference's", row.name())).collect();
        published.faults.extend(wrong);
        Ok(published)
    }

    fn pack(&self, pack: &str, published: &mut Published) -> anyhow::Result<()> {
        let report = self.benchmark(pack, pack, &["--plots".as_ref(), self.plots.as_os_str()])?;
        let mut rows = rows_of(&report, self.threads)?;
        self.add_torch(&mut rows, false, &mut published.faults);
        let outcome = self.add_kept(pack, &mut rows, &mut published.faults);
        // The ceilings of the pack with the largest passes are those that show all sizes.
        let sizes = |ceilings: &Value| ceilings["bandwidth"].as_array().map_or(0, Vec::len);
        if sizes(&report["ceilings"]) > sizes(&published.ceilings) {
            published.ceilings = report["ceilings"].clone();
        }
        (published.machine, published.reference) = (report["machine"].clone(), report["reference"].clone());
        published.rows.extend(rows);
        outcome
    }

    /// What the README shows: a command as its reader would type it, and what it prints.
    pub(crate) fn example(&self) -> anyhow::Result<(String, String)> {
        let arguments = "benchmark kernelhub/rmsnorm@v1 --layer RMSNorm --dtype f32,bf16";
        let mut command = Command::new(self.program);
        command.current_dir(paths::root()).env("KERNELHUB_POLICY", paths::policy()).args(arguments.split(' '));
        command.arg("--offline").arg("--manifest").arg(paths::registry());
        command.arg("--cache").arg(paths::target().join("bench/cache")).args(["--threads", &self.threads.to_string()]);
        let output = command.output().context("cannot start the benchmark of the README")?;
        ensure!(output.status.success(), "the benchmark of the README: {}", String::from_utf8_lossy(&output.stderr));
        Ok((format!("kernelhub {arguments}"), String::from_utf8(output.stdout)?))
    }

    /// One run of `kernelhub benchmark` over a pack, as its JSON, which stays in a file of this name.
    fn benchmark(&self, pack: &str, name: &str, more: &[&std::ffi::OsStr]) -> anyhow::Result<Value> {
        let json = paths::target().join("bench").join(format!("{name}.json"));
        fs::create_dir_all(paths::target().join("bench"))?;
        let mut command = Command::new(self.program);
        command.current_dir(paths::root()).env("KERNELHUB_POLICY", paths::policy());
        command.arg("benchmark").arg(format!("kernelhub/{pack}@v1")).arg("--offline");
        command.arg("--manifest").arg(paths::registry()).arg("--cache").arg(paths::target().join("bench/cache"));
        command.args(["--threads", &self.threads.to_string(), "--seconds", &self.seconds.to_string()]);
        if self.is_smoke {
            command.args(["--iterations", "3", "--warmup", "0"]);
        }
        command.args(more).arg("--json").arg(&json);
        if json.exists() {
            fs::remove_file(&json).with_context(|| format!("cannot remove {}", json.display()))?;
        }
        // Wrong results are written before they are a failure, and told by the rows.
        let outcome = run_command(&mut command);
        let text = fs::read_to_string(&json).map_err(|error| match &outcome {
            Err(failure) => anyhow::anyhow!("{failure:#}"),
            Ok(()) => anyhow::anyhow!("cannot read {}: {error}", json.display()),
        })?;
        if let Err(failure) = outcome {
            ensure!(failure.to_string().contains(&format!("exit status: {MISMATCH}")), "{failure:#}");
        }
        serde_json::from_str(&text).with_context(|| format!("{} is no JSON", json.display()))
    }

    /// `PyTorch`'s times. A script that fails leaves its rows without them.
    fn add_torch(&self, rows: &mut [Row], is_memory_kept: bool, faults: &mut Vec<String>) {
        let Some(torch) = self.torch else { return };
        let case = |row: &Row| Case { contract: row.op.clone(), axes: row.axes.clone(), dtype: row.dtype.clone() };
        let cases: Vec<Case> = rows.iter().map(case).collect();
        let timed = match torch.run(&cases, self.seconds, is_memory_kept) {
            Ok(timed) => timed,
            Err(error) => {
                println!("PyTorch: {error:#}");
                faults.push(format!("PyTorch: {error:#}"));
                return;
            }
        };
        for (row, timed) in rows.iter_mut().zip(timed) {
            if let Some(error) = &timed.error {
                println!("PyTorch: {}: {error}", row.name());
            }
            if is_memory_kept {
                row.torch_kept_us = timed.median_us;
            } else {
                row.torch_us = timed.median_us;
                row.over_torch = timed.median_us.map(|median| median / row.kernelhub_us);
            }
        }
    }

    /// Takes the rows with large outputs again with freed memory kept, a layer at a time.
    fn add_kept(&self, pack: &str, rows: &mut [Row], faults: &mut Vec<String>) -> anyhow::Result<()> {
        let is_large = |row: &&Row| row.bytes_written >= LARGE;
        let mut layers: Vec<String> = rows.iter().filter(is_large).map(|row| row.layer.clone()).collect();
        layers.dedup();
        for layer in layers {
            let of_layer = |row: &&Row| row.layer == layer && row.bytes_written >= LARGE;
            let mut shapes: Vec<String> = rows.iter().filter(of_layer).map(Row::shape_text).collect();
            shapes.dedup();
            let mut dtypes: Vec<&str> = rows.iter().filter(of_layer).map(|row| row.dtype.as_str()).collect();
            dtypes.sort_unstable();
            dtypes.dedup();
            let (shapes, dtypes) = (shapes.join(","), dtypes.join(","));
            let more = ["--keep-memory", "--no-ceilings", "--layer", &layer, "--shapes", &shapes, "--dtype", &dtypes];
            let report = self.benchmark(pack, &format!("{pack}-{layer}-kept"), &more.map(AsRef::as_ref))?;
            let mut kept = rows_of(&report, self.threads)?;
            // A dtype that is large at one shape only is not measured at the others before.
            kept.retain(|kept| rows.iter().any(|row| row.name() == kept.name() && row.bytes_written >= LARGE));
            self.add_torch(&mut kept, true, faults);
            for kept in kept {
                let Some(row) = rows.iter_mut().find(|row| row.name() == kept.name()) else { continue };
                row.kernelhub_kept_us = Some(kept.kernelhub_us);
                row.candle_kept_us = Some(kept.candle_us);
                row.torch_kept_us = kept.torch_kept_us;
                row.matches &= kept.matches;
            }
        }
        Ok(())
    }
}
