//! Digests and their violations.
//!
//! Owns: the value types that say what bytes must be, and what was found instead. Refuses: files; which of them are
//! hashed, and when, is [`crate::verify`]'s work.

mod git;

use std::fmt;
use std::io;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use sha2::Digest as _;

pub use git::{BlobId, GitOid};

/// A sha256 digest. Printed and parsed as 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Sha256Digest([u8; 32]);

impl Sha256Digest {
    /// The digest of bytes in memory.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(sha2::Sha256::digest(bytes).into())
    }

    /// The digest of what a reader gives up to its end, and how many bytes that is.
    pub(crate) fn of_reader(mut reader: impl io::Read) -> io::Result<(Self, u64)> {
        let mut hasher = sha2::Sha256::new();
        let mut buffer = vec![0; 256 << 10];
        let mut bytes = 0;
        loop {
            match reader.read(&mut buffer) {
                Ok(0) => return Ok((Self(hasher.finalize().into()), bytes)),
                Ok(read) => {
                    hasher.update(&buffer[..read]);
                    bytes += read as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Wraps a computed digest.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The form that `metadata.json` uses: base64 with padding.
    #[must_use]
    pub fn to_base64(self) -> String {
        STANDARD.encode(self.0)
    }

    /// Parses the form that `metadata.json` uses.
    ///
    /// # Errors
    /// [`DigestError`] when `text` is not the base64 form of 32 bytes.
    pub fn from_base64(text: &str) -> Result<Self, DigestError> {
        STANDARD.decode(text).ok().and_then(|bytes| <[u8; 32]>::try_from(bytes).ok()).map(Self).ok_or_else(|| {
            DigestError { what: "sha256 digest", value: text.to_owned(), form: "the base64 form of 32 bytes" }
        })
    }
}

impl fmt::Display for Sha256Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Sha256Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{self}")
    }
}

/// The bytes of exactly `N` pairs of lower-case hexadecimal digits.
fn hexadecimal<const N: usize>(text: &str) -> Option<[u8; N]> {
    let bytes = text.as_bytes();
    if bytes.len() != 2 * N || !bytes.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    let mut digest = [0; N];
    for (byte, pair) in digest.iter_mut().zip(bytes.chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(digest)
}

/// A text that is no digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a {what}: {value:?}; expected {form}")]
pub struct DigestError {
    /// What it should be.
    pub what: &'static str,
    /// The text as it arrived.
    pub value: String,
    /// The form that was expected.
    pub form: &'static str,
}

impl FromStr for Sha256Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        hexadecimal(text).map(Self).ok_or_else(|| DigestError {
            what: "sha256 digest",
            value: text.to_owned(),
            form: "64 lower-case hexadecimal digits",
        })
    }
}

impl TryFrom<String> for Sha256Digest {
    type Error = DigestError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<Sha256Digest> for String {
    fn from(digest: Sha256Digest) -> Self {
        digest.to_string()
    }
}

/// What kind of mismatch a [`Violation`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ViolationKind {
    /// A file's bytes differ from its digest.
    DigestMismatch,
    /// A file that the digest lists is not there.
    FileMissing,
    /// A file that the digest does not list is there.
    FileUnlisted,
    /// Something that is not a regular file stands where a file should.
    NotAFile,
    /// The metadata has no digest at all.
    DigestAbsent,
    /// The digest's algorithm is not one that is trusted.
    AlgorithmUnsupported,
    /// A digest value or a path in the digest is malformed.
    Malformed,
    /// The metadata is not the one that the manifest or the archive anchored.
    MetadataMismatch,
    /// The metadata is about another kernel, version or variant than was asked for.
    IdentityMismatch,
    /// A library is no file that a linker should be given.
    LibraryMalformed,
    /// A library is for another machine than its build is.
    MachineMismatch,
    /// A library that a library needs is not on this machine.
    LibraryMissing,
    /// A library that a library needs is older than the one that it was made for.
    LibraryTooOld,
    /// A library asks for a stack whose bytes can be executed.
    ExecutableStack,
    /// A library's code is written to while it is loaded.
    TextRelocations,
    /// A library has a segment that is both writable and executable.
    WritableCode,
    /// A library defines symbols that the whole process shares.
    UniqueSymbols,
    /// A library would share variables with one that is loaded.
    SharedSymbols,
    /// A library names a place of its own to take others from.
    SearchPath,
    /// A library uses something of the linker's that no kernel needs.
    LibraryOddity,
    /// A library needs a newer symbol version than the policy that it was checked by allows.
    AbiVersion,
    /// A library needs one that the policy that it was checked by does not have.
    AbiLibrary,
}

impl ViolationKind {
    /// Whether fetching the same file again may help: the bytes are not those that were published.
    #[must_use]
    pub const fn is_damage(self) -> bool {
        matches!(
            self,
            Self::DigestMismatch
                | Self::FileMissing
                | Self::FileUnlisted
                | Self::NotAFile
                | Self::DigestAbsent
                | Self::AlgorithmUnsupported
                | Self::Malformed
                | Self::MetadataMismatch
                | Self::IdentityMismatch
        )
    }
}

/// One thing that is not as the digest says.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Violation {
    /// What kind of mismatch.
    pub kind: ViolationKind,
    /// The file, relative to the variant's folder.
    pub path: String,
    /// What the metadata promises, where it promises something.
    pub expected: Option<String>,
    /// What was found, where something was.
    pub actual: Option<String>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, path, expected, actual } = self;
        let what = match kind {
            ViolationKind::DigestMismatch => "its bytes differ from its digest",
            ViolationKind::FileMissing => "it is missing",
            ViolationKind::FileUnlisted => "the digest does not list it",
            ViolationKind::NotAFile => "it is not a regular file",
            ViolationKind::DigestAbsent => "the metadata carries no digest",
            ViolationKind::AlgorithmUnsupported => "its digest algorithm is not supported",
            ViolationKind::Malformed => "its entry in the digest is malformed",
            ViolationKind::MetadataMismatch => "it is not the metadata that was anchored",
            ViolationKind::IdentityMismatch => "it describes another kernel than the one asked for",
            ViolationKind::LibraryMalformed => "it is not a library that can be loaded",
            ViolationKind::MachineMismatch => "it is made for another machine than its build's name says",
            ViolationKind::ExecutableStack => "it asks for a stack whose bytes can be executed",
            ViolationKind::TextRelocations => "its code is written to while it is loaded",
            ViolationKind::WritableCode => "it has memory that is both writable and executable",
            ViolationKind::UniqueSymbols => "it defines symbols that the whole process shares",
            ViolationKind::SharedSymbols => "it shares variables with a kernel that is loaded",
            ViolationKind::SearchPath => "it names a place of its own to load libraries from",
            ViolationKind::LibraryOddity => "it has something that no kernel needs",
            ViolationKind::AbiVersion => "it needs a newer symbol version than is allowed",
            ViolationKind::AbiLibrary => "it needs a library that is not allowed",
            // Sentences of their own, in the words in which people look for them.
            ViolationKind::LibraryMissing => {
                return write!(f, "{path}: it needs {}, which this machine does not have", shown(expected.as_ref()));
            }
            ViolationKind::LibraryTooOld => {
                return write!(
                    f,
                    "{path}: it needs {}, this machine has {}",
                    shown(actual.as_ref()),
                    shown(expected.as_ref())
                );
            }
        };
        write!(f, "{path}: {what}")?;
        if let Some(expected) = expected {
            write!(f, ", expected {expected}")?;
        }
        if let Some(actual) = actual {
            write!(f, ", found {actual}")?;
        }
        Ok(())
    }
}

fn shown(text: Option<&String>) -> &str {
    text.map_or("something", String::as_str)
}

/// Violations in one line, for messages.
pub(crate) fn list(violations: &[Violation]) -> String {
    violations.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::Sha256Digest;

    #[test]
    fn both_forms_round_trip_and_near_forms_are_refused() {
        let digest = Sha256Digest::of(b"kernel");
        assert_eq!(digest.to_string().parse(), Ok(digest));
        assert_eq!(Sha256Digest::from_base64(&digest.to_base64()), Ok(digest));
        for bad in ["", "00", &digest.to_string().to_uppercase(), &format!("{digest}0"), &"é".repeat(32)] {
            assert!(bad.parse::<Sha256Digest>().is_err(), "{bad:?}");
        }
        for bad in ["", "AAAA", "not base64!", &digest.to_base64().replace('=', "")] {
            assert!(Sha256Digest::from_base64(bad).is_err(), "{bad:?}");
        }
    }
}
