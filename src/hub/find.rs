//! From a name to one build of one source.

use std::collections::BTreeSet;
use std::sync::PoisonError;

use super::resolve::{Settled, settle};
use super::{Hub, HubError};
use crate::fetch::{Builds, FetchError, Revision, Session, Source};
use crate::names::RepoId;
use crate::policy::{Admission, Origin, OriginKind, PolicyError};
use crate::resolve::{Request, Resolution};
use crate::variant::DeviceKey;

/// The builds of a kernel that the policy admits.
#[derive(Clone)]
pub(super) struct Listed<'a> {
    pub(super) source: &'a dyn Source,
    pub(super) builds: Builds,
    pub(super) admission: Admission,
}

/// A build that fits.
pub(super) struct Found<'a> {
    pub(super) source: &'a dyn Source,
    pub(super) builds: Builds,
    pub(super) admission: Admission,
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
        let listed = self.builds(repo, revision, session)?;
        let may_have_more = !listed.builds.is_whole_listing && !self.options.offline;
        let found = match self.choose(listed, revision, device, session) {
            // What another tool fetched does not fit.
            Err(HubError::Resolve { .. }) if may_have_more => {
                let fresh = Session { fresh_listing: true, ..*session };
                let listed = self.builds(repo, revision, &fresh)?;
                self.choose(listed, revision, device, session)
            }
            other => other,
        };
        found.map_err(|error| self.with_other_versions(error, device, session))
    }

    /// An error that nothing fits, with what other versions of the kernel have for the device.
    pub(super) fn with_other_versions(&self, error: HubError, device: DeviceKey, session: &Session<'_>) -> HubError {
        let HubError::Resolve { repo, revision, source, others: None } = error else { return error };
        // A copy: the versions are listed without the machine's lock.
        let system = {
            let mut machine = self.machine.lock().unwrap_or_else(PoisonError::into_inner);
            machine.with(device).clone()
        };
        let others = self.other_versions(&repo, &revision, &system, &Request::device(device), session, false);
        HubError::Resolve { repo, revision, source, others: Some(Box::new(others)) }
    }

    /// The builds of a kernel, from the first source that has it. Before a source is asked, the policy decides.
    pub(super) fn builds(
        &self,
        repo: &RepoId,
        revision: &Revision,
        session: &Session<'_>,
    ) -> Result<Listed<'_>, HubError> {
        let gate = |source: &dyn Source, origin: &Origin| self.admit(repo, origin, source, session);
        let (source, builds, admission) = self.first_source(repo, revision, session, &gate)?;
        Ok(Listed { source, builds, admission })
    }

    /// As [`Self::builds`], for descriptions: whoever the publisher is. What comes out cannot be verified.
    pub(super) fn described_builds(
        &self,
        repo: &RepoId,
        revision: &Revision,
        session: &Session<'_>,
    ) -> Result<(&dyn Source, Builds), HubError> {
        let (source, builds, ()) = self.first_source(repo, revision, session, &|_, _| Ok(()))?;
        Ok((source, builds))
    }

    fn first_source<T>(
        &self,
        repo: &RepoId,
        revision: &Revision,
        session: &Session<'_>,
        gate: &dyn Fn(&dyn Source, &Origin) -> Result<T, HubError>,
    ) -> Result<(&dyn Source, Builds, T), HubError> {
        for source in self.sources_for(repo) {
            let Some(origin) = source.origin(repo, revision)? else { continue };
            let passed = match gate(source, &origin) {
                Ok(passed) => passed,
                // Offline, versions that are here by another way say more than whom the Hub was not asked about.
                Err(error @ HubError::Policy(PolicyError::Untrusted { .. })) if self.options.offline => {
                    let earlier = self.sources_for(repo).take_while(|other| other.name() != source.name());
                    let known: BTreeSet<u32> = earlier
                        .flat_map(|other| other.versions(repo, session).unwrap_or_default())
                        .map(|version| version.version)
                        .collect();
                    if known.is_empty() || origin.kind() != OriginKind::Hub {
                        return Err(error);
                    }
                    let known = known.into_iter().collect();
                    return Err(HubError::Unknown { repo: repo.clone(), revision: revision.clone(), known });
                }
                Err(error) => return Err(error),
            };
            match source.builds(repo, revision, session) {
                Ok(Some(builds)) => return Ok((source, builds, passed)),
                Ok(None) => {}
                // Other versions that are here say more than that this one cannot be asked for.
                Err(error @ FetchError::Offline { .. }) => match self.known_versions(repo, session) {
                    known if known.is_empty() => return Err(error.into()),
                    known => return Err(HubError::Unknown { repo: repo.clone(), revision: revision.clone(), known }),
                },
                Err(error) => return Err(error.into()),
            }
        }
        let known = self.known_versions(repo, session);
        Err(HubError::Unknown { repo: repo.clone(), revision: revision.clone(), known })
    }

    /// The versions that can be listed now, ascending.
    fn known_versions(&self, repo: &RepoId, session: &Session<'_>) -> Vec<u32> {
        let versions = self.sources_for(repo).flat_map(|source| source.versions(repo, session).unwrap_or_default());
        versions.map(|version| version.version).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Chooses by name, reads the metadata of what was chosen, and chooses again with what it says, until that changes
    /// nothing. A build whose metadata is broken does not hide the others.
    pub(super) fn choose<'a>(
        &'a self,
        listed: Listed<'a>,
        revision: &Revision,
        device: DeviceKey,
        session: &Session<'_>,
    ) -> Result<Found<'a>, HubError> {
        let Listed { source, mut builds, admission } = listed;
        let settled = settle(source, &mut builds, session, &mut |candidates| {
            let mut machine = self.machine.lock().unwrap_or_else(PoisonError::into_inner);
            machine.choose(candidates, device)
        })?;
        match settled {
            Settled::Chosen(chosen, resolution) => Ok(Found { source, builds, admission, chosen, resolution }),
            // The one that would have fit, and why it cannot be used.
            Settled::Nothing(_, Some(error)) => Err(HubError::Fetch(error)),
            Settled::Nothing(source, None) => {
                Err(HubError::Resolve { repo: builds.repo.clone(), revision: revision.clone(), source, others: None })
            }
        }
    }
}
