//! From a reference to a kernel manifest, and from a layer to its bytes.

use std::time::Duration;

use oci_client::RegistryOperation;

use super::artifact::{ACCEPT_MANIFESTS, Artifact};
use super::client::block;
use super::session::{Session, Sink};
use super::{MAX_IMAGE_MANIFEST_BYTES, OciError, OciReference};
use crate::digest::Sha256Digest;
use crate::manifest::KernelManifest;

/// The kernel manifest of an artifact, whose archives are layers named by digest.
///
/// # Errors
/// [`OciError`]; which one says what failed.
pub(crate) fn pull_manifest(reference: &OciReference, timeout: Duration) -> Result<KernelManifest, OciError> {
    let mut session = Session::new(reference, RegistryOperation::Pull, timeout)?;
    block(async {
        let (bytes, digest) = session.artifact().await?;
        let pinned = reference.pinned(digest);
        tracing::debug!(%reference, %pinned, "read an artifact");
        let artifact = Artifact::parse(&bytes, &pinned)?;
        let config = session.blob(artifact.config_sha256, artifact.config_size).await?;
        artifact.kernel(&config, &pinned)
    })
}

/// Streams a layer into `sink`, at most `limit` bytes of it. Returns the number of requests made. Its digest is for the
/// caller to check, who keeps the bytes.
///
/// # Errors
/// [`OciError`]; which one says what failed. Errors of `sink` as they are.
pub(crate) fn pull_blob<E: From<OciError> + Send>(
    reference: &OciReference,
    limit: u64,
    timeout: Duration,
    sink: Sink<'_, E>,
) -> Result<u32, E> {
    let Some(digest) = reference.digest() else {
        return Err(OciError::NoVersion { reference: reference.to_string() }.into());
    };
    let mut session = Session::new(reference, RegistryOperation::Pull, timeout)?;
    block(async {
        session.get(&format!("blobs/sha256:{digest}"), "*/*", "blob", limit, sink).await?;
        Ok(session.requests)
    })
}

impl Session {
    /// The bytes of the image manifest that the reference names, and their digest, which is the one that was asked for
    /// and the one that the registry states.
    pub(super) async fn artifact(&mut self) -> Result<(Vec<u8>, Sha256Digest), OciError> {
        let wanted = self.reference.digest();
        let name = match (wanted, self.reference.tag()) {
            (Some(digest), _) => format!("sha256:{digest}"),
            (None, Some(tag)) => tag.to_owned(),
            (None, None) => return Err(OciError::NoVersion { reference: self.reference.to_string() }),
        };
        let path = format!("manifests/{name}");
        let mut bytes = Vec::new();
        let stated = self
            .get::<OciError>(&path, ACCEPT_MANIFESTS, "artifact", MAX_IMAGE_MANIFEST_BYTES, &mut |piece| {
                bytes.extend_from_slice(piece);
                Ok(())
            })
            .await?;
        let actual = Sha256Digest::of(&bytes);
        // A registry that states a digest by another algorithm states nothing about this one.
        let stated = stated.and_then(|stated| stated.strip_prefix("sha256:")?.parse().ok());
        match [wanted, stated].into_iter().flatten().find(|expected| *expected != actual) {
            Some(expected) => {
                Err(OciError::Digest { url: self.url(&path), expected, actual, bytes: bytes.len() as u64 })
            }
            None => Ok((bytes, actual)),
        }
    }

    /// A whole blob, by its digest.
    async fn blob(&mut self, digest: Sha256Digest, size: u64) -> Result<Vec<u8>, OciError> {
        let path = format!("blobs/sha256:{digest}");
        let mut bytes = Vec::new();
        self.get::<OciError>(&path, "*/*", "blob", size, &mut |piece| {
            bytes.extend_from_slice(piece);
            Ok(())
        })
        .await?;
        let actual = Sha256Digest::of(&bytes);
        if actual != digest {
            let bytes = bytes.len() as u64;
            return Err(OciError::Digest { url: self.url(&path), expected: digest, actual, bytes });
        }
        Ok(bytes)
    }
}
