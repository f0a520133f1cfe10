//! What several rooms' tests share.

pub(crate) mod hub;
pub(crate) mod packs;
pub(crate) mod server;
pub(crate) mod tree;
