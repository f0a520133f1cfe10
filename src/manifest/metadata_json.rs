//! The JSON text of a [`Metadata`]: reading and writing.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::metadata::{BackendInfo, DigestTable, MAX_METADATA_BYTES, METADATA_FILE, Metadata, is_outside_digest};
use super::{ManifestError, strict_json};
use crate::digest::{Sha256Digest, Violation, ViolationKind};
use crate::names::RelativePath;

const FORMAT: &str = "metadata.json";
const SHA256: &str = "sha256";

impl Metadata {
    /// Parses the bytes of a `metadata.json`. `origin` names the file in errors.
    ///
    /// Unknown keys are ignored, because newer builders add some. A digest table that is there but wrong is kept with
    /// its faults ([`DigestTable::faults`]).
    ///
    /// # Errors
    /// [`ManifestError::Json`] for syntax or a key that stands twice, [`ManifestError::MissingFields`] with every
    /// absent field, [`ManifestError::Invalid`] for a field of another type, an unsafe name or a file over
    /// [`MAX_METADATA_BYTES`].
    pub fn parse(bytes: &[u8], origin: &str) -> Result<Self, ManifestError> {
        let fields = Fields { origin };
        if bytes.len() as u64 > MAX_METADATA_BYTES {
            return Err(fields.invalid("metadata.json", format!("{} bytes, above {MAX_METADATA_BYTES}", bytes.len())));
        }
        let root = strict_json::parse(bytes).map_err(|source| ManifestError::Json {
            origin: origin.to_owned(),
            format: FORMAT,
            source,
        })?;
        let Value::Object(root) = &root else {
            return Err(fields.invalid("metadata.json", "expected an object"));
        };
        fields.check_present(root)?;
        let name = fields.string(root, "name")?;
        crate::names::check_component("kernel name", &name)
            .map_err(|fault| fields.invalid("name", fault.to_string()))?;
        let backend = fields.object(root, "backend")?;
        Ok(Self {
            name,
            id: fields.string(root, "id")?,
            version: root["version"]
                .as_u64()
                .and_then(|version| u32::try_from(version).ok())
                .ok_or_else(|| fields.invalid("version", "expected an integer from 0 to 4294967295"))?,
            license: fields.optional(root, "license").map(|_| fields.string(root, "license")).transpose()?,
            python_depends: fields.strings(root, "python-depends")?,
            kernel_depends: match fields.optional(root, "kernel-depends") {
                None => Vec::new(),
                Some(Value::Array(depends)) => depends.clone(),
                Some(_) => return Err(fields.invalid("kernel-depends", "expected a list")),
            },
            backend: BackendInfo {
                kind: fields.string(backend, "type")?,
                archs: fields
                    .optional(backend, "archs")
                    .map_or_else(|| Ok(Vec::new()), |_| fields.strings(backend, "archs"))?,
            },
            digest: fields
                .optional(root, "digest")
                .map(|_| fields.object(root, "digest").map(DigestTable::from_json))
                .transpose()?,
            provenance: fields.optional(root, "provenance").cloned(),
        })
    }

    /// The JSON text, with a newline at its end. One value has one text: the order of keys is fixed, files are sorted.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut text = String::from("{\n");
        let mut field = |key: &str, value: Value| {
            let comma = if text.len() > 2 { ",\n" } else { "" };
            text.push_str(comma);
            text.push_str(&format!("  {}: {:#}", json!(key), strict_json::sorted(&value)).replace('\n', "\n  "));
        };
        field("name", json!(self.name));
        field("id", json!(self.id));
        field("version", json!(self.version));
        if let Some(license) = &self.license {
            field("license", json!(license));
        }
        field("python-depends", json!(self.python_depends));
        if !self.kernel_depends.is_empty() {
            field("kernel-depends", json!(self.kernel_depends));
        }
        let mut backend = Map::from_iter([("type".to_owned(), json!(self.backend.kind))]);
        if !self.backend.archs.is_empty() {
            backend.insert("archs".to_owned(), json!(self.backend.archs));
        }
        field("backend", Value::Object(backend));
        if let Some(digest) = &self.digest {
            let files: Map<String, Value> =
                digest.files.iter().map(|(path, digest)| (path.to_string(), json!(digest.to_base64()))).collect();
            field("digest", json!({"algorithm": SHA256, "files": files}));
        }
        if let Some(provenance) = &self.provenance {
            field("provenance", provenance.clone());
        }
        text.push_str("\n}\n");
        text
    }
}

impl DigestTable {
    /// Reads the table, keeping what is wrong with it as faults.
    fn from_json(table: &Map<String, Value>) -> Self {
        let mut digest = Self::default();
        let fault = |kind, path: &str, expected: &str, actual: String| Violation {
            kind,
            path: shorten(&path.escape_debug().to_string()),
            expected: Some(expected.to_owned()),
            actual: Some(shorten(&actual)),
        };
        match table.get("algorithm") {
            Some(Value::String(algorithm)) if algorithm == SHA256 => {}
            other => {
                let found = other.map_or_else(|| "no algorithm".to_owned(), ToString::to_string);
                digest.faults.push(fault(ViolationKind::AlgorithmUnsupported, METADATA_FILE, SHA256, found));
                // Values of another algorithm mean nothing here.
                return digest;
            }
        }
        let Some(Value::Object(files)) = table.get("files") else {
            digest.faults.push(fault(
                ViolationKind::Malformed,
                METADATA_FILE,
                "digest.files as an object",
                table.get("files").map_or_else(|| "nothing".to_owned(), ToString::to_string),
            ));
            return digest;
        };
        let mut folded = BTreeMap::new();
        for (name, value) in files {
            let malformed = |expected: &str, actual: String| fault(ViolationKind::Malformed, name, expected, actual);
            let path = match name.parse::<RelativePath>() {
                Ok(path) if !is_outside_digest(&path) => path,
                Ok(_) => {
                    digest.faults.push(malformed("no entry: this file is not part of its own digest", name.clone()));
                    continue;
                }
                Err(error) => {
                    digest.faults.push(malformed("a safe relative path", error.reason.to_owned()));
                    continue;
                }
            };
            if let Some(earlier) = folded.insert(path.case_folded(), name) {
                digest.faults.push(malformed("paths that differ in more than case", earlier.clone()));
            }
            match value.as_str().map(Sha256Digest::from_base64) {
                Some(Ok(value)) => {
                    digest.files.insert(path, value);
                }
                _ => digest.faults.push(malformed("the base64 form of 32 bytes", value.to_string())),
            }
        }
        digest
    }
}

/// The start of a foreign text, for messages.
fn shorten(text: &str) -> String {
    const MOST: usize = 120;
    match text.char_indices().nth(MOST) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}...", &text[..end]),
    }
}

/// Reads typed fields and names them in errors.
struct Fields<'a> {
    origin: &'a str,
}

impl Fields<'_> {
    fn invalid(&self, field: &str, reason: impl Into<String>) -> ManifestError {
        ManifestError::Invalid { origin: self.origin.to_owned(), field: field.to_owned(), reason: reason.into() }
    }

    fn check_present(&self, root: &Map<String, Value>) -> Result<(), ManifestError> {
        let mut fields: Vec<&'static str> = ["name", "id", "version", "python-depends", "backend"]
            .into_iter()
            .filter(|field| self.optional(root, field).is_none())
            .collect();
        if root
            .get("backend")
            .and_then(Value::as_object)
            .is_some_and(|backend| self.optional(backend, "type").is_none())
        {
            fields.push("backend.type");
        }
        if fields.is_empty() {
            return Ok(());
        }
        Err(ManifestError::MissingFields { origin: self.origin.to_owned(), format: FORMAT, fields })
    }

    /// A field that may be absent; `null` counts as absent.
    #[expect(clippy::unused_self, reason = "reads like its neighbours")]
    fn optional<'m>(&self, map: &'m Map<String, Value>, field: &str) -> Option<&'m Value> {
        map.get(field).filter(|value| !value.is_null())
    }

    fn string(&self, map: &Map<String, Value>, field: &str) -> Result<String, ManifestError> {
        map.get(field)
            .and_then(Value::as_str)
            .map(ToOwned::to_owned)
            .ok_or_else(|| self.invalid(field, "expected a string"))
    }

    fn strings(&self, map: &Map<String, Value>, field: &str) -> Result<Vec<String>, ManifestError> {
        map.get(field)
            .and_then(Value::as_array)
            .and_then(|items| items.iter().map(|item| item.as_str().map(ToOwned::to_owned)).collect())
            .ok_or_else(|| self.invalid(field, "expected a list of strings"))
    }

    fn object<'m>(&self, map: &'m Map<String, Value>, field: &str) -> Result<&'m Map<String, Value>, ManifestError> {
        map.get(field).and_then(Value::as_object).ok_or_else(|| self.invalid(field, "expected an object"))
    }
}
