//! The calling interface that an arch build was made for.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::error::VariantFault;
use super::version::{self, Version};

/// The C++ ABI that a Torch build is marked with. Newer builds carry no mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CxxAbi {
    /// The pre-2011 string and list layout: `cxx98`.
    Cxx98,
    /// The layout since GCC 5: `cxx11`.
    Cxx11,
}

impl CxxAbi {
    /// The word in variants.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Cxx98 => "cxx98",
            Self::Cxx11 => "cxx11",
        }
    }

    fn from_word(word: &str) -> Option<Self> {
        [Self::Cxx98, Self::Cxx11].into_iter().find(|abi| abi.as_str() == word)
    }
}

/// A framework, whatever its version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum FrameworkKind {
    /// The C interface of Apache TVM FFI.
    TvmFfi,
    /// The part of libtorch that stays compatible across its versions.
    TorchStableAbi,
    /// The C++ interface of one libtorch version.
    Torch,
}

impl fmt::Display for FrameworkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::TvmFfi => "tvm-ffi",
            Self::TorchStableAbi => "Torch stable ABI",
            Self::Torch => "Torch",
        })
    }
}

/// A framework with the version that a build was made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Framework {
    /// `tvm-ffi01`: 0.1.
    TvmFfi(Version),
    /// `torch-stable-abi211`, with or without a mark.
    TorchStableAbi {
        /// Lowest libtorch version that has the interface.
        version: Version,
        /// The mark, where there is one.
        cxx_abi: Option<CxxAbi>,
    },
    /// `torch213-cxx11`, or `torch213` without a mark.
    Torch {
        /// The libtorch version.
        version: Version,
        /// The mark, where there is one.
        cxx_abi: Option<CxxAbi>,
    },
}

impl Framework {
    /// The framework at the start of an arch build's text, and the words after it.
    pub(super) fn parse(text: &str) -> Result<(Self, Vec<&str>), VariantFault> {
        let mut words: Vec<&str> = text.split('-').collect();
        let unknown = || VariantFault::Framework { part: text.split('-').next().unwrap_or_default().to_owned() };
        // The stable ABI first: its word begins with Torch's.
        if let Some(rest) = text.strip_prefix(version::STABLE_ABI.word) {
            let digits = rest.split('-').next().unwrap_or_default();
            let version = version::STABLE_ABI.split(digits)?;
            words.drain(..3.min(words.len()));
            let cxx_abi = take_mark(&mut words);
            Ok((Self::TorchStableAbi { version, cxx_abi }, words))
        } else if let Some(rest) = text.strip_prefix(version::TVM_FFI.word) {
            let digits = rest.split('-').next().unwrap_or_default();
            let version = version::TVM_FFI.split(digits)?;
            words.drain(..2.min(words.len()));
            Ok((Self::TvmFfi(version), words))
        } else if let Some(rest) = text.strip_prefix(version::TORCH.word) {
            let digits = rest.split('-').next().unwrap_or_default();
            if digits.is_empty() {
                return Err(unknown());
            }
            let version = version::TORCH.split(digits)?;
            words.drain(..1);
            let cxx_abi = take_mark(&mut words);
            Ok((Self::Torch { version, cxx_abi }, words))
        } else {
            Err(unknown())
        }
    }

    /// The framework without its version.
    #[must_use]
    pub const fn kind(self) -> FrameworkKind {
        match self {
            Self::TvmFfi(_) => FrameworkKind::TvmFfi,
            Self::TorchStableAbi { .. } => FrameworkKind::TorchStableAbi,
            Self::Torch { .. } => FrameworkKind::Torch,
        }
    }

    /// The version that the build was made for.
    #[must_use]
    pub const fn version(self) -> Version {
        match self {
            Self::TvmFfi(version) | Self::TorchStableAbi { version, .. } | Self::Torch { version, .. } => version,
        }
    }

    /// The mark of the C++ ABI, where there is one.
    #[must_use]
    pub const fn cxx_abi(self) -> Option<CxxAbi> {
        match self {
            Self::TvmFfi(_) => None,
            Self::TorchStableAbi { cxx_abi, .. } | Self::Torch { cxx_abi, .. } => cxx_abi,
        }
    }
}

fn take_mark(words: &mut Vec<&str>) -> Option<CxxAbi> {
    let mark = words.first().and_then(|word| CxxAbi::from_word(word))?;
    words.remove(0);
    Some(mark)
}

impl fmt::Display for Framework {
    /// The words in variants: `torch213-cxx11`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = match self {
            Self::TvmFfi(_) => version::TVM_FFI,
            Self::TorchStableAbi { .. } => version::STABLE_ABI,
            Self::Torch { .. } => version::TORCH,
        };
        let Version { major, minor } = self.version();
        write!(f, "{}{major}{minor}", family.word)?;
        self.cxx_abi().map_or(Ok(()), |abi| write!(f, "-{}", abi.as_str()))
    }
}
