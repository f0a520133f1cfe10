//! Where a kernel comes from, as far as that says who vouches for its name.

use std::fmt;
use std::path::PathBuf;

use reqwest::Url;
use serde::{Deserialize, Serialize};

/// The kinds of places, in the words of a policy file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OriginKind {
    /// A Hub, which knows the owners of its repos.
    Hub,
    /// An archive by a manifest: from a mirror, a registry, a file, a lock or a bundle. Its name is its own word.
    Archive,
    /// A folder of this machine that was named in a kernel's place. Its name is its own word.
    Local,
}

impl OriginKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Hub, Self::Archive, Self::Local];

    /// The word in a policy file.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hub => "hub",
            Self::Archive => "archive",
            Self::Local => "local",
        }
    }
}

impl fmt::Display for OriginKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// What a Hub says about a publisher: its flag `trustedKernelPublisher`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// It calls the publisher trusted.
    Trusted,
    /// It does not call it trusted.
    NotTrusted,
    /// It does not say: no such organisation, or no such flag.
    Silent,
    /// It cannot be asked while offline, and no earlier answer is on record.
    NotRecorded,
}

/// Where a kernel comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A Hub, or its snapshots in the cache.
    Hub {
        /// The Hub that is asked.
        endpoint: Url,
    },
    /// An archive; see [`OriginKind::Archive`].
    Archive,
    /// A local folder.
    Local {
        /// The folder.
        folder: PathBuf,
    },
}

impl Origin {
    /// The kind of place.
    #[must_use]
    pub const fn kind(&self) -> OriginKind {
        match self {
            Self::Hub { .. } => OriginKind::Hub,
            Self::Archive => OriginKind::Archive,
            Self::Local { .. } => OriginKind::Local,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hub { endpoint } => write!(f, "the Hub {}", endpoint.as_str().trim_end_matches('/')),
            Self::Archive => f.write_str("an archive"),
            Self::Local { folder } => write!(f, "the local folder {}", folder.display()),
        }
    }
}
