//! Tables of defaults: what a model's layers take that its own configuration does not name.
//!
//! A table holds many layers of which a model has few. Each is read when it is asked for, so that a wrong entry harms
//! nobody who has no such layer.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, OnceLock};

use serde_json::{Map, Value};

use super::{Entry, KernelConfig, parse};
use crate::fetch::Revision;
use crate::hint::Hint as _;
use crate::names::RepoId;
use crate::swap::SwapError;

/// This project's own packs; read first.
const OWN: &str = include_str!("../../../kernel-manifests/mapping/standard.toml");
/// What Transformers maps by default.
const TRANSFORMERS: &str = include_str!("../../../kernel-manifests/mapping/transformers.toml");

static STANDARD: LazyLock<Arc<DefaultTable>> = LazyLock::new(|| {
    let mut table = DefaultTable::default();
    for (origin, text) in [("the standard mapping", OWN), ("the mapping of Transformers", TRANSFORMERS)] {
        // The texts are part of this crate, and a test reads every entry.
        if let Ok(layers) = toml::from_str::<Map<String, Value>>(text) {
            table.add(origin, layers);
        }
    }
    Arc::new(table)
});

/// Layer → entry, each read when it is asked for.
#[derive(Debug, Default)]
pub(super) struct DefaultTable {
    layers: BTreeMap<String, Lazy>,
}

#[derive(Debug, Default)]
struct Lazy {
    /// The parts of the entry, by the text that they came from. They name different devices.
    parts: Vec<(String, Value)>,
    read: OnceLock<Result<Entry, String>>,
}

impl PartialEq for DefaultTable {
    fn eq(&self, other: &Self) -> bool {
        let parts = |table: &Self| -> Vec<(String, Vec<(String, Value)>)> {
            table.layers.iter().map(|(layer, lazy)| (layer.clone(), lazy.parts.clone())).collect()
        };
        std::ptr::eq(self, other) || parts(self) == parts(other)
    }
}

impl DefaultTable {
    /// The table that comes with this crate.
    pub(super) fn standard() -> &'static Arc<Self> {
        &STANDARD
    }

    /// Reads a table's text, and none of its entries. `origin` names it in reports.
    pub(super) fn from_toml(text: &str, origin: &str) -> Result<Self, SwapError> {
        let layers = toml::from_str(text)
            .map_err(|source| SwapError::ConfigToml { origin: origin.to_owned(), source: Box::new(source) })?;
        let mut table = Self::default();
        table.add(origin, layers);
        Ok(table)
    }

    fn add(&mut self, origin: &str, layers: Map<String, Value>) {
        for (layer, value) in layers {
            self.layers.entry(layer).or_default().parts.push((origin.to_owned(), value));
        }
    }

    /// The layers that the table has something for.
    pub(super) fn layers(&self) -> impl Iterator<Item = &str> {
        self.layers.keys().map(String::as_str)
    }

    /// The entry of one layer, or what is wrong with it.
    pub(super) fn entry(&self, layer: &str) -> Option<Result<&Entry, &str>> {
        let lazy = self.layers.get(layer)?;
        let entry = lazy.read.get_or_init(|| {
            let mut whole = Entry::default();
            for (origin, value) in &lazy.parts {
                let part = parse::entry(value.clone(), origin, layer).map_err(|error| match error.hint() {
                    Some(hint) => format!("{error}; {hint}"),
                    None => error.to_string(),
                })?;
                for (device, modes) in part.devices {
                    // The first table counts: this project knows its own packs better.
                    whole.devices.entry(device).or_insert(modes);
                }
            }
            Ok(whole)
        });
        Some(entry.as_ref().map_err(String::as_str))
    }
}

/// Which state of a kernel is meant where none is named.
const VERSIONS: &str = include_str!("../../../kernel-manifests/mapping/versions.toml");

static REVISIONS: LazyLock<BTreeMap<RepoId, Revision>> = LazyLock::new(|| {
    // The text is part of this crate, and a test reads it.
    let mut revisions: BTreeMap<RepoId, Revision> = toml::from_str(VERSIONS).unwrap_or_default();
    let table = DefaultTable::standard();
    let entries = table.layers().filter_map(|layer| table.entry(layer)?.ok());
    for kernel in entries.flat_map(Entry::choices).flat_map(super::Choice::kernels) {
        if let (Some(repo), Some(revision @ Revision::Version(_))) = (kernel.repo(), kernel.revision()) {
            revisions.entry(repo.clone()).or_insert_with(|| revision.clone());
        }
    }
    revisions
});

/// The state of a kernel that the default tables mean; `None`: they don't know the kernel.
pub(crate) fn default_revision(repo: &RepoId) -> Option<&'static Revision> {
    REVISIONS.get(repo)
}

/// The kernels of this project that the standard mapping names, each once, by name.
pub(crate) fn own_kernels() -> Vec<String> {
    let config = KernelConfig::from_toml(OWN, "the standard mapping").unwrap_or_default();
    let mut names: Vec<_> =
        config.kernels().into_iter().filter_map(|kernel| Some(kernel.repo()?.name().to_owned())).collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{DefaultTable, default_revision};
    use crate::fetch::Revision;
    use crate::names::RepoId;

    #[test]
    fn every_entry_of_the_standard_table_can_be_read() {
        let table = DefaultTable::standard();
        let bad: Vec<_> = table.layers().filter_map(|layer| table.entry(layer)?.err()).collect();
        assert!(bad.is_empty(), "{bad:#?}");
        assert!(table.layers().count() > 30);
    }

    #[test]
    fn both_texts_are_tables() {
        let versions = toml::from_str::<BTreeMap<RepoId, Revision>>(super::VERSIONS).unwrap();
        assert!(versions.values().any(|revision| matches!(revision, Revision::Name(_))));
        for text in [super::OWN, super::TRANSFORMERS] {
            toml::from_str::<serde_json::Map<String, serde_json::Value>>(text).unwrap();
        }
    }

    #[test]
    fn a_kernel_that_is_named_without_a_version_has_one() {
        let revision = |repo: &str| default_revision(&repo.parse().unwrap()).map(ToString::to_string);
        assert_eq!(revision("kernels-community/mamba-ssm").as_deref(), Some("v5"));
        assert_eq!(revision("kernels-community/sonic-moe").as_deref(), Some("ep-support"));
        assert_eq!(revision("kernelhub/rmsnorm").as_deref(), Some("v1"));
        // One layer's commit is no version of the kernel.
        assert_eq!(revision("Atlas-Inference/gdn"), None);
        // One kernel, one version: which of two is meant could not be told.
        let table = DefaultTable::standard();
        let entries = table.layers().filter_map(|layer| table.entry(layer)?.ok());
        for kernel in entries.flat_map(super::Entry::choices).flat_map(super::super::Choice::kernels) {
            if let (Some(repo), Some(version @ Revision::Version(_))) = (kernel.repo(), kernel.revision()) {
                assert_eq!(default_revision(repo), Some(version), "{repo}");
            }
        }
    }

    #[test]
    fn f41_a_bad_entry_is_told_when_it_is_asked_for_and_not_before() {
        let table = DefaultTable::from_toml("A = 'a/b@v1'\nB = 'nonsense'\n[C]\ncuuda = 'a/b'", "x").unwrap();
        assert!(matches!(table.entry("A"), Some(Ok(_))));
        assert!(table.entry("B").unwrap().unwrap_err().contains("x: B: \"nonsense\" names no kernel"));
        assert!(table.entry("C").unwrap().unwrap_err().ends_with("did you mean \"cuda\"?"));
        assert!(table.entry("D").is_none());
    }
}
