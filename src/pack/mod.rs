//! Archives and manifests of our own packs: the writing side of [`crate::fetch`].
//!
//! Owns: `metadata.json` with the digest of every file, the `.tar.zst`, the manifest that lists it, the check that both
//! belong together before they are published, folder mirrors. Refuses: the network ([`crate::oci`] pushes), to build
//! anything, and to pack what a fetch would refuse: links, unsafe names, a build without `layers.toml`.
//!
//! Leaves behind: one set of files and one spec always give the same bytes. Entries are sorted, times are zero, modes
//! are 0644 or 0755, owners are 0. The price is that a pack does not say when it was made; provenance belongs into the metadata.

mod archive;
mod collect;
mod error;
mod mirror;
mod publication;
mod spec;

pub use error::PackError;
pub use mirror::Mirrored;
pub use publication::Publication;
#[cfg(feature = "oci")]
pub(crate) use spec::archive_name;
pub use spec::{PackSpec, Packed, manifest, pack_variant, write_manifest};
