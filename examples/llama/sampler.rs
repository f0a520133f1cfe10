//! Choosing the next token.

use candle_core::{CpuStorage, DType, Device, Storage, Tensor};
use half::slice::HalfFloatSliceExt;

use super::error::{ModelError, Result};

/// A small random generator (`SplitMix64`): the same numbers for the same seed on every machine.
#[derive(Debug, Clone)]
pub struct Random {
    state: u64,
}

impl Random {
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// A number in `[0, 1)`.
    pub fn next_unit(&mut self) -> f64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        (mixed >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// How tokens are drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// 0 takes the likeliest token; higher is more varied.
    pub temperature: f64,
    /// Keeps the likeliest tokens whose probabilities add up to this; 1 keeps all.
    pub top_p: f64,
    /// Keeps this many of the likeliest tokens; 0 keeps all.
    pub top_k: usize,
    pub seed: u64,
}

impl Sampling {
    /// Always the likeliest token.
    pub const GREEDY: Self = Self { temperature: 0.0, top_p: 1.0, top_k: 0, seed: 0 };
}

/// Draws tokens from logits.
#[derive(Debug, Clone)]
pub struct Sampler {
    sampling: Sampling,
    random: Random,
}

impl Sampler {
    pub fn new(sampling: Sampling) -> Result<Self> {
        if !(sampling.temperature.is_finite() && sampling.temperature >= 0.0) {
            let text = format!("temperature must be a number of at least 0, got {}", sampling.temperature);
            return Err(ModelError::Request(text));
        }
        if !(sampling.top_p > 0.0 && sampling.top_p <= 1.0) {
            return Err(ModelError::Request(format!("top-p must be above 0 and at most 1, got {}", sampling.top_p)));
        }
        Ok(Self { sampling, random: Random::new(sampling.seed) })
    }

    /// The next token, from logits `[vocabulary]`.
    pub fn sample(&mut self, logits: &Tensor) -> Result<u32> {
        let best = likeliest(logits)?.filter(|(_, logit)| logit.is_finite());
        let (best, highest) =
            best.ok_or_else(|| ModelError::Request("the model's logits are not finite numbers".to_owned()))?;
        let chosen = if self.sampling.temperature == 0.0 {
            best
        } else {
            self.draw(&logits.to_dtype(DType::F32)?.to_vec1()?, highest)
        };
        u32::try_from(chosen).map_err(|_| ModelError::Request(format!("token {chosen} does not fit 32 bits")))
    }

    fn draw(&mut self, logits: &[f32], highest: f32) -> usize {
        let weight = |logit: f32| (f64::from(logit - highest) / self.sampling.temperature).exp();
        let mut ranked: Vec<(usize, f64)> = logits
            .iter()
            .enumerate()
            .filter(|(_, logit)| !logit.is_nan())
            .map(|(token, logit)| (token, weight(*logit)))
            .collect();
        ranked.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        if self.sampling.top_k > 0 {
            ranked.truncate(self.sampling.top_k);
        }
        let kept_mass = self.sampling.top_p * ranked.iter().map(|(_, weight)| weight).sum::<f64>();
        let mut mass = 0.0;
        let kept = ranked.iter().take_while(|(_, weight)| {
            let needed = mass < kept_mass;
            mass += weight;
            needed
        });
        let kept = kept.count().max(1);
        let ranked = &ranked[..kept.min(ranked.len())];
        let mut left = self.random.next_unit() * ranked.iter().map(|(_, weight)| weight).sum::<f64>();
        for (token, weight) in ranked {
            left -= weight;
            if left < 0.0 {
                return *token;
            }
        }
        // Rounding can leave a rest; it belongs to the last token kept.
        ranked.last().map_or(0, |(token, _)| *token)
    }
}

/// The highest of logits `[vocabulary]` and its place, the first of equals, so that greedy text does not depend on how a
/// maximum is searched. What is no number is passed over.
fn likeliest(logits: &Tensor) -> Result<Option<(usize, f32)>> {
    if !matches!((logits.device(), logits.dtype()), (Device::Cpu, DType::F32 | DType::BF16 | DType::F16)) {
        let logits: Vec<f32> = logits.to_dtype(DType::F32)?.to_vec1()?;
        return Ok(highest(&logits, |part, wide| wide.copy_from_slice(part)));
    }
    let logits = logits.contiguous()?;
    let (storage, layout) = logits.storage_and_layout();
    let start = layout.start_offset();
    let places = start..start + layout.shape().elem_count();
    Ok(match &*storage {
        Storage::Cpu(CpuStorage::F32(all)) => highest(&all[places], |part, wide| wide.copy_from_slice(part)),
        Storage::Cpu(CpuStorage::BF16(all)) => highest(&all[places], HalfFloatSliceExt::convert_to_f32_slice),
        Storage::Cpu(CpuStorage::F16(all)) => highest(&all[places], HalfFloatSliceExt::convert_to_f32_slice),
        _ => None,
    })
}

/// Part by part, so that nothing is allocated: `widen` writes a part as f32.
fn highest<T>(logits: &[T], widen: impl Fn(&[T], &mut [f32])) -> Option<(usize, f32)> {
    const PART: usize = 1024;
    const LANES: usize = 16;
    let (mut best, mut room) = (None, [0.0; PART]);
    for (index, part) in logits.chunks(PART).enumerate() {
        let wide = &mut room[..part.len()];
        widen(part, wide);
        // Without the place, the processor compares many numbers at once.
        let mut lanes = [f32::NEG_INFINITY; LANES];
        for numbers in wide.chunks(LANES) {
            for (lane, number) in lanes.iter_mut().zip(numbers) {
                *lane = if *number > *lane { *number } else { *lane };
            }
        }
        let most = lanes.into_iter().fold(f32::NEG_INFINITY, f32::max);
        if best.is_none_or(|(_, highest)| most > highest)
            && let Some(at) = wide.iter().position(|number| *number >= most)
        {
            best = Some((index * PART + at, most));
        }
    }
    best
}
