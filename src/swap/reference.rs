//! How a configuration names a kernel's layer: `owner/name@v1:Layer`, `owner/name@<revision>:Layer`, `/folder:Layer`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::fetch::Revision;
use crate::names::{NameError, RepoId};

/// Where a configured kernel comes from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KernelSource {
    /// A kernel repo.
    Repo {
        /// Its id.
        repo: RepoId,
        /// Its version, commit, branch or tag; absent: the version of the default table.
        revision: Option<Revision>,
    },
    /// A folder of this machine, by its absolute path, which holds no colon.
    Folder(PathBuf),
}

/// A kernel, optionally the layer in it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KernelRef {
    /// Where the kernel comes from.
    pub source: KernelSource,
    /// The layer in the kernel; absent: the name of the layer that it replaces.
    pub layer: Option<String>,
    /// Whether the entry says that its publisher is trusted, as Transformers asks for publishers that it doesn't know.
    /// Reports repeat it; it gives no trust here, where a project's files could trust themselves. No part of the text.
    pub trust_remote_code: bool,
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
    /// The revision is malformed.
    #[error("{text:?}: {revision:?} is no version such as v1, commit, branch or tag")]
    Revision {
        /// The text as given.
        text: String,
        /// The part after `@`.
        revision: String,
        /// The rule that it breaks.
        #[source]
        source: NameError,
    },
    /// The revision is a number, which is no version: versions are `v1`, `v2`, ...
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
    /// The folder is not absolute, or cannot be told from the layer.
    #[error("{text:?}: a kernel's folder is named by its absolute path, without colons and '..'")]
    Folder {
        /// The text as given.
        text: String,
    },
}

impl KernelRef {
    /// The kernel at `source`, and the layer in it.
    #[must_use]
    pub fn new(source: KernelSource, layer: Option<String>) -> Self {
        Self { source, layer, trust_remote_code: false }
    }

    /// The repo, for a kernel that comes from one.
    #[must_use]
    pub fn repo(&self) -> Option<&RepoId> {
        match &self.source {
            KernelSource::Repo { repo, .. } => Some(repo),
            KernelSource::Folder(_) => None,
        }
    }

    /// The version, commit, branch or tag, where one is named.
    #[must_use]
    pub fn revision(&self) -> Option<&Revision> {
        match &self.source {
            KernelSource::Repo { revision, .. } => revision.as_ref(),
            KernelSource::Folder(_) => None,
        }
    }
}

/// A path as only whoever wrote the configuration can have meant it.
fn folder(rest: &str) -> Option<PathBuf> {
    let path = Path::new(rest);
    let plain = !rest.contains(':') && !path.components().any(|part| part == std::path::Component::ParentDir);
    (path.is_absolute() && plain).then(|| path.to_path_buf())
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
        let layer = layer.map(str::to_owned);
        if rest.starts_with(['/', '\\', '.', '~']) {
            let path = folder(rest).ok_or_else(|| KernelRefError::Folder { text: text.to_owned() })?;
            return Ok(Self::new(KernelSource::Folder(path), layer));
        }
        let (repo, revision) = match rest.split_once('@') {
            Some((repo, revision)) => (repo, Some(revision)),
            None => (rest, None),
        };
        let revision = revision.map(|revision| parse_revision(text, revision)).transpose()?;
        let repo = repo.parse().map_err(|source| KernelRefError::Repo { text: text.to_owned(), source })?;
        Ok(Self::new(KernelSource::Repo { repo, revision }, layer))
    }
}

fn parse_revision(text: &str, revision: &str) -> Result<Revision, KernelRefError> {
    let parsed = revision.parse().map_err(|source| KernelRefError::Revision {
        text: text.to_owned(),
        revision: revision.to_owned(),
        source,
    })?;
    // A branch may have any name; one that looks like a version is a slip: `1`, `v01`, `v+1`, `v99999999999`.
    let digits = revision.strip_prefix('v').unwrap_or(revision).trim_start_matches(['+', '-']);
    if matches!(parsed, Revision::Name(_)) && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(KernelRefError::Version { text: text.to_owned(), version: revision.to_owned() });
    }
    Ok(parsed)
}

impl fmt::Display for KernelSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Repo { repo, revision: None } => repo.fmt(f),
            Self::Repo { repo, revision: Some(revision) } => write!(f, "{repo}@{revision}"),
            Self::Folder(path) => path.display().fmt(f),
        }
    }
}

impl fmt::Display for KernelRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)?;
        match &self.layer {
            Some(layer) => write!(f, ":{layer}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{KernelRef, KernelRefError, KernelSource};
    use crate::fetch::Revision;

    #[test]
    fn every_part_round_trips() {
        let commit = "a/b@ce013625030ba8dba906f756967f9e9ca394464a:RMSNorm";
        let texts = ["a/b", "a/b@v1", "a/b@v12:RMSNorm", "a/b:RMSNorm", "a/b@main:L", "a/b@refs/pr/1", commit];
        for text in texts.into_iter().chain(["/x", "/x/y@z-1.0:L", "/my folder:RMSNorm"]) {
            assert_eq!(text.parse::<KernelRef>().unwrap().to_string(), text);
        }
        for bad in ["", "a", "a/b@1", "a/b@v", "a/b@v01", "a/b@v+1", "a/b@v99999999999", "a/b:", "a/b:x y", "../b@v1"] {
            assert!(bad.parse::<KernelRef>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn versions_revisions_and_folders_are_told_apart() {
        let source = |text: &str| text.parse::<KernelRef>().unwrap().source;
        let revision = |text: &str| text.parse::<KernelRef>().unwrap().revision().cloned();
        assert_eq!(revision("a/b@v3:L"), Some(Revision::Version(3)));
        assert!(matches!(revision("a/b@ce013625030ba8dba906f756967f9e9ca394464a"), Some(Revision::Commit(_))));
        assert!(matches!(revision("a/b@ep-support"), Some(Revision::Name(_))));
        assert_eq!(source("/opt/k:L"), KernelSource::Folder("/opt/k".into()));
        for bad in ["./k:L", "../k:L", "~/k:L", "/a:b:L", "/a/../b:L", "\\\\host\\k"] {
            assert!(matches!(bad.parse::<KernelRef>(), Err(KernelRefError::Folder { .. })), "{bad}");
        }
        assert!(matches!("a/b@../x:L".parse::<KernelRef>(), Err(KernelRefError::Revision { .. })));
    }
}
