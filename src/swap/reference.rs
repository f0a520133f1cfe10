//! How a configuration names a kernel's layer: `owner/name@v1:Layer`.

use std::fmt;
use std::str::FromStr;

use crate::names::{NameError, RepoId};

/// A kernel, optionally its version, optionally the layer in it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KernelRef {
    /// The kernel repo.
    pub repo: RepoId,
    /// The version; absent: the one of the default table.
    pub version: Option<u32>,
    /// The layer in the kernel; absent: the name of the layer that it replaces.
    pub layer: Option<String>,
}

/// A text that names no kernel.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KernelRefError {
    /// The repo id is malformed.
    #[error("{text:?} names no kernel; expected owner/name@v1:Layer")]
    Repo {
        /// The text as given.
        text: String,
        /// The rule that the repo id breaks.
        #[source]
        source: NameError,
    },
    /// The version is malformed.
    #[error("{text:?}: the version {version:?} is not of the form v1, v2, ...")]
    Version {
        /// The text as given.
        text: String,
        /// The part after `@`.
        version: String,
    },
    /// The layer is malformed.
    #[error("{text:?}: the layer name {layer:?} is not made of letters, digits and '_'")]
    Layer {
        /// The text as given.
        text: String,
        /// The part after `:`.
        layer: String,
    },
}

impl FromStr for KernelRef {
    type Err = KernelRefError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (rest, layer) = match text.rsplit_once(':') {
            Some((rest, layer)) => (rest, Some(layer)),
            None => (text, None),
        };
        if let Some(layer) = layer
            && (layer.is_empty() || !layer.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'))
        {
            return Err(KernelRefError::Layer { text: text.to_owned(), layer: layer.to_owned() });
        }
        let (repo, version) = match rest.split_once('@') {
            Some((repo, version)) => (repo, Some(version)),
            None => (rest, None),
        };
        let version = version
            .map(|version| {
                parse_version(version)
                    .ok_or_else(|| KernelRefError::Version { text: text.to_owned(), version: version.to_owned() })
            })
            .transpose()?;
        let repo = repo.parse().map_err(|source| KernelRefError::Repo { text: text.to_owned(), source })?;
        Ok(Self { repo, version, layer: layer.map(str::to_owned) })
    }
}

/// `v1` → 1. One spelling per version: no sign, no leading zero.
fn parse_version(text: &str) -> Option<u32> {
    let digits = text.strip_prefix('v')?;
    let plain = digits.bytes().all(|b| b.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
    if plain { digits.parse().ok() } else { None }
}

impl fmt::Display for KernelRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.repo)?;
        if let Some(version) = self.version {
            write!(f, "@v{version}")?;
        }
        if let Some(layer) = &self.layer {
            write!(f, ":{layer}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::KernelRef;

    #[test]
    fn every_part_round_trips() {
        for text in ["a/b", "a/b@v1", "a/b@v12:RMSNorm", "a/b:RMSNorm"] {
            assert_eq!(text.parse::<KernelRef>().unwrap().to_string(), text);
        }
        for bad in ["", "a", "a/b@1", "a/b@v", "a/b@v01", "a/b@v+1", "a/b@v99999999999", "a/b:", "a/b:x y", "../b@v1"] {
            assert!(bad.parse::<KernelRef>().is_err(), "{bad:?}");
        }
    }
}
