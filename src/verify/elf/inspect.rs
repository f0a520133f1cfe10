//! What a library's file tells by itself.

use object::elf::{EM_AARCH64, EM_X86_64};

use super::{Finding, FindingKind, ScanRules, Severity};
use crate::elf::ElfFacts;
use crate::variant::{Arch, Os, Variant};

/// Names that a finding shows.
const SHOWN: usize = 3;

/// Whether libraries of a build are ELF files. A build without a system is compiled on none; a library in it is looked
/// at all the same.
pub(in crate::verify) fn is_scanned(variant: &Variant) -> bool {
    match variant {
        Variant::Arch(build) => build.os() == Os::Linux,
        _ => true,
    }
}

/// The findings of one library of a build, in a stable order.
pub(in crate::verify) fn inspect(path: &str, facts: &ElfFacts, variant: &Variant, rules: &ScanRules) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut add = |severity, kind| {
        if severity != Severity::Allow {
            found.push(Finding { path: path.to_owned(), kind, severity });
        }
    };
    if let Variant::Arch(build) = variant {
        let expected = machine_of(build.arch());
        if facts.bits != 64 || !facts.is_little_endian || facts.machine != expected {
            let kind = FindingKind::Machine { expected: build.arch().to_string(), actual: describe(facts) };
            add(Severity::Refuse, kind);
            // Nothing else was read of some of these, and nothing else matters.
            return found;
        }
    }
    if !facts.is_shared_object {
        add(Severity::Refuse, FindingKind::Malformed { reason: "it is no shared library but a program".to_owned() });
    }
    if let Some(what) = facts.lacks {
        add(
            Severity::Refuse,
            FindingKind::Malformed { reason: format!("it has no {}", what.trim_start_matches("a ")) },
        );
    }
    if facts.has_executable_stack {
        add(rules.executable_stack, FindingKind::ExecutableStack);
    }
    if facts.has_text_relocations {
        add(rules.text_relocations, FindingKind::TextRelocations);
    }
    if facts.has_writable_code {
        add(rules.writable_code, FindingKind::WritableCode);
    }
    for entry in facts.rpath.iter().chain(&facts.runpath) {
        // An entry with a token at its start is absolute once the token is replaced.
        if !entry.starts_with('/') && !entry.starts_with("$ORIGIN") && !entry.starts_with("${ORIGIN}") {
            add(rules.search_paths, FindingKind::SearchPath { entry: entry.clone() });
        }
    }
    for library in &facts.needed {
        // A path goes past the search, and a number would be an open file beside the sealed copy.
        if library.contains(['/', '$']) || library.is_empty() || library.bytes().all(|byte| byte.is_ascii_digit()) {
            add(rules.search_paths, FindingKind::SearchPath { entry: library.clone() });
        }
    }
    for filter in &facts.filters {
        let severity = rules.search_paths.max(rules.oddities);
        add(severity, FindingKind::Oddity { what: format!("a filter, which loads {filter} in its place") });
    }
    if facts.has_preinit {
        add(rules.oddities, FindingKind::Oddity { what: "pre-initialisers, which only a program has".to_owned() });
    }
    if facts.has_static_tls {
        let what = "static thread storage, which may be used up when it is loaded".to_owned();
        add(rules.oddities, FindingKind::Oddity { what });
    }
    if facts.unique.count > 0 {
        let names = facts.unique.names.iter().take(SHOWN).cloned().collect();
        add(rules.unique_symbols, FindingKind::UniqueSymbols { count: facts.unique.count, names });
    }
    found
}

fn machine_of(arch: Arch) -> u16 {
    match arch {
        Arch::X86_64 => EM_X86_64.0,
        Arch::Aarch64 => EM_AARCH64.0,
    }
}

fn describe(facts: &ElfFacts) -> String {
    let known = Arch::ALL.into_iter().find(|arch| machine_of(*arch) == facts.machine);
    let machine = known.map_or_else(|| format!("machine {}", facts.machine), |arch| arch.to_string());
    let order = if facts.is_little_endian { "" } else { ", big-endian" };
    format!("{machine}, {} bits{order}", facts.bits)
}
