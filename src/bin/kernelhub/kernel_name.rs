//! A kernel as it is named on the command line.

use std::str::FromStr;

use kernelhub::fetch::Revision;
use kernelhub::names::RepoId;

/// `owner/name`, with `@` and a version, commit, branch or tag.
#[derive(Debug, Clone)]
pub(crate) struct KernelName {
    pub(crate) repo: RepoId,
    pub(crate) revision: Option<Revision>,
}

impl FromStr for KernelName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.contains(':') {
            return Err("a layer is no part of a kernel's name; leave out the part after ':'".to_owned());
        }
        let (repo, revision) = match text.split_once('@') {
            Some((repo, revision)) => (repo, Some(revision)),
            None => (text, None),
        };
        let repo = repo.parse().map_err(|error: kernelhub::names::NameError| error.to_string())?;
        let revision = revision.map(str::parse::<Revision>).transpose().map_err(|error| error.to_string())?;
        Ok(Self { repo, revision })
    }
}
