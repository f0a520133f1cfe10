//! From a name to one build of one source.

use std::sync::PoisonError;

use super::{Hub, HubError};
use crate::fetch::{Builds, FetchError, Revision, Session, Source};
use crate::hint::Hint as _;
use crate::names::RepoId;
use crate::resolve::{Request, Resolution, choose};
use crate::variant::DeviceKey;

/// A build that fits.
pub(super) struct Found<'a> {
    pub(super) source: &'a dyn Source,
    pub(super) builds: Builds,
    pub(super) chosen: usize,
    pub(super) resolution: Resolution,
}

impl Hub {
    /// The build of a kernel that fits a device best.
    pub(super) fn find(
        &self,
        repo: &RepoId,
        revision: &Revision,
        device: DeviceKey,
        session: &Session<'_>,
    ) -> Result<Found<'_>, HubError> {
        let (source, builds) = self.builds(repo, revision, session)?;
        let may_have_more = !builds.is_whole_listing && !self.options.offline;
        match self.choose(source, builds, revision, device, session) {
            // What another tool fetched does not fit.
            Err(HubError::Resolve { .. }) if may_have_more => {
                let fresh = Session { fresh_listing: true, ..*session };
                let (source, builds) = self.builds(repo, revision, &fresh)?;
                self.choose(source, builds, revision, device, session)
            }
            other => other,
        }
    }

    /// The builds of a kernel, from the first source that has it.
    pub(super) fn builds(
        &self,
        repo: &RepoId,
        revision: &Revision,
        session: &Session<'_>,
    ) -> Result<(&dyn Source, Builds), HubError> {
        for source in self.sources_for(repo) {
            if let Some(builds) = source.builds(repo, revision, session)? {
                return Ok((source, builds));
            }
        }
        let mut known = Vec::new();
        for source in self.sources_for(repo) {
            known.extend(source.versions(repo, session).unwrap_or_default().iter().map(|version| version.version));
        }
        known.sort_unstable();
        known.dedup();
        Err(HubError::Unknown { repo: repo.clone(), revision: revision.clone(), known })
    }

    /// Looks for adapters, once, where this program has a use for them.
    pub(super) fn probe_adapters(&self) {
        #[cfg(feature = "wgpu")]
        self.system.lock().unwrap_or_else(PoisonError::into_inner).probe_adapters();
    }

    /// Chooses by name, reads the metadata of what was chosen, and chooses again with what it says, until that changes
    /// nothing. A build whose metadata is broken does not hide the others.
    pub(super) fn choose<'a>(
        &'a self,
        source: &'a dyn Source,
        mut builds: Builds,
        revision: &Revision,
        device: DeviceKey,
        session: &Session<'_>,
    ) -> Result<Found<'a>, HubError> {
        let mut broken = None;
        let mut described = vec![false; builds.candidates.len()];
        loop {
            let outcome = {
                if device != DeviceKey::Cpu {
                    self.probe_adapters();
                }
                let system = self.system.lock().unwrap_or_else(PoisonError::into_inner);
                choose(&builds.candidates, &system, &Request::device(device))
            };
            let (chosen, resolution) = match outcome {
                Ok(outcome) => outcome,
                Err(source) => {
                    return Err(match broken {
                        // The one that would have fit, and why it cannot be used.
                        Some(error) => HubError::Fetch(error),
                        None => HubError::Resolve { repo: builds.repo.clone(), revision: revision.clone(), source },
                    });
                }
            };
            if described[chosen] {
                return Ok(Found { source, builds, chosen, resolution });
            }
            described[chosen] = true;
            match source.metadata(&builds, chosen, session) {
                Ok(None) => return Ok(Found { source, builds, chosen, resolution }),
                Ok(Some(metadata)) => {
                    let archs = metadata.backend.archs;
                    builds.candidates[chosen].archs = (!archs.is_empty()).then_some(archs);
                }
                Err(
                    error @ (FetchError::Metadata { .. } | FetchError::Content { .. } | FetchError::Listing { .. }),
                ) => {
                    let mut fault = error.to_string();
                    let mut cause = std::error::Error::source(&error);
                    while let Some(inner) = cause {
                        fault = format!("{fault}: {inner}");
                        cause = inner.source();
                    }
                    tracing::warn!(hint = error.hint(), "{fault}");
                    builds.notes.push(fault.clone());
                    builds.candidates[chosen].metadata_fault = Some(fault);
                    broken.get_or_insert(error);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}
