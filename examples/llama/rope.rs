//! The rotary tables, with the scalings that model files ask for.

use std::collections::HashMap;
use std::f64::consts::TAU;

use candle_core::quantized::gguf_file::Value as GgufValue;
use candle_core::{DType, Device, Tensor};
use serde_json::Value;

use super::config::{Config, Gguf};
use super::error::{ModelError, Result};

/// How a model stretches its rotary frequencies over a longer context.
#[derive(Debug, Clone, PartialEq)]
pub enum RopeScaling {
    None,
    /// Every frequency divided by one factor.
    Linear {
        factor: f64,
    },
    /// Llama 3: low frequencies divided, high ones kept, a smooth change between.
    Llama3 {
        factor: f64,
        low: f64,
        high: f64,
        original: f64,
    },
    /// A divisor for each frequency, from a GGUF file's `rope_freqs.weight`.
    Divisors(Vec<f32>),
}

impl RopeScaling {
    /// From `rope_scaling` or `rope_parameters` of a `config.json`.
    pub fn from_json(value: Option<&Value>, origin: &str) -> Result<Self> {
        let Some(table) = value.filter(|value| !value.is_null()) else { return Ok(Self::None) };
        let kind = table.get("rope_type").or_else(|| table.get("type")).and_then(Value::as_str).unwrap_or("default");
        let number = |key: &str| {
            table.get(key).and_then(Value::as_f64).filter(|number| *number > 0.0).ok_or_else(|| ModelError::BadValue {
                origin: origin.to_owned(),
                key: format!("rope_scaling.{key}"),
                expected: "a positive number".to_owned(),
                actual: table.get(key).map_or_else(|| "nothing".to_owned(), ToString::to_string),
            })
        };
        match kind {
            "default" => Ok(Self::None),
            "linear" => Ok(Self::Linear { factor: number("factor")? }),
            "llama3" => Ok(Self::Llama3 {
                factor: number("factor")?,
                low: number("low_freq_factor")?,
                high: number("high_freq_factor")?,
                original: number("original_max_position_embeddings")?,
            }),
            other => {
                let what = format!("rope scaling {other:?}; known: default, linear, llama3");
                Err(ModelError::unsupported(origin, what))
            }
        }
    }

    /// From GGUF metadata. Divisors, which are a tensor there, are added when the weights are read.
    pub fn from_gguf(metadata: &HashMap<String, GgufValue>, architecture: &str, origin: &str) -> Result<Self> {
        let keys = Gguf { metadata, origin };
        let kind_key = format!("{architecture}.rope.scaling.type");
        let kind = if metadata.contains_key(&kind_key) { keys.text(&kind_key)? } else { "none" };
        match kind {
            "none" => Ok(Self::None),
            "linear" => {
                let key = format!("{architecture}.rope.scaling.factor");
                let factor = keys.number(&key)?;
                if factor > 0.0 {
                    Ok(Self::Linear { factor })
                } else {
                    Err(keys.bad(&key, "positive", &metadata[&key]))
                }
            }
            other => {
                let what = format!("rope scaling {other:?}; known: none, linear");
                Err(ModelError::unsupported(origin, what))
            }
        }
    }

    /// The scaled frequency of pair `index`.
    fn apply(&self, index: usize, frequency: f64) -> f64 {
        match self {
            Self::None => frequency,
            Self::Linear { factor } => frequency / factor,
            Self::Llama3 { factor, low, high, original } => {
                let turns = original * frequency / TAU;
                let kept = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                kept * frequency + (1.0 - kept) * frequency / factor
            }
            Self::Divisors(divisors) => frequency / divisors.get(index).map_or(1.0, |divisor| f64::from(*divisor)),
        }
    }
}

/// `(cos, sin)`, each `[positions, head_dim / 2]`, computed in f64 and rounded to `dtype` once.
pub fn tables(config: &Config, positions: usize, dtype: DType, device: &Device) -> Result<(Tensor, Tensor)> {
    let half = config.head_dim / 2;
    let frequencies: Vec<f64> = (0..half)
        .map(|pair| {
            let exponent = 2.0 * pair as f64 / config.head_dim as f64;
            config.rope_scaling.apply(pair, config.rope_theta.powf(-exponent))
        })
        .collect();
    let table = |of: fn(f64) -> f64| {
        let angles = (0..positions).flat_map(|at| frequencies.iter().map(move |frequency| at as f64 * frequency));
        let values: Vec<f32> = angles.map(|angle| of(angle) as f32).collect();
        Tensor::from_vec(values, (positions, half), device)?.to_dtype(dtype)
    };
    Ok((table(f64::cos)?, table(f64::sin)?))
}
