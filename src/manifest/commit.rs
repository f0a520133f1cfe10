//! A full git object id.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The id of a commit: 40 (sha1) or 64 (sha256) lower-case hexadecimal digits, never abbreviated.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Commit(String);

/// A text that is no full commit id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a full commit id: {value:?}; expected 40 or 64 hexadecimal digits")]
pub struct CommitError {
    /// The text as it arrived.
    pub value: String,
}

impl Commit {
    /// The digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Commit {
    type Err = CommitError;

    /// Reads digits of either case.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if !matches!(text.len(), 40 | 64) || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(CommitError { value: text.to_owned() });
        }
        Ok(Self(text.to_ascii_lowercase()))
    }
}

impl TryFrom<String> for Commit {
    type Error = CommitError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Commit> for String {
    fn from(commit: Commit) -> Self {
        commit.0
    }
}

impl fmt::Display for Commit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}
