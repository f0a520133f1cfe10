//! What can go wrong between this machine and an OCI registry.

use std::io;
use std::path::PathBuf;

use crate::digest::Sha256Digest;
use crate::hint::Hint;
use crate::manifest::ManifestError;

/// A pull or a push that failed. A pull that fails leaves nothing in the cache.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OciError {
    /// A text that is no reference.
    #[error("not an OCI reference: {value:?}: {reason}")]
    Reference {
        /// The text as it arrived, without credentials.
        value: String,
        /// The rule that it breaks.
        reason: &'static str,
    },
    /// A reference that must name one artifact has neither a tag nor a digest.
    #[error("{reference} names no version")]
    NoVersion {
        /// The reference.
        reference: String,
    },
    /// A push to something other than the version's own tag.
    #[error("{reference}: expected the tag {expected}, which is the kernel's version")]
    WrongTag {
        /// Where the kernel was to be pushed.
        reference: String,
        /// The tag of its version.
        expected: String,
    },
    /// This program was compiled without the feature `oci`.
    #[error("{reference}: OCI registries need the feature oci, which this program was compiled without")]
    FeatureOff {
        /// The reference.
        reference: String,
    },
    /// The HTTP client or its runtime could not be made.
    #[error("cannot start the HTTP client")]
    Client {
        /// What failed.
        #[source]
        source: io::Error,
    },
    /// No answer, or an answer that broke off.
    #[error("{url}: the transfer failed after {bytes} bytes")]
    Transport {
        /// What was asked for.
        url: String,
        /// Bytes of the body that had arrived.
        bytes: u64,
        /// What failed.
        #[source]
        source: reqwest::Error,
    },
    /// A redirect that is not followed: to plain http off this machine, to a foreign scheme, or too many.
    #[error("{url}: a redirect is refused")]
    Redirect {
        /// What was asked for.
        url: String,
        /// Where it led, and why that is refused.
        #[source]
        source: reqwest::Error,
    },
    /// The registry has no such artifact or blob.
    #[error("{url}: the registry has no such {what}")]
    NotFound {
        /// What was asked for.
        url: String,
        /// `artifact` or `blob`.
        what: &'static str,
    },
    /// The registry wants a login, or does not accept the one that it was given.
    #[error("{registry} refuses {login}")]
    Unauthorized {
        /// The registry.
        registry: String,
        /// As whom it was asked.
        login: Login,
    },
    /// The registry sends logins to a server over plain http.
    #[error("{registry} wants the login sent to {realm}, over plain http")]
    InsecureLogin {
        /// The registry.
        registry: String,
        /// Where it wants the login.
        realm: String,
    },
    /// The Docker config file cannot be used.
    #[error("{}: cannot read a login for {registry} from it: {reason}", path.display())]
    DockerConfig {
        /// The file.
        path: PathBuf,
        /// The registry that wants a login.
        registry: String,
        /// What is wrong with the file. Never its content.
        reason: String,
    },
    /// The registry sent an answer that the client cannot work with, such as a token that no header can hold.
    #[error("{registry} sent an answer that cannot be used")]
    Unusable {
        /// The registry.
        registry: String,
    },
    /// The registry answered with another status.
    #[error("{url}: expected HTTP status 200, got {status}{}", detail(.message))]
    Status {
        /// What was asked for.
        url: String,
        /// The status.
        status: u16,
        /// The registry's own words, escaped and cut. Empty: none.
        message: String,
    },
    /// More bytes came than the descriptor declares, or than this version accepts. The rest was not read.
    #[error("{url}: expected at most {maximum} bytes, got more")]
    TooLong {
        /// What was asked for.
        url: String,
        /// The limit, in bytes.
        maximum: u64,
    },
    /// The bytes are not those of the digest that they were asked for by, or that the registry states for them.
    #[error("{url}: expected sha256 {expected}, got {actual} over {bytes} bytes")]
    Digest {
        /// What was asked for.
        url: String,
        /// The digest that they should have.
        expected: Sha256Digest,
        /// The digest that they have.
        actual: Sha256Digest,
        /// How many came.
        bytes: u64,
    },
    /// What stands there is no kernel of ours, or one whose parts contradict each other.
    #[error("{reference} is no kernel: {reason}")]
    NotAKernel {
        /// The artifact.
        reference: String,
        /// What was expected, and what was found.
        reason: String,
    },
    /// The artifact's kernel manifest cannot be used.
    #[error("{reference}: the kernel manifest in it cannot be used")]
    Manifest {
        /// The artifact.
        reference: String,
        /// What is wrong with it.
        #[source]
        source: ManifestError,
    },
    /// The version is there already, with another content.
    #[error("{reference} is there already with another content: sha256 {existing}, this one is sha256 {pushed}")]
    Conflict {
        /// The version's place.
        reference: String,
        /// The digest of the artifact that is there.
        existing: Sha256Digest,
        /// The digest of the artifact that was to be pushed.
        pushed: Sha256Digest,
    },
    /// A file operation failed.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// The operation, as a verb.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// The registry's answer to a login or an upload was an error, or outside the protocol.
    #[cfg(feature = "oci")]
    #[error("{reference}: the registry did not accept {action}")]
    Protocol {
        /// What was pushed.
        reference: String,
        /// The step.
        action: &'static str,
        /// What happened.
        #[source]
        source: Box<oci_client::errors::OciDistributionError>,
    },
}

/// As whom a registry was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Login {
    /// Nobody: the Docker config file has no login for the registry, or there is no such file.
    Anonymous,
    /// Nobody: the Docker config file leaves the login to a helper program or holds an identity token, and neither is
    /// supported.
    Unsupported,
    /// The user that the Docker config file names.
    Configured,
}

impl std::fmt::Display for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Anonymous | Self::Unsupported => "anonymous access",
            Self::Configured => "the login of the Docker config file",
        })
    }
}

fn detail(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(": {message}") }
}

impl Hint for OciError {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Reference { .. } => {
                Some("write oci://host[:port]/path/name:v1, or @sha256:<digest> at the end".to_owned())
            }
            Self::NoVersion { reference } => Some(format!("write {reference}:v1, or @sha256:<digest> at the end")),
            Self::WrongTag { .. } => Some("leave out the tag".to_owned()),
            Self::FeatureOff { .. } => Some("compile with --features oci".to_owned()),
            Self::NotFound { what: "artifact", .. } => {
                Some("check the path and the tag; kernels are tagged by their version, such as v1".to_owned())
            }
            Self::Unauthorized { login: Login::Unsupported, registry } => Some(format!(
                "the Docker config keeps the login of {registry} in a helper or as an identity token, which kernelhub \
                 does not read; put user and password under auths in a config of its own, and name its folder by \
                 DOCKER_CONFIG"
            )),
            Self::Unauthorized { registry, .. } => {
                Some(format!("log in with `docker login {registry}` or `oras login {registry}`"))
            }
            Self::InsecureLogin { .. } => Some("the registry has to name an https address for logins".to_owned()),
            Self::Transport { .. } | Self::Status { status: 429 | 500..=599, .. } => Some(
                "the registry or the network failed; try again. Registries off this machine are spoken to over \
                      https only"
                    .to_owned(),
            ),
            Self::Digest { .. } | Self::TooLong { .. } => {
                Some("the registry or something before it changes content; do not use it".to_owned())
            }
            Self::Manifest { source, .. } => source.hint(),
            Self::Conflict { .. } => {
                Some("publish it as a new version; with --replace, machines that have the old one keep it".to_owned())
            }
            _ => None,
        }
    }
}
