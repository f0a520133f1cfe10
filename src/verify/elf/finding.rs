//! What the scan found.

use std::fmt;

use super::Severity;
use crate::digest::{Violation, ViolationKind};

/// One thing that the scan found in a library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The library, relative to the build's folder.
    pub path: String,
    /// What it is.
    pub kind: FindingKind,
    /// What the rules say to it.
    pub severity: Severity,
}

/// What the scan can find.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum FindingKind {
    /// The file is no library that a linker should be given.
    Malformed {
        /// What is wrong with it.
        reason: String,
    },
    /// It is for another processor, or for 32 bits.
    Machine {
        /// The machine that the build's name states.
        expected: String,
        /// The file's.
        actual: String,
    },
    /// It asks for a stack whose bytes can be executed.
    ExecutableStack,
    /// Its code is written to while it is loaded.
    TextRelocations,
    /// It has a segment that is both writable and executable.
    WritableCode,
    /// It defines symbols that the whole process shares.
    UniqueSymbols {
        /// How many.
        count: usize,
        /// The first few.
        names: Vec<String>,
    },
    /// It defines symbols that the whole process shares and that a kernel in the process has already: they are one.
    SharedSymbols {
        /// The kernel's library that has them already.
        with: String,
        /// How many.
        count: usize,
        /// The first few.
        names: Vec<String>,
    },
    /// It names a place to search from which any file might be loaded.
    SearchPath {
        /// The entry, or the name of a library that is a path.
        entry: String,
    },
    /// A library that it needs was found in a folder that it names itself.
    OwnFolder {
        /// The library.
        library: String,
        /// Where it was found.
        found: String,
    },
    /// A library that it needs is not on this machine.
    MissingLibrary {
        /// The library, and who needs it where that is not the kernel itself.
        library: String,
    },
    /// A library that it needs is there, and too old.
    MissingVersion {
        /// The library.
        library: String,
        /// The version that it needs.
        needed: String,
        /// The newest one of its family that is there. `None`: there is none of that family.
        newest: Option<String>,
    },
    /// Something that a linker allows and no kernel has a use for.
    Oddity {
        /// What.
        what: String,
    },
}

impl Finding {
    /// The same as a violation, for reports that list both.
    #[must_use]
    pub fn violation(&self) -> Violation {
        let list = |count: &usize, names: &[String]| {
            let more = if names.len() < *count { ", ..." } else { "" };
            format!("{count}: {}{more}", names.join(", "))
        };
        let (kind, expected, actual) = match &self.kind {
            FindingKind::Malformed { reason } => (ViolationKind::LibraryMalformed, None, Some(reason.clone())),
            FindingKind::Machine { expected, actual } => {
                (ViolationKind::MachineMismatch, Some(expected.clone()), Some(actual.clone()))
            }
            FindingKind::ExecutableStack => (ViolationKind::ExecutableStack, None, None),
            FindingKind::TextRelocations => (ViolationKind::TextRelocations, None, None),
            FindingKind::WritableCode => (ViolationKind::WritableCode, None, None),
            FindingKind::UniqueSymbols { count, names } => {
                (ViolationKind::UniqueSymbols, None, Some(list(count, names)))
            }
            FindingKind::SharedSymbols { with, count, names } => {
                (ViolationKind::SharedSymbols, None, Some(format!("{}, also in {with}", list(count, names))))
            }
            FindingKind::SearchPath { entry } => (ViolationKind::SearchPath, None, Some(format!("{entry:?}"))),
            FindingKind::OwnFolder { library, found } => {
                (ViolationKind::SearchPath, None, Some(format!("{library}, which is {found}")))
            }
            FindingKind::MissingLibrary { library } => (ViolationKind::LibraryMissing, Some(library.clone()), None),
            FindingKind::MissingVersion { library, needed, newest } => {
                let here = newest.as_ref().map_or_else(|| "no such version".to_owned(), Clone::clone);
                (ViolationKind::LibraryTooOld, Some(format!("{here} ({library})")), Some(needed.clone()))
            }
            FindingKind::Oddity { what } => (ViolationKind::LibraryOddity, None, Some(what.clone())),
        };
        Violation { kind, path: self.path.clone(), expected, actual }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.violation().fmt(f)
    }
}
