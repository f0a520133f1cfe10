//! Checking what the cache has of one kernel, without loading it.

use std::sync::PoisonError;

use super::{Hub, HubError};
use crate::digest::{Violation, ViolationKind};
use crate::fetch::{CacheEntry, EntryState, Revision};
use crate::manifest::METADATA_FILE;
use crate::names::RepoId;
use crate::resolve::{Candidate, Request, Verdict, resolve};
use crate::system::linker::Linker;
use crate::variant::AnyVariant;
use crate::verify::elf::{Finding, Severity};
use crate::verify::{VerifyError, inspect_with};

use super::Selection;

/// A cached build that was read and hashed.
#[derive(Debug)]
pub struct VerifiedBuild {
    /// The entry of the cache.
    pub entry: CacheEntry,
    /// Everything that is not as published, or that keeps the build from being loaded; in a stable order.
    pub violations: Vec<Violation>,
    /// What the scan of its libraries warns of.
    pub warnings: Vec<Violation>,
    /// Why it could not be looked at to the end, where that is no violation: a file that cannot be read, say.
    pub fault: Option<VerifyError>,
    /// How many files were hashed, `metadata.json` not counted. 0: it was not looked at to the end.
    pub files: usize,
    /// The bytes of those files.
    pub bytes: u64,
}

impl VerifiedBuild {
    /// Whether the build is whole, as published, and may be loaded.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.violations.is_empty() && self.fault.is_none()
    }
}

impl Hub {
    /// Reads and hashes the builds of a kernel that the cache has, and scans their libraries. Loads nothing, changes
    /// nothing, makes no request. Of builds that fit this machine, what they need of it is looked for, too.
    ///
    /// # Errors
    /// [`HubError::NotCached`] when the cache has no such build, [`HubError::Fetch`] when it cannot be listed. What is
    /// wrong with a build is in the result.
    pub fn verify_cached(
        &self,
        repo: &RepoId,
        revision: &Revision,
        selection: Selection,
    ) -> Result<Vec<VerifiedBuild>, HubError> {
        let mut entries = self.cache.inventory()?;
        entries.retain(|entry| entry.variant.is_some() && is_of(entry, repo, revision));
        let named: Vec<AnyVariant> = entries.iter().filter_map(|entry| entry.variant.clone()).collect();
        let candidates: Vec<_> =
            named.into_iter().enumerate().map(|(index, variant)| Candidate::new(variant, index)).collect();
        let fitting: Vec<usize> = {
            let mut machine = self.machine.lock().unwrap_or_else(PoisonError::into_inner);
            let resolution = resolve(&candidates, machine.with_all_for(&candidates), &Request::any());
            let fits =
                resolution.decisions.iter().filter(|decision| !matches!(decision.verdict, Verdict::Rejected { .. }));
            fits.map(|decision| decision.candidate).collect()
        };
        let linker = Linker::of_this_process();
        let (mut checked, mut others) = (Vec::new(), 0);
        for (index, entry) in entries.into_iter().enumerate() {
            let fits = fitting.contains(&index);
            if fits || selection == Selection::AllVariants {
                checked.push(self.check(entry, fits.then_some(&linker)));
            } else {
                others += 1;
            }
        }
        if checked.is_empty() {
            return Err(HubError::NotCached { repo: repo.clone(), revision: revision.clone(), others });
        }
        Ok(checked)
    }

    fn check(&self, entry: CacheEntry, linker: Option<&Linker>) -> VerifiedBuild {
        let mut build =
            VerifiedBuild { entry, violations: Vec::new(), warnings: Vec::new(), fault: None, files: 0, bytes: 0 };
        let Some(snapshot) = &build.entry.snapshot else {
            build.violations = incomplete(&build.entry);
            return build;
        };
        // What the policy refuses beside the program's own rules, a load would refuse.
        let options = self.verify.clone().rules(self.verify.rules.with_policy(self.policy.elf()));
        match inspect_with(snapshot, &options) {
            Ok(verified) => {
                (build.files, build.bytes) = (verified.files(), verified.bytes());
                let fit = linker.map(|linker| verified.fit(linker)).unwrap_or_default();
                let (refused, warned): (Vec<_>, Vec<_>) =
                    verified.findings().iter().chain(&fit).partition(|finding| finding.severity == Severity::Refuse);
                let violations = |found: Vec<&Finding>| found.into_iter().map(Finding::violation).collect();
                (build.violations, build.warnings) = (violations(refused), violations(warned));
            }
            Err(error) if !error.violations().is_empty() => build.violations = error.violations().to_vec(),
            Err(error) => build.fault = Some(error),
        }
        build
    }
}

/// Whether an entry is of a revision of a kernel. The record of what a branch was at counts beside what the metadata
/// says, which may be damaged.
fn is_of(entry: &CacheEntry, repo: &RepoId, revision: &Revision) -> bool {
    entry.repo.as_ref() == Some(repo)
        && match revision {
            Revision::Version(version) => {
                entry.version == Some(*version) || entry.refs.contains(&format!("v{version}"))
            }
            Revision::Commit(commit) => entry.revision.as_deref() == Some(&*commit.to_string()),
            Revision::Name(name) => entry.refs.iter().any(|known| known == name.as_str()),
        }
}

/// What a build lacks that is no whole one.
fn incomplete(entry: &CacheEntry) -> Vec<Violation> {
    let violation = |kind, path: &str, actual| Violation { kind, path: path.to_owned(), expected: None, actual };
    match &entry.state {
        EntryState::Partial { missing } if !missing.is_empty() => {
            missing.iter().map(|path| violation(ViolationKind::FileMissing, path, None)).collect()
        }
        EntryState::Foreign { reason } if entry.path.join(METADATA_FILE).is_file() => {
            vec![violation(ViolationKind::MetadataMismatch, METADATA_FILE, Some(reason.clone()))]
        }
        _ => vec![violation(ViolationKind::FileMissing, METADATA_FILE, None)],
    }
}
