//! What parent and child tell each other: one JSON text each.

use serde::{Deserialize, Serialize};

use crate::digest::Violation;
use crate::fetch::SnapshotRecord;
use crate::verify::elf::ScanRules;

/// The largest request, in bytes.
pub(super) const MAX_REQUEST_BYTES: u64 = 1 << 20;

/// What the child is to load.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Request {
    /// Stands in front of the answer, since a library may write to standard output too.
    pub(super) mark: String,
    pub(super) snapshot: SnapshotRecord,
    pub(super) rules: ScanRules,
    /// In seconds.
    pub(super) time_limit: u64,
}

/// What became of it, from a child that lives to tell.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Answer {
    /// It is loaded. `None`: there is nothing to load in it.
    Loaded {
        /// The handshake's name.
        handshake: Option<String>,
    },
    /// It is not.
    Refused {
        /// Why, with its causes.
        reason: String,
        /// What is not as published or does not fit.
        violations: Vec<Violation>,
    },
}
