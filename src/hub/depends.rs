//! Kernels that kernels need: the `kernel-depends` of `metadata.json`.

use std::collections::HashSet;
use std::fmt;

use serde_json::Value;

use super::{Hub, HubError, Prefetched};
use crate::fetch::{Revision, Session};
use crate::manifest::Metadata;
use crate::names::RepoId;
use crate::variant::DeviceKey;

/// Deepest chain of dependencies.
const MAX_DEPTH: usize = 16;

/// One kernel that another one needs.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Dependency {
    /// The kernel.
    pub repo: RepoId,
    /// Its version, commit, branch or tag.
    pub revision: Revision,
}

impl fmt::Display for Dependency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.repo, self.revision)
    }
}

impl Dependency {
    /// Reads `{"repo-id": "owner/name", "version": 1}`, or with `"revision": "..."` in the version's place. `None`: it
    /// is neither.
    #[must_use]
    pub fn read(value: &Value) -> Option<Self> {
        let fields = value.as_object()?;
        let revision = match (fields.get("version"), fields.get("revision")) {
            (Some(version), None) => Revision::Version(u32::try_from(version.as_u64()?).ok()?),
            (None, Some(revision)) => revision.as_str()?.parse().ok()?,
            _ => return None,
        };
        Some(Self { repo: fields.get("repo-id")?.as_str()?.parse().ok()?, revision })
    }

    /// The dependencies of a build, in its order.
    ///
    /// # Errors
    /// [`HubError::Dependency`] for an entry that names no kernel.
    pub fn of(repo: &RepoId, metadata: &Metadata) -> Result<Vec<Self>, HubError> {
        let read = |value: &Value| {
            Self::read(value).ok_or_else(|| {
                let mut dependency = value.to_string();
                dependency.truncate(dependency.char_indices().nth(120).map_or(dependency.len(), |(end, _)| end));
                let reason = "expected repo-id with either version or revision".to_owned();
                HubError::Dependency { repo: repo.clone(), dependency, reason }
            })
        };
        metadata.kernel_depends.iter().map(read).collect()
    }
}

impl Hub {
    /// Fetches and verifies what a build needs, and what that needs. Loads nothing.
    pub(super) fn dependencies(
        &self,
        build: &Prefetched,
        revision: &Revision,
        device: DeviceKey,
        session: &Session<'_>,
    ) -> Result<Vec<Prefetched>, HubError> {
        let root = Dependency { repo: build.snapshot.repo().clone(), revision: revision.clone() };
        let mut brought = Vec::new();
        if !build.snapshot.metadata().kernel_depends.is_empty() {
            let mut chain = vec![root];
            let needs = Dependency::of(build.snapshot.repo(), build.snapshot.metadata())?;
            self.follow(needs, &mut chain, &mut HashSet::new(), &mut brought, device, session)?;
        }
        Ok(brought)
    }

    fn follow(
        &self,
        needs: Vec<Dependency>,
        chain: &mut Vec<Dependency>,
        met: &mut HashSet<Dependency>,
        brought: &mut Vec<Prefetched>,
        device: DeviceKey,
        session: &Session<'_>,
    ) -> Result<(), HubError> {
        for dependency in needs {
            let Some(repo) = chain.last().map(|last| last.repo.clone()) else { return Ok(()) };
            let refuse =
                |reason| HubError::Dependency { repo: repo.clone(), dependency: dependency.to_string(), reason };
            if chain.contains(&dependency) {
                let circle: Vec<_> = chain.iter().chain([&dependency]).map(ToString::to_string).collect();
                return Err(refuse(format!("a circle: {}", circle.join(" needs "))));
            }
            if chain.len() >= MAX_DEPTH {
                return Err(refuse(format!("a chain of more than {MAX_DEPTH} kernels")));
            }
            if !met.insert(dependency.clone()) {
                continue;
            }
            let failed = |source| HubError::DependencyFailed {
                repo: repo.clone(),
                dependency: dependency.to_string(),
                source: Box::new(source),
            };
            let build = self
                .find(&dependency.repo, &dependency.revision, device, session)
                .and_then(|found| self.fetch_verified(&found, session))
                .map_err(failed)?;
            let needs = Dependency::of(build.snapshot.repo(), build.snapshot.metadata())?;
            brought.push(build);
            chain.push(dependency);
            self.follow(needs, chain, met, brought, device, session)?;
            chain.pop();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Dependency;

    #[test]
    fn a_dependency_names_a_kernel_and_one_revision() {
        let read = |value| Dependency::read(&value).map(|dependency| dependency.to_string());
        assert_eq!(read(json!({"repo-id": "a/b", "version": 1})), Some("a/b@v1".to_owned()));
        assert_eq!(read(json!({"repo-id": "a/b", "revision": "main"})), Some("a/b@main".to_owned()));
        for bad in [
            json!("a/b"),
            json!({"repo-id": "a/b"}),
            json!({"repo-id": "a/b", "version": 1, "revision": "main"}),
            json!({"repo-id": "a/b", "version": "1"}),
            json!({"repo-id": "a/b", "version": -1}),
            json!({"repo-id": "../b", "version": 1}),
            json!({"repo-id": "a/b", "revision": "../x"}),
        ] {
            assert_eq!(read(bad.clone()), None, "{bad}");
        }
    }
}
