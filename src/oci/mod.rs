//! Kernels in OCI registries.
//!
//! Owns: the reference `oci://host/path:tag`, the form of a kernel as an OCI artifact, the pull of its manifest and
//! blobs, the push of a [`Publication`](crate::pack::Publication), and logins. Refuses: the cache and the archive
//! rules, which are [`crate::fetch`]'s; every blob goes through them as if it came from any other server.
//!
//! Leaves behind: nothing of a pull but checked bytes. The sha256 of an artifact, of its kernel manifest and of every
//! layer is computed here while they arrive, whatever the registry states, and none may be longer than declared. A
//! pulled kernel names its layers by digest, so that what is recorded of it does not change when a tag moves.
//!
//! # The artifact
//! One version of a kernel is one image manifest with the artifact type [`ARTIFACT_TYPE`]:
//!
//! ```text
//! config   application/vnd.kernelhub.kernel.config.v1+json   the kernel manifest, as JSON
//! layer    application/vnd.kernelhub.variant.v1.tar+zstd     the .tar.zst of one variant; one layer for each
//! tag      v<version>
//! ```
//!
//! Its annotations name the repo, the version and the licence; those of a layer its variant and the sha256 of its
//! `metadata.json`. What the annotations say has to agree with the kernel manifest.
//!
//! # Transport and logins
//! https, but plain http for registries on this machine (`localhost` and loopback addresses), which are never asked
//! over https. Requests go without a login at first; to a registry that wants one, the user and password go that the
//! Docker config file holds for it (`$DOCKER_CONFIG/config.json`, else `~/.docker/config.json`). Helper programs are
//! not run. Logins are neither shown nor logged, and leave with no redirect to another host.
//!
//! # The design choice
//! The crate `oci-client` logs in and pushes. Pulls are made here, because it reads whole manifests and error pages
//! into memory and follows redirects out of https; the price is a second, small reader. What is left to it: it reads
//! the answer of a token server without a bound, and uploads to the address that the registry names, without a login
//! where that is another host.
//!
//! Without the feature `oci`, references are read and everything else is [`OciError::FeatureOff`].

#[cfg(feature = "oci")]
mod artifact;
#[cfg(feature = "oci")]
mod client;
#[cfg(feature = "oci")]
mod credentials;
mod error;
#[cfg(not(feature = "oci"))]
mod off;
#[cfg(feature = "oci")]
mod pull;
#[cfg(feature = "oci")]
mod push;
#[cfg(feature = "oci")]
mod redirect;
mod reference;
#[cfg(feature = "oci")]
mod session;

use std::time::Duration;

pub use error::{Login, OciError};
#[cfg(not(feature = "oci"))]
pub use off::push;
#[cfg(not(feature = "oci"))]
pub(crate) use off::{pull_blob, pull_manifest};
#[cfg(feature = "oci")]
pub(crate) use pull::{pull_blob, pull_manifest};
#[cfg(feature = "oci")]
pub use push::push;
pub use reference::OciReference;

/// The artifact type of a kernel.
pub const ARTIFACT_TYPE: &str = "application/vnd.kernelhub.kernel.v1";
/// The media type of the config: the kernel manifest, as JSON.
pub const CONFIG_MEDIA_TYPE: &str = "application/vnd.kernelhub.kernel.config.v1+json";
/// The media type of a layer: the `.tar.zst` of one variant.
pub const VARIANT_MEDIA_TYPE: &str = "application/vnd.kernelhub.variant.v1.tar+zstd";
/// Largest image manifest that is read, in bytes; the distribution specification's own bound.
pub const MAX_IMAGE_MANIFEST_BYTES: u64 = 4 << 20;

/// How to push.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushOptions {
    /// Move the version's tag when it is there already with another content. Default: false, which is an error then.
    pub replace: bool,
    /// How long to wait for a connection, and for each next piece of an answer. Default: 30 s.
    pub timeout: Duration,
}

impl Default for PushOptions {
    fn default() -> Self {
        Self { replace: false, timeout: Duration::from_secs(30) }
    }
}

/// What a push did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pushed {
    /// The artifact, by its digest.
    pub reference: OciReference,
    /// The tag that names it.
    pub tag: String,
    /// Blobs that were sent.
    pub blobs_uploaded: u32,
    /// Blobs that the registry had already.
    pub blobs_present: u32,
    /// Bytes of the blobs that were sent.
    pub bytes_uploaded: u64,
    /// Whether the tag named another content before.
    pub replaced: bool,
    /// Whether the version was there already, whole; then nothing was sent.
    pub unchanged: bool,
}
