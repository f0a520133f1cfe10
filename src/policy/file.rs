//! The format of a policy file, schema 1. docs/policy.md describes it to users.

use std::path::{Path, PathBuf};

use reqwest::Url;
use serde::Deserialize;

use super::{Identity, Level, OriginKind, PolicyError, PublicKey, Severity, SignatureMode};
use crate::digest::Sha256Digest;
use crate::names::RepoId;

const SCHEMA: u32 = 1;

/// One file, parsed.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Text {
    schema: u32,
    /// How signatures are met. Absent: this file does not say.
    pub(super) signature: Option<SignatureMode>,
    /// A Sigstore trust root in the place of the embedded one.
    pub(super) sigstore_root: Option<RootFile>,
    #[serde(default)]
    pub(super) elf: Elf,
    #[serde(default)]
    pub(super) endpoint: Vec<Endpoint>,
    #[serde(default)]
    pub(super) folder: Vec<Folder>,
    #[serde(default)]
    pub(super) publisher: Vec<Publisher>,
    #[serde(default)]
    pub(super) repo: Vec<Repo>,
}

/// A trust root, and the digest that makes it this one whatever becomes of the file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RootFile {
    /// Absolute, or beside the policy file.
    pub(super) path: PathBuf,
    pub(super) sha256: Sha256Digest,
}

/// Absent: this file does not say.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Elf {
    pub(super) exec_stack: Option<Severity>,
    pub(super) text_relocations: Option<Severity>,
    pub(super) gnu_unique: Option<Severity>,
}

/// A Hub whose names are believed.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Endpoint {
    #[serde(deserialize_with = "url")]
    pub(super) url: Url,
    /// Whether a publisher that it calls trusted is.
    #[serde(default)]
    pub(super) accept_publisher_flags: bool,
}

fn url<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Url, D::Error> {
    let text = String::deserialize(deserializer)?;
    Url::parse(&text).map_err(serde::de::Error::custom)
}

/// A folder of this machine, with all below it, whose kernels are trusted under whatever name.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Folder {
    /// Absolute.
    pub(super) path: PathBuf,
}

/// What is said about a publisher or a repo.
#[derive(Debug, Clone, Default)]
pub(super) struct Terms {
    /// Yes: without a signature, too. No: never. Absent: by a signature of the signers that are named.
    pub(super) trust: Option<bool>,
    /// Where `trust = true` holds. Absent: on the Hub.
    pub(super) from: Option<Vec<OriginKind>>,
    pub(super) signature: Option<SignatureMode>,
    pub(super) keys: Vec<PublicKey>,
    pub(super) identity: Option<Identity>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Publisher {
    pub(super) name: String,
    trust: Option<bool>,
    from: Option<Vec<OriginKind>>,
    signature: Option<SignatureMode>,
    #[serde(default)]
    keys: Vec<PublicKey>,
    identity: Option<Identity>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Repo {
    pub(super) name: RepoId,
    trust: Option<bool>,
    from: Option<Vec<OriginKind>>,
    signature: Option<SignatureMode>,
    #[serde(default)]
    keys: Vec<PublicKey>,
    identity: Option<Identity>,
}

impl Publisher {
    pub(super) fn terms(self) -> Terms {
        let Self { trust, from, signature, keys, identity, .. } = self;
        Terms { trust, from, signature, keys, identity }
    }
}

impl Repo {
    pub(super) fn terms(self) -> Terms {
        let Self { trust, from, signature, keys, identity, .. } = self;
        Terms { trust, from, signature, keys, identity }
    }
}

impl Text {
    /// Parses a policy and holds it to what its level may say.
    pub(super) fn parse(text: &str, level: Level, path: &Path) -> Result<Self, PolicyError> {
        let parsed: Self = toml::from_str(text)
            .map_err(|source| PolicyError::Format { path: path.to_path_buf(), source: Box::new(source) })?;
        if parsed.schema != SCHEMA {
            return Err(PolicyError::Schema { path: path.to_path_buf(), found: parsed.schema, supported: SCHEMA });
        }
        parsed.check_fields(path)?;
        if level == Level::Project {
            parsed.check_only_tightens(path)?;
        }
        Ok(parsed)
    }

    /// Every publisher and repo with what is said about it, by the field's name.
    fn all_terms(&self) -> impl Iterator<Item = (String, Terms)> {
        let publishers = self.publisher.iter().cloned().map(|p| (format!("publisher {:?}", p.name), p.terms()));
        let repos = self.repo.iter().cloned().map(|r| (format!("repo {:?}", r.name.to_string()), r.terms()));
        publishers.chain(repos)
    }

    fn check_fields(&self, path: &Path) -> Result<(), PolicyError> {
        let refuse = |field: String, reason: &str| {
            Err(PolicyError::Invalid { path: path.to_path_buf(), field, reason: reason.to_owned() })
        };
        for publisher in &self.publisher {
            // The rules of a repo's owner, so that a pattern or a whole repo id is no name that never matches.
            if format!("{}/x", publisher.name).parse::<RepoId>().is_err() {
                return refuse(format!("publisher {:?}", publisher.name), "expected the owner part of repo ids");
            }
        }
        for endpoint in &self.endpoint {
            if super::decide::endpoint_key(&endpoint.url).is_none() {
                let field = format!("endpoint {:?}", endpoint.url.as_str());
                return refuse(field, "expected an http or https URL without credentials, query and fragment");
            }
        }
        if let Some(folder) = self.folder.iter().find(|folder| !folder.path.is_absolute()) {
            return refuse(format!("folder {:?}", folder.path.display().to_string()), "expected an absolute path");
        }
        for (field, terms) in self.all_terms() {
            if let Some(fault) = terms.identity.as_ref().and_then(Identity::fault) {
                return refuse(format!("{field}, identity"), fault);
            }
            if terms.from.as_ref().is_some_and(Vec::is_empty) {
                return refuse(format!("{field}, from"), "expected at least one of hub, archive, local");
            }
            if terms.from.is_some() && terms.trust != Some(true) {
                return refuse(format!("{field}, from"), "it says where `trust = true` holds, which is not there");
            }
            let is_empty =
                terms.trust.is_none() && terms.signature.is_none() && terms.keys.is_empty() && terms.identity.is_none();
            if is_empty {
                return refuse(field, "it says nothing; write trust, signature, keys or identity");
            }
        }
        Ok(())
    }

    /// A project's policy may refuse and demand, never trust.
    fn check_only_tightens(&self, path: &Path) -> Result<(), PolicyError> {
        let refuse = |field: String| Err(PolicyError::ProjectTrusts { path: path.to_path_buf(), field });
        if let Some(endpoint) = self.endpoint.first() {
            return refuse(format!("endpoint {:?}", endpoint.url.as_str()));
        }
        if let Some(folder) = self.folder.first() {
            return refuse(format!("folder {:?}", folder.path.display().to_string()));
        }
        if self.sigstore_root.is_some() {
            return refuse("sigstore_root".to_owned());
        }
        for (field, terms) in self.all_terms() {
            if terms.trust == Some(true) {
                return refuse(format!("{field}, trust"));
            }
            if !terms.keys.is_empty() {
                return refuse(format!("{field}, keys"));
            }
            if terms.identity.is_some() {
                return refuse(format!("{field}, identity"));
            }
        }
        Ok(())
    }
}
