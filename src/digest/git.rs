//! Git's object ids, by which the Hub names the blobs of a commit.

use std::fmt;
use std::io::{self, Read};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha1::{Digest as _, Sha1};

use super::{DigestError, Sha256Digest};

/// A git object id: the sha1 of an object. Printed and parsed as 40 lower-case hexadecimal digits.
///
/// It binds a file to a commit's tree, as far as sha1 binds. Every file but `metadata.json` is held to a sha256 as
/// well.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct GitOid([u8; 20]);

impl GitOid {
    /// The id of a blob with these bytes.
    #[must_use]
    pub fn of_blob(bytes: &[u8]) -> Self {
        let mut hasher = Sha1::new_with_prefix(format!("blob {}\0", bytes.len()));
        hasher.update(bytes);
        Self(hasher.finalize().into())
    }

    /// The 20 bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 20] {
        &self.0
    }

    /// The id of a blob that is read to its end. `length` is its length, in bytes; another one gives another id.
    ///
    /// # Errors
    /// Whatever reading gives.
    pub fn of_reader(length: u64, mut reader: impl Read) -> io::Result<Self> {
        let mut hasher = Sha1::new_with_prefix(format!("blob {length}\0"));
        let mut buffer = vec![0; 64 << 10];
        loop {
            match reader.read(&mut buffer) {
                Ok(0) => return Ok(Self(hasher.finalize().into())),
                Ok(read) => hasher.update(&buffer[..read]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl fmt::Display for GitOid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for GitOid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "git:{self}")
    }
}

impl FromStr for GitOid {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        super::hexadecimal(text).map(Self).ok_or_else(|| DigestError {
            what: "git object id",
            value: text.to_owned(),
            form: "40 lower-case hexadecimal digits",
        })
    }
}

impl TryFrom<String> for GitOid {
    type Error = DigestError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<GitOid> for String {
    fn from(oid: GitOid) -> Self {
        oid.to_string()
    }
}

/// What a commit's tree says that a file's bytes are: the name of its blob in the Hugging Face cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum BlobId {
    /// A file that git holds itself.
    Git(GitOid),
    /// A large file, which git holds a pointer to.
    Sha256(Sha256Digest),
}

impl BlobId {
    /// The id of the same kind of other bytes.
    #[must_use]
    pub fn of_same_kind(&self, bytes: &[u8]) -> Self {
        match self {
            Self::Git(_) => Self::Git(GitOid::of_blob(bytes)),
            Self::Sha256(_) => Self::Sha256(Sha256Digest::of(bytes)),
        }
    }

    /// The id with its kind, for messages: `git oid ...` or `sha256 ...`.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::Git(oid) => format!("git oid {oid}"),
            Self::Sha256(digest) => format!("sha256 {digest}"),
        }
    }
}

impl fmt::Display for BlobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Git(oid) => oid.fmt(f),
            Self::Sha256(digest) => digest.fmt(f),
        }
    }
}

impl FromStr for BlobId {
    type Err = DigestError;

    /// Reads 40 digits as a git id, 64 as a sha256.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() == 40 { text.parse().map(Self::Git) } else { text.parse().map(Self::Sha256) }
    }
}

impl TryFrom<String> for BlobId {
    type Error = DigestError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<BlobId> for String {
    fn from(id: BlobId) -> Self {
        id.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::{BlobId, GitOid};

    #[test]
    fn ids_are_those_of_git() {
        // `printf 'hello\n' | git hash-object --stdin`, and the empty blob.
        assert_eq!(GitOid::of_blob(b"hello\n").to_string(), "ce013625030ba8dba906f756967f9e9ca394464a");
        assert_eq!(GitOid::of_blob(b"").to_string(), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
        assert_eq!(GitOid::of_reader(6, &b"hello\n"[..]).unwrap(), GitOid::of_blob(b"hello\n"));
        assert_ne!(GitOid::of_reader(5, &b"hello\n"[..]).unwrap(), GitOid::of_blob(b"hello\n"));
    }

    #[test]
    fn a_blob_id_tells_its_kind_by_its_length() {
        for text in ["ce013625030ba8dba906f756967f9e9ca394464a", &"0a".repeat(32)] {
            assert_eq!(text.parse::<BlobId>().unwrap().to_string(), text);
        }
        for bad in ["", "ce01", &"0A".repeat(20), &"g".repeat(40), &"é".repeat(20), &"0a".repeat(33)] {
            assert!(bad.parse::<BlobId>().is_err(), "{bad:?}");
        }
    }
}
