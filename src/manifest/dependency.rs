//! Which kernels a project depends on, and how it says so.
//!
//! Three places are read: `[package.metadata.kernels]` or `[workspace.metadata.kernels]` of a `Cargo.toml`,
//! `[tool.kernels.dependencies]` of a `pyproject.toml` (the Python tool's own place), and a `KernelConfig`, which the
//! `swap` room reads. All give [`Dependency`] values.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use super::ManifestError;
use crate::hint::nearest;
use crate::names::{NameError, RepoId, check_component};
use crate::variant::Variant;

/// Which state of a repo is wanted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KernelVersion {
    /// The branch `v<N>`.
    Version(u32),
    /// Another branch, a tag or a commit.
    Revision(String),
}

impl KernelVersion {
    /// A revision, checked: it becomes part of URLs and of paths in the cache.
    ///
    /// # Errors
    /// [`NameError`] for an empty one, or one with a component that is no plain name.
    pub fn revision(text: &str) -> Result<Self, NameError> {
        text.split('/').try_for_each(|part| check_component("revision", part))?;
        check_length(text)?;
        Ok(Self::Revision(text.to_owned()))
    }
}

fn check_length(text: &str) -> Result<(), NameError> {
    if text.len() > crate::names::MAX_COMPONENT_BYTES {
        return Err(NameError { what: "revision", value: text.to_owned(), reason: "longer than 200 bytes" });
    }
    Ok(())
}

/// A number for a version, a string for a revision: a branch may be called `v1` as well.
impl Serialize for KernelVersion {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Version(version) => serializer.serialize_u32(*version),
            Self::Revision(revision) => serializer.serialize_str(revision),
        }
    }
}

impl<'de> Deserialize<'de> for KernelVersion {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a version number or a revision")]
        enum Either {
            Number(u32),
            Text(String),
        }
        match Either::deserialize(deserializer)? {
            Either::Number(version) => Ok(Self::Version(version)),
            Either::Text(text) => Self::revision(&text).map_err(serde::de::Error::custom),
        }
    }
}

impl fmt::Display for KernelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(version) => write!(f, "v{version}"),
            Self::Revision(revision) => f.write_str(revision),
        }
    }
}

/// One kernel that a project uses.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dependency {
    /// The kernel's repo.
    pub repo: RepoId,
    /// Which state of it.
    pub version: KernelVersion,
    /// The builds that the project uses, sorted; others are neither locked nor downloaded. Empty: all.
    pub variants: Vec<Variant>,
}

impl Dependency {
    /// Adds this to a list, once. `origin` names where it was declared.
    ///
    /// # Errors
    /// [`ManifestError::Ambiguous`] when the list has the kernel in another version or with other variants.
    pub fn add_to(self, list: &mut Vec<Self>, origin: &str) -> Result<(), ManifestError> {
        match list.iter().find(|earlier| earlier.repo == self.repo) {
            None => list.push(self),
            Some(earlier) if *earlier == self => {}
            Some(earlier) => {
                return Err(ManifestError::Ambiguous {
                    origin: origin.to_owned(),
                    what: self.repo.to_string(),
                    first: describe(earlier),
                    second: describe(&self),
                });
            }
        }
        Ok(())
    }
}

impl fmt::Display for Dependency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.repo, self.version)
    }
}

const CARGO: &str = "Cargo.toml";
const PYPROJECT: &str = "pyproject.toml";
const KERNELS: &str = "kernels";

/// The `kernels` table of a `Cargo.toml`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CargoKernels {
    /// The declared kernels, by repo.
    pub dependencies: Vec<Dependency>,
    /// The `KernelConfig` files whose kernels the project uses too, relative to the `Cargo.toml`.
    pub configs: Vec<String>,
}

#[derive(Deserialize)]
struct CargoToml {
    package: Option<Section>,
    workspace: Option<Section>,
}

#[derive(Deserialize)]
struct Section {
    metadata: Option<toml::Table>,
}

#[derive(Deserialize)]
struct PyProject {
    tool: Option<toml::Table>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct KernelsTable {
    #[serde(default)]
    dependencies: BTreeMap<RepoId, toml::Value>,
    config: Option<String>,
}

#[derive(Deserialize, Default)]
struct PythonTable {
    #[serde(default)]
    dependencies: BTreeMap<RepoId, toml::Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WantedTable {
    version: Option<u32>,
    revision: Option<String>,
    #[serde(default)]
    variants: Vec<Variant>,
}

/// Reads the kernels that a `Cargo.toml` declares. `None`: it has no `kernels` table. `origin` names it in errors.
///
/// # Errors
/// [`ManifestError::Toml`] for syntax and unknown keys, [`ManifestError::Invalid`] for a value outside the format,
/// [`ManifestError::UnknownKey`] for a table whose name is almost `kernels`.
pub fn cargo_kernels(text: &str, origin: &str) -> Result<Option<CargoKernels>, ManifestError> {
    let CargoToml { package, workspace } = toml::from_str(text).map_err(|error| toml_error(origin, CARGO, error))?;
    let mut found = None;
    for (section, name) in [(package, "package"), (workspace, "workspace")] {
        let Some(metadata) = section.and_then(|section| section.metadata) else { continue };
        let place = format!("{name}.metadata.{KERNELS}");
        let Some(table) = kernels_table(metadata, origin, &place)? else { continue };
        let table: KernelsTable = table.try_into().map_err(|error| toml_error(origin, CARGO, error))?;
        let kernels = found.get_or_insert_with(CargoKernels::default);
        for dependency in dependencies(table.dependencies, origin, &place)? {
            dependency.add_to(&mut kernels.dependencies, origin)?;
        }
        kernels.configs.extend(table.config);
    }
    Ok(found)
}

/// Reads the kernels that a `pyproject.toml` declares for the Python tool. `None`: it declares none. Tables of other
/// meaning beside `dependencies` are the Python tool's own.
///
/// # Errors
/// As [`cargo_kernels`].
pub fn pyproject_kernels(text: &str, origin: &str) -> Result<Option<Vec<Dependency>>, ManifestError> {
    let PyProject { tool } = toml::from_str(text).map_err(|error| toml_error(origin, PYPROJECT, error))?;
    let place = format!("tool.{KERNELS}");
    let Some(table) = tool.map(|tool| kernels_table(tool, origin, &place)).transpose()?.flatten() else {
        return Ok(None);
    };
    let keys: Vec<String> = table.as_table().into_iter().flat_map(toml::Table::keys).cloned().collect();
    if !keys.iter().any(|key| key == "dependencies")
        && let Some(near) = nearest("dependencies", keys.iter().map(String::as_str))
    {
        return Err(unknown_key(origin, &place, near, "dependencies"));
    }
    let table: PythonTable = table.try_into().map_err(|error| toml_error(origin, PYPROJECT, error))?;
    dependencies(table.dependencies, origin, &place).map(Some)
}

fn describe(dependency: &Dependency) -> String {
    if dependency.variants.is_empty() {
        return dependency.version.to_string();
    }
    let variants: Vec<_> = dependency.variants.iter().map(ToString::to_string).collect();
    format!("{} ({})", dependency.version, variants.join(", "))
}

/// The `kernels` table among its neighbours. A name that is almost that, without the real one beside it, is a slip.
fn kernels_table(mut tables: toml::Table, origin: &str, place: &str) -> Result<Option<toml::Value>, ManifestError> {
    if let Some(table) = tables.remove(KERNELS) {
        return Ok(Some(table));
    }
    // A foreign tool's table may have any name; only one that holds dependencies can have been meant.
    let like_ours = |value: &toml::Value| value.get("dependencies").is_some_and(toml::Value::is_table);
    let candidates = tables.iter().filter(|(_, value)| like_ours(value)).map(|(name, _)| name.as_str());
    match nearest(KERNELS, candidates) {
        Some(near) => Err(unknown_key(origin, place.strip_suffix(".kernels").unwrap_or(place), near, KERNELS)),
        None => Ok(None),
    }
}

fn dependencies(
    declared: BTreeMap<RepoId, toml::Value>,
    origin: &str,
    place: &str,
) -> Result<Vec<Dependency>, ManifestError> {
    declared.into_iter().map(|(repo, wanted)| dependency(repo, wanted, origin, place)).collect()
}

fn dependency(repo: RepoId, wanted: toml::Value, origin: &str, place: &str) -> Result<Dependency, ManifestError> {
    let field = format!("{place}.dependencies.\"{repo}\"");
    let invalid = |reason: String| ManifestError::Invalid { origin: origin.to_owned(), field: field.clone(), reason };
    let WantedTable { version, revision, mut variants } = match wanted {
        toml::Value::Integer(number) => WantedTable {
            version: Some(u32::try_from(number).map_err(|_| invalid(format!("{number} is no version number")))?),
            revision: None,
            variants: Vec::new(),
        },
        table @ toml::Value::Table(_) => table.try_into().map_err(|error| ManifestError::Toml {
            origin: format!("{origin}: {field}"),
            format: "kernel dependency",
            source: Box::new(error),
        })?,
        other => {
            return Err(invalid(format!("expected a version number such as 1, or a table, found {other}")));
        }
    };
    let version = match (version, revision) {
        (Some(version), None) => KernelVersion::Version(version),
        (None, Some(revision)) => KernelVersion::revision(&revision).map_err(|error| invalid(error.to_string()))?,
        (Some(_), Some(_)) => return Err(invalid("`version` and `revision` exclude each other".to_owned())),
        (None, None) => return Err(invalid("expected `version` or `revision`".to_owned())),
    };
    variants.sort_unstable();
    let mut distinct = BTreeSet::new();
    if let Some(twice) = variants.iter().find(|variant| !distinct.insert(**variant)) {
        return Err(invalid(format!("the variant {twice} stands twice")));
    }
    Ok(Dependency { repo, version, variants })
}

fn unknown_key(origin: &str, place: &str, key: &str, known: &'static str) -> ManifestError {
    ManifestError::UnknownKey {
        origin: origin.to_owned(),
        place: place.to_owned(),
        key: key.to_owned(),
        known: vec![known],
    }
}

fn toml_error(origin: &str, format: &'static str, source: toml::de::Error) -> ManifestError {
    ManifestError::Toml { origin: origin.to_owned(), format, source: Box::new(source) }
}
