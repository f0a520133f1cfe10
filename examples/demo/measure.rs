//! Kernels on against kernels off, interleaved so that all meet the same machine.

use kernelhub::hub::Hub;
use kernelhub::swap::KernelConfig;
use serde::Serialize;

use super::llama::generate::forced;
use super::llama::model::Llama;

const DECODED: usize = 128;
const PREFILLED: usize = 512;

/// One measure of each side.
#[derive(Serialize)]
pub struct Sides {
    pub off: f64,
    pub on: f64,
    /// candle in f32, where the model is in another element type.
    #[serde(rename = "off_f32", skip_serializing_if = "Option::is_none")]
    pub wide: Option<f64>,
}

pub struct Speed {
    /// Tokens per second.
    pub decode: Sides,
    /// Milliseconds.
    pub prefill: Sides,
}

/// Measures decoding of 128 tokens after a prompt of 32, and prefill of 512 tokens: medians of `runs` rounds. `wide` is
/// the same model in f32, whose kernels are off.
pub fn compare(
    model: &Llama,
    wide: Option<&Llama>,
    (hub, config): (&Hub, &KernelConfig),
    runs: usize,
) -> anyhow::Result<Speed> {
    let vocabulary = u32::try_from(model.config().vocabulary)?;
    let tokens = |count: usize| (0_u32..).step_by(7).take(count).map(|id| id % vocabulary).collect::<Vec<_>>();
    let context = model.config().max_positions;
    let (short, long) = (tokens(32.min(context / 4)), tokens(PREFILLED.min(context / 2)));
    let decoded = tokens(DECODED.min(context / 2));
    let mut decode = [Vec::new(), Vec::new(), Vec::new()];
    let mut prefill = [Vec::new(), Vec::new(), Vec::new()];
    for run in 0..=runs {
        let sides = [Some(model), Some(model), wide];
        for (side, model) in sides.into_iter().enumerate().filter_map(|(side, model)| Some((side, model?))) {
            if side == 1 {
                model.use_kernels(hub, config)?;
            } else {
                model.disable_kernels();
            }
            let speed = forced(model, &short, &decoded)?.tokens_per_second().unwrap_or(f64::NAN);
            let milliseconds = forced(model, &long, &[])?.prefill.as_secs_f64() * 1e3;
            // The first round warms caches and threads.
            if run > 0 {
                decode[side].push(speed);
                prefill[side].push(milliseconds);
            }
        }
    }
    let sides = |[off, on, wide]: [Vec<f64>; 3]| Sides {
        off: median(off).unwrap_or(f64::NAN),
        on: median(on).unwrap_or(f64::NAN),
        wide: median(wide),
    };
    Ok(Speed { decode: sides(decode), prefill: sides(prefill) })
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}
