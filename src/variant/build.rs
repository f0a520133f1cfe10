//! Compiled builds: framework, backend, processor, system.

use std::fmt;

use super::backend::Backend;
use super::error::{VariantError, VariantFault};
use super::framework::Framework;
use super::platform::{Arch, Os};

/// The name of a compiled build: `torch213-cxx11-cu130-x86_64-linux`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ArchBuild {
    framework: Framework,
    backend: Backend,
    arch: Arch,
    os: Os,
}

impl ArchBuild {
    /// A name from its parts.
    ///
    /// # Errors
    /// [`VariantError`] when a version cannot be written in joined digits: its text would read as another version, or
    /// as none.
    pub fn new(framework: Framework, backend: Backend, arch: Arch, os: Os) -> Result<Self, VariantError> {
        let build = Self { framework, backend, arch, os };
        let text = build.to_string();
        match Self::parse(&text) {
            Ok(read) if read == build => Ok(build),
            _ => Err(VariantError { text, reason: VariantFault::NotWritable }),
        }
    }

    pub(super) fn parse(text: &str) -> Result<Self, VariantFault> {
        let (framework, words) = Framework::parse(text)?;
        let [backend, arch, os] = words[..] else {
            return Err(VariantFault::Parts { actual: words.len() });
        };
        Ok(Self {
            framework,
            backend: Backend::parse(backend)?,
            arch: Arch::from_word(arch).ok_or_else(|| VariantFault::CpuArch { part: arch.to_owned() })?,
            os: Os::from_word(os).ok_or_else(|| VariantFault::Os { part: os.to_owned() })?,
        })
    }

    /// The calling interface, with its version.
    #[must_use]
    pub const fn framework(&self) -> Framework {
        self.framework
    }

    /// What the device code is compiled for.
    #[must_use]
    pub const fn backend(&self) -> Backend {
        self.backend
    }

    /// The processor of the host code.
    #[must_use]
    pub const fn arch(&self) -> Arch {
        self.arch
    }

    /// The operating system.
    #[must_use]
    pub const fn os(&self) -> Os {
        self.os
    }
}

impl fmt::Display for ArchBuild {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}-{}", self.framework, self.backend, self.arch, self.os)
    }
}
