//! What several rooms' tests share.

pub(crate) mod hub;
pub(crate) mod packs;
pub(crate) mod server;
#[cfg(feature = "cli")]
pub(crate) mod small_hub;
pub(crate) mod tree;
