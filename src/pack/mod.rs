//! Archives and manifests of our own packs: the writing side of [`crate::fetch`].
//!
//! Owns: `metadata.json` with the digest of every file, the `.tar.zst`, the manifest that lists it, the check that both
//! belong together before they are published, signatures by a key of one's own, folder mirrors. Refuses: the network
//! ([`crate::oci`] pushes), to build anything, and to pack what a fetch would refuse: links, unsafe names, a build
//! without `layers.toml`.
//!
//! Leaves behind: one set of files and one spec always give the same bytes; with a signature, which is never made the
//! same twice, as long as the archive stands where it is packed to. Entries are sorted, times are zero, modes are 0644
//! or 0755, owners are 0. The price is that a pack does not say when it was made; provenance belongs into the metadata.

mod archive;
mod collect;
mod error;
mod mirror;
mod publication;
#[cfg(feature = "sign")]
mod sign;
mod spec;

pub use error::PackError;
pub use mirror::Mirrored;
pub use publication::Publication;
#[cfg(feature = "sign")]
pub use sign::SigningKey;
#[cfg(feature = "oci")]
pub(crate) use spec::archive_name;
#[cfg(feature = "sign")]
pub use spec::pack_variant_signed;
pub use spec::{PackSpec, Packed, manifest, pack_variant, write_manifest};
