//! The processor architectures and operating systems of arch builds.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A processor architecture that builds are published for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Arch {
    /// 64-bit Intel and AMD.
    #[serde(rename = "x86_64")]
    X86_64,
    /// 64-bit ARM.
    #[serde(rename = "aarch64")]
    Aarch64,
}

impl Arch {
    /// Every architecture.
    pub const ALL: [Self; 2] = [Self::X86_64, Self::Aarch64];

    /// The word in variants.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
        }
    }

    /// The architecture with this word; the standard library uses the same words.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|arch| arch.as_str() == word)
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// An operating system that builds are published for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Os {
    /// Linux.
    Linux,
    /// macOS.
    Darwin,
    /// Windows.
    Windows,
}

impl Os {
    /// Every system.
    pub const ALL: [Self; 3] = [Self::Linux, Self::Darwin, Self::Windows];

    /// The word in variants.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Linux => "linux",
            Self::Darwin => "darwin",
            Self::Windows => "windows",
        }
    }

    /// The system with this word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|os| os.as_str() == word)
    }
}

impl fmt::Display for Os {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
