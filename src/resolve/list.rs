//! Lists of builds in a file: the names of a listing, one a line, or JSON.

use serde_json::{Map, Value};

use super::Candidate;
use crate::hint::{Hint, nearest};
use crate::variant::AnyVariant;

/// Largest list that is read, in bytes.
pub const MAX_LIST_BYTES: u64 = 1 << 20;
/// Most builds of one list; a listing of the Hub has at most as many.
pub const MAX_LISTED: usize = 10_000;
/// Most architectures of one build in a list, and the longest name of one, in bytes.
const MAX_ARCHS: usize = 256;
const MAX_ARCH_BYTES: usize = 64;

const VARIANT: &str = "variant";
const ARCHS: &str = "archs";
const GLIBC: &str = "glibc";
const IMPORTS_TVM_FFI: &str = "imports_tvm_ffi";
const SIZE_BYTES: &str = "size_bytes";
const KEYS: [&str; 5] = [VARIANT, ARCHS, GLIBC, IMPORTS_TVM_FFI, SIZE_BYTES];

/// A list that cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListError {
    /// It is longer than any list.
    #[error("{origin}: more than {maximum} bytes; a list of builds has at most as many")]
    TooLong {
        /// The file.
        origin: String,
        /// The most that is read.
        maximum: u64,
    },
    /// It names more builds than any kernel has.
    #[error("{origin}: more than {maximum} builds")]
    TooMany {
        /// The file.
        origin: String,
        /// The most that are read.
        maximum: usize,
    },
    /// It names none.
    #[error("{origin} names no build")]
    Empty {
        /// The file.
        origin: String,
    },
    /// It is no text.
    #[error("{origin}, line {line}: not UTF-8")]
    NoText {
        /// The file.
        origin: String,
        /// The first line that is none, from 1.
        line: usize,
    },
    /// It starts as JSON and is none, or has a key twice.
    #[error("{origin}: not a JSON list")]
    Json {
        /// The file.
        origin: String,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// It is JSON of another form.
    #[error("{origin}: JSON, and no list")]
    NoList {
        /// The file.
        origin: String,
    },
    /// An entry of the JSON list has a key that means nothing.
    #[error("{origin}: entry {entry} has the unknown key {key:?}")]
    UnknownKey {
        /// The file.
        origin: String,
        /// The entry, from 0.
        entry: usize,
        /// The key.
        key: String,
    },
    /// An entry of the JSON list is not what it should be.
    #[error("{origin}: entry {entry}: {fault}")]
    Entry {
        /// The file.
        origin: String,
        /// The entry, from 0.
        entry: usize,
        /// What is wrong with it.
        fault: String,
    },
}

impl Hint for ListError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::UnknownKey { key, .. } => {
                Some(nearest(key, KEYS).map_or_else(
                    || format!("known keys: {}", KEYS.join(", ")),
                    |near| format!("did you mean {near:?}?"),
                ))
            }
            _ => Some(
                "a list has the name of one build a line, with comments after #, or is a JSON list of names or of \
                 objects such as {\"variant\": \"tvm-ffi01-cu128-x86_64-linux\", \"archs\": [\"8.0\", \"9.0a\"]}"
                    .to_owned(),
            ),
        }
    }
}

impl Candidate {
    /// Reads a list of builds, numbered from 0 in its order. `origin` names the file in errors.
    ///
    /// A text has one name a line; blank lines, and what follows a `#` at a line's start or after a blank, are left out.
    /// A text whose first character is `[` (or `{`, which is refused) is JSON: a list of names, or of objects with `variant` and, where it is
    /// known, `archs` (as in `metadata.json`), `glibc` (the lowest version that will do), `imports_tvm_ffi` and
    /// `size_bytes`. A name that the grammar does not know is kept, as in a listing.
    ///
    /// # Errors
    /// [`ListError`] for a list that is too long, names nothing, is no text, or is JSON of another form.
    pub fn read_list(bytes: &[u8], origin: &str) -> Result<Vec<Self>, ListError> {
        let origin = || origin.to_owned();
        if bytes.len() as u64 > MAX_LIST_BYTES {
            return Err(ListError::TooLong { origin: origin(), maximum: MAX_LIST_BYTES });
        }
        let text = std::str::from_utf8(bytes).map_err(|error| {
            let line = bytes[..error.valid_up_to()].split(|byte| *byte == b'\n').count();
            ListError::NoText { origin: origin(), line }
        })?;
        // Some editors put a mark of their own before a text.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let candidates = if text.trim_start().starts_with(['[', '{']) {
            let value = crate::manifest::parse_json_strict(text.as_bytes())
                .map_err(|source| ListError::Json { origin: origin(), source })?;
            let Value::Array(entries) = value else { return Err(ListError::NoList { origin: origin() }) };
            too_many(entries.len(), &origin)?;
            let read = |(index, value): (usize, &Value)| entry(value, index, &origin);
            entries.iter().enumerate().map(read).collect::<Result<Vec<_>, _>>()?
        } else {
            let names: Vec<&str> = text.lines().map(without_comment).filter(|name| !name.is_empty()).collect();
            too_many(names.len(), &origin)?;
            Self::from_names(names)
        };
        if candidates.is_empty() { Err(ListError::Empty { origin: origin() }) } else { Ok(candidates) }
    }
}

fn too_many(count: usize, origin: &dyn Fn() -> String) -> Result<(), ListError> {
    if count > MAX_LISTED {
        return Err(ListError::TooMany { origin: origin(), maximum: MAX_LISTED });
    }
    Ok(())
}

/// A line without its comment and the blanks around it.
fn without_comment(line: &str) -> &str {
    let starts = |(at, _): &(usize, &str)| line[..*at].chars().next_back().is_none_or(char::is_whitespace);
    line.match_indices('#').find(starts).map_or(line, |(at, _)| &line[..at]).trim()
}

fn entry(value: &Value, index: usize, origin: &dyn Fn() -> String) -> Result<Candidate, ListError> {
    let refuse = |fault: &str| ListError::Entry { origin: origin(), entry: index, fault: fault.to_owned() };
    let fields = match value {
        Value::String(name) => return Ok(Candidate::new(AnyVariant::read(name), index)),
        Value::Object(fields) => fields,
        _ => return Err(refuse("expected a name or an object")),
    };
    if let Some(key) = fields.keys().find(|key| !KEYS.contains(&key.as_str())) {
        return Err(ListError::UnknownKey { origin: origin(), entry: index, key: key.clone() });
    }
    // A null says as much as a missing key: that it is not known.
    let field = |key: &str| fields.get(key).filter(|value| !value.is_null());
    let name = fields.get(VARIANT).and_then(Value::as_str).ok_or_else(|| refuse("\"variant\" has to be a name"))?;
    let mut candidate = Candidate::new(AnyVariant::read(name), index);
    candidate.archs = archs(fields).map_err(refuse)?;
    candidate.minimum_glibc = field(GLIBC)
        .map(|value| value.as_str().and_then(|text| text.parse().ok()))
        .map(|version| version.ok_or_else(|| refuse("\"glibc\" has to be a version such as \"2.28\"")))
        .transpose()?;
    candidate.imports_tvm_ffi = field(IMPORTS_TVM_FFI)
        .map(|value| value.as_bool().ok_or_else(|| refuse("\"imports_tvm_ffi\" has to be true or false")))
        .transpose()?;
    candidate.size_bytes = field(SIZE_BYTES)
        .map(|value| value.as_u64().ok_or_else(|| refuse("\"size_bytes\" has to be a number of bytes")))
        .transpose()?;
    Ok(candidate)
}

fn archs(fields: &Map<String, Value>) -> Result<Option<Vec<String>>, &'static str> {
    const FAULT: &str = "\"archs\" has to be a list of at most 256 names such as \"9.0a\" or \"gfx942\"";
    match fields.get(ARCHS) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Array(names)) if names.len() <= MAX_ARCHS => {
            let name = |value: &Value| value.as_str().filter(|name| name.len() <= MAX_ARCH_BYTES).map(str::to_owned);
            names.iter().map(name).collect::<Option<Vec<_>>>().map(Some).ok_or(FAULT)
        }
        Some(_) => Err(FAULT),
    }
}

#[cfg(test)]
mod tests {
    use super::{Candidate, ListError, MAX_LISTED};
    use crate::hint::Hint as _;
    use crate::variant::Version;

    fn read(text: &str) -> Result<Vec<Candidate>, ListError> {
        Candidate::read_list(text.as_bytes(), "a list")
    }

    #[test]
    fn one_name_a_line_without_comments() {
        let text = "\u{feff}# the builds\r\n\r\n  torch-cuda # Python\n#x\nwgsl-xpu\r\n\tnew#form\n";
        let names: Vec<String> = read(text).unwrap().iter().map(|c| c.variant.to_string()).collect();
        assert_eq!(names, ["torch-cuda", "wgsl-xpu", "new#form"]);
        assert!(read(text).unwrap()[2].variant.known().is_none(), "an unknown name is kept");
    }

    #[test]
    fn json_says_what_is_known_of_each() {
        let text = r#" ["wgsl-xpu", {"variant": "tvm-ffi01-cu128-x86_64-linux", "archs": ["8.0"], "glibc": "2.28",
            "imports_tvm_ffi": false, "size_bytes": 5}, {"variant": "torch-cuda", "archs": null}]"#;
        let list = read(text).unwrap();
        assert_eq!((list.len(), list[0].artifact, list[2].artifact), (3, 0, 2));
        let build = &list[1];
        assert_eq!(build.archs.as_deref(), Some(&["8.0".to_owned()][..]));
        assert_eq!((build.minimum_glibc, build.imports_tvm_ffi), (Some(Version::new(2, 28)), Some(false)));
        assert_eq!((build.size_bytes, &list[2].archs), (Some(5), &None));
    }

    #[test]
    fn a_list_that_is_none_says_where() {
        for (text, part) in [
            ("", "names no build"),
            ("# nothing\n", "names no build"),
            ("[]", "names no build"),
            ("[", "not a JSON list"),
            ("[] x", "not a JSON list"),
            (r#"[{"variant": "a", "variant": "b"}]"#, "not a JSON list"),
            (&"[".repeat(10_000), "not a JSON list"),
            (r#"["a", 1]"#, "entry 1: expected a name"),
            (r#"[{"archs": []}]"#, "entry 0: \"variant\""),
            (r#"[{"variant": "a", "archs": "8.0"}]"#, "\"archs\""),
            (r#"[{"variant": "a", "archs": [8.0]}]"#, "\"archs\""),
            (r#"[{"variant": "a", "glibc": 2.28}]"#, "\"glibc\""),
            (r#"[{"variant": "a", "glibc": "2"}]"#, "\"glibc\""),
            (r#"[{"variant": "a", "size_bytes": -1}]"#, "\"size_bytes\""),
            (r#"[{"variant": "a", "imports_tvm_ffi": "no"}]"#, "\"imports_tvm_ffi\""),
            (&"a\n".repeat(MAX_LISTED + 1), "more than 10000 builds"),
            (&"a".repeat((1 << 20) + 1), "more than 1048576 bytes"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
        assert_eq!(read(r#" {"variants": ["a"]}"#).unwrap_err().to_string(), "a list: JSON, and no list");
        assert_eq!(Candidate::read_list(b"a\nb\n\xff\n", "x").unwrap_err().to_string(), "x, line 3: not UTF-8");
        let error = read(r#"[{"variant": "a", "arches": []}]"#).unwrap_err();
        assert_eq!(error.hint().as_deref(), Some("did you mean \"archs\"?"), "{error}");
    }
}
