//! The words that name builds: devices, backends, frameworks, variants.
//!
//! Owns: [`Variant`], the parsed name of one published build, its parts, and [`DeviceKey`]. Refuses: I/O, and any
//! opinion on whether a build fits a machine; that is [`crate::resolve`]'s work.
//!
//! Invariant: `text.parse::<Variant>()?.to_string() == text`, and two variants are equal exactly when their texts are.
//! A [`Variant`] cannot be made whose text would parse to another one.
//!
//! Joined digits (`cu1210`) are split once, here, by the range of major versions that each family can have (`version`);
//! a text with no reading, or with two, is refused. The cost: a family whose majors leave their range needs a change
//! here. Nothing is guessed in exchange: 12.10 is never read as 121.0.
//!
//! Listings come from strangers, so a name that this grammar does not know is no reason to drop the rest:
//! [`AnyVariant`] keeps it with its fault.

mod any;
mod backend;
mod build;
mod device;
mod error;
mod framework;
mod noarch;
mod platform;
mod version;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use any::AnyVariant;
pub use backend::Backend;
pub use build::ArchBuild;
pub use device::{DeviceKey, UnknownDeviceKey};
pub use error::{VariantError, VariantFault};
pub use framework::{CxxAbi, Framework, FrameworkKind};
pub use noarch::{NoarchTarget, ShaderTarget};
pub use platform::{Arch, Os};
pub use version::{Version, VersionError};

/// Longest text that is read as a variant, in bytes. The longest published form has less than half of it.
pub const MAX_VARIANT_BYTES: usize = 100;

/// The name of one build of a kernel.
///
/// The order is total, and says nothing about which build fits a machine better. Compiled builds come first, then noarch
/// ones, then shader packs. Compiled builds are compared by framework (tvm-ffi, then Torch's stable ABI, then Torch),
/// its version, its mark (none, `cxx98`, `cxx11`), backend (in the order of [`Backend`]), its version, processor and
/// system; the others by target, `universal` before the device keys in their order. Versions are compared as numbers:
/// `torch29` comes before `torch213`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
#[non_exhaustive]
pub enum Variant {
    /// Compiled for a framework, a backend, a processor and a system: `torch213-cxx11-cu130-x86_64-linux`.
    Arch(ArchBuild),
    /// Python code for Torch, with nothing compiled: `torch-cuda`.
    Noarch(NoarchTarget),
    /// Shader text that is compiled on the machine: `wgsl-universal`.
    Shader(ShaderTarget),
}

impl FromStr for Variant {
    type Err = VariantError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).map_err(|reason| VariantError { text: text.to_owned(), reason })
    }
}

fn parse(text: &str) -> Result<Variant, VariantFault> {
    if text.len() > MAX_VARIANT_BYTES {
        return Err(VariantFault::TooLong { bytes: text.len() });
    }
    if let Some(target) = text.strip_prefix("wgsl-") {
        return ShaderTarget::parse(target).map(Variant::Shader);
    }
    // `torch-stable-abi211-...` is an arch build; every other `torch-...` is noarch.
    match text.strip_prefix("torch-") {
        Some(target) if !target.starts_with("stable-abi") => NoarchTarget::parse(target).map(Variant::Noarch),
        _ => ArchBuild::parse(text).map(Variant::Arch),
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Arch(build) => build.fmt(f),
            Self::Noarch(target) => write!(f, "torch-{target}"),
            Self::Shader(target) => write!(f, "wgsl-{target}"),
        }
    }
}

impl TryFrom<String> for Variant {
    type Error = VariantError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Variant> for String {
    fn from(variant: Variant) -> Self {
        variant.to_string()
    }
}

#[cfg(test)]
mod tests;
