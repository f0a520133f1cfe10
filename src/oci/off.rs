//! What stands in for this room without the feature `oci`.

use std::time::Duration;

use super::{OciError, OciReference, PushOptions, Pushed};
use crate::manifest::KernelManifest;
use crate::pack::Publication;

fn off(reference: &OciReference) -> OciError {
    OciError::FeatureOff { reference: reference.to_string() }
}

/// Pushes a kernel to a registry. This program was compiled without the feature `oci`.
///
/// # Errors
/// [`OciError::FeatureOff`], always.
pub fn push(_: &Publication, target: &OciReference, _: &PushOptions) -> Result<Pushed, OciError> {
    Err(off(target))
}

pub(crate) fn pull_manifest(reference: &OciReference, _: Duration) -> Result<KernelManifest, OciError> {
    Err(off(reference))
}

pub(crate) fn pull_blob<E: From<OciError>>(
    reference: &OciReference,
    _: u64,
    _: Duration,
    _: &mut (dyn FnMut(&[u8]) -> Result<(), E> + Send),
) -> Result<u32, E> {
    Err(off(reference).into())
}
