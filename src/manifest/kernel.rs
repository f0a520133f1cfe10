//! `kernel-manifests/<name>.toml`: a kernel, its artifacts and, for Hub kernels, its layers.

use std::fmt;
use std::str::FromStr;

use reqwest::Url;
use serde::{Deserialize, Serialize};

use super::layers::check_layers;
use super::{LayerSpec, ManifestError};
use crate::digest::Sha256Digest;
use crate::names::{RelativePath, RepoId};
use crate::variant::Variant;

/// The edition of kernel manifests that this version reads and writes.
pub const MANIFEST_SCHEMA: u32 = 1;
/// Largest manifest that is read, in bytes.
pub const MAX_MANIFEST_BYTES: u64 = 1 << 20;

const FORMAT: &str = "kernel manifest";

/// A whole kernel manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelManifest {
    /// The edition; [`MANIFEST_SCHEMA`].
    pub schema: u32,
    /// Which kernel this is.
    pub kernel: KernelInfo,
    /// Its builds. Empty only where the source is the Hub, which lists its own.
    #[serde(default, rename = "artifact", skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<Artifact>,
    /// The layers it serves. Empty where each artifact carries its own `layers.toml`.
    #[serde(default, rename = "layer", skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<LayerSpec>,
}

/// The `[kernel]` table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelInfo {
    /// The repo that publishes it.
    pub repo: RepoId,
    /// Its version.
    pub version: u32,
    /// SPDX expression of its licence.
    pub license: String,
    /// One line about it. Absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Where its builds come from.
    pub source: Source,
}

/// Where a kernel's builds come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// Archives, listed in the manifest.
    Archive,
    /// The Hub's repo of the kernel.
    Hub,
}

/// One `[[artifact]]`: a `.tar.zst` with one variant's `build/<variant>/` folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Artifact {
    /// The variant in it. Unique in a manifest.
    pub variant: Variant,
    /// Where the archive is.
    pub url: ArtifactUrl,
    /// The archive's size, in bytes. A longer answer is cut off; a shorter one is an error.
    pub size: u64,
    /// The archive's digest.
    pub sha256: Sha256Digest,
    /// The digest of the `metadata.json` inside.
    pub metadata_sha256: Sha256Digest,
}

/// Where an archive is: an absolute `http:`, `https:`, `file:` or `oci:` URL, or a path beside the manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum ArtifactUrl {
    /// Absolute.
    Absolute(Url),
    /// Relative to the manifest's folder.
    Relative(RelativePath),
}

impl KernelManifest {
    /// Parses and checks a manifest. `origin` names the file or URL in errors.
    ///
    /// # Errors
    /// [`ManifestError::Toml`] for syntax, an unknown key, a missing field, or a digest, name or URL that is none;
    /// [`ManifestError::Schema`] for another edition; [`ManifestError::Invalid`] for values outside the format: an
    /// archive kernel without artifacts, a Hub kernel without layers, a variant twice, layers that
    /// [`LayersFile::parse`](super::LayersFile::parse) would refuse.
    pub fn parse(text: &str, origin: &str) -> Result<Self, ManifestError> {
        #[derive(Deserialize)]
        struct Edition {
            schema: u32,
        }
        let toml_error =
            |source| ManifestError::Toml { origin: origin.to_owned(), format: FORMAT, source: Box::new(source) };
        // The edition decides before the keys do: a newer edition has keys that this one does not know.
        let Edition { schema } = toml::from_str(text).map_err(toml_error)?;
        if schema != MANIFEST_SCHEMA {
            return Err(ManifestError::Schema {
                origin: origin.to_owned(),
                format: FORMAT,
                found: schema,
                supported: MANIFEST_SCHEMA,
            });
        }
        let manifest: Self = toml::from_str(text).map_err(toml_error)?;
        manifest.check(origin)?;
        Ok(manifest)
    }

    /// The TOML text. Parsing it gives an equal manifest.
    ///
    /// # Errors
    /// [`ManifestError::Invalid`] when this value is outside the format; see [`Self::parse`].
    pub fn to_toml(&self) -> Result<String, ManifestError> {
        let origin = format!("the manifest of {}", self.kernel.repo);
        self.check(&origin)?;
        toml::to_string(self).map_err(|error| ManifestError::Invalid {
            origin,
            field: "manifest".to_owned(),
            reason: error.to_string(),
        })
    }

    /// The artifact of a variant.
    #[must_use]
    pub fn artifact(&self, variant: &Variant) -> Option<&Artifact> {
        self.artifacts.iter().find(|artifact| artifact.variant == *variant)
    }

    /// Checks values that types cannot. `origin` names this manifest in errors.
    pub(crate) fn check(&self, origin: &str) -> Result<(), ManifestError> {
        let invalid =
            |field: String, reason: String| Err(ManifestError::Invalid { origin: origin.to_owned(), field, reason });
        match self.kernel.source {
            Source::Archive if self.artifacts.is_empty() => {
                return invalid("artifact".to_owned(), "a kernel from archives lists at least one".to_owned());
            }
            Source::Hub if !self.artifacts.is_empty() => {
                return invalid("artifact".to_owned(), "the Hub lists a Hub kernel's builds itself".to_owned());
            }
            Source::Archive | Source::Hub => {}
        }
        for (index, artifact) in self.artifacts.iter().enumerate() {
            let field = |name: &str| format!("artifact[{index}].{name}");
            if self.artifacts[..index].iter().any(|earlier| earlier.variant == artifact.variant) {
                return invalid(field("variant"), format!("{} stands twice", artifact.variant));
            }
            if artifact.size == 0 {
                return invalid(field("size"), "no archive is empty".to_owned());
            }
        }
        // An archive carries its layers in its own `layers.toml`; for a Hub kernel the manifest is the binding.
        if self.kernel.source == Source::Hub || !self.layers.is_empty() {
            check_layers(&self.layers, origin)?;
        }
        Ok(())
    }
}

/// A text that is no artifact URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an artifact URL: {value:?}: {reason}")]
pub struct UrlError {
    /// The text as it arrived.
    pub value: String,
    /// The rule that it breaks.
    pub reason: String,
}

impl ArtifactUrl {
    /// Longest URL accepted, in bytes.
    pub const MAX_BYTES: usize = 2048;
}

impl FromStr for ArtifactUrl {
    type Err = UrlError;

    fn from_str(value: &str) -> Result<Self, Self::Err> {
        let refuse = |reason: &str| Err(UrlError { value: value.to_owned(), reason: reason.to_owned() });
        if value.len() > Self::MAX_BYTES {
            return refuse("longer than 2048 bytes");
        }
        // One letter before the colon is a drive of Windows, which the path's own rules refuse.
        let scheme = value.split_once(':').map(|(scheme, _)| scheme).filter(|scheme| scheme.len() > 1);
        if scheme.is_none() {
            return value.parse().map(Self::Relative).map_err(|error: crate::names::NameError| UrlError {
                value: value.to_owned(),
                reason: error.reason.to_owned(),
            });
        }
        let Ok(url) = Url::parse(value) else { return refuse("neither a URL nor a relative path") };
        if !matches!(url.scheme(), "http" | "https" | "file" | "oci") {
            return refuse("expected http, https, file, oci or a path relative to the manifest");
        }
        // The parser resolves `..` silently; a manifest that holds one says something else than it seems to.
        let plain = value.to_ascii_lowercase().replace("%2e", ".").replace(['\\', '?', '#'], "/").replace("%2f", "/");
        if plain.split('/').any(|part| part == ".." || part == ".") {
            return refuse("a path component that is . or ..");
        }
        if !url.username().is_empty() || url.password().is_some() {
            return refuse("credentials do not belong into a manifest");
        }
        if url.fragment().is_some() {
            return refuse("a fragment");
        }
        Ok(Self::Absolute(url))
    }
}

impl TryFrom<String> for ArtifactUrl {
    type Error = UrlError;

    fn try_from(value: String) -> Result<Self, Self::Error> {
        value.parse()
    }
}

impl From<ArtifactUrl> for String {
    fn from(url: ArtifactUrl) -> Self {
        url.to_string()
    }
}

impl fmt::Display for ArtifactUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absolute(url) => f.pad(url.as_str()),
            Self::Relative(path) => f.pad(path.as_str()),
        }
    }
}
