//! Kernels on against kernels off, interleaved so that both meet the same machine.

use kernelhub::hub::Hub;
use kernelhub::swap::KernelConfig;
use serde::Serialize;

use super::llama::generate::forced;
use super::llama::model::Llama;

/// Runs of each kind; the median counts.
pub const RUNS: usize = 5;
const DECODED: usize = 128;
const PREFILLED: usize = 512;

#[derive(Serialize)]
pub struct Pair {
    pub off: f64,
    pub on: f64,
}

pub struct Speed {
    /// Tokens per second.
    pub decode: Pair,
    /// Milliseconds.
    pub prefill: Pair,
}

/// Measures decoding of 128 tokens after a prompt of 32, and prefill of 512 tokens.
pub fn compare(model: &Llama, hub: &Hub, config: &KernelConfig) -> anyhow::Result<Speed> {
    let vocabulary = u32::try_from(model.config().vocabulary)?;
    let tokens = |count: usize| (0_u32..).step_by(7).take(count).map(|id| id % vocabulary).collect::<Vec<_>>();
    let context = model.config().max_positions;
    let (short, long) = (tokens(32.min(context / 4)), tokens(PREFILLED.min(context / 2)));
    let decoded = tokens(DECODED.min(context / 2));
    let mut decode = [Vec::new(), Vec::new()];
    let mut prefill = [Vec::new(), Vec::new()];
    for run in 0..=RUNS {
        for on in [0, 1] {
            if on == 1 {
                model.use_kernels(hub, config)?;
            } else {
                model.disable_kernels();
            }
            let speed = forced(model, &short, &decoded)?.tokens_per_second().unwrap_or(f64::NAN);
            let milliseconds = forced(model, &long, &[])?.prefill.as_secs_f64() * 1e3;
            // The first round warms caches and threads.
            if run > 0 {
                decode[on].push(speed);
                prefill[on].push(milliseconds);
            }
        }
    }
    let pair = |[off, on]: [Vec<f64>; 2]| Pair { off: median(off), on: median(on) };
    Ok(Speed { decode: pair(decode), prefill: pair(prefill) })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
