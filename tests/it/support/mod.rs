//! What several rooms' tests share.

pub(crate) mod allocations;
pub(crate) mod elf;
pub(crate) mod embedded;
pub(crate) mod hub;
pub(crate) mod native;
pub(crate) mod packs;
pub(crate) mod server;
pub(crate) mod sigstore;
pub(crate) mod tree;
pub(crate) mod trust;
