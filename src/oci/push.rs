//! From a publication to a registry.

use std::io::Read as _;
use std::path::Path;

use bytes::Bytes;
use futures_util::stream;
use oci_client::errors::OciDistributionError;
use oci_client::manifest::OCI_IMAGE_MEDIA_TYPE;
use oci_client::{Client, RegistryOperation};
use reqwest::header::HeaderValue;

use super::client::{block_push, client, client_reference, protocol, token};
use super::session::Session;
use super::{OciError, OciReference, PushOptions, Pushed, artifact, credentials};
use crate::digest::Sha256Digest;
use crate::pack::Publication;
use crate::regular;

/// How much of a file is sent at a time, in bytes.
const PIECE_BYTES: usize = 256 << 10;

/// Pushes a kernel to a registry as the tag `v<version>`: first the blobs that the registry does not have, then the
/// artifact, which is read back and compared.
///
/// A version that is there already with the same content is left as it is. A registry cannot compare and move a tag in
/// one step, so that of two machines that push one new version at the same time, the later one wins.
///
/// # Errors
/// [`OciError::WrongTag`] for a target with another tag than the version's, or with a digest; [`OciError::Conflict`]
/// when the version is there with another content and `options.replace` is false; the errors of a transfer, a login and
/// of reading the archives.
pub fn push(publication: &Publication, target: &OciReference, options: &PushOptions) -> Result<Pushed, OciError> {
    let kernel = publication.manifest();
    let tagged = target.version(kernel.kernel.version);
    let expected = tagged.tag().unwrap_or_default().to_owned();
    if target.digest().is_some() || target.tag().is_some_and(|tag| tag != expected) {
        return Err(OciError::WrongTag { reference: target.to_string(), expected });
    }
    let (manifest, config) = artifact::build(kernel, &tagged.to_string())?;
    let digest = Sha256Digest::of(&manifest);
    let mut pushed = Pushed {
        reference: target.pinned(digest),
        tag: expected,
        blobs_uploaded: 0,
        blobs_present: 0,
        bytes_uploaded: 0,
        replaced: false,
        unchanged: false,
    };
    let mut session = Session::new(&tagged, RegistryOperation::Push, options.timeout)?;
    block_push(&tagged, async {
        match session.artifact().await {
            Ok((_, existing)) if existing == digest => {
                pushed.unchanged = true;
                pushed.blobs_present = u32::try_from(publication.archives().len() + 1).unwrap_or(u32::MAX);
                return Ok(());
            }
            Ok((_, existing)) if !options.replace => {
                return Err(OciError::Conflict { reference: tagged.to_string(), existing, pushed: digest });
            }
            Ok(_) => pushed.replaced = true,
            Err(OciError::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
        let upload = Upload::start(&tagged, options).await?;
        for (build, path) in kernel.artifacts.iter().zip(publication.archives()) {
            upload.archive(path, build.sha256, build.size, &mut pushed).await?;
        }
        upload.config(config, &mut pushed).await?;
        upload.manifest(manifest).await?;
        let (_, found) = session.artifact().await?;
        if found != digest {
            return Err(OciError::Conflict { reference: tagged.to_string(), existing: found, pushed: digest });
        }
        Ok(())
    })?;
    Ok(pushed)
}

/// The client, logged in for pushing.
struct Upload<'a> {
    client: Client,
    reference: &'a OciReference,
    login: super::Login,
}

impl<'a> Upload<'a> {
    async fn start(reference: &'a OciReference, options: &PushOptions) -> Result<Self, OciError> {
        let client = client(reference, options.timeout)?;
        let credentials = credentials::find(reference.registry())?;
        // A registry may be read by everyone and still want a login for this.
        token(&client, reference, &credentials, RegistryOperation::Push).await?;
        Ok(Self { client, reference, login: credentials.login })
    }

    async fn archive(&self, path: &Path, digest: Sha256Digest, size: u64, pushed: &mut Pushed) -> Result<(), OciError> {
        if self.exists(digest).await? {
            pushed.blobs_present += 1;
            return Ok(());
        }
        let failed = |source| OciError::Io { action: "read", path: path.to_path_buf(), source };
        let file = regular::open(path).map_err(failed)?;
        let pieces = stream::try_unfold(file, |mut file| async move {
            let mut piece = vec![0; PIECE_BYTES];
            let read = file.read(&mut piece).map_err(OciDistributionError::IoError)?;
            piece.truncate(read);
            Ok(if read == 0 { None } else { Some((Bytes::from(piece), file)) })
        });
        self.send(pieces, digest, size, pushed).await
    }

    async fn config(&self, config: Vec<u8>, pushed: &mut Pushed) -> Result<(), OciError> {
        let (digest, size) = (Sha256Digest::of(&config), config.len() as u64);
        if self.exists(digest).await? {
            pushed.blobs_present += 1;
            return Ok(());
        }
        self.send(stream::iter([Ok(Bytes::from(config))]), digest, size, pushed).await
    }

    async fn exists(&self, digest: Sha256Digest) -> Result<bool, OciError> {
        self.client
            .blob_exists(&client_reference(self.reference), &format!("sha256:{digest}"))
            .await
            .map_err(|error| self.failed("the question for a blob", error))
    }

    async fn send(
        &self,
        pieces: impl futures_util::Stream<Item = Result<Bytes, OciDistributionError>> + Send + 'static,
        digest: Sha256Digest,
        size: u64,
        pushed: &mut Pushed,
    ) -> Result<(), OciError> {
        // As a stream even where the bytes are in memory: the other way does not check where it is sent to.
        self.client
            .push_blob_stream(&client_reference(self.reference), pieces, &format!("sha256:{digest}"), Some(size))
            .await
            .map_err(|error| self.failed("a blob", error))?;
        pushed.blobs_uploaded += 1;
        pushed.bytes_uploaded += size;
        Ok(())
    }

    async fn manifest(&self, manifest: Vec<u8>) -> Result<(), OciError> {
        self.client
            .push_manifest_raw(
                &client_reference(self.reference),
                manifest,
                HeaderValue::from_static(OCI_IMAGE_MEDIA_TYPE),
            )
            .await
            .map_err(|error| self.failed("the artifact", error))?;
        Ok(())
    }

    fn failed(&self, action: &'static str, error: OciDistributionError) -> OciError {
        let refused = match &error {
            OciDistributionError::UnauthorizedError { .. } => true,
            OciDistributionError::ServerError { code, .. } => matches!(code, 401 | 403),
            OciDistributionError::RequestError(error) => {
                error.status().is_some_and(|status| matches!(status.as_u16(), 401 | 403))
            }
            _ => false,
        };
        if refused {
            return OciError::Unauthorized { registry: self.reference.registry().to_owned(), login: self.login };
        }
        protocol(self.reference, action, error)
    }
}
