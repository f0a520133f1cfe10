//! `kernels.lock`: the commit that each Hub kernel is pinned to, in the words of the Python package `kernels`.
//!
//! Two editions are in use, and both are JSON lists without a mark of their edition:
//!
//! ```json
//! [{"dependency": {"repo-id": "org/name", "version": 1}, "lock": {"commit": "<40 or 64 hex>"}}]
//! [{"repo_id": "org/name", "sha": "<40 hex>", "variants":
//!   {"<variant>": {"hash": "sha256-<64 hex>", "hash_type": "git_lfs_concat"}}}]
//! ```
//!
//! `kernels` 0.17 reads and writes the first and refuses every key beyond it; 0.16 and older read and write the
//! second. What neither has room for stands in [`LockSidecar`](super::LockSidecar).
//!
//! Whatever can be read in two ways is refused: a key twice, a kernel twice, both editions in one file, an unknown key.

use std::collections::BTreeMap;
use std::fmt::Display;

use serde_json::{Map, Value, json};

use super::{Commit, KernelVersion, ManifestError, parse_json_strict};
use crate::digest::Sha256Digest;
use crate::names::{RelativePath, RepoId};
use crate::variant::AnyVariant;

/// The file's name.
pub const LOCK_FILE: &str = "kernels.lock";
/// Largest `kernels.lock` that is read, in bytes.
pub const MAX_LOCK_BYTES: u64 = 16 << 20;

const FORMAT: &str = "kernels.lock";
const HASH_PREFIX: &str = "sha256-";
const HASH_TYPE: &str = "git_lfs_concat";

/// Which form of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LockEdition {
    /// Dependency and commit: `kernels` 0.17.
    #[default]
    Dependency,
    /// Repo, commit and the hash of every variant: `kernels` 0.16 and older.
    Variants,
}

/// A whole `kernels.lock`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KernelsLock {
    /// The form that it was read from, or is to be written in.
    pub edition: LockEdition,
    /// The locked kernels, sorted by repo, then version.
    pub kernels: Vec<KernelLock>,
}

/// One locked kernel.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct KernelLock {
    /// The kernel's repo.
    pub repo: RepoId,
    /// What was asked for when it was locked. `None`: the older edition does not say.
    pub version: Option<KernelVersion>,
    /// The commit.
    pub commit: Commit,
    /// The hash of every variant, in the older edition; else empty.
    pub variants: BTreeMap<AnyVariant, VariantHash>,
}

/// The hash of a variant's files as the older edition has it: sha256 over each file's path in the variant's folder and
/// its object id (sha256 for a large file, git's sha1 for a small one), in the order of the paths' bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct VariantHash(pub Sha256Digest);

impl VariantHash {
    /// Reads `sha256-<64 hexadecimal digits>`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        text.strip_prefix(HASH_PREFIX)?.parse().ok().map(Self)
    }
}

impl std::fmt::Display for VariantHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{HASH_PREFIX}{}", self.0)
    }
}

impl KernelsLock {
    /// Reads either edition. `origin` names the file in errors.
    ///
    /// # Errors
    /// [`ManifestError::TooLarge`], [`ManifestError::Json`] for syntax and a key that stands twice,
    /// [`ManifestError::UnknownKey`], [`ManifestError::MissingFields`], [`ManifestError::Ambiguous`] for a kernel that
    /// stands twice, even in another case, and for entries of both editions, [`ManifestError::Invalid`] for anything
    /// else outside the format: a name, commit or hash that is none.
    pub fn parse(text: &[u8], origin: &str) -> Result<Self, ManifestError> {
        let actual = text.len() as u64;
        if actual > MAX_LOCK_BYTES {
            let origin = origin.to_owned();
            return Err(ManifestError::TooLarge { origin, format: FORMAT, maximum: MAX_LOCK_BYTES, actual });
        }
        let value = parse_json_strict(text).map_err(|source| ManifestError::Json {
            origin: origin.to_owned(),
            format: FORMAT,
            source,
        })?;
        let Value::Array(items) = value else {
            return Err(invalid(origin, FORMAT, "expected a list of locked kernels"));
        };
        let mut lock = Self::default();
        for (index, item) in items.iter().enumerate() {
            let entry = Object::of(item, origin, format!("[{index}]"))?;
            let edition =
                if entry.map.contains_key("repo_id") { LockEdition::Variants } else { LockEdition::Dependency };
            if index > 0 && edition != lock.edition {
                return Err(ManifestError::Ambiguous {
                    origin: origin.to_owned(),
                    what: "the edition".to_owned(),
                    first: lock.edition.keys().join(" and "),
                    second: edition.keys().join(" and "),
                });
            }
            lock.edition = edition;
            lock.kernels.push(match edition {
                LockEdition::Dependency => dependency_entry(&entry)?,
                LockEdition::Variants => variants_entry(&entry)?,
            });
        }
        lock.kernels.sort();
        lock.check(origin)?;
        Ok(lock)
    }

    /// The text, one for each value. The form of 0.17 is byte for byte what that tool writes, which ends without a line
    /// break.
    ///
    /// # Errors
    /// [`ManifestError::Invalid`] when an entry lacks what its edition has, [`ManifestError::Ambiguous`] for a kernel
    /// that stands twice.
    pub fn to_json(&self) -> Result<String, ManifestError> {
        let mut sorted = self.clone();
        sorted.kernels.sort();
        sorted.check(FORMAT)?;
        let entries = sorted.kernels.iter().map(|kernel| match self.edition {
            LockEdition::Dependency => kernel.to_dependency_entry(),
            LockEdition::Variants => Ok(kernel.to_variants_entry()),
        });
        let entries: Vec<Value> = entries.collect::<Result<_, _>>()?;
        serde_json::to_string_pretty(&entries).map_err(|source| ManifestError::Json {
            origin: FORMAT.to_owned(),
            format: FORMAT,
            source,
        })
    }

    /// The locked kernels of a repo: one, or one for each of its versions.
    pub fn of<'a>(&'a self, repo: &'a RepoId) -> impl Iterator<Item = &'a KernelLock> {
        self.kernels.iter().filter(move |kernel| kernel.repo == *repo)
    }

    /// Whether each kernel stands once, in one spelling. The kernels are sorted.
    fn check(&self, origin: &str) -> Result<(), ManifestError> {
        let mut seen: BTreeMap<String, Vec<&KernelLock>> = BTreeMap::new();
        for kernel in &self.kernels {
            let earlier = seen.entry(RelativePath::fold(&kernel.repo.to_string())).or_default();
            if let Some(rival) = earlier.iter().find(|e| e.repo != kernel.repo || e.version == kernel.version) {
                return Err(ManifestError::Ambiguous {
                    origin: origin.to_owned(),
                    what: kernel.to_string(),
                    first: format!("{} at {}", rival.repo, rival.commit),
                    second: format!("{} at {}", kernel.repo, kernel.commit),
                });
            }
            earlier.push(kernel);
        }
        Ok(())
    }
}

impl std::fmt::Display for KernelLock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.version {
            Some(version) => write!(f, "{}@{version}", self.repo),
            None => write!(f, "{}", self.repo),
        }
    }
}

impl LockEdition {
    fn keys(self) -> &'static [&'static str] {
        match self {
            Self::Dependency => &["dependency", "lock"],
            Self::Variants => &["repo_id", "sha", "variants"],
        }
    }
}

impl KernelLock {
    fn to_dependency_entry(&self) -> Result<Value, ManifestError> {
        let dependency = match &self.version {
            Some(KernelVersion::Version(version)) => json!({"repo-id": self.repo, "version": version}),
            Some(KernelVersion::Revision(revision)) => json!({"repo-id": self.repo, "revision": revision}),
            None => return Err(invalid(FORMAT, self.repo.to_string(), "expected the version that was asked for")),
        };
        Ok(json!({"dependency": dependency, "lock": {"commit": self.commit}}))
    }

    fn to_variants_entry(&self) -> Value {
        // By their texts, whatever map `serde_json` was built with.
        let variants: BTreeMap<String, Value> = self
            .variants
            .iter()
            .map(|(variant, hash)| (variant.to_string(), json!({"hash": hash.to_string(), "hash_type": HASH_TYPE})))
            .collect();
        json!({"repo_id": self.repo, "sha": self.commit, "variants": variants})
    }
}

fn dependency_entry(entry: &Object<'_>) -> Result<KernelLock, ManifestError> {
    entry.check_keys(LockEdition::Dependency.keys(), &["dependency", "lock"])?;
    let (repo, version) = read_dependency(&entry.object("dependency")?)?;
    let lock = entry.object("lock")?;
    lock.check_keys(&["commit"], &["commit"])?;
    Ok(KernelLock { repo, version: Some(version), commit: lock.parsed("commit")?, variants: BTreeMap::new() })
}

fn read_dependency(dependency: &Object<'_>) -> Result<(RepoId, KernelVersion), ManifestError> {
    dependency.check_keys(&["repo-id", "version", "revision"], &["repo-id"])?;
    let version = match (dependency.map.get("version"), dependency.map.get("revision")) {
        (Some(version), None) => {
            let number = version.as_u64().and_then(|number| u32::try_from(number).ok());
            KernelVersion::Version(number.ok_or_else(|| dependency.invalid("version", "expected a version number"))?)
        }
        (None, Some(_)) => {
            let revision = dependency.string("revision")?;
            KernelVersion::revision(revision).map_err(|error| dependency.invalid("revision", error))?
        }
        (Some(_), Some(_)) => return Err(dependency.invalid("version", "excludes `revision`")),
        (None, None) => return Err(dependency.invalid("version", "expected `version` or `revision`")),
    };
    Ok((dependency.parsed("repo-id")?, version))
}

fn variants_entry(entry: &Object<'_>) -> Result<KernelLock, ManifestError> {
    let keys = LockEdition::Variants.keys();
    entry.check_keys(keys, keys)?;
    let listed = entry.object("variants")?;
    let mut variants = BTreeMap::new();
    for name in listed.map.keys() {
        crate::names::check_component("variant", name).map_err(|error| listed.invalid(name, error))?;
        let fields = listed.object(name)?;
        fields.check_keys(&["hash", "hash_type"], &["hash"])?;
        if fields.map.contains_key("hash_type") && fields.string("hash_type")? != HASH_TYPE {
            return Err(fields.invalid("hash_type", format!("expected {HASH_TYPE:?}")));
        }
        let hash = VariantHash::parse(fields.string("hash")?)
            .ok_or_else(|| fields.invalid("hash", "expected sha256- and 64 lower-case hexadecimal digits"))?;
        variants.insert(AnyVariant::read(name), hash);
    }
    Ok(KernelLock { repo: entry.parsed("repo_id")?, version: None, commit: entry.parsed("sha")?, variants })
}

/// An object with its place, for errors.
struct Object<'a> {
    map: &'a Map<String, Value>,
    origin: &'a str,
    place: String,
}

impl<'a> Object<'a> {
    fn of(value: &'a Value, origin: &'a str, place: String) -> Result<Self, ManifestError> {
        match value {
            Value::Object(map) => Ok(Self { map, origin, place }),
            _ => Err(invalid(origin, place, "expected an object")),
        }
    }

    fn field(&self, key: &str) -> String {
        format!("{}.{}", self.place, key.escape_debug())
    }

    fn invalid(&self, key: &str, reason: impl Display) -> ManifestError {
        invalid(self.origin, self.field(key), reason)
    }

    fn check_keys(&self, known: &[&'static str], required: &[&'static str]) -> Result<(), ManifestError> {
        if let Some(key) = self.map.keys().find(|key| !known.contains(&key.as_str())) {
            return Err(ManifestError::UnknownKey {
                origin: self.origin.to_owned(),
                place: self.place.clone(),
                key: key.clone(),
                known: known.to_vec(),
            });
        }
        let absent: Vec<_> = required.iter().filter(|key| !self.map.contains_key(**key)).copied().collect();
        if absent.is_empty() {
            return Ok(());
        }
        let origin = format!("{}: {}", self.origin, self.place);
        Err(ManifestError::MissingFields { origin, format: FORMAT, fields: absent })
    }

    fn object(&self, key: &str) -> Result<Object<'a>, ManifestError> {
        Object::of(self.map.get(key).unwrap_or(&Value::Null), self.origin, self.field(key))
    }

    fn string(&self, key: &str) -> Result<&'a str, ManifestError> {
        self.map.get(key).and_then(Value::as_str).ok_or_else(|| self.invalid(key, "expected a string"))
    }

    fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(&self, key: &str) -> Result<T, ManifestError> {
        self.string(key)?.parse().map_err(|error: T::Err| self.invalid(key, error))
    }
}

fn invalid(origin: &str, field: impl Into<String>, reason: impl Display) -> ManifestError {
    ManifestError::Invalid { origin: origin.to_owned(), field: field.into(), reason: reason.to_string() }
}
