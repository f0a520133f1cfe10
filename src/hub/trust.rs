//! The gate in front of every kernel: the policy's decision, before anything of the kernel is fetched.

use super::{Hub, HubError};
use crate::fetch::{Revision, Session, Source};
use crate::manifest::{Pin, PinnedKernel};
use crate::names::RepoId;
use crate::policy::{Admission, Decision, Origin, Policy};

impl Hub {
    /// Who is trusted for what.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Decides whether a kernel may be taken from a place. The source is asked about the publisher only where its word
    /// counts.
    pub(super) fn admit(
        &self,
        repo: &RepoId,
        origin: &Origin,
        source: &dyn Source,
        session: &Session<'_>,
    ) -> Result<Admission, HubError> {
        match self.policy.decide(repo, origin)? {
            Decision::Admitted(admission) => Ok(admission),
            Decision::AskEndpoint(pending) => {
                let word = source.publisher_flag(repo.owner(), session)?;
                Ok(pending.answer(word)?)
            }
        }
    }

    /// Decides on a kernel from the first source that may have it.
    ///
    /// # Errors
    /// [`HubError::Policy`] when it is not admitted, [`HubError::Unknown`] when no source may have it,
    /// [`HubError::Fetch`] when the Hub does not answer.
    pub fn admission(&self, repo: &RepoId, revision: &Revision) -> Result<Admission, HubError> {
        let (cancel, cost) = (crate::fetch::Cancel::default(), crate::fetch::Cost::default());
        let session = Session::new(&*self.progress, &cancel, &cost);
        for source in self.sources_for(repo) {
            if let Some(origin) = source.origin(repo, revision)? {
                return self.admit(repo, &origin, source, &session);
            }
        }
        Err(HubError::Unknown { repo: repo.clone(), revision: revision.clone(), known: Vec::new() })
    }

    /// Decides on a locked kernel, by what it is locked to.
    pub(super) fn admit_locked(&self, kernel: &PinnedKernel, session: &Session<'_>) -> Result<Admission, HubError> {
        match kernel.pin {
            Pin::Archive(_) => self.admit(&kernel.repo, &Origin::Archive, &self.remote, session),
            Pin::Hub { .. } => self.admit_from_hub(&kernel.repo, session),
        }
    }

    /// Decides on a kernel of the Hub.
    pub(super) fn admit_from_hub(&self, repo: &RepoId, session: &Session<'_>) -> Result<Admission, HubError> {
        let origin = Origin::Hub { endpoint: self.remote.options().endpoint.clone() };
        self.admit(repo, &origin, &self.remote, session)
    }
}
