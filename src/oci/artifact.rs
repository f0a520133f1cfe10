//! A kernel as an OCI artifact, written and read.

use std::collections::BTreeMap;

use oci_client::manifest::{OCI_IMAGE_MEDIA_TYPE, OciDescriptor, OciImageManifest};
use serde::Deserialize;

use super::{ARTIFACT_TYPE, CONFIG_MEDIA_TYPE, OciError, OciReference, VARIANT_MEDIA_TYPE};
use crate::digest::Sha256Digest;
use crate::manifest::{
    Artifact as Build, ArtifactUrl, KernelManifest, MANIFEST_SCHEMA, MAX_MANIFEST_BYTES, ManifestError, Source,
};

/// What is accepted as an answer. More than kernels, so that an image that is none can be told from nothing.
pub(super) const ACCEPT_MANIFESTS: &str = "application/vnd.oci.image.manifest.v1+json, \
     application/vnd.oci.image.index.v1+json, application/vnd.docker.distribution.manifest.v2+json, \
     application/vnd.docker.distribution.manifest.list.v2+json";

const FORMAT: &str = "kernel manifest";

const REPO: &str = "dev.kernelhub.repo";
const VERSION: &str = "org.opencontainers.image.version";
const LICENSE: &str = "org.opencontainers.image.licenses";
const DESCRIPTION: &str = "org.opencontainers.image.description";
const TITLE: &str = "org.opencontainers.image.title";
const VARIANT: &str = "dev.kernelhub.variant";
const METADATA: &str = "dev.kernelhub.metadata.sha256";

/// The artifact of a kernel: its image manifest and its config, as they are pushed. One kernel gives the same bytes
/// always: nothing in them says when or where.
pub(super) fn build(kernel: &KernelManifest, origin: &str) -> Result<(Vec<u8>, Vec<u8>), OciError> {
    let invalid = |source| OciError::Manifest { reference: origin.to_owned(), source };
    let json = |source| ManifestError::Json { origin: origin.to_owned(), format: FORMAT, source };
    let mut kernel = kernel.clone();
    for build in &mut kernel.artifacts {
        // A file name, for those who unpack the artifact by hand. Where the archive was before says nothing here.
        build.url = ArtifactUrl::Relative(file_name(&kernel.kernel, build)?);
    }
    kernel.artifacts.sort_by_key(|build| build.variant);
    kernel.check(origin).map_err(invalid)?;
    let config = serde_json::to_vec(&kernel).map_err(|source| invalid(json(source)))?;
    let layers = kernel.artifacts.iter().map(|build| {
        Ok(OciDescriptor {
            media_type: VARIANT_MEDIA_TYPE.to_owned(),
            digest: format!("sha256:{}", build.sha256),
            size: i64::try_from(build.size).map_err(|_| not_a_kernel(origin, "an archive of 8 EiB or more"))?,
            annotations: Some(layer_annotations(build)),
            ..OciDescriptor::default()
        })
    });
    let manifest = OciImageManifest {
        media_type: Some(OCI_IMAGE_MEDIA_TYPE.to_owned()),
        artifact_type: Some(ARTIFACT_TYPE.to_owned()),
        config: OciDescriptor {
            media_type: CONFIG_MEDIA_TYPE.to_owned(),
            digest: format!("sha256:{}", Sha256Digest::of(&config)),
            size: config.len().try_into().map_err(|_| not_a_kernel(origin, "a config of 8 EiB or more"))?,
            ..OciDescriptor::default()
        },
        layers: layers.collect::<Result<_, OciError>>()?,
        annotations: Some(annotations(&kernel)),
        ..OciImageManifest::default()
    };
    let manifest = serde_json::to_vec(&manifest).map_err(|source| invalid(json(source)))?;
    Ok((manifest, config))
}

fn file_name(kernel: &crate::manifest::KernelInfo, build: &Build) -> Result<crate::names::RelativePath, OciError> {
    let name = crate::pack::archive_name(&kernel.repo, kernel.version, &build.variant);
    name.parse().map_err(|error: crate::names::NameError| not_a_kernel(&name, &error.to_string()))
}

fn annotations(kernel: &KernelManifest) -> BTreeMap<String, String> {
    let info = &kernel.kernel;
    let mut annotations = BTreeMap::from([
        (REPO.to_owned(), info.repo.to_string()),
        (VERSION.to_owned(), info.version.to_string()),
        (LICENSE.to_owned(), info.license.clone()),
    ]);
    annotations.extend(info.description.clone().map(|text| (DESCRIPTION.to_owned(), text)));
    annotations
}

fn layer_annotations(build: &Build) -> BTreeMap<String, String> {
    BTreeMap::from([
        (VARIANT.to_owned(), build.variant.to_string()),
        (METADATA.to_owned(), build.metadata_sha256.to_string()),
        (TITLE.to_owned(), build.url.to_string()),
    ])
}

/// An image manifest that has the form of a kernel's.
#[derive(Debug)]
pub(super) struct Artifact {
    image: OciImageManifest,
    pub(super) config_sha256: Sha256Digest,
    /// In bytes.
    pub(super) config_size: u64,
}

impl Artifact {
    /// Reads an image manifest. `reference` names it in errors.
    pub(super) fn parse(bytes: &[u8], reference: &OciReference) -> Result<Self, OciError> {
        /// What tells kernels from other things, read first: the others may lack everything else.
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Kind {
            schema_version: u32,
            media_type: Option<String>,
            artifact_type: Option<String>,
        }
        let refuse = |reason: String| Err(not_a_kernel(&reference.to_string(), &reason));
        let kind: Kind = match serde_json::from_slice(bytes) {
            Ok(kind) => kind,
            Err(error) => return refuse(format!("not an image manifest: {error}")),
        };
        if kind.schema_version != 2 {
            return refuse(format!("expected schemaVersion 2, found {}", kind.schema_version));
        }
        // The specification lets the media type be absent.
        if let Some(found) = kind.media_type.filter(|found| found != OCI_IMAGE_MEDIA_TYPE) {
            return refuse(format!("expected the media type {OCI_IMAGE_MEDIA_TYPE}, found {found:?}"));
        }
        match kind.artifact_type {
            Some(found) if found == ARTIFACT_TYPE => {}
            Some(found) => return refuse(format!("expected the artifact type {ARTIFACT_TYPE}, found {found:?}")),
            None => return refuse(format!("expected the artifact type {ARTIFACT_TYPE}, found none: it is an image")),
        }
        let image: OciImageManifest = match serde_json::from_slice(bytes) {
            Ok(image) => image,
            Err(error) => return refuse(format!("not an image manifest: {error}")),
        };
        if image.config.media_type != CONFIG_MEDIA_TYPE {
            return refuse(format!("config: expected {CONFIG_MEDIA_TYPE}, found {:?}", image.config.media_type));
        }
        let Some((config_sha256, config_size)) = content(&image.config).filter(|(_, size)| *size <= MAX_MANIFEST_BYTES)
        else {
            return refuse(format!(
                "config: expected a sha256 digest and a size of at most {MAX_MANIFEST_BYTES} bytes, found {:?} and {}",
                image.config.digest, image.config.size
            ));
        };
        Ok(Self { image, config_sha256, config_size })
    }

    /// The kernel manifest in the config, checked against the layers, which its archives are from now on.
    pub(super) fn kernel(&self, config: &[u8], reference: &OciReference) -> Result<KernelManifest, OciError> {
        let mut kernel = parse_config(config, reference)?;
        let refuse = |reason: String| Err(not_a_kernel(&reference.to_string(), &reason));
        if kernel.kernel.source != Source::Archive {
            return refuse("its manifest says that its builds are on the Hub".to_owned());
        }
        let empty = BTreeMap::new();
        let found = self.image.annotations.as_ref().unwrap_or(&empty);
        if let Some(reason) = difference(&annotations(&kernel), found, &[REPO, VERSION, LICENSE]) {
            return refuse(reason);
        }
        if self.image.layers.len() != kernel.artifacts.len() {
            let (expected, found) = (kernel.artifacts.len(), self.image.layers.len());
            return refuse(format!("its manifest lists {expected} builds, and it has {found} layers"));
        }
        for build in &mut kernel.artifacts {
            let of_build = |layer: &&OciDescriptor| content(layer) == Some((build.sha256, build.size));
            let Some(layer) = self.image.layers.iter().find(of_build) else {
                let Build { variant, sha256, size, .. } = build;
                return refuse(format!("no layer is the archive of {variant}, sha256 {sha256} of {size} bytes"));
            };
            if layer.media_type != VARIANT_MEDIA_TYPE {
                return refuse(format!("layer: expected {VARIANT_MEDIA_TYPE}, found {:?}", layer.media_type));
            }
            let found = layer.annotations.as_ref().unwrap_or(&empty);
            if let Some(reason) = difference(&layer_annotations(build), found, &[VARIANT, METADATA]) {
                return refuse(reason);
            }
            let url = reference.pinned(build.sha256).to_string();
            build.url = match url.parse() {
                Ok(url) => url,
                Err(error) => return refuse(format!("{error}")),
            };
        }
        Ok(kernel)
    }
}

/// The digest and the size of what a descriptor names. `None` for a digest by another algorithm or a negative size.
fn content(descriptor: &OciDescriptor) -> Option<(Sha256Digest, u64)> {
    let digest = descriptor.digest.strip_prefix("sha256:")?.parse().ok()?;
    Some((digest, descriptor.size.try_into().ok()?))
}

/// The first annotation that is not what the manifest says.
fn difference(expected: &BTreeMap<String, String>, found: &BTreeMap<String, String>, keys: &[&str]) -> Option<String> {
    let differs = |key: &&&str| expected.get(**key) != found.get(**key);
    let key = *keys.iter().find(differs)?;
    let shown =
        |map: &BTreeMap<String, String>| map.get(key).map_or_else(|| "none".to_owned(), |text| format!("{text:?}"));
    Some(format!("annotation {key}: its manifest says {}, found {}", shown(expected), shown(found)))
}

fn parse_config(text: &[u8], reference: &OciReference) -> Result<KernelManifest, OciError> {
    #[derive(Deserialize)]
    struct Edition {
        schema: u32,
    }
    let origin = reference.to_string();
    let invalid = |source| OciError::Manifest { reference: origin.clone(), source };
    let json = |source| invalid(ManifestError::Json { origin: origin.clone(), format: FORMAT, source });
    // The edition decides before the keys do: a newer edition has keys that this one does not know.
    let Edition { schema: found } = serde_json::from_slice(text).map_err(json)?;
    if found != MANIFEST_SCHEMA {
        let (origin, supported) = (origin.clone(), MANIFEST_SCHEMA);
        return Err(invalid(ManifestError::Schema { origin, format: FORMAT, found, supported }));
    }
    let kernel: KernelManifest = serde_json::from_slice(text).map_err(json)?;
    kernel.check(&origin).map_err(invalid)?;
    Ok(kernel)
}

fn not_a_kernel(reference: &str, reason: &str) -> OciError {
    OciError::NotAKernel { reference: reference.to_owned(), reason: reason.to_owned() }
}
