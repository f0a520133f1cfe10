//! `kernelhub.lock`: what we know about locked kernels beyond `kernels.lock`.
//!
//! Written and read by this program only, so that an unknown key is an error. It says what each build's bytes are; it
//! never says whom to trust or which server to ask with credentials: a project's file has no say in that.
//!
//! ```toml
//! schema = 1
//!
//! [[kernel]]
//! repo = "kernels-community/activation"
//! version = 1
//! source = "hub"
//! commit = "<40 or 64 hex>"
//!
//! [[kernel.build]]
//! variant = "torch213-cxx11-cu130-x86_64-linux"
//! hash = "sha256-<64 hex>"
//! metadata_sha256 = "<64 hex>"
//!
//! [[kernel]]
//! repo = "kernelhub/rmsnorm"
//! version = 1
//! source = "archive"
//! license = "Apache-2.0"
//!
//! [[kernel.artifact]]
//! variant = "wgsl-universal"
//! url = "https://example.org/rmsnorm-wgsl-universal.tar.zst"
//! size = 2345
//! sha256 = "<64 hex>"
//! metadata_sha256 = "<64 hex>"
//! ```

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{Artifact, Commit, KernelInfo, KernelManifest, KernelVersion, MANIFEST_SCHEMA, ManifestError, Source};
use super::{KernelLock, VariantHash};
use crate::digest::Sha256Digest;
use crate::names::{RelativePath, RepoId};
use crate::variant::Variant;

/// The file's name.
pub const SIDECAR_FILE: &str = "kernelhub.lock";
/// The edition of the sidecar that this version reads and writes.
pub const SIDECAR_SCHEMA: u32 = 1;

const FORMAT: &str = "kernelhub.lock";
const HEAD: &str = "# Written by `kernelhub lock`; not meant to be edited.\n";

/// A whole sidecar.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LockSidecar {
    /// The locked kernels, sorted by repo, then version.
    pub kernels: Vec<PinnedKernel>,
}

/// One locked kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinnedKernel {
    /// The kernel's repo.
    pub repo: RepoId,
    /// What was asked for when it was locked.
    pub version: KernelVersion,
    /// SPDX expression of its licence, as its metadata states it. Absent: it states none.
    pub license: Option<String>,
    /// What it is pinned to.
    pub pin: Pin,
}

/// What a kernel is pinned to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pin {
    /// A commit of the Hub's repo. It stands in `kernels.lock` too.
    Hub {
        /// The commit.
        commit: Commit,
        /// The locked builds, sorted by variant.
        builds: Vec<HubBuild>,
    },
    /// Archives, which have no commit and no place in `kernels.lock`. Sorted by variant.
    Archive(Vec<Artifact>),
}

/// One `[[kernel.build]]`: a build in the Hub's repo.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HubBuild {
    /// Its variant.
    pub variant: Variant,
    /// The hash over its files' paths and object ids, as the older edition of `kernels.lock` has it.
    #[serde(with = "hash_text")]
    pub hash: VariantHash,
    /// The digest of its `metadata.json`.
    pub metadata_sha256: Sha256Digest,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: u32,
    #[serde(default, rename = "kernel", skip_serializing_if = "Vec::is_empty")]
    kernels: Vec<Entry>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    repo: RepoId,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<String>,
    source: Source,
    #[serde(skip_serializing_if = "Option::is_none")]
    commit: Option<Commit>,
    #[serde(skip_serializing_if = "Option::is_none")]
    license: Option<String>,
    #[serde(default, rename = "build", skip_serializing_if = "Vec::is_empty")]
    builds: Vec<HubBuild>,
    #[serde(default, rename = "artifact", skip_serializing_if = "Vec::is_empty")]
    artifacts: Vec<Artifact>,
}

impl LockSidecar {
    /// Reads a sidecar. `origin` names the file in errors.
    ///
    /// # Errors
    /// [`ManifestError::TooLarge`]; [`ManifestError::Toml`] for syntax, an unknown key, and a name, commit, digest or
    /// URL that is none; [`ManifestError::Schema`] for another edition; [`ManifestError::Invalid`] for what does not
    /// belong to the kernel's source; [`ManifestError::Ambiguous`] for a kernel or a variant that stands twice.
    pub fn parse(text: &str, origin: &str) -> Result<Self, ManifestError> {
        #[derive(Deserialize)]
        struct Edition {
            schema: u32,
        }
        let actual = text.len() as u64;
        if actual > super::MAX_LOCK_BYTES {
            let (origin, maximum) = (origin.to_owned(), super::MAX_LOCK_BYTES);
            return Err(ManifestError::TooLarge { origin, format: FORMAT, maximum, actual });
        }
        let toml_error =
            |source| ManifestError::Toml { origin: origin.to_owned(), format: FORMAT, source: Box::new(source) };
        let Edition { schema } = toml::from_str(text).map_err(toml_error)?;
        if schema != SIDECAR_SCHEMA {
            let origin = origin.to_owned();
            return Err(ManifestError::Schema { origin, format: FORMAT, found: schema, supported: SIDECAR_SCHEMA });
        }
        let File { kernels, .. } = toml::from_str(text).map_err(toml_error)?;
        let kernels = kernels.into_iter().enumerate().map(|(index, entry)| entry.pinned(origin, index));
        let mut sidecar = Self { kernels: kernels.collect::<Result<_, _>>()? };
        sidecar.sort();
        sidecar.check(origin)?;
        Ok(sidecar)
    }

    /// The text, one for each value.
    ///
    /// # Errors
    /// [`ManifestError::Ambiguous`] and [`ManifestError::Invalid`] when this value is outside the format.
    pub fn to_toml(&self) -> Result<String, ManifestError> {
        let mut sorted = self.clone();
        sorted.sort();
        sorted.check(FORMAT)?;
        let file = File { schema: SIDECAR_SCHEMA, kernels: sorted.kernels.into_iter().map(Entry::from).collect() };
        let text = toml::to_string(&file).map_err(|error| invalid(FORMAT, FORMAT, error.to_string()))?;
        Ok(format!("{HEAD}{text}"))
    }

    /// The kernel that an entry of `kernels.lock` is about.
    ///
    /// # Errors
    /// [`ManifestError::Ambiguous`] when it is pinned to another commit here.
    pub fn pinned<'a>(&'a self, kernel: &KernelLock, origin: &str) -> Result<Option<&'a PinnedKernel>, ManifestError> {
        let same = |pinned: &&PinnedKernel| {
            pinned.repo == kernel.repo && kernel.version.as_ref().is_none_or(|version| *version == pinned.version)
        };
        let on_hub = |pinned: &&PinnedKernel| matches!(pinned.pin, Pin::Hub { .. });
        let Some(pinned) = self.kernels.iter().filter(on_hub).find(same) else { return Ok(None) };
        match &pinned.pin {
            Pin::Hub { commit, .. } if *commit != kernel.commit => Err(ManifestError::Ambiguous {
                origin: origin.to_owned(),
                what: kernel.to_string(),
                first: format!("{} in {}", kernel.commit, super::LOCK_FILE),
                second: format!("{commit} in {SIDECAR_FILE}"),
            }),
            _ => Ok(Some(pinned)),
        }
    }

    fn sort(&mut self) {
        self.kernels.sort_by(|a, b| (&a.repo, &a.version).cmp(&(&b.repo, &b.version)));
        for kernel in &mut self.kernels {
            match &mut kernel.pin {
                Pin::Hub { builds, .. } => builds.sort(),
                Pin::Archive(artifacts) => artifacts.sort_by_key(|artifact| artifact.variant),
            }
        }
    }

    /// Whether each kernel and each of its variants stands once.
    fn check(&self, origin: &str) -> Result<(), ManifestError> {
        for (index, kernel) in self.kernels.iter().enumerate() {
            let fold = |kernel: &PinnedKernel| RelativePath::fold(&kernel.repo.to_string());
            let rival = self.kernels[..index].iter().find(|earlier| {
                fold(earlier) == fold(kernel) && (earlier.repo != kernel.repo || earlier.version == kernel.version)
            });
            if let Some(rival) = rival {
                return Err(ManifestError::Ambiguous {
                    origin: origin.to_owned(),
                    what: format!("{}@{}", kernel.repo, kernel.version),
                    first: format!("{} from {}", rival.repo, rival.pin),
                    second: format!("{} from {}", kernel.repo, kernel.pin),
                });
            }
            let mut seen = BTreeSet::new();
            if let Some(twice) = kernel.variants().find(|variant| !seen.insert(*variant)) {
                return Err(invalid(
                    origin,
                    format!("{}@{}", kernel.repo, kernel.version),
                    format!("the variant {twice} stands twice"),
                ));
            }
            if matches!(kernel.pin, Pin::Archive(_)) {
                let Some(manifest) = kernel.manifest() else {
                    let field = format!("{}@{}", kernel.repo, kernel.version);
                    return Err(invalid(origin, field, "a kernel from archives has a version and a licence"));
                };
                manifest.check(origin)?;
            }
        }
        Ok(())
    }
}

impl std::fmt::Display for Pin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Hub { commit, .. } => write!(f, "the Hub at {commit}"),
            Self::Archive(artifacts) => write!(f, "{} archives", artifacts.len()),
        }
    }
}

impl PinnedKernel {
    /// The locked variants.
    pub fn variants(&self) -> impl Iterator<Item = Variant> {
        let (builds, artifacts): (&[HubBuild], &[Artifact]) = match &self.pin {
            Pin::Hub { builds, .. } => (builds, &[]),
            Pin::Archive(artifacts) => (&[], artifacts),
        };
        builds.iter().map(|build| build.variant).chain(artifacts.iter().map(|artifact| artifact.variant))
    }

    /// The manifest of a kernel from archives: what the fetcher takes. `None` for a kernel of the Hub, and for one that
    /// lacks a version or a licence, which no lock does.
    #[must_use]
    pub fn manifest(&self) -> Option<KernelManifest> {
        let (Pin::Archive(artifacts), KernelVersion::Version(version), Some(license)) =
            (&self.pin, &self.version, &self.license)
        else {
            return None;
        };
        Some(KernelManifest {
            schema: MANIFEST_SCHEMA,
            kernel: KernelInfo {
                repo: self.repo.clone(),
                version: *version,
                license: license.clone(),
                description: None,
                source: Source::Archive,
            },
            artifacts: artifacts.clone(),
            layers: Vec::new(),
        })
    }
}

impl Entry {
    fn pinned(self, origin: &str, index: usize) -> Result<PinnedKernel, ManifestError> {
        let field = |name: &str| format!("kernel[{index}].{name}");
        let refuse = |name: &str, reason: &str| Err(invalid(origin, field(name), reason));
        let version = match (self.version, self.revision) {
            (Some(version), None) => KernelVersion::Version(version),
            (None, Some(revision)) => KernelVersion::revision(&revision)
                .map_err(|error| invalid(origin, field("revision"), error.to_string()))?,
            (Some(_), Some(_)) => return refuse("revision", "`version` and `revision` exclude each other"),
            (None, None) => return refuse("version", "expected `version` or `revision`"),
        };
        let pin = match (self.source, self.commit) {
            (Source::Hub, Some(commit)) if self.artifacts.is_empty() => Pin::Hub { commit, builds: self.builds },
            (Source::Hub, Some(_)) => return refuse("artifact", "a kernel of the Hub has builds, no archives"),
            (Source::Hub, None) => return refuse("commit", "a kernel of the Hub is pinned to one"),
            (Source::Archive, Some(_)) => return refuse("commit", "archives have none"),
            (Source::Archive, None) if !self.builds.is_empty() => {
                return refuse("build", "a kernel from archives has artifacts");
            }
            (Source::Archive, None) => Pin::Archive(self.artifacts),
        };
        Ok(PinnedKernel { repo: self.repo, version, license: self.license, pin })
    }
}

impl From<PinnedKernel> for Entry {
    fn from(kernel: PinnedKernel) -> Self {
        let (version, revision) = match kernel.version {
            KernelVersion::Version(version) => (Some(version), None),
            KernelVersion::Revision(revision) => (None, Some(revision)),
        };
        let (source, commit, builds, artifacts) = match kernel.pin {
            Pin::Hub { commit, builds } => (Source::Hub, Some(commit), builds, Vec::new()),
            Pin::Archive(artifacts) => (Source::Archive, None, Vec::new(), artifacts),
        };
        Self { repo: kernel.repo, version, revision, source, commit, license: kernel.license, builds, artifacts }
    }
}

fn invalid(origin: &str, field: impl Into<String>, reason: impl Into<String>) -> ManifestError {
    ManifestError::Invalid { origin: origin.to_owned(), field: field.into(), reason: reason.into() }
}

/// `sha256-<hex>` as a string.
mod hash_text {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    use super::VariantHash;

    pub(super) fn serialize<S: Serializer>(hash: &VariantHash, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(hash)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<VariantHash, D::Error> {
        let text = String::deserialize(deserializer)?;
        VariantHash::parse(&text)
            .ok_or_else(|| D::Error::custom("expected sha256- and 64 lower-case hexadecimal digits"))
    }
}
