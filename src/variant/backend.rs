//! What an arch build's device code is compiled for.

use std::fmt;

use super::device::DeviceKey;
use super::error::VariantFault;
use super::version::{self, Family, Version};

/// The backend of an arch build, with the version of its toolkit where variants carry one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Backend {
    /// The processor: `cpu`.
    Cpu,
    /// NVIDIA CUDA: `cu130` is 13.0.
    Cuda(Version),
    /// AMD `ROCm`: `rocm714` is 7.14.
    Rocm(Version),
    /// Intel oneAPI: `xpu20260` is 2026.0.
    Xpu(Version),
    /// Huawei Ascend CANN: `cann83` is 8.3.
    Cann(Version),
    /// Apple Metal: `metal`.
    Metal,
    /// AWS Neuron: `neuron`.
    Neuron,
    /// Google TPU: `tpu`.
    Tpu,
}

impl Backend {
    /// The backend with this word: `cu130`, `cpu`. `None` for a word that is none.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::parse(word).ok()
    }

    pub(super) fn parse(part: &str) -> Result<Self, VariantFault> {
        match part {
            "cpu" => return Ok(Self::Cpu),
            "metal" => return Ok(Self::Metal),
            "neuron" => return Ok(Self::Neuron),
            "tpu" => return Ok(Self::Tpu),
            _ => {}
        }
        let versioned = |family: &Family| part.strip_prefix(family.word).map(|digits| family.split(digits));
        let none = || VariantFault::Backend { part: part.to_owned() };
        if let Some(version) = versioned(&version::CUDA) {
            version.map(Self::Cuda)
        } else if let Some(version) = versioned(&version::ROCM) {
            version.map(Self::Rocm)
        } else if let Some(version) = versioned(&version::XPU) {
            version.map(Self::Xpu)
        } else {
            versioned(&version::CANN).ok_or_else(none)?.map(Self::Cann)
        }
    }

    /// The name without a version, as `metadata.json` has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Cuda(_) => "cuda",
            Self::Rocm(_) => "rocm",
            Self::Xpu(_) => "xpu",
            Self::Cann(_) => "cann",
            Self::Metal => "metal",
            Self::Neuron => "neuron",
            Self::Tpu => "tpu",
        }
    }

    /// The version of the toolkit, where variants carry one.
    #[must_use]
    pub const fn version(self) -> Option<Version> {
        match self {
            Self::Cuda(version) | Self::Rocm(version) | Self::Xpu(version) | Self::Cann(version) => Some(version),
            Self::Cpu | Self::Metal | Self::Neuron | Self::Tpu => None,
        }
    }

    /// The key of the devices that this backend's code runs on.
    #[must_use]
    pub const fn device_key(self) -> DeviceKey {
        match self {
            Self::Cpu => DeviceKey::Cpu,
            Self::Cuda(_) => DeviceKey::Cuda,
            Self::Rocm(_) => DeviceKey::Rocm,
            Self::Xpu(_) => DeviceKey::Xpu,
            Self::Cann(_) => DeviceKey::Npu,
            Self::Metal => DeviceKey::Mps,
            Self::Neuron => DeviceKey::Neuron,
            Self::Tpu => DeviceKey::Tpu,
        }
    }
}

impl fmt::Display for Backend {
    /// The word in variants: `cu130`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (family, version) = match self {
            Self::Cuda(version) => (version::CUDA, version),
            Self::Rocm(version) => (version::ROCM, version),
            Self::Xpu(version) => (version::XPU, version),
            Self::Cann(version) => (version::CANN, version),
            Self::Cpu | Self::Metal | Self::Neuron | Self::Tpu => return f.write_str(self.name()),
        };
        write!(f, "{}{}{}", family.word, version.major, version.minor)
    }
}
