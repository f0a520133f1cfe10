//! Public keys in minisign's form.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// An ed25519 public key, as `minisign` prints it: 56 characters of base64.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PublicKey {
    text: String,
}

/// The length of the base64 of algorithm (2 bytes), key id (8) and key (32).
const TEXT_BYTES: usize = 56;

impl PublicKey {
    /// Its id, which every signature by it names, as `minisign` prints it: 16 hexadecimal digits.
    #[must_use]
    pub fn id(&self) -> String {
        use base64::Engine as _;
        let bytes = base64::engine::general_purpose::STANDARD.decode(&self.text).unwrap_or_default();
        // Eight bytes, the least significant one first.
        let id = bytes.get(2..10).unwrap_or_default().iter().rev().fold(0, |id: u64, byte| id << 8 | u64::from(*byte));
        format!("{id:016X}")
    }

    /// The key as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Checks a signature over these bytes, and returns the comment that was signed with them.
    ///
    /// The older form, which signs the bytes themselves and not their digest, is refused: two forms for one key are one
    /// more than there is a use for.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn check(&self, bytes: &[u8], signature: &str) -> Result<String, KeyError> {
        let signature = minisign_verify::Signature::decode(signature).map_err(|_| KeyError::Malformed)?;
        let key = self.verifier().map_err(|_| KeyError::Malformed)?;
        match key.verify(bytes, &signature, false) {
            Ok(()) => Ok(signature.trusted_comment().to_owned()),
            Err(minisign_verify::Error::UnexpectedKeyId) => Err(KeyError::OtherKey),
            Err(minisign_verify::Error::UnexpectedAlgorithm) => Err(KeyError::Legacy),
            Err(_) => Err(KeyError::Wrong),
        }
    }

    fn verifier(&self) -> Result<minisign_verify::PublicKey, minisign_verify::Error> {
        minisign_verify::PublicKey::from_base64(&self.text)
    }
}

/// Why a signature is none by a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The text is no minisign signature.
    #[error("not a minisign signature")]
    Malformed,
    /// It names another key.
    #[error("made by another key")]
    OtherKey,
    /// It is of minisign's older form.
    #[error("of minisign's older form, without a digest")]
    Legacy,
    /// It is not over these bytes and this comment, or not by this key.
    #[error("not over these bytes and its comment by this key")]
    Wrong,
}

impl FromStr for PublicKey {
    type Err = String;

    /// Reads the base64 line, or a whole `.pub` file with its comment line before it.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let first = lines.next().unwrap_or_default();
        let key = if first.starts_with("untrusted comment:") { lines.next().unwrap_or_default() } else { first };
        if lines.next().is_some() {
            return Err("more than one key".to_owned());
        }
        if key.len() != TEXT_BYTES {
            return Err(format!("expected a minisign public key of {TEXT_BYTES} characters, found {}", key.len()));
        }
        let key = Self { text: key.to_owned() };
        key.verifier().map_err(|error| format!("not a minisign public key: {error}"))?;
        Ok(key)
    }
}

impl TryFrom<String> for PublicKey {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<PublicKey> for String {
    fn from(key: PublicKey) -> Self {
        key.text
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({})", self.id())
    }
}

#[cfg(test)]
mod tests {
    use super::PublicKey;

    const KEY: &str = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3";

    #[test]
    fn a_key_is_read_with_and_without_its_comment_and_round_trips() {
        let key: PublicKey = KEY.parse().unwrap();
        assert_eq!(key.to_string(), KEY);
        assert_eq!(key.id(), "E7620F1842B4E81F");
        assert_eq!(format!("untrusted comment: minisign public key\n{KEY}\n").parse(), Ok(key));
        let bad =
            [String::new(), KEY[1..].to_owned(), KEY.replace("RWQ", "AAA"), format!("{KEY}\n{KEY}"), "!".repeat(56)];
        for bad in bad {
            assert!(bad.parse::<PublicKey>().is_err(), "{bad:?}");
        }
    }
}
