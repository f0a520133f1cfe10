//! What can be wrong with a benchmark.

use std::path::PathBuf;

use kernelhub::bind::BindError;
use kernelhub::dtype::DType;
use kernelhub::hint::{Hint, nearest};
use kernelhub::variant::DeviceKey;

/// A benchmark that cannot be run, or whose kernel is wrong.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchmarkError {
    #[error("{kernel} has no layer {layer:?}")]
    Layer { kernel: String, layer: String, known: Vec<String> },
    #[error("{kernel}:{layer} does not compute {dtype}")]
    DType { kernel: String, layer: String, dtype: DType, known: Vec<DType> },
    #[error("{layer}: {text:?} is no shape of {contract}: {reason}")]
    Shape { layer: String, contract: &'static str, text: String, reason: String, axes: &'static [&'static str] },
    #[error("{layer}: the shape {text} is given twice")]
    Twice { layer: String, text: String },
    #[error("{layer}: no benchmark of this version measures the contract {contract}")]
    Contract { layer: String, contract: String },
    #[error("{kernel}:{layer} cannot be measured on {device}: {reason}")]
    Device { kernel: String, layer: String, device: DeviceKey, reason: String },
    #[error("{layer} {shape} in {dtype} needs about {needed} MiB; this machine has {available} MiB")]
    TooLarge { layer: String, shape: String, dtype: DType, needed: u64, available: u64 },
    #[error("the host does not take {kernel} for the layer {layer}: {reason}")]
    NotTaken { kernel: String, layer: String, reason: String },
    #[error("freed memory cannot be kept: the memory allocator of this system has no setting for it")]
    KeepMemory,
    #[error("kernels are switched off here: {switch}")]
    SwitchedOff { switch: &'static str },
    #[error("{layer} {shape} in {dtype}: the {side} fails")]
    Call { layer: String, shape: String, dtype: DType, side: &'static str, source: Box<CallError> },
    #[error("{failed} of {total} results are not the reference's")]
    Mismatch { failed: usize, total: usize },
    #[error("cannot {action} {path}")]
    File { action: &'static str, path: PathBuf, source: std::io::Error },
    #[error("{path}: not a benchmark's JSON")]
    NoReport { path: PathBuf, source: serde_json::Error },
    #[error("{path}: schema {found} of the benchmark's JSON; this version reads schema {supported}")]
    Schema { path: PathBuf, found: u64, supported: u32 },
    #[error("{path}: {case} has no times, or such as no measurement gives")]
    Times { path: PathBuf, case: String },
    #[error("{path} has no result of {what}")]
    NothingInCommon { path: PathBuf, what: String },
    #[error("cannot draw {path}: {reason}")]
    Plot { path: PathBuf, reason: String },
}

/// Why a call of a side failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    #[error(transparent)]
    Candle(#[from] candle_core::Error),
    #[error(transparent)]
    Bind(#[from] BindError),
    #[cfg(feature = "wgpu")]
    #[error(transparent)]
    Gpu(#[from] kernelhub::gpu::GpuError),
    #[error("the kernel is bound to another contract than its layer's")]
    Broken,
}

impl Hint for CallError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Bind(error) => error.hint(),
            #[cfg(feature = "wgpu")]
            Self::Gpu(error) => error.hint(),
            Self::Candle(_) | Self::Broken => None,
        }
    }
}

impl Hint for BenchmarkError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Layer { layer, known, .. } => {
                let near = nearest(layer, known.iter().map(String::as_str));
                Some(near.map_or_else(
                    || format!("its layers are {}", known.join(", ")),
                    |near| format!("did you mean {near:?}?"),
                ))
            }
            Self::DType { known, .. } => {
                let known: Vec<&str> = known.iter().map(|dtype| dtype.as_str()).collect();
                Some(format!("it computes {}", known.join(", ")))
            }
            Self::Shape { axes, .. } => {
                let example = axes.iter().map(|_| "64").collect::<Vec<_>>().join("x");
                Some(format!("its axes are {}, such as {example}; --layer chooses one layer", axes.join(", ")))
            }
            Self::Twice { .. } => Some("give each shape once".to_owned()),
            Self::Contract { .. } => Some("--layer leaves it out".to_owned()),
            Self::Device { .. } => Some(
                "`kernelhub devices` shows this machine's devices; --layer chooses layers that run there".to_owned(),
            ),
            Self::TooLarge { .. } => Some("--shapes takes smaller ones".to_owned()),
            Self::KeepMemory => Some("leave --keep-memory out; it is for glibc".to_owned()),
            Self::SwitchedOff { .. } => Some("unset the variable for the benchmark".to_owned()),
            Self::Call { source, .. } => source.hint(),
            Self::Mismatch { .. } => {
                Some("`kernelhub doctor` holds every mapped kernel to its contract's formula".to_owned())
            }
            Self::NoReport { .. } | Self::Schema { .. } | Self::Times { .. } => {
                Some("`kernelhub benchmark ... --json FILE` writes what can be compared with".to_owned())
            }
            Self::NothingInCommon { .. } => Some("compare runs of the same layers, shapes and dtypes".to_owned()),
            _ => None,
        }
    }
}
