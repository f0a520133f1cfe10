//! Other programs on the same work: PyTorch and llama.cpp, where they are there.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::paths;

/// What makes glibc keep freed memory, so that outputs are not fresh pages of the system.
pub(crate) const KEEP_MEMORY: [(&str, &str); 2] =
    [("MALLOC_MMAP_MAX_", "0"), ("MALLOC_TRIM_THRESHOLD_", "1099511627776")];

/// A Python with `PyTorch`.
pub(crate) struct Torch {
    python: PathBuf,
    pub(crate) version: String,
    threads: usize,
}

/// One case, as the script takes it.
#[derive(Clone, Serialize)]
pub(crate) struct Case {
    pub(crate) contract: String,
    pub(crate) axes: serde_json::Value,
    pub(crate) dtype: String,
}

/// What the script says of it.
#[derive(Deserialize)]
pub(crate) struct Timed {
    pub(crate) median_us: Option<f64>,
    pub(crate) error: Option<String>,
}

#[derive(Deserialize)]
struct Answer {
    results: Vec<Timed>,
}

impl Torch {
    /// Prints why where there is none.
    pub(crate) fn find(python: PathBuf, threads: usize) -> Option<Self> {
        let output = Command::new(&python).args(["-c", "import torch; print(torch.__version__)"]).output();
        match output {
            Ok(output) if output.status.success() => {
                let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
                println!("PyTorch: {version} of {}", python.display());
                Some(Self { python, version, threads })
            }
            Ok(output) => {
                let error = String::from_utf8_lossy(&output.stderr);
                println!("PyTorch: left out: {}", error.lines().last().unwrap_or("it says nothing"));
                None
            }
            Err(error) => {
                println!("PyTorch: left out: cannot start {}: {error}", python.display());
                None
            }
        }
    }

    /// Times `cases` by the script, in a process of its own.
    pub(crate) fn run(&self, cases: &[Case], seconds: f64, is_memory_kept: bool) -> anyhow::Result<Vec<Timed>> {
        let mut command = Command::new(&self.python);
        command.arg(paths::root().join("benches/peers/torch_ops.py"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        if is_memory_kept {
            command.envs(KEEP_MEMORY);
        }
        command.env("OMP_NUM_THREADS", self.threads.to_string());
        let mut child = command.spawn().with_context(|| format!("cannot start {}", self.python.display()))?;
        let request = json!({ "threads": self.threads, "seconds": seconds, "cases": cases });
        let mut stdin = child.stdin.take().context("the script has a standard input")?;
        stdin.write_all(request.to_string().as_bytes()).context("the script does not read its cases")?;
        drop(stdin);
        let output = child.wait_with_output()?;
        if !output.status.success() {
            bail!("benches/peers/torch_ops.py: {}", output.status);
        }
        let answer: Answer =
            serde_json::from_slice(&output.stdout).context("the script's answer is no JSON of ours")?;
        if answer.results.len() != cases.len() {
            bail!("the script gave {} results for {} cases", answer.results.len(), cases.len());
        }
        Ok(answer.results)
    }
}

/// llama.cpp, end to end, in tokens per second.
#[derive(Serialize)]
pub(crate) struct Llama {
    pub(crate) build: String,
    pub(crate) model: String,
    pub(crate) threads: usize,
    /// A prompt of 32 tokens.
    pub(crate) prefill_tokens_per_s: f64,
    /// 128 tokens after it.
    pub(crate) decode_tokens_per_s: f64,
}

#[derive(Deserialize)]
struct LlamaRow {
    build_commit: Option<String>,
    model_type: Option<String>,
    n_gen: u64,
    avg_ts: f64,
}

impl Llama {
    pub(crate) fn is_there() -> bool {
        let help = Command::new("llama-bench").arg("--help").stdout(Stdio::null()).stderr(Stdio::null()).status();
        help.is_ok_and(|status| status.success())
    }

    /// Prints why where it fails.
    pub(crate) fn run(model: &Path, threads: usize) -> anyhow::Result<Option<Self>> {
        let mut command = Command::new("llama-bench");
        command.arg("-m").arg(model).args(["-p", "32", "-n", "128", "-r", "3", "-o", "json", "-t"]);
        let output =
            command.arg(threads.to_string()).stderr(Stdio::null()).output().context("cannot start llama-bench")?;
        let rows: Vec<LlamaRow> = serde_json::from_slice(&output.stdout).unwrap_or_default();
        let of = |is_decode: bool| rows.iter().find(|row| (row.n_gen > 0) == is_decode);
        let (Some(prefill), Some(decode)) = (of(false), of(true)) else {
            println!("llama.cpp: llama-bench gave no rows ({}); left out", output.status);
            return Ok(None);
        };
        Ok(Some(Self {
            build: prefill.build_commit.clone().unwrap_or_else(|| "unknown".to_owned()),
            model: prefill.model_type.clone().unwrap_or_else(|| "unknown".to_owned()),
            threads,
            prefill_tokens_per_s: prefill.avg_ts,
            decode_tokens_per_s: decode.avg_ts,
        }))
    }
}
