//! Which state of a kernel repo is asked for.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::digest::{DigestError, GitOid};
use crate::names::{NameError, RelativePath};

/// A commit of a kernel repo. Printed and parsed as 40 lower-case hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CommitId(GitOid);

impl fmt::Display for CommitId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for CommitId {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

/// A state of a kernel repo, as a user names it. Printed and parsed as what stands after the `@` of `owner/name@...`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Revision {
    /// A version, `v1`: the branch of that name. It moves when the publisher fixes something.
    Version(u32),
    /// A commit. It never moves.
    Commit(CommitId),
    /// Another branch, or a tag.
    Name(RelativePath),
}

impl Revision {
    /// The version, when one is named.
    #[must_use]
    pub const fn version(&self) -> Option<u32> {
        match self {
            Self::Version(version) => Some(*version),
            Self::Commit(_) | Self::Name(_) => None,
        }
    }
}

/// `v1` → 1. One spelling per version: no sign, no leading zero.
pub(super) fn parse_version(text: &str) -> Option<u32> {
    let digits = text.strip_prefix('v')?;
    let plain = digits.bytes().all(|b| b.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
    plain.then(|| digits.parse().ok()).flatten()
}

impl FromStr for Revision {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(version) = parse_version(text) {
            return Ok(Self::Version(version));
        }
        if let Ok(commit) = text.parse() {
            return Ok(Self::Commit(commit));
        }
        let refuse = |reason| NameError { what: "revision", value: text.to_owned(), reason };
        // The name becomes a path below `refs/` and a part of a URL.
        text.parse().map(Self::Name).map_err(|error: NameError| refuse(error.reason))
    }
}

impl TryFrom<String> for Revision {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Revision> for String {
    fn from(revision: Revision) -> Self {
        revision.to_string()
    }
}

impl From<u32> for Revision {
    fn from(version: u32) -> Self {
        Self::Version(version)
    }
}

impl From<CommitId> for Revision {
    fn from(commit: CommitId) -> Self {
        Self::Commit(commit)
    }
}

impl From<&Revision> for Revision {
    fn from(revision: &Revision) -> Self {
        revision.clone()
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(version) => write!(f, "v{version}"),
            Self::Commit(commit) => commit.fmt(f),
            Self::Name(name) => name.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Revision;

    #[test]
    fn versions_commits_and_names_are_told_apart_and_round_trip() {
        let commit = "ce013625030ba8dba906f756967f9e9ca394464a";
        assert_eq!("v12".parse(), Ok(Revision::Version(12)));
        assert!(matches!(commit.parse(), Ok(Revision::Commit(_))));
        for name in ["main", "v01", "v1-beta", "refs/pr/1", "v99999999999", "v", "v+1"] {
            assert!(matches!(name.parse(), Ok(Revision::Name(_))), "{name}");
        }
        for text in ["v0", "v12", commit, "refs/pr/1"] {
            assert_eq!(text.parse::<Revision>().unwrap().to_string(), text);
        }
        for bad in ["", "..", "../x", "/x", "a//b", "a b?", "a\\b"] {
            assert!(bad.parse::<Revision>().is_err(), "{bad:?}");
        }
    }
}
