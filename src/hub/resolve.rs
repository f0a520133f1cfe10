//! Which build of a kernel fits a machine, without bringing it.

use super::error::resolve_hint;
use super::versions::OtherVersions;
use super::{Hub, HubError};
use crate::fetch::{Builds, Cancel, Cost, FetchError, Revision, Session, Source};
use crate::hint::{Hint as _, with_causes};
use crate::names::RepoId;
use crate::resolve::{BackendBuilds, Candidate, Request, Resolution, ResolveError};
use crate::system::SystemInfo;

/// What was decided on the builds of a kernel.
#[derive(Debug)]
#[non_exhaustive]
pub struct KernelResolution {
    /// The kernel.
    pub repo: RepoId,
    /// What was asked for.
    pub revision: Revision,
    /// The commit. `None`: the builds are archives, or a local folder.
    pub commit: Option<String>,
    /// Where it was found.
    pub source: String,
    /// The decision on every build. Architectures that a chosen build's metadata tells were compared.
    pub resolution: Resolution,
    /// The backends that there are builds for.
    pub backends: Vec<BackendBuilds>,
    /// Why nothing can be taken, with what would fit elsewhere; `None` when something was chosen.
    pub refusal: Option<ResolveError>,
    /// What other versions have; `None` when something was chosen.
    pub others: Option<OtherVersions>,
    /// What is worth reporting about how it was found, and about the machine.
    pub notes: Vec<String>,
}

impl KernelResolution {
    /// What to do when nothing fits; `None` when something was chosen.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        self.refusal.as_ref().map(|refusal| resolve_hint(&self.repo, refusal, self.others.as_ref()))
    }
}

/// What came of a choice whose metadata was read.
pub(super) enum Settled {
    /// This build, and its metadata does not contradict.
    Chosen(usize, Resolution),
    /// None; with the first build whose metadata cannot be used.
    Nothing(ResolveError, Option<FetchError>),
}

/// What chooses among candidates: a build, or why there is none.
pub(super) type Chooser<'a> = dyn FnMut(&[Candidate]) -> Result<(usize, Resolution), ResolveError> + 'a;

/// Chooses by name, reads the metadata of what was chosen, and chooses again with what it says, until that changes
/// nothing. A build whose metadata is broken does not hide the others.
pub(super) fn settle(
    source: &dyn Source,
    builds: &mut Builds,
    session: &Session<'_>,
    choose: &mut Chooser<'_>,
) -> Result<Settled, FetchError> {
    let mut broken = None;
    let mut described = vec![false; builds.candidates.len()];
    loop {
        let (chosen, resolution) = match choose(&builds.candidates) {
            Ok(outcome) => outcome,
            Err(error) => return Ok(Settled::Nothing(error, broken)),
        };
        if described[chosen] {
            return Ok(Settled::Chosen(chosen, resolution));
        }
        described[chosen] = true;
        match source.metadata(builds, chosen, session) {
            Ok(None) => return Ok(Settled::Chosen(chosen, resolution)),
            Ok(Some(metadata)) => {
                let archs = metadata.backend.archs;
                builds.candidates[chosen].archs = (!archs.is_empty()).then_some(archs);
            }
            Err(error @ (FetchError::Metadata { .. } | FetchError::Content { .. } | FetchError::Listing { .. })) => {
                let fault = with_causes(&error);
                tracing::warn!(hint = error.hint(), "{fault}");
                builds.notes.push(fault.clone());
                builds.candidates[chosen].metadata_fault = Some(fault);
                broken.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
    }
}

impl Hub {
    /// Decides on the builds of one revision of a kernel, for the machine that `system` describes once the builds are
    /// known, and brings none of them. Of the builds, the metadata of those that would be taken is read. Where none
    /// fits, the kernel's other versions are listed. Whoever the publisher is: nothing of this can be loaded.
    ///
    /// # Errors
    /// [`HubError`] when no source has the revision, or it cannot be asked. That nothing fits is no error here.
    pub fn resolve(
        &self,
        repo: &RepoId,
        revision: &Revision,
        request: &Request,
        system: impl FnOnce(&[Candidate]) -> SystemInfo,
    ) -> Result<KernelResolution, HubError> {
        let (cancel, cost) = (Cancel::default(), Cost::default());
        let session = self.asking(&cancel, &cost);
        let (source, mut builds) = self.described_builds(repo, revision, &session)?;
        let system = system(&builds.candidates);
        let settled = settle(source, &mut builds, &session, &mut |candidates| {
            crate::resolve::choose(candidates, &system, request)
        })?;
        let (resolution, refusal) = match settled {
            Settled::Chosen(_, resolution) => (resolution, None),
            Settled::Nothing(error, _) => (crate::resolve::resolve(&builds.candidates, &system, request), Some(error)),
        };
        let report = KernelResolution {
            repo: repo.clone(),
            revision: revision.clone(),
            commit: builds.commit().map(|commit| commit.to_string()),
            source: source.name(),
            backends: BackendBuilds::of(&builds.candidates),
            resolution,
            refusal,
            others: None,
            notes: builds.notes.iter().chain(&system.notes).cloned().collect(),
        };
        // Its lock ends here: a version's is taken one at a time.
        drop(builds);
        let others =
            report.refusal.as_ref().map(|_| self.other_versions(repo, revision, &system, request, &session, true));
        Ok(KernelResolution { others, ..report })
    }
}
