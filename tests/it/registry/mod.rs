//! Manifests, archives, the cache and verification.

mod fetch;
mod hostile;
mod lies;
mod manifests;
mod packing;
mod publishing;
mod verify;
