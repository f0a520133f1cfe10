//! Why a text is no variant.

use serde::{Deserialize, Serialize};

use crate::hint::Hint;

/// A text that names no build by the grammar that is known here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown variant {text:?}: {reason}")]
pub struct VariantError {
    /// The text as it arrived.
    pub text: String,
    /// The first rule that it breaks.
    pub reason: VariantFault,
}

impl Hint for VariantError {
    fn hint(&self) -> Option<String> {
        Some(
            "variants look like tvm-ffi01-cpu-x86_64-linux, torch213-cxx11-cu130-x86_64-linux, torch-cuda or \
             wgsl-universal; a form newer than this release is listed as unknown until it is taught"
                .to_owned(),
        )
    }
}

/// The rule that a text breaks.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "rule", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum VariantFault {
    /// Longer than any variant.
    #[error("{bytes} bytes; a variant has at most 100")]
    TooLong {
        /// Length of the text.
        bytes: usize,
    },
    /// The text starts with no framework that is known.
    #[error(
        "{part:?} is no framework; known: torch<version>, torch-stable-abi<version>, tvm-ffi<version>, torch, wgsl"
    )]
    Framework {
        /// The first word.
        part: String,
    },
    /// Too few or too many words after the framework.
    #[error("{actual} parts after the framework; expected 3: backend, processor, system")]
    Parts {
        /// How many there are.
        actual: usize,
    },
    /// No backend that is known.
    #[error(
        "{part:?} is no backend; known: cpu, cu<version>, rocm<version>, xpu<version>, cann<version>, metal, neuron, tpu"
    )]
    Backend {
        /// The word in the backend's place.
        part: String,
    },
    /// Joined digits that have no reading as major and minor version, or more than one.
    #[error(
        "{digits:?} does not read as one {family} version; its major is one of {lowest}..={highest}, then the minor"
    )]
    VersionDigits {
        /// The family, such as `cu` or `torch`.
        family: String,
        /// The digits.
        digits: String,
        /// Lowest major version of the family.
        lowest: u32,
        /// Highest major version of the family.
        highest: u32,
    },
    /// No processor architecture that is known.
    #[error("{part:?} is no processor architecture; known: x86_64, aarch64")]
    CpuArch {
        /// The word in its place.
        part: String,
    },
    /// No operating system that is known.
    #[error("{part:?} is no operating system; known: linux, darwin, windows")]
    Os {
        /// The word in its place.
        part: String,
    },
    /// No target of a noarch build.
    #[error(
        "{part:?} is no target of a noarch build; known: universal, cpu, cuda, rocm, xpu, hpu, metal, npu, neuron, tpu"
    )]
    NoarchTarget {
        /// The text after `torch-`.
        part: String,
    },
    /// No target of a shader pack.
    #[error("{part:?} is no target of a shader pack; known: universal and the device keys other than cpu")]
    ShaderTarget {
        /// The text after `wgsl-`.
        part: String,
    },
    /// The parts are fine one by one, and print a text that reads as something else.
    #[error("its versions cannot be written in a variant's joined digits")]
    NotWritable,
}
