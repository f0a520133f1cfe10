//! From the start of a process to its first forward through kernels, without the load of a model.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use candle_core::{DType, Device, Tensor};
use kernelhub::swap::KernelConfig;

use super::Options;
use super::llama::config::Config;
use super::llama::model::Llama;

const RUNS: usize = 7;

/// The child's part: kernels from the cache, verified and loaded, and one forward of a tiny model through them.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let hub = super::kernels::hub(options)?;
    let model = Llama::random(Config::tiny(), 0, DType::F32, &Device::Cpu)?;
    let report = model.use_kernels(&hub, &KernelConfig::standard()?)?;
    ensure!(report.swapped() == report.total(), "not every layer was swapped:\n{report}");
    let mut cache = model.cache(4);
    model.forward(&Tensor::new(&[[1_u32, 2, 3]], &Device::Cpu)?, &mut cache)?;
    Ok(())
}

/// The median time, in milliseconds, from starting such a child to its end.
pub fn measure(options: &Options) -> anyhow::Result<f64> {
    let mut times = Vec::with_capacity(RUNS);
    for _ in 0..RUNS {
        let mut child = Command::new(std::env::current_exe()?);
        child.args(["--first-forward", "--offline"]);
        if let Some(cache) = &options.cache {
            child.arg("--cache").arg(cache);
        }
        let start = Instant::now();
        let output = child.output().context("cannot start a child process")?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
        ensure!(output.status.success(), "the child failed: {}", String::from_utf8_lossy(&output.stderr));
    }
    times.sort_by(f64::total_cmp);
    Ok(times[RUNS / 2])
}
