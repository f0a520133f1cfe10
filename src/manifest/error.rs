//! What can be wrong with a manifest, a `metadata.json` or a `layers.toml`.

use crate::hint::{Hint, nearest};

/// A text that does not follow its format.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// Not TOML, or a key, type or value that the format does not know.
    #[error("{origin}: not a valid {format}")]
    Toml {
        /// The file or URL that the text came from.
        origin: String,
        /// The format's name, such as "kernel manifest".
        format: &'static str,
        /// Line, column and cause.
        #[source]
        source: Box<toml::de::Error>,
    },
    /// Not JSON, or of another shape than the format's.
    #[error("{origin}: not a valid {format}")]
    Json {
        /// The file or URL that the text came from.
        origin: String,
        /// The format's name.
        format: &'static str,
        /// Line, column and cause.
        #[source]
        source: serde_json::Error,
    },
    /// The text declares an edition of its format that this version does not read.
    #[error("{origin}: schema {found} of the {format}; this version reads schema {supported}")]
    Schema {
        /// The file or URL that the text came from.
        origin: String,
        /// The format's name.
        format: &'static str,
        /// The edition that the text declares.
        found: u32,
        /// The edition that this version reads.
        supported: u32,
    },
    /// Required fields are absent.
    #[error("{origin}: the {format} lacks {}", .fields.join(", "))]
    MissingFields {
        /// The file or URL that the text came from.
        origin: String,
        /// The format's name.
        format: &'static str,
        /// Every absent field, in the format's order.
        fields: Vec<&'static str>,
    },
    /// A key that the format does not have.
    #[error("{origin}: {place}: the key {key:?} is unknown")]
    UnknownKey {
        /// The file or URL that the text came from.
        origin: String,
        /// Where the key stands, as a path such as `[0].lock`.
        place: String,
        /// The key.
        key: String,
        /// The keys that the format has there.
        known: Vec<&'static str>,
    },
    /// The text says two things about one subject.
    #[error("{origin}: {what} stands there twice, as {first} and as {second}")]
    Ambiguous {
        /// The file or URL that the text came from.
        origin: String,
        /// The subject, such as a repo id.
        what: String,
        /// What is said first.
        first: String,
        /// What is said later.
        second: String,
    },
    /// The text is longer than any of its format.
    #[error("{origin}: expected at most {maximum} bytes of {format}, found {actual}")]
    TooLarge {
        /// The file or URL that the text came from.
        origin: String,
        /// The format's name.
        format: &'static str,
        /// The limit, in bytes.
        maximum: u64,
        /// The length, in bytes.
        actual: u64,
    },
    /// A field's value is outside what the format allows.
    #[error("{origin}: {field}: {reason}")]
    Invalid {
        /// The file or URL that the text came from.
        origin: String,
        /// The field, as a path such as `layer[0].forward.args`.
        field: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl Hint for ManifestError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Toml { source, .. } => unknown_key_hint(source.message()),
            Self::UnknownKey { key, known, .. } => {
                Some(nearest(key, known.iter().copied()).map_or_else(
                    || format!("known keys: {}", known.join(", ")),
                    |near| format!("did you mean `{near}`?"),
                ))
            }
            Self::Ambiguous { .. } => Some("leave one of the two".to_owned()),
            Self::Schema { found, supported, .. } if found > supported => {
                Some("update kernelhub: a newer version writes this edition".to_owned())
            }
            Self::MissingFields { format, .. } if *format == super::METADATA_FILE => Some(
                "the publisher's build is incomplete; another version or variant of the kernel may be whole".to_owned(),
            ),
            _ => None,
        }
    }
}

/// Turns serde's "unknown field `x`, expected one of `a`, `b`" into a suggestion.
pub(crate) fn unknown_key_hint(message: &str) -> Option<String> {
    let rest = message.strip_prefix("unknown field `")?;
    let (unknown, expected) = rest.split_once('`')?;
    let known: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
    let near = nearest(unknown, known.iter().copied());
    Some(near.map_or_else(|| format!("known keys: {}", known.join(", ")), |near| format!("did you mean `{near}`?")))
}
