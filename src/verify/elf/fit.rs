//! What this machine and this process tell of a library.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Finding, FindingKind, ScanRules, Severity};
use crate::elf::{ElfFacts, split_version};
use crate::system::linker::{Linker, Located, SearchLists, Way, expand, read_library};

/// Most libraries that are followed from one kernel.
const MAX_LIBRARIES: usize = 1024;
/// Names that a finding shows.
const SHOWN: usize = 3;

/// A library whose needs are to be looked at.
struct Step {
    /// `None`: the kernel's own library.
    path: Option<PathBuf>,
    facts: Arc<ElfFacts>,
    /// The search lists of those that asked for it.
    inherited: Vec<PathBuf>,
}

/// Looks for every library that a kernel's needs, and that those need, and compares the versions. The findings come in
/// a stable order, the kernel's own first.
pub(crate) fn fit(path: &str, facts: &ElfFacts, linker: &Linker, rules: &ScanRules) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut add = |severity, kind| {
        if severity != Severity::Allow {
            found.push(Finding { path: path.to_owned(), kind, severity });
        }
    };
    // Where this crate may overlook a library that the linker finds, a warning is all that is honest.
    let missing = match rules.missing_libraries {
        Severity::Refuse if !Linker::knows_the_rules() => Severity::Warn,
        severity => severity,
    };
    let mut known: BTreeMap<String, Option<Located>> = BTreeMap::new();
    let mut steps =
        VecDeque::from([Step { path: None, facts: Arc::new(without_symbols(facts)), inherited: Vec::new() }]);
    while let Some(step) = steps.pop_front() {
        let who = step.path.as_ref().map_or_else(String::new, |path| format!(" (needed by {})", path.display()));
        // The kernel's own copy stands in no folder: its $ORIGIN leads nowhere.
        let origin = step.path.as_deref().and_then(Path::parent);
        let lists = SearchLists {
            rpath: [expand(&step.facts.rpath, origin), step.inherited.clone()].concat(),
            runpath: expand(&step.facts.runpath, origin),
        };
        for name in &step.facts.needed {
            if known.contains_key(name) || known.len() >= MAX_LIBRARIES {
                continue;
            }
            let located = linker.find(name, &lists);
            match &located {
                None => {
                    let asks = step.facts.rpath.iter().chain(&step.facts.runpath);
                    let beside = step.path.is_none() && asks.into_iter().any(|entry| entry.contains("ORIGIN"));
                    let why = if beside { "; $ORIGIN leads nowhere: a sealed copy is loaded, alone" } else { "" };
                    add(missing, FindingKind::MissingLibrary { library: format!("{name}{who}{why}") });
                }
                Some(Located { path, way }) => {
                    if *way == Way::OwnList && step.path.is_none() {
                        let found = path.display().to_string();
                        add(rules.own_folders, FindingKind::OwnFolder { library: name.clone(), found });
                    }
                    // What is mapped has all that it needs.
                    let facts = (*way != Way::Mapped).then(|| read_library(path)).flatten();
                    if let Some(facts) = facts {
                        steps.push_back(Step { path: Some(path.clone()), facts, inherited: lists.rpath.clone() });
                    }
                }
            }
            known.insert(name.clone(), located);
        }
        for (library, needed, newest) in missing_versions(&step.facts, &known) {
            let library = format!("{library}{who}");
            add(rules.missing_versions, FindingKind::MissingVersion { library, needed, newest });
        }
    }
    found
}

fn without_symbols(facts: &ElfFacts) -> ElfFacts {
    ElfFacts { unique: crate::elf::UniqueSymbols::default(), ..facts.clone() }
}

/// The versions that are needed and not there: of each family of each library the newest one, with the newest one that
/// is there.
fn missing_versions(
    facts: &ElfFacts,
    known: &BTreeMap<String, Option<Located>>,
) -> Vec<(String, String, Option<String>)> {
    let mut by_library: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for need in facts.needed_versions.iter().filter(|need| !need.is_weak) {
        by_library.entry(&need.library).or_default().insert(&need.version);
    }
    let mut missing = Vec::new();
    for (library, versions) in by_library {
        let Some(Some(located)) = known.get(library) else { continue };
        let Some(there) = read_library(&located.path) else { continue };
        let defined = &there.defined_versions;
        // The linker takes a library without versions for any; so does this.
        if defined.is_empty() {
            continue;
        }
        let mut families: BTreeMap<&str, (Vec<u32>, &str)> = BTreeMap::new();
        for version in versions.into_iter().filter(|version| !defined.iter().any(|there| there == version)) {
            match split_version(version) {
                Some((family, number)) => {
                    let newest = families.entry(family).or_insert_with(|| (number.clone(), version));
                    if number > newest.0 {
                        *newest = (number, version);
                    }
                }
                None => missing.push((library.to_owned(), version.to_owned(), None)),
            }
        }
        for (family, (_, version)) in families {
            let there = defined.iter().filter_map(|version| split_version(version).filter(|(of, _)| *of == family));
            let newest = there.max_by(|a, b| a.1.cmp(&b.1)).map(|(family, number)| {
                let number: Vec<_> = number.iter().map(ToString::to_string).collect();
                format!("{family}_{}", number.join("."))
            });
            missing.push((library.to_owned(), version.to_owned(), newest));
        }
    }
    missing
}

/// The symbols that a library shares with another kernel's library in this process.
pub(crate) fn shared_symbols(
    path: &str,
    facts: &ElfFacts,
    other: &ElfFacts,
    other_path: &Path,
    rules: &ScanRules,
) -> Option<Finding> {
    let shared: Vec<_> = facts.unique.names.intersection(&other.unique.names).cloned().collect();
    let severity = rules.shared_symbols;
    if shared.is_empty() || severity == Severity::Allow {
        return None;
    }
    let (count, names) = (shared.len(), shared.into_iter().take(SHOWN).collect());
    let kind = FindingKind::SharedSymbols { with: other_path.display().to_string(), count, names };
    Some(Finding { path: path.to_owned(), kind, severity })
}
