//! What other versions of a kernel have, where the one that was asked for has nothing that fits.

use serde::Serialize;

use super::interned::Interned;
use super::{Hub, HubError};
use crate::fetch::{FetchError, PublishedVersion, Revision, Session};
use crate::names::RepoId;
use crate::resolve::{BackendBuilds, Candidate, Request, resolve};
use crate::system::{SystemInfo, Table};
use crate::variant::{AnyVariant, Framework, Variant};

/// Most versions whose builds are listed: the newest ones. Each takes one request, the first time.
pub const MAX_VERSIONS_LISTED: usize = 16;

/// What another version of a kernel has for a machine, by the names of its builds alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct OtherVersion {
    /// Its number.
    pub version: u32,
    /// How many builds it has.
    pub builds: usize,
    /// The build that would be taken; `None` when none fits.
    pub fits: Option<AnyVariant>,
    /// A build that needs neither Torch nor Python, whether it fits or not; `None` when there is none.
    pub without_torch: Option<Variant>,
    /// The names of the backends that it has builds for.
    pub backends: Vec<String>,
}

/// The other versions of a kernel. [`std::fmt::Display`] gives a table.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct OtherVersions {
    /// Those whose builds could be listed, ascending by number.
    pub versions: Vec<OtherVersion>,
    /// Why there may be more to know, a sentence each; empty when every other version was looked at.
    pub not_looked_up: Vec<String>,
}

impl OtherVersions {
    /// The numbers of those that have a build that fits, ascending.
    pub fn fitting(&self) -> impl Iterator<Item = u32> {
        self.versions.iter().filter(|version| version.fits.is_some()).map(|version| version.version)
    }

    /// A sentence about those that fit: `v3 and v10 have a usable build`; `None` when there are none.
    #[must_use]
    pub fn spoken_fits(&self) -> Option<String> {
        match self.fitting().count() {
            0 => None,
            1 => Some(format!("{} has a usable build", spoken(self.fitting()))),
            _ => Some(format!("{} have a usable build", spoken(self.fitting()))),
        }
    }

    /// The numbers of those that have a build which needs neither Torch nor Python, ascending.
    pub fn without_torch(&self) -> impl Iterator<Item = u32> {
        self.versions.iter().filter(|version| version.without_torch.is_some()).map(|version| version.version)
    }
}

impl std::fmt::Display for OtherVersions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut table = Table::new(&["VERSION", "BUILDS", "FITS HERE", "WITHOUT TORCH", "BACKENDS"]);
        for version in &self.versions {
            let or_dash = |name: Option<String>| name.map_or_else(|| "-".to_owned(), |n| crate::system::printable(&n));
            table.row([
                format!("v{}", version.version),
                version.builds.to_string(),
                or_dash(version.fits.as_ref().map(ToString::to_string)),
                or_dash(version.without_torch.as_ref().map(ToString::to_string)),
                or_dash((!version.backends.is_empty()).then(|| version.backends.join(" "))),
            ]);
        }
        if !self.versions.is_empty() {
            table.fmt(f)?;
        }
        self.not_looked_up.iter().try_for_each(|why| writeln!(f, "not looked up: {}", crate::system::printable(why)))
    }
}

/// `v3`, `v3 and v10`, `v1, v3 and v10`.
pub(super) fn spoken(versions: impl Iterator<Item = u32>) -> String {
    let mut names: Vec<String> = versions.map(|version| format!("v{version}")).collect();
    match (names.pop(), names.is_empty()) {
        (None, _) => String::new(),
        (Some(last), true) => last,
        (Some(last), false) => format!("{} and {last}", names.join(", ")),
    }
}

/// The listings of a kernel's versions.
#[derive(Debug, Default)]
pub(super) struct ListedVersions {
    versions: Vec<(PublishedVersion, Vec<Candidate>)>,
    not_looked_up: Vec<String>,
}

/// What this hub has listed. A kernel's versions are listed once: a plan may ask for the same kernel for many layers.
pub(super) type VersionLists = Interned<RepoId, ListedVersions>;

impl Hub {
    /// What the other versions of a kernel have for a machine, by the names of their builds. Hops nowhere: whoever asked
    /// for a version gets that one or none.
    ///
    /// Lists each version once for all, the newest [`MAX_VERSIONS_LISTED`] at most; offline, only what is recorded.
    pub(super) fn other_versions(
        &self,
        repo: &RepoId,
        revision: &Revision,
        system: &SystemInfo,
        request: &Request,
        session: &Session<'_>,
        is_description: bool,
    ) -> OtherVersions {
        let list = || {
            let listed = self.list_versions(repo, session, is_description);
            // What was left out for this caller is there for the next one.
            if session.cancel.is_cancelled() { Err(FetchError::Cancelled) } else { Ok(listed) }
        };
        let Ok(listed) = self.version_lists.get(repo, session.cancel, list) else {
            let not_looked_up = vec![format!("the versions of {repo}: cancelled")];
            return OtherVersions { versions: Vec::new(), not_looked_up };
        };
        let is_asked = |listed: &PublishedVersion| match revision {
            Revision::Commit(commit) => listed.commit == Some(*commit),
            other => *other == Revision::Version(listed.version),
        };
        let others = listed.versions.iter().filter(|(version, _)| !is_asked(version));
        let versions = others.map(|(version, candidates)| {
            let resolution = resolve(candidates, system, request);
            OtherVersion {
                version: version.version,
                builds: candidates.len(),
                fits: resolution.chosen_decision().map(|decision| decision.variant.clone()),
                without_torch: candidates.iter().filter_map(|c| c.variant.known()).find(is_without_torch),
                backends: BackendBuilds::of(candidates).into_iter().map(|backend| backend.backend).collect(),
            }
        });
        OtherVersions { versions: versions.collect(), not_looked_up: listed.not_looked_up.clone() }
    }

    fn list_versions(&self, repo: &RepoId, session: &Session<'_>, is_description: bool) -> ListedVersions {
        // What another tool fetched may not be all that there is.
        let session = &Session { fresh_listing: !self.options.offline, ..*session };
        let mut listed = ListedVersions::default();
        let mut versions = match self.versions(repo) {
            Ok((_, versions)) => versions,
            Err(error) => {
                listed.not_looked_up.push(format!("the versions of {repo}: {}", first_line(&error)));
                return listed;
            }
        };
        if self.options.offline {
            listed.not_looked_up.push("versions that are not recorded here: this is offline".to_owned());
        }
        versions.sort_unstable();
        if let Some(beyond) = versions.len().checked_sub(MAX_VERSIONS_LISTED).filter(|beyond| *beyond > 0) {
            listed.not_looked_up.push(format!("the oldest {beyond} of {} versions", versions.len()));
            versions.drain(..beyond);
        }
        for published in versions {
            let PublishedVersion { version, commit } = published;
            if session.cancel.is_cancelled() {
                listed.not_looked_up.push(format!("v{version}: cancelled"));
                continue;
            }
            // A commit takes one request less than the version that is at it.
            let revision = commit.map_or(Revision::Version(version), Revision::Commit);
            let builds = if is_description {
                self.described_builds(repo, &revision, session).map(|(_, builds)| builds)
            } else {
                self.builds(repo, &revision, session).map(|listed| listed.builds)
            };
            match builds {
                Ok(builds) => {
                    if !builds.is_whole_listing {
                        listed.not_looked_up.push(format!("builds of v{version} that are not in the cache"));
                    }
                    listed.versions.push((published, builds.candidates));
                }
                Err(error) => listed.not_looked_up.push(format!("v{version}: {}", first_line(&error))),
            }
        }
        listed
    }
}

/// Whether a build runs without Torch and Python.
fn is_without_torch(variant: &Variant) -> bool {
    match variant {
        Variant::Arch(build) => matches!(build.framework(), Framework::TvmFfi(_)),
        Variant::Shader(_) => true,
        Variant::Noarch(_) => false,
    }
}

fn first_line(error: &HubError) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::spoken;

    #[test]
    fn numbers_are_spoken() {
        for (versions, text) in [(&[][..], ""), (&[3], "v3"), (&[3, 10], "v3 and v10"), (&[1, 3, 10], "v1, v3 and v10")]
        {
            assert_eq!(spoken(versions.iter().copied()), text);
        }
    }
}
