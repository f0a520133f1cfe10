//! Why a kernel is not admitted, or a policy not used.

use std::io;
use std::path::PathBuf;

use super::{Origin, PolicyFile, Word};
use crate::hint::Hint;
use crate::manifest::unknown_key_hint;
use crate::names::RepoId;

/// A kernel that the policy does not admit, or a policy that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// Nobody that the policy believes says that the publisher is trusted.
    #[error(
        "{repo} is not admitted from {origin}: its publisher {:?} is not trusted there{}; policies: {}",
        .repo.owner(),
        asked(*.word),
        list(.files)
    )]
    Untrusted {
        /// The kernel.
        repo: RepoId,
        /// Where it comes from.
        origin: Box<Origin>,
        /// What the endpoint said about the publisher. `None`: its word does not count.
        word: Option<Word>,
        /// Whether the endpoint's names count at all.
        is_believed: bool,
        /// The policies that were looked for.
        files: Vec<PolicyFile>,
        /// Where the user's policy stands or would stand.
        user: Option<PathBuf>,
    },
    /// A policy refuses the publisher or the repo.
    #[error("{repo} is refused by {}: {what} has trust = false", path.display())]
    Refused {
        /// The kernel.
        repo: RepoId,
        /// The publisher or repo in the policy.
        what: String,
        /// The policy.
        path: PathBuf,
    },
    /// A signature is required, and no policy says whose.
    #[error("{repo} needs a signature, and no policy says who signs for {:?}; policies: {}", .repo.owner(), list(.files))]
    NoSigner {
        /// The kernel.
        repo: RepoId,
        /// The policies that were looked for.
        files: Vec<PolicyFile>,
    },
    /// A policy that was named is not there.
    #[error("the policy {} is not there", path.display())]
    Absent {
        /// The file.
        path: PathBuf,
    },
    /// A file operation failed.
    #[error("cannot {action} the policy {}", path.display())]
    Io {
        /// The operation, as a verb.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// Everybody may write to the policy.
    #[error("the policy {} is writable by everybody", path.display())]
    Writable {
        /// The file.
        path: PathBuf,
    },
    /// The file is longer than any policy.
    #[error("{}: expected at most {maximum} bytes of policy", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The limit, in bytes.
        maximum: u64,
    },
    /// Not TOML, or a key, type or value that a policy does not know.
    #[error("{}: not a valid policy", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// Line, column and cause.
        #[source]
        source: Box<toml::de::Error>,
    },
    /// The file declares an edition of the format that this version does not read.
    #[error("{}: schema {found} of the policy; this version reads schema {supported}", path.display())]
    Schema {
        /// The file.
        path: PathBuf,
        /// The edition that it declares.
        found: u32,
        /// The edition that this version reads.
        supported: u32,
    },
    /// A value is outside what a policy allows.
    #[error("{}: {field}: {reason}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The field.
        field: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A project's policy would trust somebody.
    #[error(
        "{}: {field}: a project's policy cannot trust anybody, because a repository could then trust itself",
        path.display()
    )]
    ProjectTrusts {
        /// The file.
        path: PathBuf,
        /// The field.
        field: String,
    },
}

fn list(files: &[PolicyFile]) -> String {
    if files.is_empty() {
        return "none but the built-in one".to_owned();
    }
    files.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn asked(word: Option<Word>) -> &'static str {
    match word {
        Some(Word::Trusted) | None => "",
        Some(Word::NotTrusted) => ", and this Hub does not call it trusted either",
        Some(Word::Silent) => ", and this Hub does not say",
        Some(Word::NotRecorded) => ", and while offline this Hub cannot be asked (no earlier answer is on record)",
    }
}

impl Hint for PolicyError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Untrusted { repo, origin, is_believed, user, .. } => {
                Some(opt_in(repo, origin, *is_believed, user.as_deref()))
            }
            Self::Refused { path, .. } => {
                Some(format!("a refusal outweighs every trust; only who keeps {} can lift it", path.display()))
            }
            Self::NoSigner { repo, .. } => Some(format!(
                "name the signer: `kernelhub trust key {} KEY`, or `identity` in a policy; docs/policy.md shows how",
                repo.owner()
            )),
            Self::Absent { .. } => Some("KERNELHUB_POLICY names it; unset it to use the usual place".to_owned()),
            Self::Writable { path } => Some(format!("chmod o-w {}", path.display())),
            Self::Format { source, .. } => unknown_key_hint(source.message()),
            Self::Schema { found, supported, .. } if found > supported => {
                Some("update kernelhub: a newer version reads this edition".to_owned())
            }
            Self::ProjectTrusts { .. } => {
                Some("put it into your own policy, after you have looked at whom it trusts".to_owned())
            }
            _ => None,
        }
    }
}

/// How to say that a publisher is trusted, for whoever knows that it is.
fn opt_in(repo: &RepoId, origin: &Origin, is_believed: bool, user: Option<&std::path::Path>) -> String {
    let owner = repo.owner();
    let file = user.map_or_else(String::new, |path| format!(", which adds it to {}", path.display()));
    match origin {
        Origin::Hub { endpoint } if !is_believed => {
            let url = endpoint.as_str().trim_end_matches('/');
            format!(
                "no policy lists the endpoint {url}, so that its names do not count; if you know who keeps it, \
                 `kernelhub trust endpoint {url}` lists it{file}"
            )
        }
        Origin::Hub { .. } => format!(
            "its kernels run with all your rights; if you know {owner:?}, `kernelhub trust publisher {owner}` or \
             `kernelhub trust repo {repo}` says so{file}"
        ),
        Origin::Local { folder } => format!(
            "a folder can bear any name; if you know what is in it, `kernelhub trust folder {}` or `kernelhub trust repo \
             {repo} --from local` says so{file}",
            folder.display()
        ),
        Origin::Archive if owner == "kernelhub" => format!(
            "`cargo xtask fetch-kernels` signs the kernels of this project and trusts their key; for another build of them, \
             `kernelhub trust key {owner} KEY` does{file}"
        ),
        Origin::Archive => format!(
            "an archive can bear any name; `kernelhub trust key {owner} KEY` trusts what {owner:?} has signed, and \
             `kernelhub trust repo {repo} --from archive` trusts it unsigned{file}"
        ),
    }
}
